"""Every way to gather is executed with everything that may stand beside it: each has its say, and no event is lost.

What is refused together, as a throttle beside a digest, is in tests/config/test_trigger_gathering.py: its error names
both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.event import Event
from harken.feed import Budget, Dedupe, Gather, Trigger
from harken.ingest.commit import Committer, RuleCache
from harken.match import Read
from harken.runs import Claimed, Finished
from harken.schedule import Quiet
from harken.store import Definitions, Settlement
from harken.testing.clock import HandClock
from tests.ingest.process import FLOWS, NoExecutor
from tests.soak import SOAK
from tests.system.property.fleet_stores import Home, PostgresHome, RedisHome, SqliteHome
from tests.system.property.test_gathering import GATHERS, LEFT, RIGHT

# noon, so that hours and days begin far away
NOON = datetime.fromisoformat("2026-03-02T12:00:30+00:00")
END = 5 * 3600
WORK = 500
PAUSE, RESUME = 5, 3_000
ITEMS = [(at, part, key) for at, part in ((0, "a"), (10, "b"), (20, "c")) for key in "xy"]
OF_JOIN_WITHOUT = [item for item in ITEMS if item[1:] not in (("b", "x"), ("c", "y"))]


class Start(msgspec.Struct, frozen=True):
    """A run: its trigger, from which second to which it was in work, and the numbers of its events."""

    trigger: str
    begun: int
    ended: int
    events: frozenset[int]


class Place:
    """One replica that takes events and works, on a clock that is moved by hand."""

    def __init__(self, home: Home, triggers: Sequence[Trigger], *, work: int = 0) -> None:
        self._home, self._work = home, work
        self._clock = HandClock(NOON)
        self._definitions = Definitions(generation="g", feeds=(LEFT, RIGHT), triggers=triggers, workflows=FLOWS)
        self._working: list[tuple[int, Claimed]] = []
        self._starts: list[Start] = []

    async def play(
        self, items: Sequence[tuple[int, str, str]], *, copies: int = 1, paused: bool = False
    ) -> list[Start]:
        await self._home.move_in(self._clock)
        self._store = self._home.store()
        try:
            opened = await self._store.open(self._definitions)
            self._committer = Committer(self._store, RuleCache(self._store), NoExecutor(), self._clock)
            self._committer.rule_cache.adopt(self._definitions, opened)
            moments = {*(at for at, _, _ in items), *((PAUSE, RESUME) if paused else ()), END}
            for second in sorted(moments):
                await self._pass_time(second)
                if paused and second == PAUSE:
                    await self._store.pause("t", "by hand")
                if paused and second == RESUME:
                    await self._store.resume("t")
                for number, (at, part, key) in enumerate(items):
                    for copy in range(copies if at == second else 0):
                        await self._push(number, part, key, copy)
            return self._starts
        finally:
            await self._home.let_go(self._store)
            await self._home.move_out()

    async def _push(self, number: int, part: str, key: str, copy: int) -> None:
        feed = "right" if part == "b" else "left"
        data = {"n": number, "key": key, "part": part}
        event = Event(subject=f"e{number}-{copy}", type="x", data=data, occurred_at=self._clock.now())
        await self._committer.push(feed, [event], Read(now=self._clock.now()))

    @property
    def _second(self) -> int:
        return round((self._clock.now() - NOON).total_seconds())

    async def _pass_time(self, second: int) -> None:
        while True:
            await self._settle()
            while claims := await self._store.claim("w", 1, 1e6):
                [claim] = claims
                numbers = frozenset(event.data["n"] for event in claim.events)
                self._starts.append(Start(claim.trigger, self._second, self._second + self._work, numbers))
                self._working.append((self._second + self._work, claim))
                await self._settle()
            if self._second >= second:
                return
            due = await self._store.next_due()
            ahead = [(due - self._clock.now()).total_seconds()] if due else []
            ahead += [ended - self._second for ended, _ in self._working]
            self._clock.advance(min(max(min(ahead, default=END), 1), second - self._second))

    async def _settle(self) -> None:
        for ended, claim in [one for one in self._working if one[0] <= self._second]:
            await self._store.settle([Settlement(id=claim.id, token=claim.token, outcome=Finished())])
            self._working.remove((ended, claim))


def trigger(gather: Gather, name: str = "t", **beside: Any) -> Trigger:
    return Trigger(name=name, feed="left", workflow="w", workflow_rev="r", gather=gather, **beside)


def groups(starts: Sequence[Start]) -> list[list[int]]:
    return sorted(sorted(start.events) for start in starts)


def one_at_a_time(starts: Sequence[Start]) -> bool:
    return all(later.begun >= earlier.ended for earlier, later in pairwise(starts))


def hour(start: Start) -> datetime:
    return (NOON + timedelta(seconds=start.begun)).replace(minute=0, second=0, microsecond=0)


Playing = Callable[..., list[Start]]


def overlap_queue(play: Playing, gather: Gather, alone: list[Start]) -> None:
    starts = play([trigger(gather, overlap="queue")], work=WORK)
    assert groups(starts) == groups(alone)
    assert one_at_a_time(starts)


def overlap_skip(play: Playing, gather: Gather, alone: list[Start]) -> None:
    starts = play([trigger(gather, overlap="skip")], work=WORK)
    assert groups(starts[:1]) == groups(alone[:1])
    assert one_at_a_time(starts)
    assert all(group in groups(alone) for group in groups(starts))


def dedupe(play: Playing, gather: Gather, alone: list[Start]) -> None:
    """Each event comes three times under names of its own; by its number it is one."""
    starts = play([trigger(gather, dedupe=Dedupe(by="string(event.n)", within=1e5))], copies=3)
    assert groups(starts) == groups(alone)
    assert [start.begun for start in starts] == [start.begun for start in alone]


def priority(play: Playing, gather: Gather, alone: list[Start]) -> None:
    starts = play([trigger(gather, "a-low"), trigger(gather, priority=7)])
    assert groups([start for start in starts if start.trigger == "t"]) == groups(alone)
    for begun in {start.begun for start in starts}:
        names = [start.trigger for start in starts if start.begun == begun]
        assert names == sorted(names, reverse=True), "those of higher priority first"


def quiet_hours(play: Playing, gather: Gather, alone: list[Start]) -> None:
    starts = play([trigger(gather, quiet=Quiet(start="11:00", end="13:00"))])
    assert [start for start in starts if start.begun < 3570] == [], "until one o'clock it is quiet"
    assert groups(starts) == groups(alone)


def budget(play: Playing, gather: Gather, alone: list[Start]) -> None:
    starts = play([trigger(gather, budget=Budget(runs_per_hour=1))])
    assert len({hour(start) for start in starts}) == len(starts), "one an hour"
    assert groups(starts) == groups(alone)


def pause(play: Playing, gather: Gather, alone: list[Start]) -> None:
    starts = play([trigger(gather)], paused=True)
    assert [start for start in starts if PAUSE <= start.begun < RESUME] == []
    found = [number for start in starts for number in start.events]
    assert len(found) == len(set(found)), "each event once"
    assert set(found) == {number for start in alone for number in start.events}


BESIDE: Mapping[str, Callable[[Playing, Gather, list[Start]], None]] = {
    "overlap: queue": overlap_queue,
    "overlap: skip": overlap_skip,
    "dedupe": dedupe,
    "priority": priority,
    "quiet_hours": quiet_hours,
    "budget": budget,
    "pause": pause,
}


@pytest.fixture(params=["sqlite", "postgres", "redis"] if SOAK else ["sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Home]:
    if request.param == "sqlite":
        return lambda: SqliteHome(tmp_path)
    server = request.getfixturevalue(request.param)
    return lambda: PostgresHome(server) if request.param == "postgres" else RedisHome(server)


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("kind", GATHERS)
def test_a_pair_is_executed(home: Callable[[], Home], kind: str, beside: str) -> None:
    items = OF_JOIN_WITHOUT if kind == "join without" else ITEMS

    def play(triggers: Sequence[Trigger], *, work: int = 0, **given: Any) -> list[Start]:
        return asyncio.run(Place(home(), triggers, work=work).play(items, **given))

    alone = play([trigger(GATHERS[kind])])
    assert len(alone) >= 1 + (kind != "join without")
    BESIDE[beside](play, GATHERS[kind], alone)
