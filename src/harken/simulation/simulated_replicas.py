"""Several replicas that share one store: each may crash, freeze, lose the store or stop, and the others go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from harken.app.store import open_in_memory
from harken.config.feed_sources import with_shard
from harken.errors import HarkenError
from harken.feed import Feed
from harken.ingest.intake import Intake
from harken.run.worker import Worker
from harken.simulation.replica_lifecycle import Replica, ThawedSource
from harken.simulation.script import Crash, Cut, Freeze, Lock, OfProcess, Restart
from harken.simulation.setting import Setting, build_engine
from harken.source import Source
from harken.store import Definitions
from harken.testing.lease_history import History
from harken.testing.shared_store_faults_per_replica import Connection, Hazard
from harken.testing.simulated_process_tasks import note_owners
from harken.timings import Timings

__all__ = ["SHARED", "Fleet"]

SHARED = Timings(
    lease_seconds=900.0,
    lease_looks=6,
    claim_seconds=600.0,
    idle_flush=60.0,
    scheduler_nap=60.0,
    scheduler_dead=600.0,
    worker_sleep=300.0,
    beat=150.0,
    alive=360.0,
    ticket_runs_round=60.0,
    projection_round=60.0,
)
"""Thirty times as long as in the application, in the same proportions: a day has a thirtieth of the looks."""

HOUSE_SECONDS = 150.0
PAUSE = 5.0
ANSWER_SECONDS = 30.0
"""Whoever sends a webhook waits so long for the answer."""
LOCKED_SECONDS = 1.0
TRIES = 2_000


class Seat:
    """The place of a replica, whoever sits there: one life after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lives = 0
        self.replica: Replica | None = None
        self.away = 0.0
        self.leaving = asyncio.Event()


