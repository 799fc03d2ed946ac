"""Startup modes: where a trigger goes on at every start of the process."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import FEED, HOUR, Process, trigger

PLAIN = trigger()
IGNORING = trigger(startup="ignore_historical")
LOOKING_BACK = trigger(startup="backfill", backfill=4 * HOUR)


async def start_an_hour_after(process: Process, early: str) -> None:
    process.world.put(early)
    await process.clock.sleep(HOUR)
    await process.start(PLAIN)


async def add_a_trigger_that_looks_back(process: Process, *, unread: str, stored: str) -> None:
    """To a house where one thing came before the start and one after it."""
    process.world.put(unread)
    await process.clock.sleep(60)
    await process.start(PLAIN)
    process.world.put(stored)
    await process.clock.sleep(120)
    await process.reload(PLAIN, trigger("late", backfill=HOUR))


@virtual
async def test_since_last_goes_on_where_it_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(PLAIN)
    process.world.put("before")
    await clock.sleep(120)
    await process.stop()
    process.world.put("meanwhile")
    await clock.sleep(6 * HOUR)
    await process.start()
    assert await process.fired() == ["before", "meanwhile"]
    await process.stop()


@virtual
async def test_ignore_historical_skips_what_happened_meanwhile_and_says_why(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)
    await process.start(IGNORING)
    await process.stop()
    process.world.put("meanwhile")
    await clock.sleep(HOUR)
    await process.start()
    process.world.put("after")
    await clock.sleep(120)
    assert await process.fired() == ["after"]
    skipped = await process.verdict("meanwhile")
    assert skipped.outcome == "before_start"
    assert skipped.reason.endswith("(startup: ignore_historical)")
    await process.stop()


@virtual
async def test_ignore_historical_holds_at_every_start(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(IGNORING)
    for name in ("first", "second"):
        await process.stop()
        process.world.put(name)
        await clock.sleep(HOUR)
        await process.start()
    assert await process.fired() == []
    assert [(await process.verdict(name)).outcome for name in ("first", "second")] == ["before_start"] * 2
    await process.stop()


@virtual
async def test_ignore_historical_skips_undated_items_of_the_first_read(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, "listing")
    await process.start(IGNORING)
    await process.stop()
    process.world.put("meanwhile", undated=True)
    await clock.sleep(HOUR)
    await process.start()
    process.world.put("after", undated=True)
    await clock.sleep(120)
    assert await process.fired() == ["after"]
    assert "first read after a start" in (await process.verdict("meanwhile")).reason
    await process.stop()


@virtual
async def test_a_process_that_joins_others_applies_no_startup_mode(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(IGNORING)
    before = await process.store.triggers()
    await clock.sleep(HOUR)
    second = process.another_intake("second")
    await second.start(process.definitions(starting=True))
    assert await process.store.triggers() == before
    await second.stop()
    await process.stop()


@virtual
async def test_a_reload_ignores_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(IGNORING)
    process.world.put("a")
    await process.reload(msgspec.structs.replace(IGNORING, priority=1))
    await clock.sleep(120)
    assert await process.fired() == ["a"]
    await process.stop()


@virtual
async def test_the_first_start_may_look_back(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    process.world.put("too old")
    await clock.sleep(2 * HOUR)
    process.world.put("old")
    await clock.sleep(HOUR)
    await process.start(trigger(backfill=2 * HOUR))
    assert await process.fired() == ["old"]
    await process.stop()


@virtual
async def test_since_last_looks_back_at_its_first_start_only(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(backfill=4 * HOUR))
    process.world.put("seen")
    await clock.sleep(120)
    await process.stop_for(HOUR)
    process.world.put("late", late=2 * HOUR)
    await process.start()
    await clock.sleep(120)
    assert await process.fired() == ["seen"]
    await process.stop()


@virtual
async def test_backfill_reads_again_and_fires_only_what_has_not_fired(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(LOOKING_BACK)
    process.world.put("fired")
    await clock.sleep(120)
    # the API shows it late, far beyond the lookback
    process.world.put("late", late=HOUR)
    await clock.sleep(120)
    assert await process.fired() == ["fired"]
    await process.stop_for(HOUR)
    await process.start()
    await clock.sleep(180)
    assert process.source.since[-1] > clock.time() - 2 * HOUR
    assert min(process.source.since[-5:]) <= clock.time() - 4 * HOUR
    assert await process.fired() == ["fired", "late"]
    await process.stop()


@virtual
async def test_backfill_fires_what_was_before_the_start_once(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, "listing")
    await start_an_hour_after(process, "early")
    assert (await process.verdict("early")).outcome == "before_start"
    await process.stop_for(60)
    await process.start(LOOKING_BACK)
    await clock.sleep(200)
    assert await process.fired() == ["early"]
    for _ in range(2):
        await process.stop_for(60)
        await process.start()
        await clock.sleep(200)
    assert await process.fired() == ["early"]
    assert (await process.verdict("early")).outcome == "fired"
    await process.stop()


@virtual
async def test_an_edit_to_backfill_waits_for_the_next_start(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, "listing")
    await start_an_hour_after(process, "early")
    await process.reload(LOOKING_BACK)
    await clock.sleep(200)
    assert await process.fired() == []
    await process.stop()


@virtual
async def test_a_new_trigger_on_a_known_feed_looks_back_over_what_is_stored_and_what_is_not(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)
    await add_a_trigger_that_looks_back(process, unread="unread", stored="stored")
    await clock.sleep(200)
    assert await process.fired("late") == ["stored", "unread"]
    assert await process.fired() == ["stored"]
    assert not (await process.store.triggers())[0].backfilling
    await process.stop()


@virtual
async def test_a_condition_decides_about_what_is_stored_too(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(PLAIN)
    process.world.put("a", "open")
    process.world.put("b", "closed")
    await clock.sleep(120)
    await process.reload(PLAIN, trigger("late", backfill=HOUR, condition='event.state == "open"'))
    await clock.sleep(200)
    assert await process.fired("late") == ["a"]
    assert (await process.verdict("b", "late")).outcome == "filtered"
    await process.stop()


@virtual
async def test_a_backfill_that_is_cut_off_is_finished_by_the_next_process(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await add_a_trigger_that_looks_back(process, unread="unread", stored="stored")
    await process.crash()
    await process.start()
    await clock.sleep(200)
    assert sorted(await process.fired("late")) == ["stored", "unread"]
    await process.stop()


@virtual
async def test_a_read_that_was_cut_off_does_not_count_as_the_backfill(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, page_size=2)
    await start_an_hour_after(process, "early")
    for number in range(6):
        process.world.put(f"n{number}")
    process.world.latency = 4.0
    # far enough for a page, and not for the whole read
    await clock.sleep(66)
    await process.crash()
    process.world.latency = 0.0
    await process.start(LOOKING_BACK)
    await clock.sleep(300)
    assert sorted(await process.fired()) == ["early", *(f"n{number}" for number in range(6))]
    await process.stop()


@virtual
async def test_a_read_that_began_before_the_trigger_came_does_not_count_as_its_backfill(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path, page_size=2)
    process.feed = msgspec.structs.replace(FEED, tick_timeout=5.0)
    await start_an_hour_after(process, "early")
    wanted = [f"n{number:02}" for number in range(14)]
    for name in wanted:
        process.world.put(name)
    process.world.latency = 4.0
    # the read takes several ticks; this is in the first of them
    await clock.sleep(66)
    await process.reload(PLAIN, trigger("late", backfill=2 * HOUR))
    await clock.sleep(300)
    assert sorted(await process.fired("late")) == ["early", *wanted]
    assert not any(state.backfilling for state in await process.store.triggers())
    await process.stop()


@virtual
async def test_what_was_pushed_is_decided_again_from_what_is_stored(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(feed="hooks"))
    await process.push("a")
    await clock.sleep(60)
    await process.reload(trigger(feed="hooks"), trigger("late", feed="hooks", backfill=HOUR))
    assert await process.fired("late") == ["a"]
    await process.push("b")
    assert await process.fired("late") == ["a", "b"]
    assert not any(state.backfilling for state in await process.store.triggers())
    await process.stop()


@virtual
async def test_the_flood_guard_lets_an_explicit_backfill_through(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    for number in range(5):
        process.world.put(f"n{number}")
    await clock.sleep(HOUR)
    await process.start(trigger(backfill=2 * HOUR, flood_limit=3))
    assert [run.status for run in await process.runs()] == ["ready"] * 5
    await process.stop()


@virtual
async def test_the_flood_guard_holds_what_any_other_first_read_brings(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    for number in range(5):
        process.world.put(f"n{number}", late=-HOUR)
    await process.start(trigger(flood_limit=3))
    assert [run.status for run in await process.runs()] == ["held"] * 5
    await process.stop()


@virtual
async def test_another_identity_fires_nothing_a_second_time(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, "listing")
    await process.start(PLAIN)
    process.world.put("a")
    process.world.put("b", undated=True)
    await clock.sleep(120)
    process.feed = msgspec.structs.replace(FEED, identity="change")
    await process.reload(PLAIN)
    await clock.sleep(120)
    assert sorted(await process.fired()) == ["a", "b"]
    process.world.put("a", "changed")
    await clock.sleep(120)
    assert (await process.fired())[2:] == ["a"]
    await process.stop()
