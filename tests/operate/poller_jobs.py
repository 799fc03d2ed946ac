"""Jobs that read meters, written as people write them, for an engine on virtual time or on the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.app.store import opened_store
from harken.backends.sqlite import SqliteStore
from harken.operate.load_and_check_configuration import load_directory
from harken.services import registry
from harken.testing import VirtualClock
from tests.operate.counting_service import install, readings

HEAD = "pollers:\n  default_jitter_ms: 0\n  jobs:\n"


def job(id: str, *, agent: str = "ana", kind: str = "meter", every: int = 1, more: str = "", **settings: Any) -> str:
    """One job that shows something new with each `every`th read and delivers to the meter's own door."""
    schedule = settings.get("schedule", "{every_secs: 60}")
    config = f"{{name: {id}, every: {every}, deliver: {{channel: meter, to: me}}}}"
    return f"    - {{id: {id}, kind: {kind}, agent: {agent}, schedule: {schedule}, config: {config}{more}}}\n"


def write(directory: Path, *jobs: str) -> None:
    (directory / "pollers.yaml").write_text(HEAD + "".join(jobs))


@contextmanager
def metered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for a configuration, on a machine where the meter is installed."""
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    registry.cache_clear()
    readings.clear()
    directory = tmp_path / "agency"
    directory.mkdir()
    yield directory
    registry.cache_clear()


class Agency:
    """An engine on virtual time. It is stopped and started again with `down` and `up`."""

    def __init__(self, directory: Path, clock: VirtualClock) -> None:
        self.directory = directory
        self.clock = clock

    def writes(self, *jobs: str) -> None:
        write(self.directory, *jobs)

    async def up(self) -> None:
        store = SqliteStore.at(self.directory / "harken.db", self.clock, inline=True)
        self.app = App(load_directory(self.directory), opened_store(store), self.clock)
        self.pollers = self.app.operator.pollers
        await self.app.begin()

    async def down(self) -> None:
        await self.app.stop()
        await self.app.store.close()

    async def ask(self, operation: str, **params: Any) -> Any:
        return await self.app.operator.call(operation, **params)

    async def rows(self) -> Mapping[str, Any]:
        return {row["id"]: row for row in await self.pollers.list()}


@asynccontextmanager
async def at_work(directory: Path, clock: VirtualClock, *jobs: str) -> AsyncIterator[Agency]:
    agency = Agency(directory, clock)
    agency.writes(*jobs)
    await agency.up()
    yield agency
    await agency.down()
