"""A terminal in a directory where the parcel service is installed, beside a depot that answers."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.cli.root import run
from harken.services import registry
from tests.credentials.parcel_server import Depot, install

WATCH = """\
name: watch
trigger:
  poll: {integration: INTEGRATION, interval: 10s, query: {depots: [north, south]}}
steps:
  - {id: note, action: transform, set: {text: seen}}
"""


class Terminal:
    def __init__(
        self, directory: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.directory = directory
        self.depot = depot
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def watches(self, integration: str) -> None:
        self.write("workflows/watch.yaml", WATCH.replace("INTEGRATION", integration))

    async def types(self, *args: str, stdin: str = "") -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        self._capsys.readouterr()  # what a controller in this process has logged
        code = await asyncio.to_thread(run, ["--config", str(self.directory), *args])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    async def json(self, *args: str) -> Any:
        code, out, err = await self.types(*args, "--json")
        assert code in (0, 1), err
        return json.loads(out)

    async def configures(self, name: str, *args: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Store the right token, given on standard input, for the depot's own address."""
        where = ("--base-url", self.depot.url, "--allow-private-networks", "--user", "ada@example.org")
        given = self.depot.token + "\n" if stdin is None else stdin
        return await self.types("integrations", name, "configure", "--token", "-", *where, *args, stdin=given)


@asynccontextmanager
async def at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Terminal]:
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HARKEN_KEYRING", "off")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    registry.cache_clear()
    directory = tmp_path / "site"
    directory.mkdir()
    depot = Depot()
    async with depot.serve():
        yield Terminal(directory, depot, monkeypatch, capsys)
    registry.cache_clear()
