"""What docs/how-to/use-the-api.md shows is what happens."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.server import Served

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "use-the-api.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_every_command_of_the_page_works(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"), served.office.incident("INC-2"))
    script = "\n".join(COMMANDS).replace("127.0.0.1:9091", f"127.0.0.1:{served.port}")
    environ = {**os.environ, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", script], capture_output=True, text=True, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"fix":"Did you mean oncall?"' in done.stdout


async def test_the_program_of_the_page_works(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    [program] = PROGRAMS
    # it is our own page
    await asyncio.to_thread(exec, program.replace("127.0.0.1:9091", f"127.0.0.1:{served.port}"), {})
    assert "'urgency': 'high'" in capsys.readouterr().out
