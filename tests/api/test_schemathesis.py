"""schemathesis with all its checks, also stateful, on a real server: what the specification says is what happens.

HARKEN_SOAK=1 gives it more examples.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.server import Served

CONFIG = Path(__file__).parent / "schemathesis.toml"
COMMAND = Path(sys.executable).with_name("st")
SOAK = os.environ.get("HARKEN_SOAK") == "1"
PHASES = "examples,coverage,fuzzing,stateful" if SOAK else "examples,coverage,stateful"
LEFT_OUT = (
    # writes where it is told to
    "store.backup",
    # they do not end
    "events.tail",
    "runs.tail",
    # they ask other services
    "models.test",
    "integrations.whoami",
    "integrations.test",
)


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which(COMMAND) is None, reason="schemathesis is not installed")
async def test_schemathesis_finds_nothing(served: Served, tmp_path: Path) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    command = [
        str(COMMAND), "--config-file", str(CONFIG), "run", f"http://127.0.0.1:{served.port}/api/openapi.json",
        "--checks", "all", "--generation-deterministic", "--no-shrink", "--no-color", "--warnings", "off",
        "--phases", PHASES, "--max-examples", "100" if SOAK else "2", "--request-timeout", "60",
    ]  # fmt: skip
    # the guard against forms stands before everything else, also before the question which methods a path has
    command += ["--header", "Content-Type: application/json"]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    environ = {**os.environ, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environ, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout[-200_000:]
