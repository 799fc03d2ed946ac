"""PagerDuty incidents: all of them, once each, also those that are reassigned, reopened, late or odd."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from harken.errors import NeedsAttention, RetryLater
from harken.services.pagerduty import Incidents, Query
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.pagerduty import PagerDuty
from harken.testing.source import Service, SourceContract
from harken.testing.source import read as read_long
from tests.services.duty import MINE, source
from tests.services.reading import events, page, read, subjects


def requested(duty: PagerDuty, name: str) -> list[str]:
    return [value for key, value in duty.seen[-1].pairs if key == name]


async def read_into(found: list[str], listed: Incidents) -> None:
    """Read to the end, or to the error; `found` has the subjects of all pages that came before it."""
    cursor: Any = None
    more = True
    while more:
        batch = await page(listed, cursor)
        found += subjects([batch])
        cursor, more = batch.cursor, batch.more


class OnDuty:
    """Incidents that are made, or with `resolving` resolved, one after the other or in one second."""

    page_size = 4
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, duty: PagerDuty, source: Incidents, *, resolving: bool = False) -> None:
        self.source: PollSource = source
        self._clock = clock
        self._duty = duty
        self._resolving = resolving

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = []
        for _ in range(count):
            self._clock.advance(0 if tied else 10)
            names.append(self._duty.trigger())
        self._duty.resolve(*(names if self._resolving else ()))
        return names

    async def expire(self) -> bool:
        return False


class TestOpen(SourceContract):
    @pytest.fixture(params=[{}, MINE, {"services": "PSVC1", "teams": "PTEAM1", "urgencies": "high"}])
    def service(self, request: Any, clock: HandClock, host: Host, duty: PagerDuty) -> Service:
        duty.cap = 4
        return OnDuty(clock, duty, source(duty, host, **request.param))


class TestResolved(SourceContract):
    @pytest.fixture(params=["resolved", ["triggered", "acknowledged", "resolved"]])
    def service(self, request: Any, clock: HandClock, host: Host, duty: PagerDuty) -> Service:
        duty.cap = 4
        return OnDuty(clock, duty, source(duty, host, statuses=request.param), resolving=True)


async def test_the_request_is_the_one_that_pagerduty_documents(duty: PagerDuty, host: Host):
    await page(source(duty, host, **MINE, services=["PSVC1", "PSVC2"], teams="PTEAM1", urgencies="high"))
    sent = duty.seen[-1]
    assert sent.headers["authorization"] == "Token token=personal-key"
    assert sent.headers["accept"] == "application/vnd.pagerduty+json;version=2"
    assert requested(duty, "user_ids[]") == ["PME"]
    assert requested(duty, "service_ids[]") == ["PSVC1", "PSVC2"]
    assert requested(duty, "team_ids[]") == ["PTEAM1"]
    assert requested(duty, "urgencies[]") == ["high"]
    assert requested(duty, "statuses[]") == ["triggered", "acknowledged"]
    assert (requested(duty, "date_range"), requested(duty, "limit")) == (["all"], ["100"])


async def test_an_event_has_the_documented_fields(duty: PagerDuty, host: Host):
    duty.trigger("Checkout is down 🔥")
    (event,) = events(await read(source(duty, host, **MINE)))
    assert (event.subject, event.type, event.state, event.occurred_at) == (
        "PINC1",
        "pagerduty.incident",
        "triggered",
        START,
    )
    assert event.data == {
        "id": "PINC1",
        "number": 1,
        "title": "Checkout is down 🔥",
        "description": "",
        "status": "triggered",
        "urgency": "high",
        "priority": "P2",
        "created_at": "2026-01-05T09:00:00Z",
        "updated_at": None,
        "last_status_change_at": "2026-01-05T09:00:00Z",
        "resolved_at": None,
        "assigned_at": "2026-01-05T09:00:00Z",
        "html_url": "https://acme.pagerduty.com/incidents/PINC1",
        "incident_key": "key-1",
        "service": {"id": "PSVC1", "name": "Checkout"},
        "escalation_policy": {"id": "PPOL1", "name": "Default"},
        "teams": [{"id": "PTEAM1", "name": "Platform"}],
        "assignments": [{"id": "PME", "name": "Mia Engel", "at": "2026-01-05T09:00:00Z"}],
    }


async def test_filters_combine(duty: PagerDuty, host: Host):
    duty.add_user("POTHER")
    wanted = duty.trigger(service="PSVC2", urgency="low")
    duty.trigger(service="PSVC1", urgency="low")
    duty.trigger(service="PSVC2", urgency="high")
    duty.trigger(service="PSVC2", urgency="low", to="POTHER")
    duty.trigger(service="PSVC2", urgency="low", team="PTEAM2")
    found = source(duty, host, **MINE, services=["PSVC2"], teams=["PTEAM1"], urgencies=["low"])
    assert subjects(await read(found)) == [wanted]


async def test_an_incident_of_last_year_is_still_listed(duty: PagerDuty, host: Host):
    old = duty.trigger(age=400 * 86_400)
    assert subjects(await read(source(duty, host))) == [old]


async def test_250_new_incidents_between_two_reads_are_all_read(duty: PagerDuty, host: Host, clock: HandClock):
    listed = source(duty, host)
    first = await read(listed)
    clock.advance(30)
    made = {duty.trigger() for _ in range(250)}
    batches = await read(listed, first[-1].cursor)
    assert set(subjects(batches)) == made
    assert len(batches) == 3


async def test_250_resolved_ones_between_two_reads_are_all_read(duty: PagerDuty, host: Host, clock: HandClock):
    listed = source(duty, host, statuses="resolved")
    first = await read(listed)
    made = [duty.trigger() for _ in range(250)]
    clock.advance(30)
    duty.resolve(*made)
    assert set(subjects(await read(listed, first[-1].cursor))) == set(made)


async def test_incidents_beyond_the_reach_of_offsets_are_read_by_time(duty: PagerDuty, host: Host, clock: HandClock):
    made = {duty.trigger(age=400 * 86_400 - number * 300) for number in range(10_120)}
    batches = await read_long(OnDuty(clock, duty, source(duty, host)))
    assert set(subjects(batches)) == made
    assert batches[-1].complete
    assert {sent.status for sent in duty.seen} == {200}


async def test_more_than_its_reach_in_one_second_needs_attention(duty: PagerDuty, host: Host):
    start = "2026-01-05T08:59:59Z"
    cursor = {"of": Query().fingerprint(), "reading": True, "start": start, "offset": 9_900}
    for _ in range(10_010):
        duty.trigger()
    with pytest.raises(NeedsAttention, match="more than 10,000 incidents are open"):
        await page(source(duty, host), cursor)


async def test_a_server_that_ignores_offsets_is_not_asked_for_ever(duty: PagerDuty, host: Host):
    body = b'{"incidents": [{"id": "P1"}, {"id": "P2"}, {"id": "P3"}], "more": true}'
    duty.answers = [Answer(body=body)] * 20
    listed = source(duty, host)
    found: list[str] = []
    with pytest.raises(RetryLater, match="the same page again and again"):
        await read_into(found, listed)
    assert set(found) == {"P1", "P2", "P3"}
    assert len(duty.seen) < 10


class TestDrift:
    """Incidents are resolved and made while their pages are read."""

    async def test_incidents_resolved_between_pages_hide_no_other(self, duty: PagerDuty, host: Host):
        duty.cap = 20
        made = [duty.trigger() for _ in range(50)]
        duty.after[1] = lambda: duty.resolve(*made[:3])
        batches = await read(source(duty, host))
        assert set(subjects(batches)) == set(made)
        assert len(duty.seen) == 3, "three fewer are within the overlap"

    async def test_many_resolved_between_pages_make_the_read_start_over(self, duty: PagerDuty, host: Host):
        duty.cap = 20
        made = [duty.trigger() for _ in range(50)]
        duty.after[1] = lambda: duty.resolve(*made[:15])
        batches = await read(source(duty, host))
        assert set(subjects(batches)) == set(made)
        assert batches[-1].complete

    async def test_the_whole_border_may_be_what_is_resolved(self, duty: PagerDuty, host: Host):
        duty.cap = 20
        made = [duty.trigger() for _ in range(50)]
        duty.after[1] = lambda: duty.resolve(*made[12:20])
        assert set(subjects(await read(source(duty, host)))) == set(made)

    async def test_a_listing_that_melts_all_the_time_is_called_incomplete_and_the_next_read_finds_the_rest(
        self, duty: PagerDuty, host: Host
    ):
        duty.cap = 10
        made = [duty.trigger() for _ in range(100)]
        steps = [made[number : number + 8] for number in range(0, 80, 8)]
        duty.after.update({number: partial(duty.resolve, *ids) for number, ids in enumerate(steps, 1)})
        listed = source(duty, host)
        first = await read(listed)
        second = await read(listed, first[-1].cursor)
        assert (first[-1].complete, second[-1].complete) == (False, True)
        assert set(subjects(second)) == set(made[80:])

    async def test_a_page_that_became_empty_hides_nothing(self, duty: PagerDuty, host: Host):
        duty.cap = 20
        made = [duty.trigger() for _ in range(21)]
        duty.after[1] = lambda: duty.resolve(*made[:15])
        assert set(subjects(await read(source(duty, host)))) == set(made)

    async def test_resolutions_during_a_read_of_resolved_ones_repeat_some_and_lose_none(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        duty.cap = 20
        made = [duty.trigger() for _ in range(80)]
        for name in made[:50]:
            clock.advance(1)
            duty.resolve(name)
        duty.after[1] = lambda: duty.resolve(*made[50:])
        assert set(made[:50]) <= set(subjects(await read(source(duty, host, statuses="resolved"))))

    async def test_reopened_ones_during_a_read_of_resolved_ones_hide_no_other(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        duty.cap = 20
        made = [duty.trigger() for _ in range(50)]
        for name in made:
            clock.advance(1)
            duty.resolve(name)
        duty.after[1] = lambda: duty.retrigger(*made[-12:])
        assert set(subjects(await read(source(duty, host, statuses="resolved")))) == set(made)


class TestResolvedOnes:
    async def test_one_that_was_made_long_ago_is_found_when_it_is_resolved(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        old = duty.trigger(age=300 * 86_400)
        clock.advance(60)
        duty.resolve(old)
        (event,) = events(await read(source(duty, host, statuses="resolved")))
        assert (event.subject, event.occurred_at) == (old, START + timedelta(seconds=60))

    async def test_those_of_earlier_are_neither_shown_nor_paged_through(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        duty.resolve(*(duty.trigger() for _ in range(300)))
        clock.advance(600)
        new = duty.trigger()
        duty.resolve(new)
        listed = source(duty, host, statuses="resolved")
        assert subjects(await read(listed, since=START + timedelta(seconds=1))) == [new]
        assert len(duty.seen) == 1

    async def test_a_burst_is_read_although_its_first_page_moves_the_watermark(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = [duty.trigger() for _ in range(250)]
        for name in made:
            clock.advance(10)
            duty.resolve(name)
        listed = source(duty, host, statuses="resolved")
        first = await page(listed)
        newest = max(event.occurred_at for event in first.events if event.occurred_at)
        rest = await read(listed, first.cursor, newest)
        assert set(subjects([first, *rest])) == set(made)

    async def test_one_that_is_resolved_between_the_two_listings_is_seen(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        duty.after[1] = lambda: duty.resolve(made)
        found = events(await read(source(duty, host, statuses=["triggered", "acknowledged", "resolved"])))
        assert [event.state for event in found] == ["triggered", "resolved"]
