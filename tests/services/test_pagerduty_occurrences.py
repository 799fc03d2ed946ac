"""What counts as an occurrence of a PagerDuty incident, and when it happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from harken.match import recognise
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.pagerduty import PagerDuty
from tests.services.duty import MINE, source
from tests.services.reading import events, page, read, subjects


class TestAssignment:
    """With user_id, being assigned is what happens, and when."""

    async def test_an_old_incident_assigned_to_me_today_happened_today(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        old = duty.trigger(to="POTHER", age=90 * 86_400)
        listed = source(duty, host, **MINE)
        assert subjects(await read(listed)) == []
        clock.advance(60)
        duty.assign(old, "PME", "POTHER")
        (event,) = events(await read(listed))
        assert event.occurred_at == START + timedelta(seconds=60)
        assert (event.data["id"], event.data["assigned_at"]) == (old, "2026-01-05T09:01:00Z")

    async def test_assigned_away_and_back_is_another_occurrence(self, duty: PagerDuty, host: Host, clock: HandClock):
        made = duty.trigger()
        listed = source(duty, host, **MINE)
        names = subjects(await read(listed))
        duty.assign(made, "POTHER")
        names += subjects(await read(listed))
        clock.advance(600)
        duty.assign(made, "PME")
        names += subjects(await read(listed)) + subjects(await read(listed))
        assert names == ["PINC1", "PINC1@2026-01-05T09:10:00Z", "PINC1@2026-01-05T09:10:00Z"]

    async def test_acknowledging_is_no_new_assignment(self, duty: PagerDuty, host: Host, clock: HandClock):
        made = duty.trigger()
        clock.advance(600)
        duty.acknowledge(made)
        (event,) = events(await read(source(duty, host, **MINE)))
        assert (event.subject, event.occurred_at, event.data["status"]) == (made, START, "acknowledged")

    async def test_who_is_assigned_a_moment_after_the_creation_has_it_from_the_start(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = duty.trigger(to=None)
        clock.advance(2)
        duty.assign(made, "PME")
        assert subjects(await read(source(duty, host, **MINE))) == [made]

    async def test_what_the_listing_shows_although_it_is_no_longer_mine_is_left_out(self, duty: PagerDuty, host: Host):
        gone, mine = duty.trigger(), duty.trigger()
        other = {"at": "2026-01-05T09:00:00Z", "assignee": {"id": "POTHER"}}
        duty.incidents[gone].broken = {"assignments": [other]}
        assert subjects(await read(source(duty, host, **MINE))) == [mine]


class TestIdentity:
    """What the feed counts as new decides what an incident's state and time are."""

    async def test_statuses_are_transitions_and_one_may_come_back(self, duty: PagerDuty, host: Host, clock: HandClock):
        made = duty.trigger(age=86_400)
        listed = source(duty, replace(host, identity="transition"))
        shown = events(await read(listed))
        clock.advance(60)
        duty.acknowledge(made)
        shown += events(await read(listed))
        clock.advance(60)
        duty.retrigger(made)
        shown += events(await read(listed))
        keys = [sighting.event.key for sighting in recognise(shown, {}, "transition")]
        assert keys == ["PINC1@triggered", "PINC1@acknowledged#2", "PINC1@triggered#3"]
        assert [event.occurred_at for event in shown[1:]] == [START + timedelta(seconds=s) for s in (60, 120)]

    async def test_a_status_that_is_not_listed_hides_no_return_to_one_that_is(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = duty.trigger()
        listed = source(duty, replace(host, identity="transition"), statuses=["triggered"])
        batches = await read(listed)
        duty.acknowledge(made)
        batches += await read(listed, batches[-1].cursor)
        clock.advance(1800)
        duty.retrigger(made)
        batches += await read(listed, batches[-1].cursor)
        batches += await read(listed, batches[-1].cursor)
        assert [event.data["status"] for event in events(batches)] == ["triggered"] * 3
        assert len(recognise(events(batches), {}, "transition")) == 2

    async def test_an_update_of_a_triggered_incident_is_no_transition(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = duty.trigger()
        listed = source(duty, replace(host, identity="transition"), statuses=["triggered"])
        batches = await read(listed)
        clock.advance(600)
        duty.touch(made)
        batches += await read(listed, batches[-1].cursor)
        assert len(recognise(events(batches), {}, "transition")) == 1

    async def test_an_incident_that_nobody_acknowledges_any_more_is_forgotten(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = duty.trigger()
        duty.acknowledge(made)
        listed = source(duty, replace(host, identity="transition"), statuses=["triggered"])
        first = (await read(listed))[-1].cursor
        duty.resolve(made)
        last = (await read(listed, first))[-1].cursor
        assert (made in str(first), made in str(last)) == (True, False)

    async def test_a_change_of_the_status_of_mine_happens_when_it_changes(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = duty.trigger(age=86_400)
        clock.advance(60)
        duty.acknowledge(made)
        (event,) = events(await read(source(duty, replace(host, identity="transition"), **MINE)))
        assert (event.state, event.occurred_at) == ("acknowledged", START + timedelta(seconds=60))

    async def test_with_change_every_update_counts(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        duty.incidents[made].broken = {"updated_at": "2026-01-05T09:07:00Z"}
        (event,) = events(await read(source(duty, replace(host, identity="change"))))
        assert (event.state, event.occurred_at) == ("2026-01-05T09:07:00Z", START + timedelta(minutes=7))

    async def test_an_incident_enters_a_query_for_acknowledged_ones_when_it_is_acknowledged(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = duty.trigger(age=86_400)
        clock.advance(60)
        duty.acknowledge(made)
        (event,) = events(await read(source(duty, host, statuses="acknowledged")))
        assert event.occurred_at == START + timedelta(seconds=60)


class TestCursor:
    async def test_a_late_incident_is_found_by_the_next_read(self, duty: PagerDuty, host: Host, clock: HandClock):
        listed = source(duty, host)
        late = duty.trigger(late=90)
        duty.trigger()
        first = await read(listed)
        clock.advance(90)
        assert late in subjects(await read(listed, first[-1].cursor))

    @pytest.mark.parametrize("cursor", [7, "x", [], {"of": 3}, {"of": "other", "reading": True, "offset": 500}])
    async def test_a_cursor_that_is_not_ours_starts_over(self, duty: PagerDuty, host: Host, cursor: Any):
        made = duty.trigger()
        assert subjects(await read(source(duty, host), cursor)) == [made]

    async def test_an_edited_query_keeps_where_the_unfinished_read_began(
        self, duty: PagerDuty, host: Host, clock: HandClock
    ):
        made = [duty.trigger() for _ in range(150)]
        duty.resolve(*made)
        clock.advance(3600)
        first = await page(source(duty, host, statuses="resolved"))
        edited = source(duty, host, statuses="resolved", urgencies="high")
        assert set(subjects(await read(edited, first.cursor, clock.now()))) == set(made)

    async def test_a_cursor_is_small(self, duty: PagerDuty, host: Host):
        for _ in range(150):
            duty.trigger()
        batches = await read(source(duty, host))
        assert max(len(str(batch.cursor)) for batch in batches) < 400
