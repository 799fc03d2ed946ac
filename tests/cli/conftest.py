from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harken.cli.root import run
from tests.api.server import Served, serving
from tests.operate.operator_world import Office, opened


class Desk:
    """A terminal beside a running controller."""

    def __init__(self, served: Served, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.office: Office = served.office
        self.engine = served.office.engine
        self.served = served
        self.directory = directory
        self._capsys = capsys

    async def types(self, *args: str) -> tuple[int, str, str]:
        """Run a command line; its exit code, output and errors."""
        code = await asyncio.to_thread(run, ["--config", str(self.directory), *args])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    async def json(self, *args: str) -> Any:
        code, out, err = await self.types(*args, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
async def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Desk]:
    async with opened(tmp_path) as office, serving(office) as served:
        written = {"pid": os.getpid(), "url": served.controller.url}
        (tmp_path / "harken.db.run.json").write_text(json.dumps(written))
        yield Desk(served, tmp_path, capsys)
