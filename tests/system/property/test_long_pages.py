"""A crash between the parts of a long page neither loses nor doubles anything, on all three stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harken.event import Event
from harken.feed import Feed, Trigger
from harken.ingest.intake import Intake
from harken.ingest.partly_committed_page import stored_position
from harken.match.compiled_rules import PART_EVENTS
from harken.schedule import Every
from harken.source import Batch
from harken.store import Definitions
from harken.testing import VirtualClock
from harken.testing.crashing import Crash, CrashingStore
from harken.testing.store.record_queries import all_pages
from harken.testing.virtual_clock_with_servers import WaitingLoop, run_waiting
from harken.timings import Timings
from tests.ingest.process import FLOWS, NoExecutor
from tests.system.property.fleet_stores import Home, PostgresHome, RedisHome, SqliteHome

PARTS = 4
COUNT = PARTS * PART_EVENTS - 50
MEMORY_CAP = 300
"""Fewer than the page has: what is committed of it must be remembered all the same."""
TRIGGER = Trigger(name="t", feed="inbox", workflow="w", workflow_rev="r")
FAST = Timings(memory_cap=MEMORY_CAP)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "sqlite":
        return SqliteHome(tmp_path)
    server = request.getfixturevalue(request.param)
    return PostgresHome(server) if request.param == "postgres" else RedisHome(server)


class WaitingStore:
    """The clock stands still while the store answers."""

    def __init__(self, store: Any, loop: WaitingLoop) -> None:
        self._store, self._loop = store, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            with self._loop.waiting():
                return await found(*args, **kwargs)

        # CrashingStore looks at what it wraps
        return verb


class LongPage:
    """Shows everything after the cursor in one page, however much that is."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.items: list[Event] = []

    async def poll(self, cursor: Any, since: Any) -> Batch:
        begin = cursor or 0
        return Batch(events=self.items[begin:], cursor=len(self.items))

    def fill(self, identity: str) -> None:
        """Put a page of items; with states, some subjects come twice or three times."""
        for number in range(COUNT):
            name, state = f"e{number}", None if identity == "once" else "open"
            if identity != "once" and number in (300, 500):
                name, state = "e7", "closed" if number == 300 else "open"
            if identity == "change":
                state = f"v{number}"
            self.items.append(
                Event(subject=name, type="x", data={"n": number}, state=state, occurred_at=self.clock.now())
            )


class Installation:
    """One process after the other on one store."""

    def __init__(self, clock: VirtualClock, home: Home, identity: Any) -> None:
        loop = clock._loop
        assert isinstance(loop, WaitingLoop)
        self.clock, self.home, self._loop = clock, home, loop
        self.page = LongPage(clock)
        self.feed = Feed(
            name="inbox", kind="log", integration="log", identity=identity, schedule=Every(seconds=86_400), jitter=0.0
        )
        self._number = 0

    async def start(self) -> CrashingStore:
        """Start a process, after the lease of the one before has ended."""
        await self.clock.sleep(61)
        self._number += 1
        self._inner = self.home.store()
        store = CrashingStore(WaitingStore(self._inner, self._loop))
        engine: Any = (store, self.clock, Random(1), NoExecutor(), lambda feed: self.page)
        self.intake = Intake(*engine, holder=f"p{self._number}", timings=FAST)
        await self.intake.start(
            Definitions(generation="g", feeds=(self.feed,), triggers=(TRIGGER,), workflows=FLOWS, starting=True)
        )
        return store

    async def die(self) -> None:
        self.intake.scheduler.stop()
        running = list(self.intake._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        with self._loop.waiting():
            await self.home.let_go(self._inner)

    async def stop(self) -> None:
        await self.intake.stop()
        with self._loop.waiting():
            await self.home.let_go(self._inner)

    async def fired(self) -> list[int]:
        """The numbers of the items that have a run, in the order of their events."""
        with self._loop.waiting():
            events = await all_pages(self._inner.events, 200, feed="inbox")
            runs = await all_pages(self._inner.runs, 200, trigger="t")
        assert len(runs) == len({run.id for run in runs})
        assert len(runs) == sum(verdict.outcome == "fired" for one in events for verdict in one.verdicts)
        return [one.data["n"] for one in reversed(events)]


def on(home: Home, test: Callable[[VirtualClock], Any]) -> None:
    async def main(clock: VirtualClock) -> None:
        loop = clock._loop
        assert isinstance(loop, WaitingLoop)
        with loop.waiting():
            await home.move_in(clock)
        try:
            await test(clock)
        finally:
            with loop.waiting():
                await home.move_out()

    run_waiting(main)


@pytest.mark.parametrize("identity", ["once", "change", "transition"])
def test_a_crash_between_the_parts_of_a_page_neither_loses_nor_doubles(home: Home, identity: str) -> None:
    async def crash_at_every_part(clock: VirtualClock) -> None:
        site = Installation(clock, home, identity)
        await site.start()
        await site.intake.tick("inbox")
        await site.stop()
        site.page.fill(identity)
        for part in range(PARTS):
            store = await site.start()
            # before the write of one part, then after the write of the next
            store.crash(part % 2, after=bool(part % 2), only="commit")
            with pytest.raises(Crash):
                await site.intake.tick("inbox")
            await site.die()
        await site.start()
        await site.intake.tick("inbox")
        assert await site.fired() == list(range(COUNT))
        state = await site.intake._store.state("inbox")
        assert (state.cursor, state.seen) == (COUNT, COUNT)
        await site.stop()

    on(home, crash_at_every_part)


def test_a_page_that_has_changed_since_the_crash_is_told_apart_by_memory(home: Home) -> None:
    async def changes_after_the_crash(clock: VirtualClock) -> None:
        site = Installation(clock, home, "once")
        await site.start()
        await site.intake.tick("inbox")
        await site.stop()
        site.page.fill("once")
        store = await site.start()
        store.crash(2, after=False, only="commit")
        with pytest.raises(Crash):
            await site.intake.tick("inbox")
        await site.die()
        first = site.page.items.pop(5)
        site.page.items.append(first)
        site.page.items.append(Event(subject="new", type="x", data={"n": COUNT}, occurred_at=clock.now()))
        await site.start()
        state = await site.intake._store.state("inbox")
        assert stored_position(state.cursor)[0] == 0
        await site.intake.tick("inbox")
        assert sorted(await site.fired()) == list(range(COUNT + 1))
        await site.stop()

    on(home, changes_after_the_crash)
