"""A trigger that nothing comes for any more is said to be stale, once, and once that it goes again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from harken.app.freshness import Freshness
from harken.event import Recorded
from harken.testing import Fault, VirtualClock
from harken.testing.clock import virtual
from tests.ingest.world import HOUR, House, trigger

WATCHED = trigger(stale_after=15 * 60.0)
TELLING = trigger("tell", feed="harken", types=("trigger.stale", "trigger.recovered"))


def away(house: House, seconds: float) -> None:
    """The service fails from now on for so long."""
    now = house.clock.time()
    house.world.faults.append(Fault(begin=now, end=now + seconds, kind="unavailable"))


async def told(house: House) -> list[str]:
    events = (await house.store.events(feed="harken")).items
    assert all(isinstance(event, Recorded) for event in events)
    return [event.type for event in reversed(events)]


async def passes(house: House, freshness: Freshness, seconds: float) -> None:
    """Time goes by, with a look every minute."""
    for _ in range(int(seconds // 60)):
        await house.clock.sleep(60)
        await freshness.look(house.triggers)


def watching(house: House) -> Freshness:
    return Freshness(house.store, house.intake, house.clock)


@virtual
async def test_a_silence_is_told_once_and_so_is_its_end(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED, TELLING)
    freshness = watching(house)
    await passes(house, freshness, 1200)
    assert await told(house) == []
    away(house, HOUR)
    await passes(house, freshness, HOUR)
    assert (await told(house), freshness.stale) == (["trigger.stale"], ["t"])
    await passes(house, freshness, HOUR)
    assert freshness.stale == []
    assert await told(house) == ["trigger.stale", "trigger.recovered"]
    assert [run.status for run in await house.runs("tell")] == ["ready", "ready"]
    [event, _] = reversed((await house.store.events(feed="harken")).items)
    assert (event.data["trigger"], event.data["workflow"], event.data["stale_after_seconds"]) == ("t", "w", 900.0)
    await house.stop()


@virtual
async def test_every_silence_is_told_anew(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED)
    freshness = watching(house)
    for _ in range(2):
        away(house, HOUR)
        await passes(house, freshness, 3 * HOUR)
    assert await told(house) == ["trigger.stale", "trigger.recovered"] * 2
    await house.stop()


@virtual
async def test_a_restart_does_not_repeat_what_was_told_and_still_tells_its_end(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED)
    away(house, HOUR)
    await passes(house, watching(house), HOUR / 2)
    await house.down(60)
    await house.start()
    freshness = watching(house)
    await passes(house, freshness, HOUR / 4)
    assert await told(house) == ["trigger.stale"]
    await passes(house, freshness, 2 * HOUR)
    assert await told(house) == ["trigger.stale", "trigger.recovered"]
    await house.stop()


@virtual
async def test_nothing_is_judged_before_the_reads_had_time_to_come(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED)
    await house.down(10 * HOUR)
    house.world.latency = 8.0
    await house.start()
    freshness = watching(house)
    await freshness.look(house.triggers)
    last = (await house.store.state("inbox")).last_success
    assert last is not None
    assert last < clock.now() - timedelta(seconds=WATCHED.stale_after)
    await passes(house, freshness, 600)
    assert await told(house) == []
    await house.stop()


@virtual
async def test_a_feed_that_is_read_well_and_finds_nothing_is_fresh(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED)
    await passes(house, watching(house), 3 * HOUR)
    assert await told(house) == []
    await house.stop()


@virtual
async def test_a_webhook_that_stays_away_is_a_silence(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(trigger(feed="hooks", stale_after=HOUR))
    freshness = watching(house)
    await house.push("a")
    await passes(house, freshness, 2 * HOUR)
    assert await told(house) == ["trigger.stale"]
    await house.push("b")
    await passes(house, freshness, 60)
    assert await told(house) == ["trigger.stale", "trigger.recovered"]
    await house.stop()


@virtual
async def test_a_trigger_that_a_person_paused_is_not_complained_about(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED)
    await house.store.pause("t", "holiday")
    await house.intake.refresh("inbox")
    await passes(house, watching(house), 3 * HOUR)
    assert await told(house) == []
    await house.stop()


@virtual
async def test_a_trigger_that_left_is_forgotten_without_a_word(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(WATCHED, TELLING)
    away(house, 10 * HOUR)
    freshness = watching(house)
    await passes(house, freshness, HOUR)
    await house.reload(TELLING)
    await passes(house, freshness, 120)
    assert await told(house) == ["trigger.stale"]
    assert await house.store.documents("stale") == []
    await house.stop()
