"""Time as a source: every activation once, also over DST and over a laptop's sleep."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from harken.errors import Misconfigured
from harken.event import Event
from harken.schedule import Cron, _coming, next_due
from harken.services.cron import Activations, Query
from harken.source import Cursor, Host
from harken.testing import START, HandClock
from tests.services.reading import events, page, read

NEW_YORK = ZoneInfo("America/New_York")


def schedule(host: Host, **query: Any) -> Activations:
    return Activations(Query.model_validate(query), host)


def at(day: int, hour: int, minute: int = 0, *, month: int, fold: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, fold=fold, tzinfo=NEW_YORK)


def local(found: Sequence[Event]) -> list[str]:
    return [f"{event.occurred_at.astimezone(NEW_YORK):%H:%M:%S%z}" for event in found if event.occurred_at]


async def fired(clock: HandClock, seconds: float, cursor: Cursor, source: Activations) -> tuple[Any, Cursor]:
    clock.advance(seconds)
    batches = await read(source, cursor)
    return events(batches), batches[-1].cursor


# spring forward: 2026-03-08, 02:00 EST becomes 03:00 EDT; fall back: 2026-11-01, 02:00 EDT becomes 01:00 EST
DST: list[tuple[str, int, int, int, str]] = [
    (
        "*/30 * * * *",
        3,
        0,
        4,
        "00:30:00-0500, 01:00:00-0500, 01:30:00-0500, 03:00:00-0400, 03:30:00-0400, 04:00:00-0400",
    ),
    (
        "*/30 * * * *",
        11,
        0,
        2,
        "00:30:00-0400, 01:00:00-0400, 01:30:00-0400, 01:00:00-0500, 01:30:00-0500, 02:00:00-0500",
    ),
    ("30 2 * * *", 3, 0, 23, "03:00:00-0400"),
    ("30 2 * * *", 11, 0, 23, "02:30:00-0500"),
    ("30 1 * * *", 3, 0, 23, "01:30:00-0500"),
    ("30 1 * * *", 11, 0, 23, "01:30:00-0400"),
    ("0 2 * * *", 3, 0, 23, "03:00:00-0400"),
    ("30 2,3 * * *", 3, 0, 23, "03:00:00-0400, 03:30:00-0400"),
    ("10,40 1 * * *", 11, 0, 23, "01:10:00-0400, 01:40:00-0400"),
    ("0 30 2 * * *", 3, 0, 23, "03:00:00-0400"),
    ("0 30 2 * * *", 11, 0, 23, "02:30:00-0500"),
    ("0 30 1 * * *", 11, 0, 23, "01:30:00-0400"),
    ("15 30 2 * * *", 3, 0, 23, "03:00:15-0400"),
    ("0 */30 * * * *", 3, 1, 4, "01:30:00-0500, 03:00:00-0400, 03:30:00-0400, 04:00:00-0400"),
    ("0 */30 * * * *", 11, 1, 2, "01:30:00-0400, 01:00:00-0500, 01:30:00-0500, 02:00:00-0500"),
]


@pytest.mark.parametrize(("line", "month", "begin", "end", "expected"), DST)
async def test_a_change_of_the_clocks_loses_and_doubles_nothing(
    clock: HandClock, host: Host, line: str, month: int, begin: int, end: int, expected: str
):
    day = {3: 8, 11: 1}[month]
    clock.advance((at(day, end, month=month) - START).total_seconds())
    source = schedule(host, cron=line, tz="America/New_York", missed="all")
    batches = await read(source, since=at(day, begin, month=month))
    assert ", ".join(local(events(batches))) == expected


async def test_the_first_of_each_month_is_midnight_where_people_live(clock: HandClock, host: Host):
    clock.advance(timedelta(days=330).total_seconds())
    source = schedule(host, cron="0 0 1 * *", tz="America/New_York", missed="all")
    found = local(events(await read(source)))
    assert found == [f"00:00:00-0{offset}00" for offset in (5, 5, 4, 4, 4, 4, 4, 4, 4, 4, 5)]


@pytest.mark.parametrize("line", ["30 1 * * *", "0 30 1 * * *", "10,40 1 * * *", "0 1 * * *", "*/20 * * * *"])
def test_what_is_due_next_always_lies_ahead_also_in_the_hour_that_comes_twice(line: str):
    moments = [at(1, 0, month=11).astimezone(UTC) + timedelta(minutes=5 * step) for step in range(48)]
    ahead = [next_due(Cron(expression=line, tz="America/New_York"), moment) for moment in moments]
    assert [moment for moment, due in zip(moments, ahead, strict=True) if due is None or due <= moment] == []


async def test_an_activation_is_an_event_named_by_its_instant(clock: HandClock, host: Host):
    source = schedule(host, cron="30 9 * * *", tz="Europe/Berlin")
    clock.advance(86_400)
    (event,) = events(await read(source))
    assert event.subject == event.key == "2026-01-06T08:30:00+00:00"
    assert event.type == "schedule.tick"
    assert event.occurred_at == datetime(2026, 1, 6, 8, 30, tzinfo=UTC)
    assert event.data == {
        "scheduled_at": "2026-01-06T08:30:00+00:00",
        "expression": "30 9 * * *",
        "tz": "Europe/Berlin",
        "missed": 0,
    }


async def test_the_first_read_fixes_where_the_schedule_begins(clock: HandClock, host: Host):
    source = schedule(host, every=60)
    first = await page(source, None, START)
    clock.advance(90)
    second = await page(source, first.cursor, START + timedelta(seconds=80))
    assert list(first.events) == []
    assert [event.occurred_at for event in second.events] == [START + timedelta(seconds=60)]


async def test_each_activation_fires_once_however_often_it_is_read(clock: HandClock, host: Host):
    source, cursor, seen = schedule(host, cron="* * * * *"), None, []
    for _ in range(40):
        found, cursor = await fired(clock, 13, cursor, source)
        seen += [event.subject for event in found]
    assert len(seen) == len(set(seen)) == 40 * 13 // 60


class TestMissed:
    async def test_coalesce_fires_once_for_all_and_says_how_many(self, clock: HandClock, host: Host):
        found, _ = await fired(clock, 3600 * 10 + 5, None, schedule(host, cron="0 * * * *"))
        assert [(event.occurred_at, event.data["missed"]) for event in found] == [(START + timedelta(hours=10), 9)]

    async def test_coalesce_counts_over_many_pages(self, clock: HandClock, host: Host):
        found, cursor = await fired(clock, 60 * 2500, None, schedule(host, cron="* * * * *"))
        assert [(event.occurred_at, event.data["missed"]) for event in found] == [
            (START + timedelta(minutes=2500), 2499)
        ]
        assert cursor == found[0].subject

    async def test_a_crash_between_pages_of_a_count_keeps_it(self, clock: HandClock, host: Host):
        clock.advance(60 * 1500)
        first = await page(schedule(host, cron="* * * * *"))
        rest = await read(schedule(host, cron="* * * * *"), first.cursor)
        assert first.more
        assert [event.data["missed"] for event in events([first, *rest])] == [1499]

    async def test_all_fires_each_of_them(self, clock: HandClock, host: Host):
        clock.advance(60 * 2500)
        batches = await read(schedule(host, cron="* * * * *", missed="all"))
        assert [len(batch.events) for batch in batches] == [1000, 1000, 500]
        assert len({event.subject for event in events(batches)}) == 2500

    async def test_skip_passes_over_what_is_long_past_and_tells_the_next_event(self, clock: HandClock, host: Host):
        source = schedule(host, cron="0 * * * *", missed="skip")
        found, cursor = await fired(clock, 3600 * 5 + 600, None, source)
        assert found == []
        found, _ = await fired(clock, 3000 + 5, cursor, source)
        assert [(event.occurred_at, event.data["missed"]) for event in found] == [(START + timedelta(hours=6), 5)]

    async def test_skip_fires_what_is_only_just_over(self, clock: HandClock, host: Host):
        found, _ = await fired(clock, 3600 + 59, None, schedule(host, cron="0 * * * *", missed="skip"))
        assert [event.data["missed"] for event in found] == [0]


class TestAt:
    INSTANT = (START + timedelta(hours=1)).isoformat()

    @pytest.mark.parametrize("missed", ["coalesce", "all", "skip"])
    async def test_it_fires_once_also_when_it_passed_while_down(self, clock: HandClock, host: Host, missed: str):
        source = schedule(host, at=self.INSTANT, missed=missed)
        before = await page(source)
        found, cursor = await fired(clock, 86_400 * 3, before.cursor, source)
        again, _ = await fired(clock, 86_400, cursor, source)
        assert [event.subject for event in found] == [self.INSTANT]
        assert again == []

    async def test_an_instant_before_the_beginning_does_not_fire(self, host: Host):
        assert events(await read(schedule(host, at=(START - timedelta(days=1)).isoformat()))) == []


class TestWrongClocks:
    async def test_a_clock_that_goes_back_a_little_repeats_nothing(self, clock: HandClock, host: Host):
        source = schedule(host, cron="* * * * *")
        found, cursor = await fired(clock, 61, None, source)
        clock.jump(-30)
        again, cursor = await fired(clock, 0, cursor, source)
        later, _ = await fired(clock, 95, cursor, source)
        assert (len(found), len(again), len(later)) == (1, 0, 1)

    async def test_a_clock_that_was_years_ahead_does_not_silence_the_schedule(self, clock: HandClock, host: Host):
        source = schedule(host, cron="0 * * * *")
        _, cursor = await fired(clock, 86_400 * 365 * 4, None, source)
        clock.jump(-86_400 * 365 * 4)
        _, cursor = await fired(clock, 0, cursor, source)
        found, _ = await fired(clock, 3601, cursor, source)
        assert len(found) == 1


@pytest.mark.parametrize("cursor", [{"of": "x"}, 7, "yesterday", []])
async def test_a_cursor_of_another_kind_begins_at_since(clock: HandClock, host: Host, cursor: Any):
    clock.advance(90)
    assert len(events(await read(schedule(host, every=60), cursor))) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"cron": "* * * * *", "every": 5},
        {"every": 0},
        {"at": "2026-01-01T00:00:00"},
        {"every": 5, "missed": "maybe"},
    ],
)
def test_a_wrong_query_is_refused(wrong: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(wrong)


@pytest.mark.parametrize("wrong", [{"cron": "* * *"}, {"cron": "61 * * * *"}, {"cron": "* * * * *", "tz": "Mars/Base"}])
def test_a_line_or_zone_that_does_not_exist_is_said_at_once(host: Host, wrong: Any):
    with pytest.raises(Misconfigured):
        schedule(host, **wrong)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_what_is_due_next_is_the_same_from_wherever_one_looks(zone: str):
    """What is remembered of a line for others that have the same is what they would find themselves."""
    schedule = Cron(expression="7,30 2-4 * * *", tz=zone)
    random, begin = Random(1), datetime(2026, 10, 24, 20, tzinfo=UTC)
    moments = [begin + timedelta(minutes=random.randrange(12 * 60)) for _ in range(300)]
    found = [next_due(schedule, moment) for moment in moments]
    for moment, due in zip(moments, found, strict=True):
        _coming.clear()
        assert next_due(schedule, moment) == due
