"""Startup modes: where a trigger goes on at every start of the process."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.world import FEED, HOUR, House, trigger

PLAIN = trigger()
IGNORING = trigger(startup="ignore_historical")
LOOKING_BACK = trigger(startup="backfill", backfill=4 * HOUR)


async def start_an_hour_after(house: House, early: str) -> None:
    house.world.put(early)
    await house.clock.sleep(HOUR)
    await house.start(PLAIN)


async def add_a_trigger_that_looks_back(house: House, *, unread: str, stored: str) -> None:
    """To a house where one thing came before the start and one after it."""
    house.world.put(unread)
    await house.clock.sleep(60)
    await house.start(PLAIN)
    house.world.put(stored)
    await house.clock.sleep(120)
    await house.reload(PLAIN, trigger("late", backfill=HOUR))


@virtual
async def test_since_last_goes_on_where_it_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(PLAIN)
    house.world.put("before")
    await clock.sleep(120)
    await house.stop()
    house.world.put("meanwhile")
    await clock.sleep(6 * HOUR)
    await house.start()
    assert await house.fired() == ["before", "meanwhile"]
    await house.stop()


@virtual
async def test_ignore_historical_skips_what_happened_meanwhile_and_says_why(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = House(clock, tmp_path)
    await house.start(IGNORING)
    await house.stop()
    house.world.put("meanwhile")
    await clock.sleep(HOUR)
    await house.start()
    house.world.put("after")
    await clock.sleep(120)
    assert await house.fired() == ["after"]
    skipped = await house.verdict("meanwhile")
    assert skipped.outcome == "before_start"
    assert skipped.reason.endswith("(startup: ignore_historical)")
    await house.stop()


@virtual
async def test_ignore_historical_holds_at_every_start(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(IGNORING)
    for name in ("first", "second"):
        await house.stop()
        house.world.put(name)
        await clock.sleep(HOUR)
        await house.start()
    assert await house.fired() == []
    assert [(await house.verdict(name)).outcome for name in ("first", "second")] == ["before_start"] * 2
    await house.stop()


@virtual
async def test_ignore_historical_skips_undated_items_of_the_first_read(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path, "listing")
    await house.start(IGNORING)
    await house.stop()
    house.world.put("meanwhile", undated=True)
    await clock.sleep(HOUR)
    await house.start()
    house.world.put("after", undated=True)
    await clock.sleep(120)
    assert await house.fired() == ["after"]
    assert "first read after a start" in (await house.verdict("meanwhile")).reason
    await house.stop()


@virtual
async def test_a_process_that_joins_others_applies_no_startup_mode(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(IGNORING)
    before = await house.store.triggers()
    await clock.sleep(HOUR)
    second = house.hire("second")
    await second.start(house.definitions(starting=True))
    assert await house.store.triggers() == before
    await second.stop()
    await house.stop()


@virtual
async def test_a_reload_ignores_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(IGNORING)
    house.world.put("a")
    await house.reload(msgspec.structs.replace(IGNORING, priority=1))
    await clock.sleep(120)
    assert await house.fired() == ["a"]
    await house.stop()


@virtual
async def test_the_first_start_may_look_back(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    house.world.put("too old")
    await clock.sleep(2 * HOUR)
    house.world.put("old")
    await clock.sleep(HOUR)
    await house.start(trigger(backfill=2 * HOUR))
    assert await house.fired() == ["old"]
    await house.stop()


@virtual
async def test_since_last_looks_back_at_its_first_start_only(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(trigger(backfill=4 * HOUR))
    house.world.put("seen")
    await clock.sleep(120)
    await house.down(HOUR)
    house.world.put("late", late=2 * HOUR)
    await house.start()
    await clock.sleep(120)
    assert await house.fired() == ["seen"]
    await house.stop()


@virtual
async def test_backfill_reads_again_and_fires_only_what_has_not_fired(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(LOOKING_BACK)
    house.world.put("fired")
    await clock.sleep(120)
    # the API shows it late, far beyond the lookback
    house.world.put("late", late=HOUR)
    await clock.sleep(120)
    assert await house.fired() == ["fired"]
    await house.down(HOUR)
    await house.start()
    await clock.sleep(180)
    assert house.source.since[-1] > clock.time() - 2 * HOUR
    assert min(house.source.since[-5:]) <= clock.time() - 4 * HOUR
    assert await house.fired() == ["fired", "late"]
    await house.stop()


@virtual
async def test_backfill_fires_what_was_before_the_start_once(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path, "listing")
    await start_an_hour_after(house, "early")
    assert (await house.verdict("early")).outcome == "before_start"
    await house.down(60)
    await house.start(LOOKING_BACK)
    await clock.sleep(200)
    assert await house.fired() == ["early"]
    for _ in range(2):
        await house.down(60)
        await house.start()
        await clock.sleep(200)
    assert await house.fired() == ["early"]
    assert (await house.verdict("early")).outcome == "fired"
    await house.stop()


@virtual
async def test_an_edit_to_backfill_waits_for_the_next_start(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path, "listing")
    await start_an_hour_after(house, "early")
    await house.reload(LOOKING_BACK)
    await clock.sleep(200)
    assert await house.fired() == []
    await house.stop()


@virtual
async def test_a_new_trigger_on_a_known_feed_looks_back_over_what_is_stored_and_what_is_not(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = House(clock, tmp_path)
    await add_a_trigger_that_looks_back(house, unread="unread", stored="stored")
    await clock.sleep(200)
    assert await house.fired("late") == ["stored", "unread"]
    assert await house.fired() == ["stored"]
    assert not (await house.store.triggers())[0].backfilling
    await house.stop()


@virtual
async def test_a_condition_decides_about_what_is_stored_too(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(PLAIN)
    house.world.put("a", "open")
    house.world.put("b", "closed")
    await clock.sleep(120)
    await house.reload(PLAIN, trigger("late", backfill=HOUR, condition='event.state == "open"'))
    await clock.sleep(200)
    assert await house.fired("late") == ["a"]
    assert (await house.verdict("b", "late")).outcome == "filtered"
    await house.stop()


@virtual
async def test_a_backfill_that_is_cut_off_is_finished_by_the_next_process(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await add_a_trigger_that_looks_back(house, unread="unread", stored="stored")
    await house.crash()
    await house.start()
    await clock.sleep(200)
    assert sorted(await house.fired("late")) == ["stored", "unread"]
    await house.stop()


@virtual
async def test_a_read_that_was_cut_off_does_not_count_as_the_backfill(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path, page_size=2)
    await start_an_hour_after(house, "early")
    for number in range(6):
        house.world.put(f"n{number}")
    house.world.latency = 4.0
    # far enough for a page, and not for the whole read
    await clock.sleep(66)
    await house.crash()
    house.world.latency = 0.0
    await house.start(LOOKING_BACK)
    await clock.sleep(300)
    assert sorted(await house.fired()) == ["early", *(f"n{number}" for number in range(6))]
    await house.stop()


@virtual
async def test_a_read_that_began_before_the_trigger_came_does_not_count_as_its_backfill(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = House(clock, tmp_path, page_size=2)
    house.feed = msgspec.structs.replace(FEED, tick_timeout=5.0)
    await start_an_hour_after(house, "early")
    wanted = [f"n{number:02}" for number in range(14)]
    for name in wanted:
        house.world.put(name)
    house.world.latency = 4.0
    # the read takes several ticks; this is in the first of them
    await clock.sleep(66)
    await house.reload(PLAIN, trigger("late", backfill=2 * HOUR))
    await clock.sleep(300)
    assert sorted(await house.fired("late")) == ["early", *wanted]
    assert not any(state.backfilling for state in await house.store.triggers())
    await house.stop()


@virtual
async def test_what_was_pushed_is_decided_again_from_what_is_stored(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(trigger(feed="hooks"))
    await house.push("a")
    await clock.sleep(60)
    await house.reload(trigger(feed="hooks"), trigger("late", feed="hooks", backfill=HOUR))
    assert await house.fired("late") == ["a"]
    await house.push("b")
    assert await house.fired("late") == ["a", "b"]
    assert not any(state.backfilling for state in await house.store.triggers())
    await house.stop()


@virtual
async def test_the_flood_guard_lets_an_explicit_backfill_through(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    for number in range(5):
        house.world.put(f"n{number}")
    await clock.sleep(HOUR)
    await house.start(trigger(backfill=2 * HOUR, flood_limit=3))
    assert [run.status for run in await house.runs()] == ["ready"] * 5
    await house.stop()


@virtual
async def test_the_flood_guard_holds_what_any_other_first_read_brings(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    for number in range(5):
        house.world.put(f"n{number}", late=-HOUR)
    await house.start(trigger(flood_limit=3))
    assert [run.status for run in await house.runs()] == ["held"] * 5
    await house.stop()


@virtual
async def test_another_identity_fires_nothing_a_second_time(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path, "listing")
    await house.start(PLAIN)
    house.world.put("a")
    house.world.put("b", undated=True)
    await clock.sleep(120)
    house.feed = msgspec.structs.replace(FEED, identity="change")
    await house.reload(PLAIN)
    await clock.sleep(120)
    assert sorted(await house.fired()) == ["a", "b"]
    house.world.put("a", "changed")
    await clock.sleep(120)
    assert (await house.fired())[2:] == ["a"]
    await house.stop()
