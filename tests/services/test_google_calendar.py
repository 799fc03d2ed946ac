"""Google Calendar: sync tokens, their pages and their end, and what an event says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from harken.errors import CursorExpired, NeedsAttention, RetryLater
from harken.services.google import GoogleAccount
from harken.services.google_calendar import Changes, Query, check, plugin
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.google_calendar import GoogleCalendar
from harken.testing.source import Service, SourceContract
from tests.services.reading import events, page, read, subjects


@pytest.fixture
async def calendar(clock: HandClock) -> AsyncIterator[GoogleCalendar]:
    served = GoogleCalendar(clock, cap=3)
    async with served.serve():
        yield served


def source(calendar: GoogleCalendar, host: Host, **query: Any) -> Changes:
    return Changes(Query(**query), GoogleAccount.model_validate(calendar.account()), host)


def requested_params(calendar: GoogleCalendar) -> list[dict[str, str]]:
    """The tokens of each page that was asked for."""
    lists = [seen.query for seen in calendar.seen if seen.path.endswith("/events")]
    return [{name: query[name] for name in ("syncToken", "pageToken") if name in query} for query in lists]


class OnCalendar:
    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, calendar: GoogleCalendar, source: PollSource) -> None:
        self.source = source
        self._clock = clock
        self._calendar = calendar
        self._numbers = count(1)

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"e{next(self._numbers)}" for _ in range(count)]
        for name in names:
            self._clock.advance(0 if tied else 10)
            self._calendar.put(name)
        return names

    async def expire(self) -> bool:
        self._calendar.expire()
        return True


class TestTheContract(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, calendar: GoogleCalendar, host: Host) -> Service:
        return OnCalendar(clock, calendar, source(calendar, host))


class TestAFirstRead:
    async def test_is_quiet_about_what_was_there(self, clock: HandClock, calendar: GoogleCalendar, host: Host):
        for number in range(7):
            calendar.put(f"old{number}")
        clock.advance(3600)
        since = clock.now()
        calendar.put("new")
        batches = await read(source(calendar, host), since=since)
        assert subjects(batches) == ["new"]

    async def test_takes_a_page_at_a_time_so_that_each_is_kept(self, calendar: GoogleCalendar, host: Host):
        for number in range(7):
            calendar.put(f"e{number}")
        batches = await read(source(calendar, host))
        assert [batch.more for batch in batches] == [True, True, False]
        assert [bool(batch.cursor.get("sync")) for batch in batches] == [False, False, True]

    async def test_shows_what_changed_behind_its_back_with_the_next(
        self, clock: HandClock, calendar: GoogleCalendar, host: Host
    ):
        for number in range(4):
            calendar.put(f"e{number}")
        reading = source(calendar, host)
        begun = await page(reading)
        clock.advance(5)
        calendar.put("e0", summary="moved while page two was asked for")
        rest = await read(reading, begun.cursor)
        later = await read(reading, rest[-1].cursor)
        assert [event.data["summary"] for event in events(later)] == ["moved while page two was asked for"]


class TestALaterRead:
    async def test_shows_each_change_once(self, clock: HandClock, calendar: GoogleCalendar, host: Host):
        calendar.put("e1")
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        clock.advance(60)
        calendar.put("e1", location="Room 2")
        changed = await read(reading, cursor)
        assert [event.data["location"] for event in events(changed)] == ["Room 2"]
        assert subjects(await read(reading, changed[-1].cursor)) == []

    async def test_asks_every_page_with_the_parameters_of_the_first(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        for number in range(7):
            calendar.put(f"e{number}")
        assert len(subjects(await read(reading, cursor))) == 7
        rest = [{**seen.query} for seen in calendar.seen if seen.path.endswith("/events")]
        for query in rest:
            query.pop("syncToken", None)
            query.pop("pageToken", None)
        assert all(query == rest[0] for query in rest)
        assert [sorted(tokens) for tokens in requested_params(calendar)] == [
            [],
            ["syncToken"],
            *[["pageToken", "syncToken"]] * 2,
        ]

    async def test_that_stops_between_pages_goes_on_there(self, calendar: GoogleCalendar, host: Host):
        cursor = (await read(source(calendar, host)))[-1].cursor
        for number in range(7):
            calendar.put(f"e{number}")
        stopped = await page(source(calendar, host), cursor)
        restarted = await read(source(calendar, replace(host, shared={})), stopped.cursor)
        assert subjects([stopped, *restarted]) == [f"e{number}" for number in range(7)]

    async def test_whose_page_was_forgotten_begins_again_at_its_sync_token(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        for number in range(7):
            calendar.put(f"e{number}")
        stopped = await page(reading, cursor)
        calendar.forget_pages()
        again = await read(reading, stopped.cursor)
        assert subjects(again) == [f"e{number}" for number in range(7)]
        assert "again" not in again[-1].cursor

    async def test_whose_pages_are_forgotten_at_once_asks_for_a_person(self, calendar: GoogleCalendar, host: Host):
        for number in range(7):
            calendar.put(f"e{number}")
        calendar.after = {count: calendar.forget_pages for count in range(20)}
        with pytest.raises(NeedsAttention, match="reset NAME --cursor"):
            await read(source(calendar, host))

    async def test_does_not_take_an_answer_without_a_token_for_the_end(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        calendar.answers = [Answer(body=b'{"items": []}')]
        with pytest.raises(RetryLater, match="without a sync token"):
            await read(reading, cursor)

    async def test_does_not_take_a_stranger_for_an_empty_calendar(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        calendar.answers = [Answer(body=b'{"items": {"welcome": "to the portal"}, "nextSyncToken": "x"}')]
        with pytest.raises(RetryLater, match="no list of events"):
            await read(reading, cursor)

    async def test_of_another_calendar_starts_afresh(self, calendar: GoogleCalendar, host: Host):
        calendar.calendars["team@example.com"] = {}
        cursor = (await read(source(calendar, host)))[-1].cursor
        calendar.put("e1", "team@example.com")
        assert subjects(await read(source(calendar, host, calendar_id="team@example.com"), cursor)) == ["e1"]


class TestAForgottenSyncToken:
    async def test_pauses_until_a_person_resets_it(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        calendar.expire()
        with pytest.raises(CursorExpired, match=r"Begin anew at now, or set on_expired: rebaseline"):
            await read(reading, cursor)

    async def test_in_the_middle_of_a_read_is_found_too(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        cursor = (await read(reading))[-1].cursor
        for number in range(4):
            calendar.put(f"e{number}")
        stopped = await page(reading, cursor)
        calendar.expire()
        with pytest.raises(CursorExpired):
            await read(reading, stopped.cursor)

    async def test_is_replaced_where_the_query_says_so_and_only_what_changed_since_is_shown(
        self, clock: HandClock, calendar: GoogleCalendar, host: Host
    ):
        for number in range(7):
            calendar.put(f"old{number}")
        reading = source(calendar, host, on_expired="rebaseline")
        cursor = (await read(reading))[-1].cursor
        clock.advance(30 * 86_400)
        calendar.put("old3", summary="while we were away")
        calendar.expire()
        with capture_logs() as logged:
            batches = await read(reading, cursor)
        assert [(entry["event"], entry["calendar"]) for entry in logged] == [("feed.gap", "primary")]
        assert [event.data["summary"] for event in events(batches)] == ["while we were away"]
        assert not any(batch.complete for batch in batches), "that a gap is possible is told"
        clock.advance(60)
        calendar.put("old4", summary="after that")
        later = await read(reading, batches[-1].cursor)
        assert [event.data["summary"] for event in events(later)] == ["after that"]
        assert all(batch.complete for batch in later)

    async def test_is_replaced_without_losing_what_changed_during_the_last_read(
        self, clock: HandClock, calendar: GoogleCalendar, host: Host
    ):
        for number in range(4):
            calendar.put(f"e{number}")
        reading = source(calendar, host, on_expired="rebaseline")
        begun = await page(reading)
        clock.advance(5)
        calendar.put("e0", summary="behind the first page")
        cursor = (await read(reading, begun.cursor))[-1].cursor
        clock.advance(60)
        calendar.expire()
        shown = events(await read(reading, cursor))
        assert [event.data["summary"] for event in shown] == ["behind the first page"]


class TestAnEvent:
    async def one(self, calendar: GoogleCalendar, host: Host, **query: Any) -> Any:
        (event,) = events(await read(source(calendar, host, **query)))
        return event

    async def test_says_what_the_message_needs(self, calendar: GoogleCalendar, host: Host):
        guests = [
            {"email": "b@example.com", "responseStatus": "accepted"},
            {"self": True, "responseStatus": "tentative"},
        ]
        calendar.put("e1", summary="Réunion 🎉", location="Room 1", description="Bring cake", attendees=guests)
        event = await self.one(calendar, host)
        assert event.data == {
            "id": "e1",
            "summary": "Réunion 🎉",
            "description": "Bring cake",
            "location": "Room 1",
            "status": "confirmed",
            "start": "2026-03-02T10:00:00+01:00",
            "end": "2026-03-02T11:00:00+01:00",
            "all_day": False,
            "time_zone": "Europe/Berlin",
            "html_link": "https://calendar.google.com/event?eid=e1",
            "organizer": "ana@example.com",
            "attendees": 2,
            "my_response": "tentative",
            "created": "2026-01-05T09:00:00.000Z",
            "updated": "2026-01-05T09:00:00.000Z",
            "calendar_id": "primary",
            "recurring_event_id": "",
            "original_start": "",
        }
        assert (event.type, event.state, event.occurred_at) == (
            "google_calendar.changed",
            "2026-01-05T09:00:00.000Z",
            START,
        )

    async def test_may_last_all_day(self, calendar: GoogleCalendar, host: Host):
        calendar.put("e1", start={"date": "2026-03-02"}, end={"date": "2026-03-03"})
        data = (await self.one(calendar, host)).data
        assert (data["start"], data["end"], data["all_day"]) == ("2026-03-02", "2026-03-03", True)

    async def test_may_be_an_instance_of_a_series(self, calendar: GoogleCalendar, host: Host):
        calendar.series("daily", 2)
        shown = events(await read(source(calendar, host)))
        assert {event.data["recurring_event_id"] for event in shown} == {"daily"}
        assert [event.data["original_start"] for event in shown] == ["2026-03-02T09:00:00Z", "2026-03-03T09:00:00Z"]

    async def test_that_is_cancelled_is_left_out_and_passed_by(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host)
        calendar.put("e1")
        cursor = (await read(reading))[-1].cursor
        calendar.cancel("e1")
        batches = await read(reading, cursor)
        assert subjects(batches) == []
        assert batches[-1].cursor["sync"] != cursor["sync"]

    async def test_that_is_cancelled_is_shown_where_the_query_says_so(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host, skip_cancelled=False)
        calendar.put("e1")
        before = await read(reading)
        calendar.cancel("e1")
        (event,) = events(await read(reading, before[-1].cursor))
        assert (event.type, event.data["status"], event.data["summary"]) == (
            "google_calendar.cancelled",
            "cancelled",
            "Event e1",
        )
        assert event.state != events(before)[0].state, "it is another version even at the same time"

    async def test_that_is_cancelled_may_have_nothing_but_its_id(self, calendar: GoogleCalendar, host: Host):
        reading = source(calendar, host, skip_cancelled=False)
        cursor = (await read(reading))[-1].cursor
        calendar.put("e1")
        calendar.cancel("e1", bare=True)
        (event,) = events(await read(reading, cursor))
        assert (event.subject, event.state, event.occurred_at) == ("e1", "cancelled", None)
        assert (event.data["summary"], event.data["start"]) == ("(no title)", "")

    async def test_counts_by_its_creation_where_each_counts_once(
        self, clock: HandClock, calendar: GoogleCalendar, host: Host
    ):
        calendar.put("e1")
        clock.advance(3600)
        calendar.put("e1", summary="edited")
        event = await self.one(calendar, replace(host, identity="once"))
        assert event.occurred_at == START


class TestTheCalendar:
    async def test_is_checked_by_its_id(self, calendar: GoogleCalendar, host: Host):
        calendar.calendars["de.german#holiday@group.v.calendar.google.com"] = {}
        account = GoogleAccount.model_validate(calendar.account())
        known = Query(calendar_id="de.german#holiday@group.v.calendar.google.com")
        assert list((await check(known, account, host)).found) == [known.calendar_id]
        result = await check(Query(calendar_id="nobody@example.com"), account, host)
        assert result.unknown == ["there is no calendar nobody@example.com, or the user may not see it"]

    async def test_that_is_not_there_needs_a_person(self, calendar: GoogleCalendar, host: Host):
        with pytest.raises(NeedsAttention, match=r"Check calendar_id: nobody@example\.com is not there"):
            await read(source(calendar, host, calendar_id="nobody@example.com"))

    async def test_that_is_asked_too_often_is_asked_later(self, calendar: GoogleCalendar, host: Host):
        calendar.limit(60)
        with pytest.raises(RetryLater) as caught:
            await read(source(calendar, host))
        assert caught.value.reason == "rate_limited"


def test_a_job_has_a_message_of_its_own():
    assert plugin.delivery is not None
    assert plugin.delivery(Query(), "google").template == "📅 {summary} — {start}\n{html_link}"
