"""One life of a replica: from its start to its stop, or to its death at any store verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from datetime import datetime
from random import Random
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from harken.app.fleet import HousekeepingLease, Membership, OtherGeneration, notify_replicas
from harken.clock import Clock
from harken.errors import HarkenError, NotFound, RetryLater
from harken.feed import INTERNAL, Feed
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_events import internal_matcher
from harken.operate.fleet import Member
from harken.run.environment import Environment
from harken.run.worker import Worker
from harken.run.workflows import WorkflowCache
from harken.source import Batch, Cursor
from harken.store import Definitions, Generation
from harken.testing.crashing import Crash
from tests.system.property.fleet_connection import Line
from tests.system.property.fleet_scenario import HOUSE_SECONDS, LEASE, SHARDS, TIMINGS
from tests.system.property.sources import Noted

__all__ = ["Life", "Office", "note_owners"]

PAUSE = 5.0

_owner: ContextVar[Life | None] = ContextVar("owner", default=None)
_owned: WeakKeyDictionary[asyncio.Task[Any], Life | None] = WeakKeyDictionary()


def note_owners(loop: asyncio.AbstractEventLoop) -> None:
    """From now on each task belongs to the replica that made it, and dies with it."""

    def made(loop: asyncio.AbstractEventLoop, work: Any, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        _owned[task] = _owner.get() if context is None else context.get(_owner)
        return task

    loop.set_task_factory(made)


class Office(Protocol):
    """What all replicas have in common."""

    clock: Any
    sources: dict[str, Noted]

    def definitions(self, *, starting: bool = False) -> Definitions: ...

    def environment(self) -> Environment: ...


class Thawed:
    """A source that is not asked by a replica that is frozen."""

    def __init__(self, source: Noted, line: Line) -> None:
        self._source = source
        self._line = line

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        await self._line.thawed()
        return await self._source.poll(cursor, since)


class Life:
    def __init__(self, office: Office, line: Line, random: Random) -> None:
        self.office, self.line, self.name = office, line, line.name
        self.generation = ""
        # when it began to run that one
        self.since = 0.0
        self.up = False
        self._clock: Clock = office.clock
        self._context = copy_context()
        self._context.run(_owner.set, self)
        self._applying = asyncio.Lock()
        store: Any = line
        rule_cache = RuleCache(store)
        self.worker = Worker(
            store,
            self._clock,
            random,
            workflows=WorkflowCache(store),
            environment=office.environment(),
            holder=self.name,
            internal=internal_matcher(rule_cache, self._clock),
            learn=lambda: rule_cache.learn(INTERNAL),
            timings=TIMINGS,
        )
        engine: Any = (store, self._clock, random, self.worker, self._source)
        self.intake = Intake(*engine, holder=self.name, rule_cache=rule_cache, shards=SHARDS, timings=TIMINGS)
        self.house = HousekeepingLease(store, self._clock, self.name, shared=True, seconds=LEASE)
        self.members = Membership(
            store,
            self._clock,
            describe=self._describe,
            on_members=self._heard,
            on_change=self.look_again,
            timings=TIMINGS,
        )
        self.behind = OtherGeneration()
        self._looking: asyncio.Task[None] | None = None

    def _source(self, feed: Feed) -> Thawed | None:
        source = self.office.sources.get(feed.name)
        return Thawed(source, self.line) if source else None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do it as this replica; it ends with it."""
        return asyncio.get_running_loop().create_task(work, context=self._context.run(copy_context))

    async def begin(self) -> None:
        """Start. A store that is away ends this life, and the next one tries again."""
        starting = self.spawn(self._start())
        await asyncio.wait({starting})
        self.up = not starting.cancelled() and not starting.exception()
        error = None if starting.cancelled() else starting.exception()
        if isinstance(error, Crash | RetryLater) or starting.cancelled():
            self.line.dead.set()
        elif error:
            raise error

    async def _start(self) -> None:
        definitions = self.office.definitions(starting=True)
        await self.intake.start(definitions)
        self._runs(definitions)
        for work in (self.worker.run(), self.members.keep(), self._keep_house()):
            self.spawn(work)

    def _runs(self, definitions: Definitions) -> None:
        self.generation, self.since = definitions.generation, self._clock.monotonic()

    def _describe(self) -> Member:
        return Member(holder=self.name, generation=self.generation, shards=sorted(self.intake.leases.held))

    async def _heard(self, living: Sequence[Member], current: Generation) -> None:
        """Share with those who run the same, and follow the configuration that the store is at."""
        readers = [one for one in living if one.generation == self.generation]
        self.intake.leases.share_with([one.holder for one in readers])
        if not current.name or current.name == self.generation:
            self.behind.clear()
            return
        lives = any(one.generation == current.name for one in living)
        ours = current.name == self.office.definitions().generation
        abandoned = self.behind.is_abandoned(current.name, lives, self._clock.monotonic())
        if abandoned or ours:
            self.behind.clear()
            await self._apply(again=abandoned)

    def look_again(self) -> None:
        """Something was changed in the store, here or by another replica."""
        self.worker.nudge()
        if self._looking is None or self._looking.done():
            self._looking = self.spawn(self._look())

    async def _look(self) -> None:
        with suppress(HarkenError):
            for state in await self.line.feeds():
                rules = self.intake.rule_cache.get(state.name)
                if rules is None or rules.revision != state.revision or self.intake.is_woken(state):
                    await self.intake.refresh(state.name)

    async def catch_up(self, delay: float) -> None:
        """Run the newest definitions, when the news has reached this replica and the store is there."""
        await self._clock.sleep(delay)
        while True:
            try:
                await self._apply()
                return
            except RetryLater:
                await self._clock.sleep(PAUSE)

    async def _apply(self, *, again: bool = False) -> None:
        async with self._applying:
            definitions = self.office.definitions()
            if again or definitions.generation != self.generation:
                await self.intake.apply(definitions)
                self._runs(definitions)

    async def order(self, what: str, trigger: str) -> None:
        """A person has this replica do something about a trigger; the others are told."""
        if what == "pause":
            await self.line.pause(trigger, "a test")
        elif what == "resume":
            await self.line.resume(trigger)
        else:
            await self.line.reset(trigger, cursor=what == "reset_cursor")
        self.look_again()
        store: Any = self.line
        await notify_replicas(store)

    async def act(self, act: Callable[[], Awaitable[Any]]) -> bool:
        """Do something as this replica: False when it could not, or died meanwhile."""
        acting = self.spawn(_done(act))
        await asyncio.wait({acting})
        if acting.cancelled():
            return False
        error = acting.exception()
        # nobody has applied the trigger yet that a person asks for: they are told so
        if error is not None and not isinstance(error, Crash | RetryLater | NotFound):
            raise error
        return error is None

    async def _keep_house(self) -> None:
        while True:
            await self._clock.sleep(HOUSE_SECONDS)
            try:
                if await self.house.keep() and await self.line.requeue_expired():
                    self.worker.nudge()
            except HarkenError:
                # as in the application: the next round does it
                continue

    async def stop(self) -> None:
        """Leave as a process does that was asked to."""
        await self.act(self._stop)

    async def _stop(self) -> None:
        await self.intake.stop()
        await self.worker.stop(0.0)
        for leaving in (self.house, self.members):
            with suppress(HarkenError):
                await leaving.leave()

    async def end(self) -> None:
        """Whatever this replica was about to do, it does not."""
        self.up = False
        self.line.dead.set()
        # a timer's handle is no task: it would go on in a replica that is gone
        self.intake.scheduler.stop()
        self.intake._stopping = True
        # in the order in which they were made: a set of tasks has another one every time
        mine = [task for task, owner in _owned.items() if owner is self and not task.done()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)


async def _done(act: Callable[[], Awaitable[Any]]) -> None:
    await act()
