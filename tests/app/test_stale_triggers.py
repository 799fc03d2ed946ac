"""A trigger that nothing comes for any more is said to be stale, once, and once that it goes again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from harken.app.stale_triggers import Freshness
from harken.event import Recorded
from harken.testing import Fault, VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import HOUR, Process, trigger

WATCHED = trigger(stale_after=15 * 60.0)
TELLING = trigger("tell", feed="harken", types=("trigger.stale", "trigger.recovered"))


def away(process: Process, seconds: float) -> None:
    """The service fails from now on for so long."""
    now = process.clock.time()
    process.world.faults.append(Fault(begin=now, end=now + seconds, kind="unavailable"))


async def told(process: Process) -> list[str]:
    events = (await process.store.events(feed="harken")).items
    assert all(isinstance(event, Recorded) for event in events)
    return [event.type for event in reversed(events)]


async def passes(process: Process, freshness: Freshness, seconds: float) -> None:
    """Time goes by, with a look every minute."""
    for _ in range(int(seconds // 60)):
        await process.clock.sleep(60)
        await freshness.check(process.triggers)


def watching(process: Process) -> Freshness:
    return Freshness(process.store, process.intake, process.clock)


@virtual
async def test_a_silence_is_told_once_and_so_is_its_end(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED, TELLING)
    freshness = watching(process)
    await passes(process, freshness, 1200)
    assert await told(process) == []
    away(process, HOUR)
    await passes(process, freshness, HOUR)
    assert (await told(process), freshness.stale) == (["trigger.stale"], ["t"])
    await passes(process, freshness, HOUR)
    assert freshness.stale == []
    assert await told(process) == ["trigger.stale", "trigger.recovered"]
    assert [run.status for run in await process.runs("tell")] == ["ready", "ready"]
    [event, _] = reversed((await process.store.events(feed="harken")).items)
    assert (event.data["trigger"], event.data["workflow"], event.data["stale_after_seconds"]) == ("t", "w", 900.0)
    await process.stop()


@virtual
async def test_every_silence_is_told_anew(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED)
    freshness = watching(process)
    for _ in range(2):
        away(process, HOUR)
        await passes(process, freshness, 3 * HOUR)
    assert await told(process) == ["trigger.stale", "trigger.recovered"] * 2
    await process.stop()


@virtual
async def test_a_restart_does_not_repeat_what_was_told_and_still_tells_its_end(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED)
    away(process, HOUR)
    await passes(process, watching(process), HOUR / 2)
    await process.stop_for(60)
    await process.start()
    freshness = watching(process)
    await passes(process, freshness, HOUR / 4)
    assert await told(process) == ["trigger.stale"]
    await passes(process, freshness, 2 * HOUR)
    assert await told(process) == ["trigger.stale", "trigger.recovered"]
    await process.stop()


@virtual
async def test_nothing_is_judged_before_the_reads_had_time_to_come(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED)
    await process.stop_for(10 * HOUR)
    process.world.latency = 8.0
    await process.start()
    freshness = watching(process)
    await freshness.check(process.triggers)
    last = (await process.store.state("inbox")).last_success
    assert last is not None
    assert last < clock.now() - timedelta(seconds=WATCHED.stale_after)
    await passes(process, freshness, 600)
    assert await told(process) == []
    await process.stop()


@virtual
async def test_a_feed_that_is_read_well_and_finds_nothing_is_fresh(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED)
    await passes(process, watching(process), 3 * HOUR)
    assert await told(process) == []
    await process.stop()


@virtual
async def test_a_webhook_that_stays_away_is_a_silence(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(feed="hooks", stale_after=HOUR))
    freshness = watching(process)
    await process.push("a")
    await passes(process, freshness, 2 * HOUR)
    assert await told(process) == ["trigger.stale"]
    await process.push("b")
    await passes(process, freshness, 60)
    assert await told(process) == ["trigger.stale", "trigger.recovered"]
    await process.stop()


@virtual
async def test_a_trigger_that_a_person_paused_is_not_complained_about(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED)
    await process.store.pause("t", "holiday")
    await process.intake.refresh("inbox")
    await passes(process, watching(process), 3 * HOUR)
    assert await told(process) == []
    await process.stop()


@virtual
async def test_a_trigger_that_left_is_forgotten_without_a_word(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(WATCHED, TELLING)
    away(process, 10 * HOUR)
    freshness = watching(process)
    await passes(process, freshness, HOUR)
    await process.reload(TELLING)
    await passes(process, freshness, 120)
    assert await told(process) == ["trigger.stale"]
    assert await process.store.documents("stale") == []
    await process.stop()
