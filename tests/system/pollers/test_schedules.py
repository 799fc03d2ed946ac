"""When jobs are read: `at` once, cron as people's clocks say it, and jitter only ever later."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from harken.clock import from_unix
from harken.errors import Refused
from harken.testing import START, VirtualClock, run_virtual, virtual
from harken.testing.fakes import Answer
from tests.system.hostile.world import House
from tests.system.pollers.world import World, world
from tests.timings import LONG_NAPS

NEW_YORK = ZoneInfo("America/New_York")
AT_TEN = "{at: '2026-01-05T10:00:00Z'}"
BROKEN, FORBIDDEN = Answer(status=503), Answer(status=401)
HOUR = 3_600.0


def read_at(it: World) -> list[float]:
    """When the listing was read, in seconds since the beginning."""
    return [round(seen.at - START.timestamp(), 1) for seen in it.listing.seen]


async def started(it: World, clock: VirtualClock, *jobs: str) -> House:
    it.write(*jobs)
    house = House(it.directory, clock, LONG_NAPS)
    await house.up()
    return house


async def shown(house: House) -> dict[str, Any]:
    found: dict[str, Any] = await house.ask("triggers.show", name="watch")
    return found


@virtual
async def test_at_fires_once_without_jitter_and_then_stays_paused(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.add("a", age=60)
        schedule = "{at: '2026-01-05T11:00:00+01:00', stagger_jitter_ms: 600000}"
        house = await started(it, clock, it.job(schedule=schedule))
        for stop in (house.die, house.down):
            await clock.sleep(HOUR)
            assert read_at(it) == [HOUR]
            found = await shown(house)
            assert (found["status"], found["next_read_at"]) == ("paused", None)
            assert found["reason"] == "its one time, 2026-01-05 10:00:00Z, is over"
            await stop()
            await house.up()
        await house.down()
        # what comes once has no second read, so it delivers what is there
        assert it.chat.texts == ["new a"]


@virtual
async def test_at_fires_once_also_if_its_instant_passed_while_nothing_ran(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule=AT_TEN))
        await clock.sleep(60)
        await house.die()
        await clock.sleep(3 * HOUR)
        await house.up()
        await clock.sleep(HOUR)
        await house.down()
        await house.up()
        await clock.sleep(HOUR)
        await house.down()
        assert read_at(it) == [3 * HOUR + 60]


@virtual
async def test_a_failed_read_of_at_is_tried_again_and_did_not_fire(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.add("a", age=60)
        it.listing.answers += [BROKEN] * 3
        house = await started(it, clock, it.job(schedule=AT_TEN))
        await clock.sleep(HOUR + 10)
        assert (await shown(house))["status"] == "degraded"
        await house.die()
        await house.up()
        await clock.sleep(HOUR)
        assert [seen.status for seen in it.listing.seen] == [503, 503, 503, 200]
        assert (await shown(house))["status"] == "paused"
        await house.die()
        await house.up()
        await clock.sleep(HOUR)
        await house.down()
        assert len(it.listing.seen) == 4
        assert it.chat.texts == ["new a"]


@virtual
async def test_at_that_needed_a_person_fires_once_that_is_mended(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.answers += [FORBIDDEN] * 100
        house = await started(it, clock, it.job(schedule=AT_TEN))
        await clock.sleep(HOUR + 600)
        assert "401" in (await shown(house))["reason"]
        it.listing.answers.clear()
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(60)
        await house.down()
        assert [seen.status for seen in it.listing.seen] == [401, 200]


@virtual
async def test_no_command_but_run_makes_at_fire_at_another_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule=AT_TEN, paused_on_boot="true"))
        for operation in ("resume", "pause", "resume", "reset"):
            await house.ask(f"triggers.{operation}", name="watch")
            await clock.sleep(60)
        assert read_at(it) == []
        await house.ask("triggers.run", name="watch")
        await clock.sleep(HOUR)
        assert read_at(it) == [240, HOUR]
        with pytest.raises(Refused, match=r"cannot be resumed: its one time, .* is over"):
            await house.ask("triggers.resume", name="watch")
        for operation in ("pause", "resume", "reset"):
            await house.ask(f"triggers.{operation}", name="watch")
            await clock.sleep(60)
        assert read_at(it) == [240, HOUR]
        await house.ask("triggers.run", name="watch")
        await house.down()
        assert len(read_at(it)) == 3


@virtual
async def test_at_that_a_person_paused_fires_when_it_is_resumed(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule=AT_TEN))
        await house.ask("triggers.pause", name="watch")
        await clock.sleep(2 * HOUR)
        assert read_at(it) == []
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(60)
        await house.down()
        assert read_at(it) == [2 * HOUR]


@virtual
async def test_another_instant_is_another_time_also_when_it_was_written_and_passed_while_down(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule=AT_TEN))
        await clock.sleep(1.5 * HOUR)
        it.write(it.job(schedule=AT_TEN.replace("10:00", "11:00")))
        await house.ask("reload")
        await clock.sleep(HOUR)
        assert read_at(it) == [HOUR, 2 * HOUR]
        await house.down()
        it.write(it.job(schedule=AT_TEN.replace("10:00", "12:00")))
        await clock.sleep(HOUR)
        await house.up()
        await clock.sleep(HOUR)
        await house.down()
        assert read_at(it) == [HOUR, 2 * HOUR, 3.5 * HOUR]


@pytest.mark.parametrize("schedule", [AT_TEN, "{cron: '0 10 * * *'}"])
@virtual
async def test_a_clock_that_is_set_back_brings_nothing_forward(
    clock: VirtualClock, tmp_path: Path, schedule: str
) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule=schedule))
        await clock.sleep(600)
        clock.jump(-300)
        await clock.sleep(HOUR)
        await house.down()
        assert read_at(it) == [HOUR]


@virtual
async def test_at_is_read_at_once_after_a_laptop_slept_over_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule=AT_TEN))
        await clock.sleep(600)
        clock.sleep_laptop(2 * HOUR)
        await clock.sleep(10)
        await house.down()
        [at] = read_at(it)
        assert 2 * HOUR + 600 <= at <= 2 * HOUR + 606


def local(it: World, job: str) -> str:
    """When the job was read, on the clocks of New York."""
    read = [seen.at for seen in it.listing.seen if seen.query["of"] == job]
    return ", ".join(f"{from_unix(at).astimezone(NEW_YORK):%H:%M%z}" for at in read)


# what Debian's cron does on the two nights: 02:00 EST becomes 03:00 EDT, and 02:00 EDT becomes 01:00 EST
NIGHTS = [
    (
        datetime(2026, 3, 8, 0, 0, 30, tzinfo=NEW_YORK),
        {
            "*/30 * * * *": "00:30-0500, 01:00-0500, 01:30-0500, 03:00-0400, 03:30-0400, 04:00-0400",
            "30 2 * * *": "03:00-0400",
            "0 30 2 * * *": "03:00-0400",
            "0 30 1 * * *": "01:30-0500",
        },
    ),
    (
        datetime(2026, 11, 1, 0, 0, 30, tzinfo=NEW_YORK),
        {
            "*/30 * * * *": "00:30-0400, 01:00-0400, 01:30-0400, 01:00-0500, 01:30-0500, 02:00-0500",
            "30 2 * * *": "02:30-0500",
            "0 30 2 * * *": "02:30-0500",
            "0 30 1 * * *": "01:30-0400",
        },
    ),
]


@pytest.mark.parametrize(("night", "expected"), NIGHTS)
def test_cron_loses_and_doubles_nothing_when_the_clocks_change(
    tmp_path: Path, night: datetime, expected: dict[str, str]
) -> None:
    async def main(clock: VirtualClock) -> None:
        async with world(clock, tmp_path) as it:
            jobs = [
                it.job(f"job{number}", schedule=f"{{cron: '{line}', tz: America/New_York}}").replace(
                    "/all'", f"/all?of={number}'"
                )
                for number, line in enumerate(expected)
            ]
            house = await started(it, clock, *jobs)
            await clock.sleep(timedelta(hours=3).total_seconds())
            # nor does a restart in the middle of it
            await house.die()
            await house.up()
            await clock.sleep(timedelta(minutes=40).total_seconds())
            await house.down()
            found = {line: local(it, str(number)) for number, line in enumerate(expected)}
            # the half hours go on; the others have had their time
            assert found | {"*/30 * * * *": found["*/30 * * * *"][: len(expected["*/30 * * * *"])]} == expected

    run_virtual(main, night)


@pytest.mark.parametrize("default", ["", "default_jitter_ms: 20000"])
@virtual
async def test_jitter_is_added_to_an_interval_and_never_taken_off(
    clock: VirtualClock, tmp_path: Path, default: str
) -> None:
    async with world(clock, tmp_path) as it:
        own = "" if default else ", stagger_jitter_ms: 20000"
        it.write(it.job(schedule=f"{{every_secs: 60{own}}}"))
        file = tmp_path / "pollers.yaml"
        file.write_text(file.read_text().replace("default_jitter_ms: 0", default or "default_jitter_ms: 0"))
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(2 * HOUR)
        await house.down()
        gaps = [later - earlier for earlier, later in pairwise(read_at(it))]
        assert 0 <= read_at(it)[0] <= 20
        assert (min(gaps) >= 60, max(gaps) <= 80.1) == (True, True)
        assert (min(gaps) < 66, max(gaps) > 74) == (True, True)


@virtual
async def test_jitter_is_added_to_a_cron_line(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule="{cron: '*/2 * * * *', stagger_jitter_ms: 20000}"))
        await clock.sleep(2 * HOUR)
        await house.down()
        # not only the first one, which is planned elsewhere
        late = [at % 120 for at in read_at(it)][1:]
        assert (len(late) in (58, 59), max(late) <= 20.1) == (True, True)
        assert (min(late) < 6, max(late) > 14) == (True, True)


@virtual
async def test_an_edited_schedule_holds_at_once_also_if_it_was_edited_while_down(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule="{cron: '0 0 1 1 *'}"))
        it.write(it.job(schedule="{cron: '30 * * * *'}"))
        await house.ask("reload")
        await clock.sleep(HOUR)
        assert read_at(it) == [HOUR / 2]
        await house.down()
        it.write(it.job(schedule="{cron: '5 * * * *'}"))
        await house.up()
        await clock.sleep(HOUR)
        assert read_at(it) == [HOUR / 2, HOUR + 300]
        it.write(it.job(schedule="{cron: '0 0 1 1 *'}"))
        await house.ask("reload")
        await clock.sleep(2 * HOUR)
        await house.down()
        assert read_at(it) == [HOUR / 2, HOUR + 300]


@virtual
async def test_an_edited_schedule_does_not_cut_short_what_a_service_asked_for(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.answers.append(Answer(status=503, headers={"Retry-After": "3000"}))
        house = await started(it, clock, it.job())
        await clock.sleep(10)
        it.write(it.job(schedule="{cron: '* * * * *'}"))
        await house.ask("reload")
        await clock.sleep(2_900)
        assert len(it.listing.seen) == 1
        await house.down()
