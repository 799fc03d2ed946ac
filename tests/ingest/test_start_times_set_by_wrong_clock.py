"""A trigger that was created while the clock was ahead does not stay silent."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from harken.clock import from_unix
from harken.feed import INTERNAL
from harken.http import ServiceClock
from harken.ingest.poll import since, watermark
from harken.source import Batch
from harken.store.document_kinds import START_MOVED
from harken.testing import START, VirtualClock, virtual
from tests.ingest.noted_store import event, listener, live, rules
from tests.ingest.process import Process, trigger

DAY = 86_400.0


def ahead(clock: VirtualClock, path: Path, view: str) -> Process:
    """A process whose clock is a day ahead of that of the world."""
    process = Process(clock, path, view)
    process.world.clock = VirtualClock(clock._loop)
    clock.jump(DAY)
    return process


@pytest.mark.parametrize("view", ["listing", "since", "log"])
def test_a_start_line_that_is_in_the_future_when_the_clock_is_set_back_is_moved(view: str, tmp_path: Path) -> None:
    @virtual
    async def set_the_clock_back(clock: VirtualClock) -> None:
        process = ahead(clock, tmp_path, view)
        process.world.put("before")
        await clock.sleep(30)
        await process.start(trigger())
        await clock.sleep(100)
        process.world.put("while it was ahead")
        await clock.sleep(100)
        assert await process.fired() == []
        clock.jump(-DAY)
        await clock.sleep(10)
        process.world.put("afterwards")
        await clock.sleep(130)
        assert await process.fired() == ["while it was ahead", "afterwards"]
        await process.stop()

    set_the_clock_back()


@virtual
async def test_a_start_line_in_the_future_is_noticed_by_a_process_that_was_started_since(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = ahead(clock, tmp_path, "listing")
    await process.start(trigger())
    await clock.sleep(100)
    process.world.put("while it was ahead")
    await clock.sleep(100)
    await process.stop()
    clock.jump(-DAY)
    await process.start()
    process.world.put("afterwards")
    await clock.sleep(300)
    # no service says whether our clock is right now, so NTP gets its time
    assert await process.fired() == []
    await clock.sleep(500)
    assert await process.fired() == ["while it was ahead", "afterwards"]
    await process.stop()


def dated(process: Process, skew: float) -> None:
    """The service's answers are dated by a clock that is so many seconds ahead of ours."""
    clock = process.source.service_clock = ServiceClock()  # type: ignore[attr-defined]
    now = process.clock.time()
    clock.learn({"Date": format_datetime(from_unix(now + skew), usegmt=True)}, now, now)


@virtual
async def test_a_service_that_agrees_with_our_clock_is_proof_enough(clock: VirtualClock, tmp_path: Path) -> None:
    process = ahead(clock, tmp_path, "listing")
    await process.start(trigger())
    await process.stop()
    clock.jump(-DAY)
    dated(process, 0)
    await process.start()
    process.world.put("afterwards")
    await clock.sleep(200)
    assert await process.fired() == ["afterwards"]
    await process.stop()


@virtual
async def test_start_lines_stay_while_it_is_our_clock_that_is_wrong_now(clock: VirtualClock, tmp_path: Path) -> None:
    """A machine without a clock boots a day behind: what happened before the trigger came must not fire."""
    process = Process(clock, tmp_path, "listing")
    process.world.clock = VirtualClock(clock._loop)
    process.world.put("before")
    await clock.sleep(30)
    await process.start(trigger())
    [before] = await process.store.triggers()
    await process.stop()
    clock.jump(-DAY)
    dated(process, DAY)
    await process.start()
    await clock.sleep(1200)
    clock.jump(DAY)
    await clock.sleep(130)
    [after] = await process.store.triggers()
    assert (after.start_line, await process.fired()) == (before.start_line, [])
    await process.stop()


@virtual
async def test_items_that_are_dated_in_the_future_tell_that_our_clock_is_behind(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path, "listing")
    process.world.clock = VirtualClock(clock._loop)
    process.world.put("before")
    await clock.sleep(5)
    await process.start(trigger())
    clock.jump(-2_000)
    await clock.sleep(1_200)
    assert await process.fired() == []
    await process.stop()


@virtual
async def test_a_clock_that_is_set_back_although_services_agreed_with_it_moves_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path, "listing")
    dated(process, 0)
    await process.start(trigger())
    [before] = await process.store.triggers()
    clock.jump(-DAY)
    await clock.sleep(130)
    [after] = await process.store.triggers()
    assert after.start_line == before.start_line
    assert process.intake._skews() == [DAY]
    await process.stop()


@virtual
async def test_a_clock_that_is_set_back_in_small_steps_is_noticed_within_a_minute(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = ahead(clock, tmp_path, "listing")
    await process.start(trigger())
    for _ in range(1_000):
        clock.jump(-1.5)
        await clock.sleep(5)
    # it was ahead by far more than the hour in which this happened
    [state] = [one for one in await process.store.triggers() if one.name == "t"]
    assert state.start_line <= clock.now()
    await process.stop()


@virtual
async def test_a_start_line_that_was_moved_is_told(clock: VirtualClock, tmp_path: Path) -> None:
    process = ahead(clock, tmp_path, "listing")
    await process.start(trigger())
    [before] = await process.store.triggers()
    clock.jump(-DAY)
    with structlog.testing.capture_logs() as logged:
        await clock.sleep(10)
    really = before.start_line - timedelta(seconds=DAY)
    [line] = [one for one in logged if one["event"] == "trigger.start_moved"]
    assert (line["log_level"], line["trigger"], line["start_line"]) == ("warning", "t", really.isoformat())
    [told] = (await process.store.events(feed=INTERNAL)).items
    assert (told.type, told.subject, told.data["was"]) == ("trigger.start_moved", "t", before.start_line.isoformat())
    assert "the clock was ahead" in told.data["text"]
    document = await process.store.get(START_MOVED, "t")
    assert document is not None
    assert document.value["start_line"] == really.isoformat()
    await process.stop()


@virtual
async def test_pushed_events_that_come_while_the_start_line_is_ahead_fire_at_once_and_not_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = ahead(clock, tmp_path, "listing")
    await process.start(trigger(feed="hooks"))
    clock.jump(-DAY)
    # it is dated now, and the start line is still a day ahead
    await process.push("early")
    assert await process.fired() == ["early"]
    await clock.sleep(10)
    assert await process.fired() == ["early"]
    await process.push("late")
    assert await process.fired() == ["early", "late"]
    await process.stop()


@pytest.mark.parametrize(
    ("mark", "expected"),
    [(START, START - timedelta(seconds=120)), (START + timedelta(hours=3), START - timedelta(hours=1))],
    ids=["a watermark of now", "one that a clock saw that was ahead"],
)
def test_a_watermark_in_the_future_hides_nothing(mark: Any, expected: Any) -> None:
    feed = live(watermark=mark)
    assert since(feed, rules(listener()), START.timestamp()) == expected
    found = watermark(feed, Batch(events=[event("a", occurred_at=START - timedelta(seconds=9))]), START.timestamp())
    assert found == (START if mark == START else START - timedelta(seconds=9))
