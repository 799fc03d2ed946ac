"""A whole Harken on virtual time: it is started, stopped and killed within one test, against servers on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harken.app import App
from harken.app.store import opened_store
from harken.backends.sqlite import SqliteStore
from harken.operate.load_and_check_configuration import load_directory
from harken.runs import Run
from harken.testing import VirtualClock
from harken.testing.fakes import Listing
from harken.timings import Timings

FEED = """\
  {name}:
    integration: {integration}
    interval: {interval}
    query: {{url: "{url}", items_path: items, time_field: created_at, allow_private_networks: true{more}}}
"""
ACCOUNT = "  {name}: {{kind: json, allow_private_networks: true{more}}}\n"
PAGES = ", paging: {offset: {size: 40}, more: more}"


def feed(name: str, url: str, *, integration: str = "json", interval: str = "60s", more: str = "") -> str:
    return FEED.format(name=name, integration=integration, interval=interval, url=url, more=more)


def configured(*feeds: str, integrations: str = "") -> str:
    head = f"integrations:\n{integrations}" if integrations else ""
    return f"store: harken.db\n{head}feeds:\n{''.join(feeds)}"


class House:
    """Where one Harken lives: the directory and the clock stay when it dies."""

    def __init__(self, directory: Path, clock: VirtualClock, timings: Timings = Timings()) -> None:
        self.directory = directory
        self.clock = clock
        self._timings = timings

    async def up(self) -> App:
        loaded = load_directory(self.directory)
        self.store = store = SqliteStore.at(loaded.store, self.clock, inline=True)
        self._before = asyncio.all_tasks()
        self.app = App(loaded, opened_store(store), self.clock, timings=self._timings)
        await self.app.begin()
        return self.app

    async def down(self) -> None:
        """Stop it politely."""
        await self.app.stop()
        await self.app.store.close()

    async def die(self) -> None:
        """As kill -9 does: nothing is flushed, nobody is told."""
        self.app.intake.scheduler.stop()
        self.app.intake._stopping = True
        mine = [task for task in asyncio.all_tasks() if task.get_name() in self._names() or task in self._tasks()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        self.store.abandon()
        await self.app.factory.http.close()

    def _tasks(self) -> set[asyncio.Task[Any]]:
        return {*self.app._tasks, *self.app.intake._running}

    def _names(self) -> set[str]:
        return {"settle", "refresh"}

    async def ask(self, operation: str, **params: Any) -> Any:
        return await self.app.operator.call(operation, **params)

    async def runs(self, trigger: str) -> list[Run]:
        """The trigger's runs in the order in which they were asked for."""
        found = (await self.app.store.runs(trigger=trigger, limit=1000)).items
        return list(reversed(found))

    async def fired(self, trigger: str) -> list[str]:
        return [key for run in await self.runs(trigger) for key in run.event_keys]


@asynccontextmanager
async def listing(clock: VirtualClock, **options: Any) -> AsyncIterator[Listing]:
    made = Listing(clock, **options)
    async with made.serve():
        yield made
