"""Order, repeats, lateness, crashes and replicas do not change what digest, debounce and join make of events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from harken.event import Event
from harken.feed import Debounce, Digest, Feed, Gather, Join, Part, Trigger
from harken.ingest.commit import Committer, RuleCache
from harken.match import Read
from harken.runs import Finished
from harken.store import Definitions, Settlement
from harken.testing.clock import HandClock
from harken.testing.crashing import Crash, CrashingStore
from tests.ingest.process import FLOWS, NoExecutor
from tests.soak import SOAK, longer
from tests.system.property.fleet_stores import Home, PostgresHome, RedisHome, SqliteHome

WINDOW = 100
REPLICAS = 2
KEYS = "xy"
LEFT, RIGHT = (Feed(name=name, kind="hook", integration="", way="push", identity="once") for name in ("left", "right"))
PARTS = tuple(
    Part(name=name, by="event.key", when=f"event.part == '{name}'", feed=feed)
    for name, feed in (("a", ""), ("b", "right"), ("c", ""))
)
GATHERS: dict[str, Gather] = {
    "digest": Digest(window=WINDOW, by="event.key"),
    "debounce": Debounce(window=WINDOW, by="event.key"),
    "debounce with a longest wait": Debounce(window=WINDOW, max_wait=250, by="event.key"),
    "join": Join(parts=PARTS, within=WINDOW),
    "join in order": Join(parts=PARTS, within=WINDOW, form="then"),
    "join of two": Join(parts=PARTS, within=WINDOW, form="any", count=2, on_miss="run"),
    "join without": Join(parts=(PARTS[0], PARTS[2], PARTS[1]), within=WINDOW, none=("b",)),
}


class Delivery(msgspec.Struct, frozen=True):
    """At this second these events come, in this order, to this replica, which may die before or after its commit."""

    at: int
    events: tuple[int, ...]
    replica: int = 0
    fault: str = ""


class Item(msgspec.Struct, frozen=True):
    part: str
    key: str
    happened: int


Outcome = list[tuple[int, frozenset[int]]]
"""Each run: the second at which it started, and the numbers of its events."""


class Installation:
    """Replicas that take deliveries on one store, on a clock that is moved by hand."""

    def __init__(self, home: Home, gather: Gather, items: Sequence[Item]) -> None:
        self._home, self._items = home, items
        self._clock = HandClock()
        self._begun = self._clock.now()
        trigger = Trigger(name="t", feed="left", workflow="w", workflow_rev="r", gather=gather)
        self._definitions = Definitions(generation="g", feeds=(LEFT, RIGHT), triggers=(trigger,), workflows=FLOWS)
        self._committers: list[tuple[Committer, CrashingStore]] = []
        self._started: Outcome = []

    async def play(self, deliveries: Sequence[Delivery]) -> Outcome:
        await self._home.move_in(self._clock)
        try:
            self._committers = [await self._replica() for _ in range(REPLICAS)]
            for delivery in sorted(deliveries, key=lambda delivery: delivery.at):
                await self._pass_time(delivery.at)
                await self._deliver(delivery)
            await self._pass_time(self._second + 10 * WINDOW)
            return sorted(self._started, key=lambda run: (run[0], sorted(run[1])))
        finally:
            for _, store in self._committers:
                await self._home.let_go(store.inner)
            await self._home.move_out()

    @property
    def _second(self) -> int:
        return round((self._clock.now() - self._begun).total_seconds())

    async def _replica(self) -> tuple[Committer, CrashingStore]:
        store = CrashingStore(self._home.store())
        opened = await store.open(self._definitions)
        committer = Committer(store, RuleCache(store), NoExecutor(), self._clock)
        committer.rule_cache.adopt(self._definitions, opened)
        return committer, store

    async def _pass_time(self, second: int) -> None:
        """Move the clock in steps, and take the runs that start."""
        while True:
            _, store = self._committers[0]
            for claim in await store.claim("w", 100, 1e6):
                self._started.append((self._second, frozenset(event.data["n"] for event in claim.events)))
                # what a worker of the same name had claimed before a crash would be claimed again
                await store.settle([Settlement(id=claim.id, token=claim.token, outcome=Finished())])
            if self._second >= second:
                return
            due = await store.next_due()
            ahead = (due - self._clock.now()).total_seconds() if due else float("inf")
            self._clock.advance(min(max(ahead, 1), second - self._second))

    async def _deliver(self, delivery: Delivery) -> None:
        committer, store = self._committers[delivery.replica]
        if delivery.fault:
            store.crash(0, after=delivery.fault == "after", only="commit")
        try:
            await self._push(committer, delivery.events)
        except Crash:
            await self._home.let_go(store.inner)
            self._committers[delivery.replica] = await self._replica()
            # who sent it got no answer, so it sends it again
            await self._push(self._committers[delivery.replica][0], delivery.events)
        store.spare()

    async def _push(self, committer: Committer, numbers: Sequence[int]) -> None:
        for feed in ("left", "right"):
            events = [self._event(number) for number in numbers if self._feed(number) == feed]
            if events:
                await committer.push(feed, events, Read(now=self._clock.now()))

    def _feed(self, number: int) -> str:
        return "right" if self._items[number].part == "b" else "left"

    def _event(self, number: int) -> Event:
        item = self._items[number]
        happened: datetime = self._begun + timedelta(seconds=item.happened)
        data = {"n": number, "key": item.key, "part": item.part}
        return Event(subject=f"e{number}", type="x", data=data, occurred_at=happened)


def in_turn(gather: Gather, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Of more parts in one page than a join needs, the first are in its run: their order is part of the history."""
    if not isinstance(gather, Join):
        return list(deliveries)
    return [msgspec.structs.replace(one, events=tuple(sorted(one.events))) for one in deliveries]