class Fleet:
    """`store` is what all share, as it is seen from outside; `history` has what they wrote under which lease."""

    timings = SHARED
    house_seconds = HOUSE_SECONDS

    def __init__(self, setting: Setting, size: int) -> None:
        self._setting = setting
        self._struck: Counter[str] = Counter()
        self._seats = [Seat(number + 1) for number in range(size)]
        self._keeping: list[asyncio.Task[None]] = []
        self.restarts = 0
        self.store: Any = None
        self.history = History(setting.clock)

    @property
    def kills(self) -> int:
        return self._struck["crash"]

    @property
    def freezes(self) -> int:
        return self._struck["freeze"]

    @property
    def cuts(self) -> int:
        return self._struck["cut"]

    def definitions(self, *, starting: bool = False) -> Definitions:
        """The configuration with as many shards as replicas, so that each has something to read."""
        whole = self._setting.configuration.definitions(starting=starting)
        loaded, shards = self._setting.configuration.loaded, len(self._seats)
        return msgspec.structs.replace(whole, feeds=tuple(with_shard(feed, loaded, shards) for feed in whole.feeds))

    def build(self, replica: Replica) -> tuple[Worker, Intake]:
        """The engine of a replica, which asks no source while it is frozen."""

        def thawed(feed: Feed, source: Any) -> Source:
            return ThawedSource(source, replica.connection) if feed.way == "poll" else source

        worker, intake, tickets = build_engine(
            self._setting,
            replica.connection,
            replica.clock,
            holders=(replica.name, replica.name),
            timings=self.timings,
            shards=len(self._seats),
            around=thawed,
        )
        if tickets is not None:
            replica.attend = lambda: tickets.keep(replica.house)
        return worker, intake

    async def start(self) -> None:
        """Start all replicas; return when one of them is up."""
        note_owners(asyncio.get_running_loop())
        self.store = open_in_memory(self._setting.clock)
        self._keeping = [asyncio.create_task(self._keep(seat)) for seat in self._seats]
        await self._until(lambda: bool(self._up()))

    async def _keep(self, seat: Seat) -> None:
        """Start the replica again whenever it is gone."""
        while True:
            replica = seat.replica = self._born(seat)
            await replica.begin()
            await self._over(seat, replica)
            if not replica.connection.dead.is_set():
                await replica.stop()
            await replica.end()
            away, seat.away = seat.away or PAUSE, 0.0
            seat.leaving.clear()
            await self._setting.clock.sleep(away)

    def _born(self, seat: Seat) -> Replica:
        seat.lives += 1
        name = f"r{seat.number}.{seat.lives}"
        clock = self._setting.clock
        return Replica(self, Connection(name, self.store, self._send, clock, on_strike=self._note), clock)

    def _note(self, hazard: Hazard) -> None:
        self._struck[hazard.what] += 1

    async def _send(self, connection: Connection, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        connection.must_live()
        began = self.history.position
        try:
            answer = await getattr(self.store, verb)(*args, **kwargs)
        except HarkenError as error:
            self.history.note(connection.name, verb, args, kwargs, error, began)
            raise
        self.history.note(connection.name, verb, args, kwargs, answer, began)
        return answer

    async def _over(self, seat: Seat, replica: Replica) -> None:
        ends = [asyncio.create_task(one.wait()) for one in (replica.connection.dead, seat.leaving)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()

    async def close(self) -> None:
        """End all replicas; what they have stored can be read no more."""
        for keeping in self._keeping:
            keeping.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for seat in self._seats:
            if seat.replica is not None:
                await seat.replica.end()
        self.store.abandon()
        asyncio.get_running_loop().set_task_factory(None)

    async def surviving(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it; replicas that die meanwhile are started again beside it."""
        await act()
        for keeping in self._keeping:
            if keeping.done():
                keeping.result()

    async def suffer(self, item: OfProcess) -> None:
        """Let it befall a replica; nothing befalls one that is away."""
        seat = self._seats[(item.replica - 1) % len(self._seats)]
        replica = seat.replica
        if replica is None or replica.connection.dead.is_set():
            return
        if isinstance(item, Restart):
            self.restarts += 1
            seat.away = item.down
            seat.leaving.set()
            return
        if isinstance(item, Crash):
            seat.away = item.down
        for hazard in _hazards(item):
            replica.connection.expect(hazard)

    def _up(self) -> list[Replica]:
        found = [seat.replica for seat in self._seats]
        return [one for one in found if one is not None and one.up and not one.connection.dead.is_set()]

    async def act(self, act: Callable[[Intake], Awaitable[bool]]) -> bool:
        """Have it done by any replica that is up: False when there is none, or no answer came in time."""
        up = self._up()
        if not up:
            return False
        replica = self._setting.random.choice(up)
        accepted: list[bool] = []

        async def ask() -> None:
            accepted.append(await act(replica.intake))

        asking = asyncio.ensure_future(replica.act(ask))
        await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
        if not asking.done():
            # nobody waits any longer for what a frozen replica may still do
            asking.cancel()
            return False
        return asking.result() and accepted[0]

    async def read(self, feed: str) -> None:
        """Have the feed read once, now, by whoever holds its shard."""
        shard = next(one.shard for one in self.definitions().feeds if one.name == feed)
        readers: list[Replica] = []

        def is_read() -> bool:
            readers[:] = [one for one in self._up() if shard in one.intake.leases.held]
            return bool(readers)

        await self._until(is_read)
        await readers[0].act(lambda: readers[0].intake.tick(feed))

    async def refresh(self, feed: str) -> None:
        """The feed was changed in the store."""
        for replica in self._up():
            await replica.act(lambda: replica.intake.refresh(feed))  # noqa: B023

    async def spare(self) -> None:
        """From now on nothing befalls anybody; return when all are up and reach the store."""
        for replica in [seat.replica for seat in self._seats if seat.replica is not None]:
            replica.connection.hazards.clear()
        await self._until(self._all_well)

    def _all_well(self) -> bool:
        up = self._up()
        return len(up) == len(self._seats) and all(one.connection.well for one in up)

    async def _until(self, true: Callable[[], bool]) -> None:
        """Wait until it is so: a replica that is away comes back after hours at most."""
        for _ in range(TRIES):
            if true():
                return
            await self.surviving(lambda: asyncio.sleep(PAUSE))
        raise AssertionError("the replicas never came to rest")


def _hazards(item: OfProcess) -> list[Hazard]:
    if isinstance(item, Crash):
        return [Hazard(what="crash", verbs=item.skip, after=item.after, only=item.verb)]
    if isinstance(item, Lock):
        locked = Hazard(what="cut", after=item.after, seconds=LOCKED_SECONDS, only=item.verb)
        return [msgspec.structs.replace(locked, verbs=number) for number in range(item.verbs)]
    assert isinstance(item, Freeze | Cut)
    what: Literal["freeze", "cut"] = "freeze" if isinstance(item, Freeze) else "cut"
    return [Hazard(what=what, verbs=item.skip, after=item.after, seconds=item.seconds, only=item.verb)]
