"""How monitors are read: pages, deletions, tags, ids, changed queries and cursors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from harken.services.datadog import MonitorStates, Query
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes.datadog import FakeDatadog
from harken.testing.source import Service, SourceContract
from tests.services.datadog import Watch, account, changes, served
from tests.services.reading import page, read, subjects


@pytest.fixture
async def fake(clock: HandClock) -> AsyncIterator[FakeDatadog]:
    async with served(clock, cap=3) as fake:
        yield fake


@pytest.fixture
def watch(fake: FakeDatadog, clock: HandClock, host: Host) -> Watch:
    return Watch(fake, clock, host)


class OnMonitors:
    """Monitors that alert; with one date for all of them, or ten seconds apart."""

    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, fake: FakeDatadog, source: PollSource) -> None:
        self.source = source
        self._clock = clock
        self._fake = fake

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        ids = [self._fake.monitor() for _ in range(count)]
        for id in ids:
            self._clock.advance(0 if tied else 10)
            self._fake.change(id, "Alert")
        return [str(id) for id in ids]

    async def expire(self) -> bool:
        return False


class TestContract(SourceContract):
    @pytest.fixture(params=[True, False], ids=["by id", "numbered pages"])
    def service(self, request: Any, clock: HandClock, host: Host, fake: FakeDatadog) -> Service:
        fake.knows_id_offset = request.param
        return OnMonitors(clock, fake, MonitorStates(Query(), account(fake), host))


async def test_250_alerts_between_two_reads_are_250(watch: Watch):
    ids = [watch.fake.monitor() for _ in range(40)]
    wide = watch.fake.monitor(*(f"host:{number}" for number in range(210)))
    await watch.fires()
    for id in ids:
        watch.fake.change(id, "Alert")
    for number in range(210):
        watch.fake.change(wide, "Alert", f"host:{number}")
    assert len({event.subject for event in await watch.fires()}) == 250
    assert await watch.fires() == []


@pytest.mark.parametrize("asked", [1, 2, 3])
async def test_deletions_while_reading_hide_no_monitor(watch: Watch, asked: int):
    ids = [watch.fake.monitor() for _ in range(9)]
    for id in ids:
        watch.fake.change(id, "Alert")
    gone = ids[3 * asked - 3 : 3 * asked]
    watch.fake.after[asked] = lambda: watch.fake.delete(*gone)
    assert set(subjects(await read(watch.source))) == {str(id) for id in ids}


async def test_on_numbered_pages_what_a_deletion_hid_fires_at_the_next_read(watch: Watch):
    watch.fake.knows_id_offset = False
    ids = [watch.fake.monitor() for _ in range(6)]
    for id in ids:
        watch.fake.change(id, "Alert")
    watch.fake.after[2] = lambda: watch.fake.delete(ids[0])
    first, second = await watch.fires(), await watch.fires()
    assert {event.subject for event in first + second} == {str(id) for id in ids}
    assert len(second) == 1


async def test_a_read_over_numbered_pages_says_that_it_may_have_gaps(watch: Watch):
    watch.fake.knows_id_offset = False
    for _ in range(4):
        watch.fake.monitor()
    assert [batch.complete for batch in await read(watch.source)] == [True, False, False, False]


async def test_any_of_the_tags_is_enough_on_the_monitor_or_on_the_group(
    fake: FakeDatadog, clock: HandClock, host: Host
):
    watch = Watch(fake, clock, host, tags=["team:a", "Service:API", "host:x"])
    tagged = [fake.monitor(tags=["team:a", "env:prod"]), fake.monitor(tags=["service:api"])]
    grouped = fake.monitor("host:x,env:prod", "host:xy,env:prod", tags=["team:b"])
    other = fake.monitor(tags=["team:ab", "team:b"])
    for id in (*tagged, other):
        fake.change(id, "Alert")
    for group in ("host:x,env:prod", "host:xy,env:prod"):
        fake.change(grouped, "Alert", group)
    assert {event.subject for event in await watch.fires()} == {*map(str, tagged), f"{grouped}:host:x,env:prod"}


async def test_ids_and_tags_together_mean_both(fake: FakeDatadog, clock: HandClock, host: Host):
    both, only_id, only_tag = fake.monitor(tags=["a:b"]), fake.monitor(), fake.monitor(tags=["a:b"])
    watch = Watch(fake, clock, host, tags="a:b", monitor_ids=[both, only_id])
    for id in (both, only_id, only_tag):
        fake.change(id, "Alert")
    assert [event.subject for event in await watch.fires()] == [str(both)]


async def test_few_monitors_are_asked_for_by_their_ids(fake: FakeDatadog, clock: HandClock, host: Host):
    ids = [fake.monitor() for _ in range(5)]
    watch = Watch(fake, clock, host, monitor_ids=[ids[4], ids[1]])
    for id in ids:
        fake.change(id, "Alert")
    assert {event.subject for event in await watch.fires()} == {str(ids[4]), str(ids[1])}
    assert [seen.path for seen in fake.seen] == [f"/api/v1/monitor/{ids[4]}", f"/api/v1/monitor/{ids[1]}"]


async def test_many_monitors_are_looked_for_in_the_listing(fake: FakeDatadog, clock: HandClock, host: Host):
    ids = [fake.monitor() for _ in range(30)]
    watch = Watch(fake, clock, host, monitor_ids=ids[:25])
    for id in ids:
        fake.change(id, "Alert")
    assert {event.subject for event in await watch.fires()} == {str(id) for id in ids[:25]}
    assert {seen.path for seen in fake.seen} == {"/api/v1/monitor"}


async def test_a_monitor_that_was_deleted_does_not_stop_the_others(fake: FakeDatadog, clock: HandClock, host: Host):
    first, second, third = (fake.monitor() for _ in range(3))
    watch = Watch(fake, clock, host, monitor_ids=[first, second, third])
    fake.delete(second)
    fake.change(third, "Alert")
    assert [event.subject for event in await watch.fires()] == [str(third)]


async def test_an_alert_with_a_tag_that_is_added_later_counts_from_its_date(
    fake: FakeDatadog, clock: HandClock, host: Host
):
    old, new = fake.monitor(), fake.monitor()
    fake.change(old, "Alert")
    clock.advance(60)
    watch = Watch(fake, clock, host, tags="team:a")
    clock.advance(60)
    fake.change(new, "Alert")
    assert await watch.fires() == []
    for id in (old, new):
        fake.edit(id, tags=["team:a"])
    assert [event.subject for event in await watch.fires()] == [str(new)]


async def test_a_changed_query_keeps_what_is_known(watch: Watch):
    id = watch.fake.monitor(tags=["a:b"])
    watch.fake.change(id, "Warn")
    await watch.fires()
    watch.query = Query(tags=("a:b",))
    assert await watch.fires() == []
    watch.fake.change(id, "Alert")
    assert await changes(watch) == [("", "warn", "triggered")]


async def test_an_alert_without_a_date_that_comes_into_view_with_another_query_does_not_fire(watch: Watch):
    watch.query = Query(tags=("a:b",))
    watch.fake.change(watch.fake.monitor(tags=["x:y"]), "Alert", dated=False)
    await watch.fires()
    watch.query = Query(tags=("a:b", "x:y"))
    assert [await watch.fires() for _ in range(3)] == [[], [], []]


async def test_a_query_that_is_changed_in_the_middle_of_a_read_starts_over(watch: Watch):
    ids = [watch.fake.monitor(tags=["a:b"]) for _ in range(7)]
    for id in ids:
        watch.fake.change(id, "Alert")
    cursor = (await page(watch.source)).cursor
    watch.query = Query(tags=("a:b",))
    assert set(subjects(await read(watch.source, cursor))) == {str(id) for id in ids}


@pytest.mark.parametrize("cursor", [17, "x", [], {"of": 1}, {"of": "x", "known": "%%%"}, {"of": "x", "known": "AAAA"}])
async def test_a_broken_cursor_starts_over(watch: Watch, cursor: Any):
    watch.fake.change(watch.fake.monitor(), "Alert")
    assert len(await watch.fires()) == 1
    watch.cursor = cursor
    assert await watch.fires() == []
    watch.fake.change(watch.fake.monitor(), "Alert")
    assert len(await watch.fires()) == 1


async def test_the_cursor_of_a_quiet_read_does_not_change(watch: Watch):
    watch.fake.change(watch.fake.monitor(), "Alert")
    watch.fake.monitor()
    await watch.fires()
    before = watch.cursor
    await watch.fires()
    assert watch.cursor == before
