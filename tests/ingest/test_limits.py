"""Old events, quiet hours and reads by hand, from the source to the run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from harken.schedule import Quiet
from harken.testing import START, VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import HOUR, Process, trigger

WEEKEND = 60 * HOUR
# the virtual clock starts at 09:00 UTC
QUIET = Quiet(start="08:00", end="11:30")
END = datetime(2026, 1, 5, 11, 30, tzinfo=UTC)


@virtual
async def test_after_a_weekend_all_pages_of_old_events_land_in_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, page_size=5)
    await process.start(trigger(max_age=2 * HOUR))
    for number in range(45):
        process.world.put(f"old{number:02}")
    process.world.latency = 9.0
    clock.sleep_laptop(WEEKEND)
    process.world.put("new")
    await clock.sleep(150)
    [digest, single] = await process.runs()
    assert (len(digest.event_keys), digest.status) == (45, "gathering")
    assert single.event_keys == ("new",)
    verdict = await process.verdict("old07")
    assert (verdict.outcome, verdict.run_id) == ("gathered", digest.id)
    assert "older than max_age 2h" in verdict.reason
    await clock.sleep(120)
    [_, claimed] = await process.store.claim("w", 10, 60)
    assert [event.subject for event in claimed.events] == [f"old{number:02}" for number in range(45)]
    await process.stop()


@virtual
async def test_old_events_of_the_next_weekend_are_a_run_of_their_own(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(max_age=2 * HOUR))
    for name in ("first", "second"):
        process.world.put(name)
        clock.sleep_laptop(WEEKEND)
        await clock.sleep(200)
    assert [run.event_keys for run in await process.runs()] == [("first",), ("second",)]
    await process.stop()


@virtual
async def test_in_quiet_hours_events_are_recorded_and_their_runs_wait_in_order(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(quiet=QUIET))
    for name in ("a", "b", "c"):
        process.world.put(name)
        await clock.sleep(600)
    assert (await process.verdict("a")).reason == "waits until 11:30 (quiet hours)"
    assert await process.store.claim("w", 10, 60) == []
    due = [run.due_at for run in await process.runs()]
    assert due == sorted(set(due))
    assert END <= due[0] < due[-1] < END.replace(minute=31)
    await clock.sleep((END - START).total_seconds())
    assert [claimed.events[0].subject for claimed in await process.store.claim("w", 10, 60)] == ["a", "b", "c"]
    await process.stop()


@virtual
async def test_a_read_by_hand_does_not_wait_for_the_end_of_quiet_hours(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(quiet=QUIET), trigger("other", quiet=QUIET))
    process.world.put("a")
    await process.intake.tick("inbox", "t")
    assert [claimed.trigger for claimed in await process.store.claim("w", 10, 60)] == ["t"]
    process.world.put("b")
    await clock.sleep(120)
    assert await process.store.claim("w", 10, 60) == []
    await process.stop()
