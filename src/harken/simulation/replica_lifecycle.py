"""One life of a replica that shares its store with others: from its start to its stop, or to its death at any verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from harken.app.fleet import HousekeepingLease, Membership, OtherGeneration
from harken.clock import Clock
from harken.errors import HarkenError, NotFound, RetryLater
from harken.ingest.intake import Intake
from harken.operate.fleet import Member
from harken.run.worker import Worker
from harken.source import Batch, Cursor
from harken.store import Definitions, Generation
from harken.testing.crashing import Crash
from harken.testing.shared_store_faults_per_replica import Connection, ReplicaClock
from harken.testing.simulated_process_tasks import TaskOwner
from harken.timings import Timings

__all__ = ["Office", "Replica", "ThawedSource"]


class Office(Protocol):
    """What all replicas have in common. `house_seconds`: how often housekeeping is done."""

    timings: Timings
    house_seconds: float

    def definitions(self, *, starting: bool = False) -> Definitions: ...

    def build(self, replica: Replica) -> tuple[Worker, Intake]:
        """The engine of this replica, on its connection and its clock."""
        ...


class ThawedSource:
    """A source that a frozen replica does not ask, and that is told nothing meanwhile."""

    def __init__(self, source: Any, connection: Connection) -> None:
        self._source = source
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        # what a source may have besides, such as the limits of its webhooks
        return getattr(self._source, name)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        await self._connection.thawed()
        batch: Batch = await self._source.poll(cursor, since)
        return batch


class Replica:
    """`up`: it has started. `since`: when it began to run the definitions of its `generation`.

    `attend` is what else it does with its housekeeping lease until it ends.
    """

    def __init__(self, office: Office, connection: Connection, clock: Clock) -> None:
        self.office, self.connection, self.name = office, connection, connection.name
        self.clock: Clock = ReplicaClock(clock, connection)
        self.generation = ""
        self.since = 0.0
        self.up = False
        self.owner = TaskOwner()
        self._applying = asyncio.Lock()
        store: Any = connection
        self.house = HousekeepingLease(store, self.clock, self.name, shared=True, seconds=office.timings.lease_seconds)
        self.attend: Callable[[], Awaitable[object]] | None = None
        self.worker, self.intake = office.build(self)
        self.members = Membership(
            store,
            self.clock,
            describe=self._describe,
            on_members=self._heard,
            on_change=self.look_again,
            timings=office.timings,
        )
        self.behind = OtherGeneration()
        self._looking: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start. A store that is away ends this life, and the next one tries again."""
        starting = self.owner.spawn(self._start())
        await asyncio.wait({starting})
        error = None if starting.cancelled() else starting.exception()
        self.up = not starting.cancelled() and not error
        if isinstance(error, Crash | RetryLater) or starting.cancelled():
            self.connection.dead.set()
        elif error:
            raise error

    async def _start(self) -> None:
        definitions = self.office.definitions(starting=True)
        await self.intake.start(definitions)
        self._runs(definitions)
        for work in (self.worker.run(), self.members.keep(), self._keep_house()):
            self.owner.spawn(work)
        if self.attend is not None:
            self.owner.spawn(_done(self.attend))

    def _runs(self, definitions: Definitions) -> None:
        self.generation, self.since = definitions.generation, self.clock.monotonic()

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
        abandoned = self.behind.is_abandoned(current.name, lives, self.clock.monotonic())
        if abandoned or ours:
            self.behind.clear()
            await self.apply(again=abandoned)

    async def apply(self, *, again: bool = False) -> None:
        """Run the newest definitions, if it does not already; with `again` in any case."""
        async with self._applying:
            definitions = self.office.definitions()
            if again or definitions.generation != self.generation:
                await self.intake.apply(definitions)
                self._runs(definitions)

    def look_again(self) -> None:
        """Something was changed in the store, here or by another replica."""
        self.worker.nudge()
        if self._looking is None or self._looking.done():
            self._looking = self.owner.spawn(self._look())

    async def _look(self) -> None:
        with suppress(HarkenError):
            for state in await self.connection.feeds():
                rules = self.intake.rule_cache.get(state.name)
                if rules is None or rules.revision != state.revision or self.intake.is_woken(state):
                    await self.intake.refresh(state.name)

    async def act(self, act: Callable[[], Awaitable[Any]]) -> bool:
        """Do something as this replica: False when it could not, or died meanwhile."""
        acting = self.owner.spawn(_done(act))
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
            await self.clock.sleep(self.office.house_seconds)
            try:
                if await self.house.keep() and await self.connection.requeue_expired():
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
        self.connection.dead.set()
        # a timer's handle is no task: it would go on in a replica that is gone
        self.intake.scheduler.stop()
        self.intake._stopping = True
        await self.owner.end()


async def _done(act: Callable[[], Awaitable[Any]]) -> None:
    await act()
