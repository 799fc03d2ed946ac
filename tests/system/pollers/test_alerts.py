"""failure_to: a person hears once that a job is in trouble and once that it goes again, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.app.feed_alerts import is_due, resend_pause
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer
from tests.system.hostile.world import House
from tests.system.pollers.world import World, world

BROKEN, FORBIDDEN = Answer(status=503), Answer(status=401)
OPS = -1001
TO_OPS = "{channel: telegram, to: '-1001'}"
HOUR = 3_600.0


def alerts(it: World) -> list[str]:
    """What was told, by its first words."""
    return [text.partition(":")[0].partition(" after ")[0] for chat, text in it.chat.sent if chat == OPS]


FAILING, STOPPED = "watch (webhook_poll for ana) is failing", "watch (webhook_poll for ana) has stopped and needs you"
AGAIN = "watch (webhook_poll for ana) works again"


async def recorded(house: House) -> list[tuple[str, bool]]:
    """The events, oldest first: their type, and whether they were told."""
    found: list[dict[str, Any]] = (await house.ask("events.list", feed="harken", limit=100))["items"]
    return [(event["type"], event["data"]["alert"]) for event in reversed(found)]


async def ready(it: World, clock: VirtualClock, *, cooldown: float = HOUR, failure_to: str = TO_OPS) -> House:
    settings = f"  failure_alert_cooldown_secs: {cooldown}\n"
    it.write(it.job(failure_to=failure_to) if failure_to else it.job(), settings=settings)
    house = House(it.directory, clock)
    await house.up()
    await clock.sleep(30)
    return house


async def until_open(house: House) -> None:
    while house.app.intake.feeds["poller/watch"].health.state != "open":
        await house.clock.sleep(5)


async def failed(it: World, house: House) -> None:
    """The breaker has just opened, and what it reads stays broken."""
    it.listing.answers += [BROKEN] * 10_000
    await until_open(house)


async def until_clean(house: House) -> None:
    while not house.app.intake.feeds["poller/watch"].health.clean:
        await house.clock.sleep(5)


async def failed_and_mended(it: World, house: House) -> None:
    """One trouble from its beginning to its end."""
    await failed(it, house)
    await house.clock.sleep(20)
    it.listing.answers.clear()
    await until_clean(house)
    await house.clock.sleep(20)


@virtual
async def test_an_open_breaker_is_told_once_with_what_a_person_needs(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed(it, house)
        assert alerts(it) == []
        await clock.sleep(10)
        [(_, text)] = it.chat.sent
        assert text.startswith("watch (webhook_poll for ana) is failing: 5 reads in a row since 2026-01-05 09:0")
        assert "503" in text
        assert text.endswith("(it is tried again by itself). See: harken pollers show watch")
        await house.die()
        await house.up()
        await clock.sleep(2 * HOUR)
        await house.down()
        assert alerts(it) == [FAILING]


@virtual
async def test_a_recovery_is_told_with_how_long_it_took(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed_and_mended(it, house)
        await clock.sleep(HOUR)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN]
        assert it.chat.sent[-1][1].startswith("watch (webhook_poll for ana) works again after ")
        assert " min (it was down since 2026-01-05 09:0" in it.chat.sent[-1][1]


@virtual
async def test_pitfall_33_the_first_failure_that_needs_attention_is_told_at_once(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        it.listing.answers.append(FORBIDDEN)
        await clock.sleep(70)
        [(_, text)] = it.chat.sent
        assert text.startswith(STOPPED)
        assert "401" in text
        assert "Mend that, then: harken pollers resume watch. It is tried again by itself in " in text
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(70)
        assert alerts(it) == [STOPPED, AGAIN]
        await house.down()


@virtual
async def test_within_the_cooldown_trouble_is_recorded_and_not_told(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed_and_mended(it, house)
        await house.die()
        await house.up()
        await failed_and_mended(it, house)
        assert alerts(it) == [FAILING, AGAIN]
        first, second = ("feed.opened", "feed.recovered"), ("feed.opened", "feed.recovered")
        assert await recorded(house) == [(type, True) for type in first] + [(type, False) for type in second]
        await clock.sleep(HOUR)
        await failed_and_mended(it, house)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN] * 2


@virtual
async def test_what_still_lasts_when_the_cooldown_is_over_is_told_then(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed_and_mended(it, house)
        told = it.chat.seen[0].at
        await failed(it, house)
        await house.die()
        await house.up()
        await clock.sleep(told + HOUR - clock.time() - 10)
        assert alerts(it) == [FAILING, AGAIN]
        await clock.sleep(20)
        assert alerts(it) == [FAILING, AGAIN, FAILING]
        it.listing.answers.clear()
        await clock.sleep(HOUR)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN] * 2


@virtual
async def test_an_open_breaker_that_becomes_a_stop_is_told_as_that_after_the_cooldown(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        it.listing.answers += [BROKEN] * 5 + [FORBIDDEN] * 100
        await until_open(house)
        await clock.sleep(300)
        assert alerts(it) == [FAILING]
        await clock.sleep(HOUR)
        assert alerts(it) == [FAILING, STOPPED]
        it.listing.answers.clear()
        await house.ask("triggers.resume", name="watch")
        await clock.sleep(300)
        await house.down()
        assert alerts(it) == [FAILING, STOPPED, AGAIN]


@virtual
async def test_an_alert_that_did_not_arrive_is_sent_again_and_uses_up_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.chat.blocked.add("-1001")
        house = await ready(it, clock)
        await failed(it, house)
        await clock.sleep(40)
        assert len(it.chat.seen) == 2
        await house.die()
        await house.up()
        await clock.sleep(HOUR)
        # every minute at first, then twice as long each time
        assert 6 <= len(it.chat.seen) <= 10
        it.chat.blocked.clear()
        await clock.sleep(HOUR)
        assert alerts(it) == [FAILING]
        assert len(await house.runs("watch/alert")) == 1
        await house.down()


@virtual
async def test_an_alert_goes_to_the_new_place_as_soon_as_that_is_written(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock, failure_to="{channel: telegram, to: '7'}")
        await failed(it, house)
        await clock.sleep(HOUR)
        assert alerts(it) == []
        it.write(it.job(failure_to=TO_OPS))
        await house.ask("reload")
        await clock.sleep(20)
        await house.down()
        assert alerts(it) == [FAILING]


@virtual
async def test_trouble_that_nobody_heard_of_ends_in_silence_and_the_next_is_told_at_once(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.chat.blocked.add("-1001")
        house = await ready(it, clock)
        await failed_and_mended(it, house)
        it.chat.blocked.clear()
        await clock.sleep(60)
        assert await recorded(house) == [("feed.opened", True), ("feed.recovered", False)]
        await failed_and_mended(it, house)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN]


@virtual
async def test_a_recovery_waits_for_the_alert_that_it_answers(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        it.chat.down = True
        await failed_and_mended(it, house)
        await clock.sleep(HOUR / 2)
        assert await recorded(house) == [("feed.opened", True)]
        await house.die()
        await house.up()
        it.chat.down = False
        await clock.sleep(HOUR / 2)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN]


@virtual
async def test_a_crash_between_telling_and_noting_it_tells_nobody_twice(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed(it, house)
        await clock.sleep(20)
        await house.app.store.delete("alert", "poller/watch")
        await house.die()
        await house.up()
        await clock.sleep(60)
        it.listing.answers.clear()
        await until_clean(house)
        await clock.sleep(20)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN]


@virtual
async def test_a_crash_after_recording_what_was_not_told_does_not_swallow_the_alert(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed_and_mended(it, house)
        before = await house.app.store.get("alert", "poller/watch")
        assert before is not None
        await failed(it, house)
        await clock.sleep(20)
        await house.app.store.put("alert", "poller/watch", before.value)
        await house.die()
        await clock.sleep(HOUR)
        await house.up()
        await clock.sleep(60)
        await house.down()
        assert alerts(it) == [FAILING, AGAIN, FAILING]


@virtual
async def test_without_failure_to_it_is_an_event_for_whoever_listens(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock, failure_to="")
        await failed_and_mended(it, house)
        assert await recorded(house) == [("feed.opened", True), ("feed.recovered", True)]
        [event] = (await house.ask("events.list", feed="harken", limit=1))["items"]
        assert (event["data"]["job"], event["data"]["agent"], event["data"]["kind"]) == ("watch", "ana", "webhook_poll")
        await house.down()
        assert it.chat.sent == []


@virtual
async def test_nothing_that_was_told_is_kept_of_a_job_that_left(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        await failed(it, house)
        await clock.sleep(20)
        it.write(it.job("other"))
        await house.ask("reload")
        await clock.sleep(20)
        assert list(await house.app.store.documents("alert")) == []
        await house.down()


def test_a_cooldown_that_began_in_the_future_is_over() -> None:
    assert [is_due(1_000.0, 100.0, now) for now in (999.0, 1_000.0, 1_099.0, 1_100.0)] == [True, False, False, True]


def test_an_alert_is_sent_again_ever_more_rarely() -> None:
    assert [resend_pause(tries) for tries in (0, 1, 2, 6, 40)] == [60.0, 120.0, 240.0, 3_600.0, 3_600.0]


@virtual
async def test_a_job_whose_deliveries_die_is_told_of_and_is_not_ok(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await ready(it, clock)
        it.chat.blocked.add("42")
        for name in "abc":
            it.listing.add(name)
            await clock.sleep(120)
        [text] = [text for chat, text in it.chat.sent if chat == OPS]
        assert text.startswith("3 runs of watch died in a row, the last with: ")
        assert text.endswith("When it is mended: harken dead retry --trigger watch")
        [row] = (await house.ask("pollers.list"))["items"]
        assert row["last_status"] == "permanent"
        assert row["last_error"].startswith("3 deliveries are given up. See: harken dead list")
        it.chat.blocked.clear()
        it.listing.add("d")
        await clock.sleep(120)
        assert alerts(it)[1:] == ["Runs of watch succeed again"]
        await house.down()


@virtual
async def test_on_failure_tells_a_person_of_every_job_and_workflow(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job())
        main = it.directory / "harken.yaml"
        main.write_text(main.read_text() + f"on_failure:\n  notify: {TO_OPS}\n  dead_in_a_row: 2\n")
        house = House(it.directory, clock)
        await house.up()
        await clock.sleep(30)
        it.chat.blocked.add("42")
        for name in "ab":
            it.listing.add(name)
            await clock.sleep(120)
        assert alerts(it) == ["2 runs of watch died in a row, the last with"]
        it.listing.answers.append(FORBIDDEN)
        await clock.sleep(70)
        assert alerts(it)[1:] == [STOPPED]
        await house.down()
