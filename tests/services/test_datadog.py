"""Which changes of monitors fire, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.datadog import FakeDatadog
from tests.services.datadog import LONG_AGO, Watch, changes, served


@pytest.fixture
async def fake(clock: HandClock) -> AsyncIterator[FakeDatadog]:
    async with served(clock, cap=3) as fake:
        yield fake


@pytest.fixture
def watch(fake: FakeDatadog, clock: HandClock, host: Host) -> Watch:
    return Watch(fake, clock, host)


async def test_a_change_fires_once_however_long_it_lasts(watch: Watch):
    id = watch.fake.monitor()
    assert await watch.fires() == []
    watch.fake.change(id, "Alert")
    assert [event.subject for event in await watch.fires()] == [str(id)]
    assert [await watch.fires() for _ in range(5)] == [[]] * 5


async def test_each_status_is_told_in_our_words_with_the_one_before(watch: Watch):
    id = watch.fake.monitor("host:a")
    await watch.fires()
    seen = []
    for status in ("Warn", "Alert", "Warn", "No Data", "Alert"):
        watch.fake.change(id, status, "host:a")
        seen += await changes(watch)
    assert seen == [
        ("host:a", "ok", "warn"),
        ("host:a", "warn", "triggered"),
        ("host:a", "triggered", "warn"),
        ("host:a", "warn", "no_data"),
        ("host:a", "no_data", "triggered"),
    ]


async def test_a_recovery_fires_only_for_those_who_want_it(fake: FakeDatadog, clock: HandClock, host: Host):
    plain, also_ok = Watch(fake, clock, host), Watch(fake, clock, host, statuses=["triggered", "ok"])
    id = fake.monitor()
    fake.change(id, "Alert")
    assert await changes(plain) == await changes(also_ok) == [("", "", "triggered")]
    fake.change(id, "OK")
    assert await changes(plain) == []
    assert await changes(also_ok) == [("", "triggered", "ok")]


async def test_a_status_that_nobody_asked_for_is_passed_and_remembered(fake: FakeDatadog, clock: HandClock, host: Host):
    watch = Watch(fake, clock, host, statuses="triggered")
    id = fake.monitor()
    await watch.fires()
    fake.change(id, "Warn")
    assert await watch.fires() == []
    fake.change(id, "Alert")
    assert await changes(watch) == [("", "warn", "triggered")]


async def test_what_was_alerting_before_the_trigger_was_made_does_not_fire(
    fake: FakeDatadog, clock: HandClock, host: Host
):
    old, undated = fake.monitor(), fake.monitor()
    fake.change(old, "Alert")
    fake.change(undated, "Alert", dated=False)
    clock.advance(3600)
    watch = Watch(fake, clock, host)
    assert [await watch.fires() for _ in range(3)] == [[], [], []]


async def test_alert_ok_alert_between_two_reads_fires_again(watch: Watch):
    id = watch.fake.monitor()
    watch.fake.change(id, "Alert")
    assert len(await watch.fires()) == 1
    watch.clock.advance(10)
    watch.fake.change(id, "OK")
    watch.clock.advance(10)
    watch.fake.change(id, "Alert")
    assert await changes(watch) == [("", "", "triggered")]
    assert await watch.fires() == []


async def test_alert_ok_alert_in_three_reads_fires_twice_with_what_was_before(watch: Watch):
    id = watch.fake.monitor()
    watch.fake.change(id, "Alert")
    await watch.fires()
    watch.fake.change(id, "OK")
    assert await watch.fires() == []
    watch.fake.change(id, "Alert")
    assert await changes(watch) == [("", "ok", "triggered")]


async def test_changes_without_any_date_fire_when_they_are_noticed(watch: Watch):
    id = watch.fake.monitor()
    await watch.fires()
    seen = []
    for status in ("Alert", "OK", "Alert", "Alert", "Warn"):
        watch.fake.change(id, status, dated=False)
        seen.append(await changes(watch))
    assert seen == [
        [("", "ok", "triggered")],
        [],
        [("", "ok", "triggered")],
        [],
        [("", "triggered", "warn")],
    ]


async def test_a_reminder_does_not_fire(watch: Watch):
    id = watch.fake.monitor()
    watch.fake.change(id, "Alert")
    await watch.fires()
    watch.fake.remind(id)
    assert await watch.fires() == []


async def test_going_on_without_data_does_not_fire_again(watch: Watch):
    id = watch.fake.monitor()
    watch.fake.change(id, "No Data")
    assert len(await watch.fires()) == 1
    watch.fake.evaluate(id)
    assert await watch.fires() == []
    watch.fake.change(id, "OK")
    watch.clock.advance(5)
    watch.fake.change(id, "No Data")
    assert len(await watch.fires()) == 1


async def test_an_edit_of_the_definition_does_not_fire(watch: Watch):
    id = watch.fake.monitor()
    watch.fake.change(id, "Alert")
    await watch.fires()
    watch.fake.edit(id, name="another name")
    assert await watch.fires() == []


async def test_a_mute_does_not_fire_and_is_told(watch: Watch):
    id = watch.fake.monitor("host:a", "host:b")
    watch.fake.change(id, "Alert", "host:a")
    assert [event.data["muted"] for event in await watch.fires()] == [False]
    watch.fake.silence(id, "host:b")
    assert await watch.fires() == []
    watch.fake.change(id, "Alert", "host:b")
    assert [event.data["muted"] for event in await watch.fires()] == [True]


async def test_every_group_is_an_object_of_its_own(watch: Watch):
    id = watch.fake.monitor("host:a", "host:b", "host:c")
    await watch.fires()
    watch.fake.change(id, "Alert", "host:a")
    watch.fake.change(id, "Warn", "host:c")
    assert sorted(await changes(watch)) == [("host:a", "ok", "triggered"), ("host:c", "ok", "warn")]
    watch.fake.change(id, "Alert", "host:b")
    assert [event.subject for event in await watch.fires()] == [f"{id}:host:b"]


async def test_a_group_that_comes_up_alerting_fires_with_nothing_before_it(watch: Watch):
    id = watch.fake.monitor("host:a")
    await watch.fires()
    watch.fake.appear(id, "host:new", "Alert")
    assert await changes(watch) == [("host:new", "", "triggered")]


async def test_a_group_that_vanishes_and_returns_as_it_was_does_not_fire(watch: Watch):
    id = watch.fake.monitor("host:a", "host:b")
    watch.fake.change(id, "Alert", "host:a")
    assert len(await watch.fires()) == 1
    watch.fake.vanish(id, "host:a")
    assert await watch.fires() == []
    watch.fake.appear(id, "host:a")
    assert await watch.fires() == []


async def test_a_group_that_returns_alerting_anew_fires(watch: Watch):
    id = watch.fake.monitor("host:a", "host:b")
    watch.fake.change(id, "Alert", "host:a")
    await watch.fires()
    watch.fake.vanish(id, "host:a")
    await watch.fires()
    watch.fake.appear(id, "host:a", "Alert")
    assert await changes(watch) == [("host:a", "", "triggered")]


async def test_an_alert_during_nine_hours_of_sleep_fires_once(watch: Watch):
    old, new = watch.fake.monitor(), watch.fake.monitor()
    await watch.fires()
    watch.clock.advance(4 * 3600)
    watch.fake.change(old, "Alert")
    later = watch.fake.monitor()
    watch.fake.change(later, "Warn")
    watch.clock.advance(5 * 3600)
    watch.fake.change(new, "Alert")
    assert [event.subject for event in await watch.fires()] == [str(old), str(later), str(new)]
    assert await watch.fires() == []


async def test_a_change_that_shows_itself_late_still_fires(watch: Watch):
    late, prompt = watch.fake.monitor(), watch.fake.monitor()
    await watch.fires()
    watch.fake.change(late, "Alert", late=600)
    watch.fake.change(prompt, "Alert")
    assert [event.subject for event in await watch.fires()] == [str(prompt)]
    fired = await watch.fires(900)
    assert [event.subject for event in fired] == [str(late)]
    assert fired[0].occurred_at == START + timedelta(minutes=1)


async def test_an_answer_that_is_older_than_the_last_one_does_not_fire_twice(watch: Watch):
    id = watch.fake.monitor()
    watch.fake.change(id, "Alert")
    await watch.fires()
    before = watch.cursor
    watch.fake.change(id, "OK")
    await watch.fires()
    watch.fake.change(id, "Alert")
    assert len(await watch.fires()) == 1
    watch.cursor = before
    assert await watch.fires() == []


@pytest.mark.parametrize("skew", [-7200.0, 7200.0])
async def test_a_clock_that_is_wrong_hides_no_change_without_a_date(watch: Watch, skew: float):
    watch.fake.skew = skew
    id = watch.fake.monitor()
    await watch.fires()
    seen = []
    for status in ("Alert", "OK", "Alert"):
        watch.fake.change(id, status, dated=False)
        seen.append(len(await watch.fires()))
    assert seen == [1, 0, 1]


async def test_our_clock_may_be_ahead_when_a_change_without_a_date_is_followed_by_one_with_a_date(watch: Watch):
    watch.fake.skew, watch.start_line = -7200.0, LONG_AGO
    id = watch.fake.monitor()
    await watch.fires()
    watch.fake.change(id, "Alert", dated=False)
    assert len(await watch.fires()) == 1
    watch.fake.change(id, "OK")
    watch.clock.advance(5)
    watch.fake.change(id, "Alert")
    assert len(await watch.fires()) == 1
