"""Since when a work item matches: what counts as an occurrence, and what is only a change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.azure_devops import AzureDevOps
from tests.services.azure_devops import histories, source
from tests.services.reading import events, first_events, read, times

DAY = 86_400.0


async def test_an_old_work_item_that_is_tagged_today_happens_when_it_was_tagged(
    board: AzureDevOps, host: Host, clock: HandClock
):
    old = board.create("ui", age=DAY)
    clock.advance(10)
    board.tag(old, "Bug")
    tagged = clock.now()
    clock.advance(10)
    board.comment(old)
    assert await times(source(board, host, tags="bug")) == [tagged]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"tags": "bug"},
        {"assigned_to": "mia@acme.example"},
        {"states": ["New"]},
        {"types": "Bug"},
        {"identity": "transition"},
    ],
)
async def test_a_comment_on_an_old_work_item_is_no_occurrence(board: AzureDevOps, host: Host, query: Any):
    board.comment(board.create("bug", to="mia", age=DAY))
    assert await first_events(source(board, host, **query)) == []


async def test_another_tag_on_an_old_work_item_is_no_occurrence(board: AzureDevOps, host: Host):
    old = board.create("bug", age=DAY)
    board.tag(old, "ui")
    assert await first_events(source(board, host, tags="bug")) == []
    assert len(await first_events(source(board, host, tags=["ui", "bug"]))) == 1


async def test_an_old_work_item_that_is_assigned_today_happens_today(board: AzureDevOps, host: Host, clock: HandClock):
    old = board.create(to="mia", age=DAY)
    board.assign(old, "leo")
    clock.advance(10)
    board.assign(old, "mia")
    assert await times(source(board, host, assigned_to="Mia@Acme.example")) == [clock.now()]
    assert await times(source(board, host, assigned_to="Mia")) == [clock.now()], "people are known by their name, too"


async def test_a_work_item_that_nobody_has_any_more_happens_when_it_was_taken_away(
    board: AzureDevOps, host: Host, clock: HandClock
):
    old = board.create(to="mia", age=DAY)
    clock.advance(10)
    board.assign(old, "")
    assert await times(source(board, host, assigned_to="none")) == [clock.now()]


async def test_a_move_between_wanted_states_is_no_occurrence_and_a_return_to_them_is_one(
    board: AzureDevOps, host: Host, clock: HandClock
):
    old = board.create(age=DAY)
    board.move(old, "Active")
    assert await first_events(source(board, host, states=["New", "Active"])) == []
    board.move(old, "Closed")
    clock.advance(10)
    board.move(old, "Active")
    assert await times(source(board, host, states=["New", "Active"])) == [clock.now()]


async def test_a_work_item_that_is_moved_into_the_project_or_area_happens_then(
    board: AzureDevOps, host: Host, clock: HandClock
):
    old = board.create(project="Search", age=DAY)
    clock.advance(10)
    board.change(old, {"System.TeamProject": "Shop", "System.AreaPath": "Shop"})
    assert await times(source(board, host, types="Bug")) == [clock.now()]
    clock.advance(10)
    board.change(old, {"System.AreaPath": "Shop\\Checkout\\Cart"})
    assert await times(source(board, host, area_path="Shop\\Checkout")) == [clock.now()]


async def test_a_tag_that_comes_back_counts_from_then(board: AzureDevOps, host: Host, clock: HandClock):
    old = board.create("bug", age=DAY)
    board.untag(old, "bug")
    clock.advance(10)
    board.tag(old, "bug")
    assert await times(source(board, host, tags="bug")) == [clock.now()]


async def test_only_a_work_item_that_changed_is_asked_for_its_history_and_once_for_each_change(
    board: AzureDevOps, host: Host, clock: HandClock
):
    reader = source(board, host, tags="bug")
    board.create("bug")
    cursor = (await read(reader))[-1].cursor
    assert histories(board) == 0
    board.comment(board.create("bug", age=DAY))
    for _ in range(3):
        clock.advance(90)
        cursor = (await read(reader, cursor))[-1].cursor
    assert histories(board) == 1


async def test_a_plain_query_needs_no_histories(board: AzureDevOps, host: Host):
    for _ in range(5):
        board.comment(board.create(age=DAY))
    assert await first_events(source(board, host)) == []
    assert histories(board) == 0


async def test_a_history_that_is_behind_is_asked_for_again(board: AzureDevOps, host: Host, clock: HandClock):
    reader = source(board, host, tags="bug")
    old = board.create(age=DAY)
    board.tag(old, "bug")
    tagged = clock.now()
    old.history_visible_at = clock.time() + 40
    batches = await read(reader)
    assert [event.occurred_at for event in events(batches)] == [tagged]
    clock.advance(45)
    await read(reader, batches[-1].cursor)
    await read(reader, batches[-1].cursor)
    assert histories(board) == 2


async def test_a_history_of_many_pages_is_read_to_its_end(board: AzureDevOps, host: Host, clock: HandClock):
    old = board.create(age=DAY)
    for _ in range(450):
        board.comment(old)
    clock.advance(10)
    board.tag(old, "bug")
    assert await times(source(board, host, tags="bug")) == [clock.now()]


async def test_a_work_item_that_is_deleted_while_it_is_read_is_left_out_and_others_are_not(
    board: AzureDevOps, host: Host
):
    gone, other = board.create(age=DAY), board.create(age=DAY)
    board.tag(gone, "bug")
    board.tag(other, "bug")
    board.after[2] = lambda: setattr(gone, "deleted", True)
    assert [event.subject for event in await first_events(source(board, host, tags="bug"))] == [str(other.id)]


async def test_every_change_of_state_is_a_transition(board: AzureDevOps, host: Host, clock: HandClock):
    reader = source(board, host, identity="transition")
    old = board.create(age=DAY)
    seen: list[tuple[str | None, datetime | None]] = []
    cursor = None
    for state in ("Active", "New", "Active"):
        clock.advance(60)
        board.move(old, state)
        batches = await read(reader, cursor)
        cursor = batches[-1].cursor
        seen += [(event.state, event.occurred_at) for event in events(batches)]
        assert seen[-1] == (state, clock.now())


async def test_where_some_states_are_hidden_each_return_is_a_transition(
    board: AzureDevOps, host: Host, clock: HandClock
):
    made = board.create()
    (first,) = await first_events(source(board, host, states="New", identity="transition"))
    clock.advance(60)
    board.move(made, "Active")
    board.move(made, "New")
    (again,) = await first_events(source(board, host, states="New", identity="transition"))
    assert (first.state, again.state) == ("New 2026-01-05T09:00:00Z", "New 2026-01-05T09:01:00Z")


async def test_every_revision_is_a_change_and_needs_no_history(board: AzureDevOps, host: Host, clock: HandClock):
    made = board.create("bug")
    clock.advance(60)
    board.comment(made)
    (event,) = await first_events(source(board, host, tags="bug", identity="change"))
    assert (event.state, event.occurred_at, event.data["matched_at"]) == ("2", clock.now(), None)
    assert histories(board) == 0