def played(home: Home, gather: Gather, items: Sequence[Item], deliveries: Sequence[Delivery]) -> Outcome:
    return asyncio.run(Installation(home, gather, items).play(deliveries))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Item], list[Delivery], list[Delivery]]:
    """Items with when they come, plain and with everything that must not matter."""
    count = draw(st.integers(2, 7))
    arrivals = draw(st.lists(st.integers(0, 30).map(lambda n: n * 17), min_size=count, max_size=count))
    items = [
        Item(
            draw(st.sampled_from("abc")),
            draw(st.sampled_from(KEYS)),
            # it may come late, but it happened before it came
            arrival - draw(st.integers(0, 3)) * 9,
        )
        for arrival in arrivals
    ]
    plain: list[Delivery] = []
    troubled: list[Delivery] = []
    for second in sorted(set(arrivals)):
        numbers = [number for number, arrival in enumerate(arrivals) if arrival == second]
        plain.append(Delivery(second, tuple(numbers)))
        order = draw(st.permutations(numbers))
        repeated = [*order, *draw(st.lists(st.sampled_from(order), max_size=2))]
        fault = draw(st.sampled_from(("", "", "before", "after")))
        troubled.append(Delivery(second, tuple(repeated), draw(st.integers(0, REPLICAS - 1)), fault))
        if draw(st.booleans()):
            late = second + draw(st.integers(1, 200))
            again = tuple(draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=2)))
            troubled.append(Delivery(late, again, draw(st.integers(0, REPLICAS - 1))))
    return items, plain, troubled


def examples(number: int) -> Any:
    return settings(
        max_examples=longer(__file__, number),
        deadline=None,
        # a failing history of these is short, and shrinking it takes minutes
        phases=[Phase.explicit, Phase.generate] if not SOAK else list(Phase),
        derandomize=not SOAK,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.fixture(params=["postgres", "redis"])
def served(request: pytest.FixtureRequest) -> Any:
    server = request.getfixturevalue(request.param)
    return lambda: PostgresHome(server) if request.param == "postgres" else RedisHome(server)


@pytest.mark.parametrize("gather", GATHERS.values(), ids=GATHERS.keys())
@examples(25)
@given(history=histories())
def test_what_must_not_matter_does_not_change_the_runs(tmp_path: Path, gather: Gather, history: Any) -> None:
    items, plain, troubled = history
    troubled = in_turn(gather, troubled)
    assert played(SqliteHome(tmp_path), gather, items, troubled) == played(SqliteHome(tmp_path), gather, items, plain)


@pytest.mark.parametrize("gather", GATHERS.values(), ids=GATHERS.keys())
@examples(2)
@given(history=histories())
def test_servers_make_the_same_runs_as_a_file(tmp_path: Path, served: Any, gather: Gather, history: Any) -> None:
    items, plain, troubled = history
    troubled = in_turn(gather, troubled)
    assert played(served(), gather, items, troubled) == played(SqliteHome(tmp_path), gather, items, plain)


@st.composite
def joined(draw: st.DrawFn) -> tuple[list[Item], list[int]]:
    """The parts of one join, some of them twice before the last one comes, and the seconds at which they come."""
    parts = draw(st.permutations(["a", "b", "c"]))
    extra = draw(st.lists(st.sampled_from(parts[:2]), max_size=2))
    order = [*draw(st.permutations([*parts[:2], *extra])), parts[2]]
    seconds = sorted(draw(st.lists(st.integers(0, WINDOW - 1), min_size=len(order), max_size=len(order))))
    happened = draw(st.lists(st.integers(0, WINDOW), min_size=len(order), max_size=len(order)))
    return [Item(part, "x", at) for part, at in zip(order, happened, strict=True)], seconds


@examples(60)
@given(history=joined())
def test_a_join_has_all_that_came_whatever_the_order(tmp_path: Path, history: Any) -> None:
    items, seconds = history
    deliveries = [Delivery(second, (number,)) for number, second in enumerate(seconds)]
    everything = [(seconds[-1], frozenset(range(len(items))))]
    assert played(SqliteHome(tmp_path), GATHERS["join"], items, deliveries) == everything


@examples(40)
@given(gaps=st.lists(st.integers(1, WINDOW - 1), max_size=6))
def test_a_debounced_run_has_all_events_and_starts_when_it_is_quiet(tmp_path: Path, gaps: list[int]) -> None:
    seconds = [sum(gaps[:number]) for number in range(len(gaps) + 1)]
    items = [Item("a", "x", second) for second in seconds]
    deliveries = [Delivery(second, (number,)) for number, second in enumerate(seconds)]
    expected = [(seconds[-1] + WINDOW, frozenset(range(len(items))))]
    assert played(SqliteHome(tmp_path), GATHERS["debounce"], items, deliveries) == expected
