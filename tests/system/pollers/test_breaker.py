"""The breaker of a job: opens after so many failures in a row, probes ever more rarely, and closes by itself."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from harken.circuit_breaker import Health
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer
from tests.system.hostile.world import House
from tests.system.pollers.world import World, world

BROKEN, LIMITED = Answer(status=503), Answer(status=429, headers={"Retry-After": "30"})


def health(house: House) -> Health:
    return house.app.intake.feeds["poller/watch"].health


def waits(it: World) -> list[float]:
    times = [seen.at for seen in it.listing.seen]
    return [round(later - earlier, 1) for earlier, later in pairwise(times)]


async def started(it: World, clock: VirtualClock, threshold: int) -> House:
    it.write(it.job(), settings=f"  breaker_threshold: {threshold}\n")
    house = House(it.directory, clock)
    await house.up()
    return house


@virtual
async def test_it_opens_at_the_threshold_and_probes_after_30_seconds_doubling_to_300(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.answers += [BROKEN] * 100
        house = await started(it, clock, 3)
        states: dict[int, str] = {}
        while health(house).failures < 9:
            await clock.sleep(5)
            states[health(house).failures] = health(house).state
        assert states == {1: "closed", 2: "closed", **dict.fromkeys(range(3, 10), "open")}
        # nothing is sooner, and nothing is later than a tenth
        planned = [10, 60, 30, 60, 120, 240, 300, 300]
        found = waits(it)
        assert [(low <= wait <= low * 1.1 + 1) for low, wait in zip(planned, found, strict=True)] == [True] * 8
        await house.down()


@virtual
async def test_one_success_closes_it_and_the_schedule_goes_on(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.answers += [BROKEN] * 3
        house = await started(it, clock, 2)
        probed: list[str] = []
        it.listing.after = {4: lambda: probed.append(health(house).state)}
        await clock.sleep(360)
        assert (probed, health(house).state, health(house).failures) == (["half_open"], "closed", 0)
        assert waits(it)[-1] == 60
        await house.down()


@virtual
async def test_it_stays_open_over_a_restart_and_the_probe_keeps_its_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.answers += [BROKEN] * 5
        house = await started(it, clock, 1)
        await clock.sleep(30 + 60 + 120 + 240)
        asked = len(it.listing.seen)
        assert (health(house).state, asked) == ("open", 4)
        await house.die()
        await house.up()
        assert (health(house).state, health(house).failures) == ("open", 4)
        await clock.sleep(150)
        assert len(it.listing.seen) == 5
        await house.down()


@virtual
async def test_a_429_neither_counts_nor_closes_nor_opens(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.answers += [BROKEN, LIMITED, LIMITED, LIMITED, BROKEN, LIMITED, LIMITED]
        house = await started(it, clock, 2)
        met: list[tuple[int, str]] = []
        while it.listing.answers:
            before = len(it.listing.answers)
            while len(it.listing.answers) == before:
                await clock.sleep(1)
            await clock.sleep(0.1)
            met.append((health(house).failures, health(house).state))
        assert met[:4] == [(1, "closed")] * 4
        assert met[4:] == [(2, "open")] * 3
        await house.down()


@virtual
async def test_a_success_in_between_begins_the_count_anew(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, 2)
        for _ in range(3):
            it.listing.answers.append(BROKEN)
            await clock.sleep(400)
            assert (health(house).failures, health(house).state) == (0, "closed")
        assert [seen.status for seen in it.listing.seen].count(503) == 3
        await house.down()
