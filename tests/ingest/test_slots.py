"""Services that hang cannot starve healthy ones, and a read that has to wait says for how long and why."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harken.backends.sqlite import SqliteStore
from harken.feed import Feed, Trigger
from harken.ingest.intake import Intake
from harken.ingest.scheduler import HANGING, HANGING_PER_KEY, HANGS_AFTER, PARALLEL, PER_KEY, TickSlots
from harken.schedule import Every
from harken.source import Batch
from harken.store import Definitions
from harken.testing import VirtualClock, virtual
from tests.ingest.process import FLOWS, NoExecutor

HANGERS = 200


class Service:
    """Answers at once, or never; notes when it was asked."""

    def __init__(self, clock: VirtualClock, hangs: bool) -> None:
        self._clock, self._hangs = clock, hangs
        self.asked: list[float] = []

    async def poll(self, cursor: Any, since: Any) -> Batch:
        self.asked.append(self._clock.monotonic())
        if self._hangs:
            await asyncio.Event().wait()
        return Batch(cursor=cursor)


def feed(name: str, integration: str) -> Feed:
    return Feed(name=name, kind="world", integration=integration, schedule=Every(seconds=10), jitter=0.0)


class Site:
    """Many feeds that hang, and one that does not."""

    def __init__(self, clock: VirtualClock, path: Path, hosts: int) -> None:
        self.healthy = Service(clock, hangs=False)
        self.hanging = Service(clock, hangs=True)
        self.store = SqliteStore.at(path / "harken.db", clock, inline=True)
        engine: Any = (self.store, clock, Random(1), NoExecutor(), self._build)
        self.intake = Intake(*engine, holder="tests")
        hangers = [feed(f"h{n:03}", f"host{n % hosts}.example") for n in range(HANGERS)]
        # by its name the healthy feed is the last of all
        self.feeds = (*hangers, feed("zz", "healthy.example"))
        self.triggers = tuple(
            Trigger(name=one.name, feed=one.name, workflow="w", workflow_rev="r") for one in self.feeds
        )

    def _build(self, one: Feed) -> Any:
        return self.healthy if one.name == "zz" else self.hanging

    async def start(self) -> None:
        await self.intake.start(
            Definitions(generation="g", feeds=self.feeds, triggers=self.triggers, workflows=FLOWS, starting=True)
        )

    async def stop(self) -> None:
        await self.intake.stop()
        await self.store.close()


@pytest.mark.parametrize("hosts", [1, 3, HANGERS])
def test_hanging_sources_cannot_starve_healthy_ones(hosts: int, tmp_path: Path) -> None:
    @virtual
    async def read_for_ten_minutes(clock: VirtualClock) -> None:
        site = Site(clock, tmp_path, hosts)
        await site.start()
        await clock.sleep(600)
        asked = site.healthy.asked
        gaps = [after - before for before, after in pairwise(asked)]
        # at first nothing is known of any service, and the healthy one is asked last
        assert asked[0] <= min(hosts, HANGERS / PARALLEL) * HANGS_AFTER + 0.1
        assert max(gaps) <= 10.0 + HANGS_AFTER + 0.1
        assert len(asked) >= 58
        # those that hang are still tried, all of them
        assert len(site.hanging.asked) >= HANGERS
        await site.stop()

    read_for_ten_minutes()


@virtual
async def test_a_read_that_waits_for_a_slot_says_how_late_it_is_and_why(clock: VirtualClock, tmp_path: Path) -> None:
    site = Site(clock, tmp_path, hosts=1)
    await site.start()
    await clock.sleep(8)
    late = site.intake.late_reads()
    # while the first ones of the burst begin to hang, their places are taken by a few more
    hanging = HANGERS - len(late)
    assert PER_KEY <= hanging < PER_KEY + HANGING_PER_KEY
    [reason] = {one.reason for one in late.values()}
    assert reason == f"waits for a slot, {hanging} reads of host0.example hang"
    assert all(one.seconds == pytest.approx(8, abs=0.5) for one in late.values())
    assert site.intake.lag == max(one.seconds for one in late.values())
    assert "zz" not in late
    await site.stop()
    assert site.intake.late_reads() == {}


@virtual
async def test_of_a_host_that_hangs_only_a_few_reads_are_begun_again(clock: VirtualClock, tmp_path: Path) -> None:
    """The first burst cannot know; from then on a new read is begun only when fewer hang."""
    slots = TickSlots(clock)
    hang = asyncio.Event()
    running: list[int] = []

    async def tick(number: int) -> None:
        with await slots.enter(f"f{number}", "slow.example"):
            running.append(number)
            await hang.wait()

    first = [asyncio.create_task(tick(number)) for number in range(HANGING_PER_KEY)]
    await clock.sleep(HANGS_AFTER + 0.1)
    second = [asyncio.create_task(tick(number)) for number in range(10, 20)]
    await clock.sleep(5)
    assert running == [0, 1, 2, 3]
    first[2].cancel()
    await clock.sleep(0)
    await clock.sleep(0)
    # those that were begun together: they do not hang yet
    assert running == [0, 1, 2, 3, *range(10, 20)]
    hang.set()
    await asyncio.gather(*first, *second, return_exceptions=True)
    assert slots.waiting() == {}


@virtual
async def test_slots_are_shared_by_keys_in_turn(clock: VirtualClock) -> None:
    slots, order = TickSlots(clock), list[str]()

    async def tick(name: str, key: str) -> None:
        with await slots.enter(name, key):
            order.append(name)
            await clock.sleep(0.5)

    busy = [tick(f"a{n}", "a") for n in range(PARALLEL)] + [tick(f"b{n}", "b") for n in range(PARALLEL)]
    await asyncio.gather(*busy)
    first = order[:PARALLEL]
    assert (sum(name[0] == "a" for name in first), len(order)) == (PER_KEY, 2 * PARALLEL)


@virtual
async def test_a_tick_that_is_cancelled_while_it_waits_or_just_after_takes_no_slot(clock: VirtualClock) -> None:
    slots, end, entered = TickSlots(clock), asyncio.Event(), list[str]()

    async def tick(name: str) -> None:
        with await slots.enter(name, name):
            entered.append(name)
            await end.wait()

    running = [asyncio.create_task(tick(f"t{n}")) for n in range(PARALLEL)]
    await asyncio.sleep(0)
    waits, gets, last = (asyncio.create_task(tick(name)) for name in ("waits", "gets", "last"))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.sleep(0)
    assert set(slots.waiting()) == {"gets", "last"}
    running[0].cancel()
    await asyncio.sleep(0)
    assert set(slots.waiting()) == {"last"}
    # it has its slot, but has not gone on yet
    gets.cancel()
    await clock.sleep(0.1)
    assert "gets" not in entered
    assert entered[-1] == "last"
    end.set()
    await asyncio.gather(*running, waits, gets, last, return_exceptions=True)
    assert await asyncio.wait_for(_all_free(slots), 60)


async def _all_free(slots: TickSlots) -> bool:
    for number in range(PARALLEL):
        await slots.enter(f"n{number}", f"n{number}")
    return not slots.waiting()


@virtual
async def test_no_more_reads_hang_than_there_are_connections_for(clock: VirtualClock) -> None:
    slots, end = TickSlots(clock), asyncio.Event()

    async def tick(name: str) -> None:
        with await slots.enter(name, name):
            await end.wait()

    ticks = [asyncio.create_task(tick(f"h{n}")) for n in range(2 * HANGING)]
    await clock.sleep(60)
    waiting = slots.waiting()
    hanging = len(ticks) - len(waiting)
    assert HANGING <= hanging < HANGING + PARALLEL
    assert {one.reason for one in waiting.values()} == {f"{hanging} reads hang"}
    end.set()
    await asyncio.gather(*ticks)


@virtual
async def test_each_read_hangs_after_its_own_time_whatever_those_before_it_did(clock: VirtualClock) -> None:
    slots, begun = TickSlots(clock), list[float]()

    async def tick(name: str, seconds: float) -> None:
        with await slots.enter(name, name):
            begun.append(clock.monotonic())
            await clock.sleep(seconds)

    start = clock.monotonic()
    await tick("quick", 0.4 * HANGS_AFTER)
    hanging = [asyncio.create_task(tick(f"h{n}", 10)) for n in range(PARALLEL)]
    await clock.sleep(0.2 * HANGS_AFTER)
    waits = asyncio.create_task(tick("waits", 0))
    await asyncio.gather(waits, *hanging)
    assert begun[-1] - start == pytest.approx(1.4 * HANGS_AFTER)
