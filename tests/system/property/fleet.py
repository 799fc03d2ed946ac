"""Several replicas on virtual time that share one store, with a hand that plays a scenario on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harken.event import Event
from harken.feed import INTERNAL, Feed
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_event_matcher import internal_matcher
from harken.match import Read
from harken.run.compiled_workflows import WorkflowCache
from harken.run.worker import Worker
from harken.simulation.replica_lifecycle import Replica, ThawedSource
from harken.store import HOUSEKEEPING, Definitions
from harken.testing import START, VirtualClock
from harken.testing.simulated_process_tasks import note_owners
from harken.testing.virtual_clock_with_servers import WaitingLoop, run_waiting
from tests.system.property import scenarios
from tests.system.property.comparison import judge
from tests.system.property.engine import Stage, _unless_planned
from tests.system.property.fleet_connection import DESK, Exchange, Line
from tests.system.property.fleet_replica import Life
from tests.system.property.fleet_scenario import (
    ALIVE_SECONDS,
    BEAT_SECONDS,
    HOUSE_SECONDS,
    LEASE,
    REPLICAS,
    SHARDS,
    TIMINGS,
    Hazard,
    Leave,
    Outage,
)
from tests.system.property.fleet_stores import Home
from tests.system.property.scenario_config import definitions_of, trigger_of

__all__ = ["Fleet", "played"]

PAUSE = 5.0
NEWS = (0.0, 5.0, 60.0, 400.0)
STEPS = (2.0, 50.0)
TRIES = 100
MOVING = 2
"""From this seed on, feeds change their shards."""
SETTLED = ALIVE_SECONDS + BEAT_SECONDS
DAY = 86_400.0
KEEP = {"events": 90 * DAY, "ticks": 7 * DAY, "runs": 90 * DAY, "pushed": 3 * DAY, "audit": 90 * DAY}


class Seat:
    """The place of a replica, whoever sits there: one life after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lives = 0
        self.life: Life | None = None
        self.away = 0.0
        self.leaving = asyncio.Event()


