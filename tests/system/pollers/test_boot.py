"""paused_on_boot: at every start a job waits for a person, and nothing of it is read before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.testing import VirtualClock, virtual
from tests.system.hostile.world import House
from tests.system.pollers.world import World, world


def asked(it: World) -> int:
    return len(it.listing.seen)


async def shown(house: House) -> dict[str, Any]:
    found: dict[str, Any] = await house.ask("triggers.show", name="watch")
    return found


async def started(it: World, *siblings: str) -> House:
    it.write(it.job(paused_on_boot="true"), *siblings)
    house = House(it.directory, it.clock)
    await house.up()
    return house


@virtual
async def test_nothing_is_read_until_somebody_resumes_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it)
        await clock.sleep(600)
        assert asked(it) == 0
        found = await shown(house)
        assert (found["status"], found["reason"]) == ("paused", "paused at start (paused_on_boot)")
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(130)
        assert asked(it) == 3
        await house.down()


@virtual
async def test_it_waits_again_after_the_next_start_and_after_kill_9(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it)
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(90)
        read = asked(it)
        await house.down()
        await clock.sleep(600)
        for stop in (house.die, house.down):
            await house.up()
            await clock.sleep(600)
            assert asked(it) == read
            await stop()


@virtual
async def test_a_reload_neither_pauses_nor_resumes(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it)
        await house.ask("reload")
        await clock.sleep(120)
        assert asked(it) == 0
        await house.ask("triggers.resume", name="watch")
        it.write(it.job(paused_on_boot="true", schedule="{every_secs: 30}"), it.job("new", paused_on_boot="true"))
        await house.ask("reload")
        await clock.sleep(100)
        assert (await shown(house))["status"] == "healthy"
        assert asked(it) >= 4
        await house.down()


@virtual
async def test_paused_on_boot_also_holds_for_a_job_that_arrives_by_reload(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write()
        house = House(it.directory, it.clock)
        await house.up()
        it.write(it.job(paused_on_boot="true"))
        await house.ask("reload")
        await clock.sleep(600)
        assert asked(it) == 0
        found = await shown(house)
        assert (found["status"], found["reason"]) == ("paused", "paused at start (paused_on_boot)")
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(130)
        await house.ask("reload")
        await clock.sleep(60)
        assert asked(it) == 4
        await house.down()


@virtual
async def test_the_reason_that_a_person_gave_is_kept(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it)
        await house.ask("triggers.pause", name="watch", reason="holiday")
        await house.down()
        await house.up()
        assert (await shown(house))["paused"] == "holiday"
        await house.down()


@virtual
async def test_its_siblings_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, it.job("other"))
        await clock.sleep(30)
        assert asked(it) == 1
        assert (await house.ask("triggers.show", name="other"))["status"] == "healthy"
        await house.down()


@virtual
async def test_what_came_before_the_resume_is_read_after_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it)
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(30)
        await house.die()
        await house.up()
        it.listing.add("meanwhile")
        await clock.sleep(600)
        assert it.chat.texts == []
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(30)
        assert it.chat.texts == ["new meanwhile"]
        await house.down()
