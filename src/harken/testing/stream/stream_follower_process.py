"""One process that follows a stream into a real store: stopped, killed, stalled and started again by a test."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.errors import StoreUnavailable
from harken.event import Event, Recorded
from harken.feed import INTERNAL, Feed, FeedState, Trigger
from harken.ingest.intake import Intake
from harken.ingest.partly_committed_page import stored_position, with_seek
from harken.runs import Claimed
from harken.source import Located, SeekableSource, StreamSource
from harken.store import Definitions, EarlyEnd, Intent
from harken.testing.store.record_queries import all_pages
from harken.timings import Timings

__all__ = ["WAIT_SECONDS", "Follower", "StallingStore", "die_while_following"]

WAIT_SECONDS = 120.0
"""How long a test waits for what must happen; a busy machine may need much of it."""

FEED = Feed(
    name="orders", kind="broker", integration="broker", way="stream", identity="change", first="all", lookback=0.0
)
TRIGGER = Trigger(name="ship", feed="orders", workflow="w", workflow_rev="r1", flood_limit=0)
OWN = Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal", identity="change", first="deliver")
DEFINITIONS = Definitions(
    generation="1", starting=True, feeds=[FEED, OWN], triggers=[TRIGGER], workflows={"w": ("r1", b'{"steps": []}')}
)
TIMINGS = Timings(lease_seconds=3.0, idle_flush=0.2, scheduler_nap=0.5, reconnect=1.0)
Death = Literal["before the commit", "between commit and acknowledgement"]


class _NoExecutor:
    """Executes nothing: the runs stay in the store, where tests count them."""

    holder = "nobody"

    def reserve(self, wanted: int) -> int:
        return 0

    def unreserve(self, count: int) -> None:
        raise AssertionError("nothing was reserved")

    def accept(self, claimed: Sequence[Claimed]) -> None:
        raise AssertionError("nothing was reserved")

    def nudge(self) -> None:
        """There is no worker that could look for runs."""

    def find_end(self, feed: str, trigger: str, event: Event, intent: Intent) -> EarlyEnd | None:
        """Runs are executed elsewhere."""
        return None

    def note_over(self, claimed: Claimed, end: EarlyEnd) -> None:
        raise AssertionError("no end was found")


class StallingStore:
    """Passes every verb on to `store`. Commits can be held up, fail, or end the process, as the test says.

    `commits` counts those of the stream that were begun; a frozen store answers nothing until it is thawed."""

    def __init__(self, store: SqliteStore) -> None:
        self.inner = store
        self.commits = 0
        self.stall_seconds = 0.0
        self.failures = 0
        self.death: Death | None = None
        self.die_at = 0
        self._thawed = asyncio.Event()
        self._thawed.set()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            await self._thawed.wait()
            if name == "commit" and args[0].feed == FEED.name:
                return await self._commit(found, *args)
            return await found(*args, **kwargs)

        return verb

    async def _commit(self, commit: Callable[..., Any], wanted: Any) -> Any:
        self.commits += 1
        dying = self.death is not None and self.commits >= self.die_at
        if dying and self.death == "before the commit":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the disk is full")
        if self.stall_seconds:
            seconds, self.stall_seconds = self.stall_seconds, 0.0
            await asyncio.sleep(seconds)
        answer = await commit(wanted)
        if dying:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


class Follower:
    """A process with one stream. Several on one file are replicas: one of them holds the lease."""

    def __init__(
        self, path: Path, make: Callable[[], StreamSource], holder: str = "first", beside: Follower | None = None
    ) -> None:
        self.clock = SystemClock()
        self._make = make
        # a replica uses the store of the one that it runs beside
        self._own_store = beside is None
        self.store: StallingStore = StallingStore(beside.store.inner if beside else SqliteStore.at(path / "harken.db"))
        used: Any = self.store
        engine: Any = (used, self.clock, Random(1), _NoExecutor(), lambda feed: self._source(make, feed))
        self.intake = Intake(*engine, holder=holder, timings=TIMINGS)

    def _source(self, make: Callable[[], StreamSource], feed: Feed) -> Any:
        return make() if feed.name == FEED.name else object()

    @classmethod
    @asynccontextmanager
    async def started(
        cls, path: Path, make: Callable[[], StreamSource], holder: str = "first", beside: Follower | None = None
    ) -> AsyncIterator[Follower]:
        follower = cls(path, make, holder, beside)
        await follower.start()
        try:
            yield follower
        finally:
            await follower.stop()

    async def start(self) -> None:
        await self.intake.start(DEFINITIONS)

    async def stop(self) -> None:
        self.store.thaw()
        await self.intake.stop()
        if self._own_store:
            await self.store.inner.close()

    async def seek(self, at: datetime) -> Located:
        """Move the stream to that time, as the operation does it. Returns the place that was found."""
        source, state = self._make(), await self.state()
        assert isinstance(source, SeekableSource)
        cursor = stored_position(state.cursor)[0]
        place = await source.locate(at, cursor)
        back = place.skipped <= place.again
        mark = with_seek(cursor, at)
        moved = await self.store.inner.seek(TRIGGER.name, at, revision=state.revision, back=back, cursor=mark)
        assert moved is not None
        await self.intake.refresh(FEED.name)
        return place

    async def events(self, feed: str = FEED.name) -> list[Recorded]:
        return await all_pages(self.store.inner.events, feed=feed, limit=500)

    async def numbers(self) -> Counter[int]:
        """The numbers in the messages that were recorded, each with how often."""
        return Counter(event.data["n"] for event in await self.events())

    async def runs(self) -> int:
        return len(await all_pages(self.store.inner.runs, limit=500))

    async def dead(self) -> list[Any]:
        return await all_pages(self.store.inner.dead, limit=500)

    async def state(self) -> FeedState:
        return await self.store.inner.state(FEED.name)

    async def gaps(self) -> list[str]:
        """What was announced as lost, in words."""
        return [event.data["reason"] for event in await self.events(INTERNAL) if event.type == "feed.gap"]

    async def until(self, what: str, holds: Callable[[], Any], seconds: float = WAIT_SECONDS) -> None:
        """Wait until it holds; on failure say what did not come."""
        until = asyncio.get_running_loop().time() + seconds
        while not await holds():
            if asyncio.get_running_loop().time() > until:
                state = await self.state()
                raise AssertionError(
                    f"{what} did not come in {seconds:g} s; the feed says: {msgspec.to_builtins(state)}"
                )
            await asyncio.sleep(0.02)

    async def has(self, count: int) -> bool:
        """Whether so many messages are recorded and dealt with."""
        return len(await self.events()) + len(await self.dead()) >= count

    async def heard(self) -> bool:
        """Whether the connection has been made and the broker has answered."""
        return (await self.state()).last_success is not None


def die_while_following(path: Path, make: Callable[[], StreamSource], death: Death, *, at: int) -> None:
    """Follow in a process of its own, which is killed with SIGKILL at its commit with that number."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_follow_until_death, args=(path, make, death, at))
    child.start()
    child.join(WAIT_SECONDS)
    assert child.exitcode == -signal.SIGKILL, f"the process was to be killed {death}, and ended with {child.exitcode}"


def _follow_until_death(path: Path, make: Callable[[], StreamSource], death: Death, at: int) -> None:
    async def main() -> None:
        follower = Follower(path, make)
        follower.store.death, follower.store.die_at = death, at
        await follower.start()
        await asyncio.sleep(WAIT_SECONDS)

    # a new loop: the one of the test belongs to the parent
    asyncio.set_event_loop(None)
    asyncio._set_running_loop(None)
    asyncio.run(main())
