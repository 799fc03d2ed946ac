"""Since when an issue matches: what counts as an occurrence, and what is only a change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from tests.services.github import histories, source
from tests.services.reading import events, first_events, read, times

DAY = 86_400.0


async def test_an_old_issue_that_is_labelled_today_happens_when_it_was_labelled(
    hub: GitHub, host: Host, clock: HandClock
):
    old = hub.open(age=DAY)
    clock.advance(10)
    hub.label(old, "Bug")
    labelled = clock.now()
    clock.advance(10)
    hub.comment(old)
    assert await times(source(hub, host, labels="bug")) == [labelled]


async def test_a_comment_on_an_old_issue_is_no_occurrence(hub: GitHub, host: Host, clock: HandClock):
    queries: list[Any] = [{}, {"labels": "bug"}, {"assignee": "mia"}, {"state": "all"}, {"identity": "transition"}]
    for query in queries:
        hub.comment(hub.open("bug", to="mia", age=DAY))
        assert await first_events(source(hub, host, **query)) == []


async def test_another_label_on_an_old_issue_is_no_occurrence(hub: GitHub, host: Host):
    old = hub.open("bug", age=DAY)
    hub.label(old, "ui")
    assert await first_events(source(hub, host, labels="bug")) == []
    assert len(await first_events(source(hub, host, labels=["ui", "bug"]))) == 1


async def test_an_old_issue_that_is_assigned_today_happens_today(hub: GitHub, host: Host, clock: HandClock):
    old = hub.open(age=DAY)
    clock.advance(10)
    hub.assign(old, "leo")
    hub.assign(old, "mia")
    assert await times(source(hub, host, assignee="Mia")) == [clock.now()]


async def test_an_issue_that_nobody_has_any_more_happens_when_it_was_taken_away(
    hub: GitHub, host: Host, clock: HandClock
):
    old = hub.open(to="mia", age=DAY)
    clock.advance(10)
    hub.unassign(old, "mia")
    assert await times(source(hub, host, assignee="none")) == [clock.now()]


async def test_a_milestone_that_is_set_today_counts_from_today(hub: GitHub, host: Host, clock: HandClock):
    old = hub.open(age=DAY)
    clock.advance(10)
    hub.plan(old, "1.0")
    assert await times(source(hub, host, milestone="1.0")) == [clock.now()]


@pytest.mark.parametrize("pull", [False, True])
async def test_an_old_issue_that_is_opened_again_happens_then(hub: GitHub, host: Host, clock: HandClock, pull: bool):
    old = hub.open(age=DAY, pull=pull)
    hub.close(old)
    clock.advance(10)
    hub.reopen(old)
    assert await times(source(hub, host, kind="both")) == [clock.now()]


async def test_an_old_issue_that_is_closed_happens_when_it_was_closed(hub: GitHub, host: Host, clock: HandClock):
    old = hub.open(age=DAY)
    clock.advance(10)
    hub.close(old)
    closed = clock.now()
    clock.advance(10)
    hub.comment(old)
    assert await times(source(hub, host, state="closed")) == [closed]
    assert await times(source(hub, host, state="all")) == []


async def test_a_new_issue_that_was_labelled_later_happens_when_it_was_labelled(
    hub: GitHub, host: Host, clock: HandClock
):
    made = hub.open()
    clock.advance(300)
    hub.label(made, "bug")
    assert await times(source(hub, host, labels="bug")) == [clock.now()]


async def test_only_an_issue_that_changed_is_asked_for_its_history_and_once_for_each_change(
    hub: GitHub, host: Host, clock: HandClock
):
    reader = source(hub, host, labels="bug")
    hub.open("bug")
    cursor = (await read(reader))[-1].cursor
    assert histories(hub) == 0
    hub.comment(hub.open("bug", age=DAY))
    clock.advance(90)
    for _ in range(3):
        cursor = (await read(reader, cursor))[-1].cursor
    assert histories(hub) == 1


async def test_a_plain_query_needs_no_histories(hub: GitHub, host: Host):
    for _ in range(5):
        hub.comment(hub.open(age=DAY))
    await first_events(source(hub, host))
    await first_events(source(hub, host, state="closed"))
    assert histories(hub) == 0


async def test_a_history_that_is_behind_the_list_is_asked_for_again(hub: GitHub, host: Host, clock: HandClock):
    reader = source(hub, host, labels="bug")
    old = hub.open(age=DAY)
    hub.label(old, "bug")
    labelled = clock.now()
    old.history_visible_at = clock.time() + 40
    batches = await read(reader)
    assert events(batches) == []
    clock.advance(45)
    again = await read(reader, batches[-1].cursor)
    assert [event.occurred_at for event in events(again)] == [labelled]


async def test_a_history_of_many_pages_is_read_to_its_end(hub: GitHub, host: Host, clock: HandClock):
    old = hub.open(age=DAY)
    for number in range(150):
        hub.label(old, f"l{number}")
    clock.advance(10)
    hub.label(old, "bug")
    assert await times(source(hub, host, labels="bug")) == [clock.now()]


async def test_an_issue_that_is_deleted_while_it_is_read_is_left_out_and_others_are_not(hub: GitHub, host: Host):
    gone, other = hub.open("bug"), hub.open(age=DAY)
    gone.broken = {"updated_at": "2026-01-05T09:00:01Z"}
    hub.label(other, "bug")
    hub.after[1] = lambda: setattr(gone, "deleted", True)
    assert [event.data["number"] for event in await first_events(source(hub, host, labels="bug"))] == [2]


async def test_every_change_of_state_is_a_transition(hub: GitHub, host: Host, clock: HandClock):
    reader = source(hub, host, state="all", identity="transition")
    old = hub.open(age=DAY)
    seen: list[tuple[str | None, datetime | None]] = []
    cursor = None
    for happen in (hub.close, hub.reopen, hub.close):
        clock.advance(60)
        happen(old)
        batches = await read(reader, cursor)
        cursor = batches[-1].cursor
        seen += [(event.state, event.occurred_at) for event in events(batches)]
        assert seen[-1][1] == clock.now()
    assert [state for state, _ in seen] == ["closed", "open", "closed"]


async def test_where_one_state_is_hidden_each_return_to_the_other_is_a_transition(
    hub: GitHub, host: Host, clock: HandClock
):
    made = hub.open()
    (first,) = await first_events(source(hub, host, identity="transition"))
    clock.advance(60)
    hub.close(made)
    hub.reopen(made)
    (again,) = await first_events(source(hub, host, identity="transition"))
    assert (first.state, again.state) == ("open 2026-01-05T09:00:00Z", "open 2026-01-05T09:01:00Z")


async def test_every_update_is_a_change_and_needs_no_history(hub: GitHub, host: Host, clock: HandClock):
    made = hub.open("bug")
    clock.advance(60)
    hub.comment(made)
    (event,) = await first_events(source(hub, host, labels="bug", identity="change"))
    assert (event.state, event.occurred_at) == ("2026-01-05T09:01:00Z", clock.now())
    assert histories(hub) == 0
