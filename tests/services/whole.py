"""The whole engine on virtual time, without its door: for tests of a service from its configuration to its runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harken.app import App
from harken.app.home import alone
from harken.operate.check import load_directory
from harken.stores.sqlite import SqliteStore
from harken.testing import VirtualClock


@asynccontextmanager
async def running(directory: Path, clock: VirtualClock) -> AsyncIterator[App]:
    """Started on a configuration without findings, and stopped at the end of the block."""
    loaded = load_directory(directory, {})
    assert loaded.findings == (), [str(finding) for finding in loaded.findings]
    app = App(loaded, alone(SqliteStore.at(directory / "harken.db", clock, inline=True)), clock)
    await app.begin()
    yield app
    await app.stop()
    await app.store.close()