class Fleet(Stage):
    timings = TIMINGS
    house_seconds = HOUSE_SECONDS

    def __init__(
        self,
        clock: VirtualClock,
        true: VirtualClock,
        home: Home,
        scenario: scenarios.Scenario,
        size: int,
        *,
        overlap: bool = False,
    ) -> None:
        super().__init__(clock, true, Path(), scenario)
        self.home = home
        mixed = bool(scenario.seed % 2)
        dice = Random(scenario.seed) if mixed and not overlap else None
        self.exchange = Exchange(clock, self.model.heard, dice=dice, overlap=mixed and overlap)
        self.seats = [Seat(number) for number in range(size)]
        self.generation = 1
        # whatever a person changes is told to all
        self.intake: Any = self
        self._dice = Random(scenario.seed)
        self._keeping: list[asyncio.Task[None]] = []
        self._lost_until = 0.0

    def definitions(self, *, starting: bool = False) -> Definitions:
        wanted = definitions_of(self.scenario, self.wanted.values(), str(self.generation), starting=starting)
        return msgspec.structs.replace(wanted, feeds=[self._sharded(feed) for feed in wanted.feeds])

    def _sharded(self, feed: Feed) -> Feed:
        """Each polled feed has a shard, and in some fleets another one with each configuration."""
        polled = ["cron", *(f"f{number}" for number in range(len(self.scenario.feeds)))]
        moved = self.generation if self.scenario.seed >= MOVING else 0
        shard = (polled.index(feed.name) + moved) % SHARDS if feed.name in polled else 0
        return msgspec.structs.replace(feed, shard=shard)

    def build(self, replica: Replica) -> tuple[Worker, Intake]:
        """The engine of a replica."""
        store: Any = replica.connection
        rule_cache = RuleCache(store)
        worker = Worker(
            store,
            replica.clock,
            self._random,
            workflows=WorkflowCache(store),
            environment=self._environment(),
            holder=replica.name,
            internal=internal_matcher(rule_cache, replica.clock),
            learn=lambda: rule_cache.learn(INTERNAL),
            timings=TIMINGS,
        )

        def source(feed: Feed) -> ThawedSource | None:
            found = self.sources.get(feed.name)
            return ThawedSource(found, replica.connection) if found else None

        engine: Any = (store, replica.clock, self._random, worker, source)
        return worker, Intake(*engine, holder=replica.name, rule_cache=rule_cache, shards=SHARDS, timings=TIMINGS)

    async def _act(self, call: Any) -> Any:
        """A step of a workflow: some take nearly as long as they may."""
        seconds = self._dice.choice(STEPS)
        await self.clock.sleep(seconds)
        self.did.append(("desk", call.idempotency_key))
        return {"ok": True}

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_unless_planned)
        note_owners(loop)
        await self.exchange.alone(lambda: self.home.move_in(self.clock))
        self.store: Any = self._line(DESK)
        self._keeping = [asyncio.create_task(self._keep(seat)) for seat in self.seats]
        script = asyncio.create_task(self._script_to_its_end())
        done, _ = await asyncio.wait({script, *self._keeping}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        self.exchange.go_on()
        for keeping in self._keeping:
            keeping.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for seat in self.seats:
            if seat.life is not None:
                await self._bury(seat.life)
        await self.exchange.alone(lambda: self.home.let_go(self.store.store))
        await self.exchange.alone(self.home.move_out)

    def _line(self, name: str) -> Line:
        return Line(name, self.home.store(), self.exchange, self.clock)

    def _born(self, seat: Seat) -> Life:
        seat.lives += 1
        line = self._line(f"r{seat.number}.{seat.lives}")
        line.cut(self._lost_until - self.clock.monotonic())
        return Life(self, line, self.clock)

    async def _keep(self, seat: Seat) -> None:
        """Start the replica again whenever it is gone."""
        while True:
            life = seat.life = self._born(seat)
            await life.begin()
            await self._over(seat, life)
            if not life.connection.dead.is_set():
                await life.stop()
            await self._bury(life)
            away, seat.away = seat.away or PAUSE, 0.0
            seat.leaving.clear()
            await self.clock.sleep(away)

    async def _over(self, seat: Seat, life: Life) -> None:
        ends = [asyncio.create_task(one.wait()) for one in (life.connection.dead, seat.leaving)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()

    async def _bury(self, life: Life) -> None:
        await life.end()
        # what it has sent may still be on its way
        await self.exchange.alone(lambda: self.home.let_go(life.connection.store))

    async def _script_to_its_end(self) -> None:
        for happening in self.scenario.script:
            await self._do(happening)
        await self._drain()

    async def _do(self, it: Any) -> None:
        if isinstance(it, Hazard):
            self._expect(it)
        elif isinstance(it, Leave):
            seat = self.seats[it.replica % len(self.seats)]
            seat.away = it.seconds
            seat.leaving.set()
        elif isinstance(it, Outage):
            await self._lose_the_store(it.seconds)
        elif isinstance(it, scenarios.Meanwhile):
            for line in self._lines():
                line.meanwhile.setdefault("commit", []).append(_once(lambda: self._do(it.what)))
        else:
            await super()._do(it)

    async def _lose_the_store(self, seconds: float) -> None:
        self._lost_until = self.clock.monotonic() + seconds
        for line in self._lines():
            line.cut(seconds)
        await self.exchange.alone(self.home.shake)
        # whoever looks at what has become of it comes anew
        await self.exchange.alone(lambda: self.home.let_go(self.store.store))
        self.store = self._line(DESK)

    async def _tidy(self) -> None:
        life = await self._some()
        await life.act(lambda: life.connection.prune(**KEEP))

    def _expect(self, hazard: Hazard) -> None:
        seat = self.seats[hazard.replica % len(self.seats)]
        if seat.life is not None:
            seat.life.connection.expect(hazard.strike())
            if hazard.what == "crash":
                seat.away = hazard.seconds

    def _lives(self) -> list[Life]:
        return [seat.life for seat in self.seats if seat.life is not None and not seat.life.connection.dead.is_set()]

    def _lines(self) -> list[Line]:
        return [life.connection for life in self._lives() if isinstance(life.connection, Line)]

    async def _some(self) -> Life:
        """A replica that is up, by chance: a person or a webhook reaches any of them."""
        while True:
            up = [life for life in self._lives() if life.up]
            if up:
                return self._dice.choice(up)
            await self.clock.sleep(PAUSE)

    async def apply(self, definitions: Definitions) -> None:
        """The configuration changed: one replica hears of it now, the others when they do."""
        self.generation += 1
        lives = self._lives()
        self._dice.shuffle(lives)
        for number, life in enumerate(lives):
            life.owner.spawn(life.catch_up(self._dice.choice(NEWS) if number else 0.0))

    async def _operate(self, what: str, name: str, feed: str) -> None:
        """Once: whoever was asked may die before, after, or in the middle of it."""
        life = await self._some()
        await life.act(lambda: life.order(what, name))

    async def _push(self, numbers: tuple[int, ...]) -> None:
        """Deliver webhooks; whoever gets no answer sends it again."""
        for number in numbers:
            key = f"hook-{number}"
            event = Event(subject=key, key=key, type="hook", data={"state": "open"}, occurred_at=self._dated(number))
            for _ in range(TRIES):
                life = await self._some()
                if await life.act(lambda: life.intake.committer.push("push", [event], Read(now=self.clock.now()))):  # noqa: B023
                    self.accepted.add(key)
                    break
                await self.clock.sleep(PAUSE)

    async def _drain(self) -> None:
        """Let everything that is under way come to its end, and nothing new begin."""
        for line in self._lines():
            line.hazards.clear()
            line.meanwhile.clear()
        await self._until(self._calm)
        for world in self.worlds:
            world.faults.clear()
        for number in range(len(self.scenario.triggers)):
            self.wanted.setdefault(f"t{number}", trigger_of(self.scenario, number))
        await self.apply(self.definitions())
        await self._until(lambda: all(life.generation == str(self.generation) for life in self._lives()))
        for name in self.wanted:
            await self._resume(name)
        # what a replica held that is gone is only read again when its lease has ended, and may start more runs then
        await self.clock.sleep(LEASE)
        marks = {name: source.reads + 2 for name, source in self.sources.items() if name != "cron"}
        for _ in range(40):
            self.exchange.go_on()
            await self.clock.sleep(130.0)
            await self.exchange.hold()
            if await self._quiet(marks):
                break

    async def shards_are_shared(self) -> None:
        """Where nothing has happened for long enough, everybody reads as much as the others."""
        lives, held = self._lives(), await self.store.leases()
        readers = Counter(one.holder for one in held if one.shard != HOUSEKEEPING)
        if len(lives) == SHARDS and all(self.clock.monotonic() - life.since > SETTLED for life in lives):
            assert readers == Counter(life.name for life in lives), f"not fair: {readers}"

    def _calm(self) -> bool:
        """All replicas that are there are up and reach the store, there is one, and the world stands still."""
        lives, now = self._lives(), self.true.time()
        at_rest = all(change.at <= now for world in self.worlds for change in world._changes)
        return at_rest and bool(lives) and all(life.up and life.connection.well for life in lives)

    async def _until(self, true: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if true():
                return
            await self.clock.sleep(PAUSE)
        raise AssertionError("it never came true")

    async def _resume(self, name: str) -> None:
        while not await (life := await self._some()).act(lambda: life.order("resume", name)):
            await self.clock.sleep(PAUSE)


def _once(act: Callable[[], Any]) -> Callable[[], Any]:
    """Of several who are to do it, the first does."""
    left = [act]

    async def first() -> None:
        if left:
            await left.pop()()

    return first


def played(scenario: scenarios.Scenario, home: Home, size: int = REPLICAS, *, overlap: bool = False) -> Fleet:
    """Play it, and compare with the model and with what was written under which lease.

    With `overlap` some fleets have verbs under way at the same time: they do not play the same twice.
    """

    async def main(clock: VirtualClock) -> Fleet:
        loop = clock._loop
        assert isinstance(loop, WaitingLoop)
        fleet = Fleet(clock, VirtualClock(loop, START), home, scenario, size, overlap=overlap)
        try:
            await fleet.play()
            fleet.exchange.history.check()
            await judge(fleet)
            await fleet.shards_are_shared()
        finally:
            await fleet.stop()
        return fleet

    return run_waiting(main)
