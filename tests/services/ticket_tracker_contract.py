"""What every tracker does for tickets that start pipelines. Each platform subclasses it with its fake:

class TestGitHubTickets(TicketTrackerContract):
    page_size, odd_labels = 100, ("area/ui", "größe 🔥")

    @pytest.fixture
    def board(self, hub: GitHub, host: Host) -> Board: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import ClassVar, Protocol

import pytest

from harken.errors import NeedsAttention, RetryLater
from harken.testing import HandClock
from harken.ticket import Access, Actor, Ticket, TicketTracker


class Board(Protocol):
    """A fake with one project, and its tracker. Tickets are called by their number."""

    tracker: TicketTracker

    def open(self, *labels: str) -> str:
        """Open a ticket that somebody other than us labels."""
        ...

    def close(self, number: str) -> None: ...

    def delete(self, number: str) -> None: ...

    def label(self, number: str, label: str) -> None: ...

    def unlabel(self, number: str, label: str) -> None: ...

    def labels(self, number: str) -> set[str]: ...

    def comment(self, number: str, text: str) -> str:
        """Returns the id of the comment."""
        ...

    def delete_comment(self, number: str, id: str) -> None: ...

    def answer_next_with(self, status: int) -> None: ...

    def after_next_answer(self, change: Callable[[], object]) -> None: ...


async def all_labelled(tracker: TicketTracker, *labels: str, closed: bool = False) -> list[Ticket]:
    page = await tracker.list_labelled(labels, closed=closed)
    found = [*page.tickets]
    while page.next is not None:
        page = await tracker.list_labelled(labels, closed=closed, page=page.next)
        found += page.tickets
    return found


async def all_changed(tracker: TicketTracker, since: datetime) -> list[Ticket]:
    page = await tracker.list_changed(since)
    found = [*page.tickets]
    while page.next is not None:
        page = await tracker.list_changed(since, page=page.next)
        found += page.tickets
    return found


async def read(board: Board, number: str) -> Ticket:
    ticket = await board.tracker.get(number)
    assert ticket is not None
    return ticket


def numbers(tickets: Sequence[Ticket]) -> set[str]:
    return {ticket.number for ticket in tickets}


NOBODY = Actor(id="0", login="nobody-here")
ASKS: dict[str, Callable[[TicketTracker, Ticket], Awaitable[object]]] = {
    "list_labelled": lambda tracker, ticket: tracker.list_labelled(["bug"], closed=False),
    "list_changed": lambda tracker, ticket: tracker.list_changed(datetime.fromisoformat("2020-01-01T00:00:00Z")),
    "get": lambda tracker, ticket: tracker.get(ticket.id),
    "label_history": lambda tracker, ticket: tracker.label_history(ticket),
    "access_of": lambda tracker, ticket: tracker.access_of(NOBODY),
    "own_account": lambda tracker, ticket: tracker.own_account(),
    "comments": lambda tracker, ticket: tracker.comments(ticket),
    "comment": lambda tracker, ticket: tracker.comment(ticket, "hello"),
    "swap_labels": lambda tracker, ticket: tracker.swap_labels(ticket, ["harken:done"], []),
    "ensure_labels": lambda tracker, ticket: tracker.ensure_labels(["harken:done"]),
}


class TicketTrackerContract:
    """`page_size` is that of its lists; `odd_labels` are names that the platform allows and that could do harm."""

    page_size: ClassVar[int]
    odd_labels: ClassVar[Sequence[str]]
    asks: ClassVar[Sequence[str]] = tuple(ASKS)

    async def test_tickets_with_any_of_the_labels_are_listed_over_all_pages(self, board: Board, clock: HandClock):
        wanted = {board.open("bug") for _ in range(self.page_size + 3)}
        clock.advance(5)
        wanted |= {board.open("crash") for _ in range(self.page_size + 3)} | {board.open("bug", "crash")}
        board.open("feature")
        board.close(board.open("bug"))
        found = await all_labelled(board.tracker, "bug", "crash")
        assert numbers(found) == wanted
        assert not any(ticket.closed for ticket in found)

    async def test_closed_tickets_are_listed_if_asked_for(self, board: Board):
        opened, closed = board.open("bug"), board.open("bug")
        board.close(closed)
        found = {ticket.number: ticket.closed for ticket in await all_labelled(board.tracker, "bug", closed=True)}
        assert found == {opened: False, closed: True}

    async def test_no_label_lists_nothing(self, board: Board):
        board.open("bug")
        assert await all_labelled(board.tracker) == []

    async def test_changes_are_listed_over_all_pages_oldest_first(self, board: Board, clock: HandClock):
        early = [board.open() for _ in range(3)]
        clock.advance(3600)
        since = clock.now()
        late = [board.open("bug") for _ in range(self.page_size + 3)]
        clock.advance(60)
        board.label(early[0], "bug")
        found = await all_changed(board.tracker, since)
        assert numbers(found) == {*late, early[0]}
        assert found[-1].number == early[0]

    async def test_a_ticket_is_found_by_id_and_by_number(self, board: Board):
        number = board.open("bug")
        board.open("bug")
        listed = next(ticket for ticket in await all_labelled(board.tracker, "bug") if ticket.number == number)
        assert await board.tracker.get(listed.id) == await board.tracker.get(number) == listed
        assert listed.ref
        assert listed.url

    async def test_a_deleted_ticket_is_gone_and_a_closed_one_is_not(self, board: Board):
        ticket, closed = await read(board, board.open("bug")), board.open("bug")
        board.delete(ticket.number)
        board.close(closed)
        assert await board.tracker.get(ticket.id) is None
        assert (await read(board, closed)).closed

    @pytest.mark.parametrize("ask", ASKS)
    async def test_trouble_is_raised_and_never_an_empty_answer(self, board: Board, ask: str):
        if ask not in self.asks:
            pytest.skip("the platform needs no request for it")
        ticket = await read(board, board.open("bug"))
        board.answer_next_with(500)
        with pytest.raises(RetryLater):
            await ASKS[ask](board.tracker, ticket)
        board.answer_next_with(401)
        with pytest.raises(NeedsAttention):
            await ASKS[ask](board.tracker, ticket)

    async def test_webhooks_that_our_account_may_not_see_are_unknown_and_trouble_is_raised(self, board: Board):
        await read(board, board.open("bug"))
        board.answer_next_with(403)
        assert await board.tracker.webhooks() is None
        board.answer_next_with(500)
        with pytest.raises(RetryLater):
            await board.tracker.webhooks()

    async def test_labels_are_swapped_and_all_others_stay(self, board: Board, clock: HandClock):
        ticket = await read(board, board.open("bug", "harken:pending", *self.odd_labels))
        clock.advance(5)
        after = await board.tracker.swap_labels(ticket, ["harken:in-progress"], ["harken:pending"])
        assert board.labels(ticket.number) == {"bug", "harken:in-progress", *self.odd_labels}
        assert set(after.labels) == board.labels(ticket.number)
        assert after.version != ticket.version
        assert after == await board.tracker.get(ticket.id)

    async def test_what_others_do_to_the_labels_meanwhile_stays(self, board: Board):
        ticket = await read(board, board.open("bug", "ui", "harken:pending"))
        board.label(ticket.number, "urgent")
        board.unlabel(ticket.number, "ui")
        board.after_next_answer(lambda: board.label(ticket.number, "late"))
        await board.tracker.swap_labels(ticket, ["harken:done"], ["harken:pending"])
        assert board.labels(ticket.number) == {"bug", "urgent", "late", "harken:done"}

    async def test_a_label_that_is_there_or_gone_already_is_no_error(self, board: Board):
        ticket = await read(board, board.open("bug", "harken:done"))
        after = await board.tracker.swap_labels(ticket, ["harken:done"], ["harken:pending", "harken:failed"])
        assert set(after.labels) == board.labels(ticket.number) == {"bug", "harken:done"}

    async def test_labels_of_any_name_can_be_put_on_and_taken_off(self, board: Board):
        ticket = await read(board, board.open("bug"))
        await board.tracker.swap_labels(ticket, self.odd_labels, [])
        assert board.labels(ticket.number) == {"bug", *self.odd_labels}
        for label in self.odd_labels:
            assert numbers(await all_labelled(board.tracker, label)) == {ticket.number}
        await board.tracker.swap_labels(ticket, [], self.odd_labels)
        assert board.labels(ticket.number) == {"bug"}

    async def test_the_history_tells_who_labelled_oldest_first(self, board: Board, clock: HandClock):
        number = board.open()
        clock.advance(60)
        board.label(number, "bug")
        clock.advance(60)
        board.unlabel(number, "bug")
        clock.advance(60)
        ours = await board.tracker.swap_labels(await read(board, number), ["harken:pending"], [])
        changes = await board.tracker.label_history(ours)
        assert changes is not None
        told = [(change.label, change.added) for change in changes]
        assert told == [("bug", True), ("bug", False), ("harken:pending", True)]
        actors = [change.actor.id if change.actor else "" for change in changes]
        assert actors[0] == actors[1] != ""
        assert actors[2] == (await board.tracker.own_account()).id != actors[0]

    async def test_missing_labels_are_told_and_made_once(self, board: Board):
        wanted = ["harken:pending", "harken:done"]
        missing = await board.tracker.missing_labels(wanted)
        made = await board.tracker.ensure_labels(wanted)
        assert list(missing) == list(made)
        assert list(made) in ([], wanted)
        assert list(await board.tracker.missing_labels(wanted)) == []
        assert list(await board.tracker.ensure_labels(wanted)) == []

    async def test_comments_are_read_over_all_pages_and_from_a_time_on(self, board: Board, clock: HandClock):
        ticket = await read(board, board.open("bug"))
        texts = [f"comment {index}" for index in range(self.page_size + 3)]
        for text in texts:
            board.comment(ticket.number, text)
        clock.advance(600)
        since = clock.now()
        board.comment(ticket.number, "later")
        assert [comment.text for comment in await board.tracker.comments(ticket)] == [*texts, "later"]
        assert [comment.text for comment in await board.tracker.comments(ticket, since)] == ["later"]

    async def test_our_comment_is_edited_until_somebody_deletes_it(self, board: Board):
        ticket = await read(board, board.open("bug"))
        written = await board.tracker.comment(ticket, "working on **it** 🔥")
        edited = await board.tracker.edit_comment(ticket, written.id, "done")
        assert edited is not None
        assert (edited.id, edited.text) == (written.id, "done")
        (only,) = await board.tracker.comments(ticket)
        assert (only.id, only.text) == (written.id, "done")
        assert only.author is not None
        assert only.author.id == (await board.tracker.own_account()).id
        board.delete_comment(ticket.number, written.id)
        assert await board.tracker.edit_comment(ticket, written.id, "done again") is None

    async def test_an_account_that_nobody_knows_has_unknown_or_no_access(self, board: Board):
        assert await board.tracker.access_of(NOBODY) in (Access.UNKNOWN, Access.NONE)

    async def test_pitfall_67_a_status_is_compared_whole(self, board: Board):
        ticket = await read(board, board.open("bug"))
        for status in (f"Not {ticket.status}", ticket.status[:-1], "", "no such status"):
            with pytest.raises(NeedsAttention):
                await board.tracker.transition(ticket, status)
        assert await read(board, ticket.number) == ticket

    async def test_a_ticket_that_changes_while_pages_are_read_is_not_missed(self, board: Board, clock: HandClock):
        opened = []
        for _ in range(self.page_size + 5):
            clock.advance(5)
            opened.append(board.open("bug"))
        clock.advance(60)

        def unlabel_some() -> None:
            for number in opened[:3]:
                board.unlabel(number, "bug")

        board.after_next_answer(unlabel_some)
        assert numbers(await all_labelled(board.tracker, "bug")) >= set(opened[3:])
