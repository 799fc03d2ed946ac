"""Whether a run is still wanted, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from harken.runs import StepRecord
from harken.ticket import Ticket
from harken.tickets import ProjectScope, ProjectSettings, Routes, TrackerSettings
from harken.tickets.withdrawal_decision import OwnMove, Wish, own_move, remembered, why_withdrawn

SHOP = ProjectSettings(
    name="shop", location="a/b", scope=ProjectScope(name="shop", tag="till"), routes=Routes(by_label={"fix": "fix-bug"})
)
OTHER = ProjectSettings(name="other", location="a/b", scope=ProjectScope(name="other"), routes=SHOP.routes)
TRACKER = TrackerSettings(
    name="hub",
    kind="github",
    account="hub",
    locations=("a/b",),
    projects=(SHOP, OTHER),
    open_states=frozenset({"new", "active"}),
    trigger_statuses=frozenset({"new"}),
)


def ticket(status: str = "New", labels: tuple[str, ...] = ("Fix", "till"), closed: bool = False) -> Ticket:
    return Ticket(id="1", ref="a/b#1", title="", url="", status=status, closed=closed, labels=labels)


def wish(**more: Any) -> Wish:
    return Wish(tracker=TRACKER, project=SHOP, label="fix", **more)


@pytest.mark.parametrize(
    ("seen", "wanted", "reason"),
    [
        (ticket(), wish(), ""),
        (ticket(closed=True), wish(), "the ticket was closed"),
        (ticket("Done"), wish(begun=True), "its status Done is not one of open_states"),
        (ticket("Active"), wish(), "its status Active is not one of trigger_statuses"),
        (ticket("Active"), wish(begun=True), ""),
        (ticket(labels=("till",)), wish(), "the label fix is not on the ticket any more"),
        (ticket(labels=("till", "fix", "scan")), wish(), ""),
        (ticket(labels=("fix",)), wish(), "the ticket belongs to other now"),
        (ticket("Done"), wish(begun=True, moved=OwnMove(status="done", closed=False)), ""),
        (ticket("Closed", closed=True), wish(begun=True, moved=OwnMove(status="completed", closed=True)), ""),
        (
            ticket("Removed"),
            wish(begun=True, moved=OwnMove(status="Done", closed=False)),
            "its status Removed is not one of open_states",
        ),
        (ticket(closed=True), wish(begun=True, moved=OwnMove(status="Done", closed=False)), "the ticket was closed"),
    ],
)
def test_why_a_ticket_does_not_want_its_run(seen: Ticket, wanted: Wish, reason: str) -> None:
    assert why_withdrawn(seen, wanted) == reason


MOVED = OwnMove(status="Review", closed=False)


@pytest.mark.parametrize(
    ("state", "wanted", "withdrawn", "certain"),
    [
        (None, wish(), False, True),
        ("ready:fix", wish(), False, True),
        ("ready:fix@0123", wish(), False, True),
        ("claimed:in-progress", wish(begun=True), False, True),
        ("claimed:done", wish(begun=True), False, True),
        ("unrouted", wish(), True, True),
        ("withdrawn:label", wish(begun=True), True, True),
        ("withdrawn:label", wish(begun=True, moved=MOVED), True, True),
        ("withdrawn:project", wish(begun=True), True, True),
        ("closed", wish(begun=True), True, True),
        ("closed", wish(begun=True, moved=MOVED), True, False),
        ("status:Review", wish(), True, True),
        ("status:Review", wish(begun=True), True, False),
        ("withdrawn:status", wish(), True, True),
        ("withdrawn:status", wish(begun=True), True, False),
    ],
)
def test_what_the_memory_of_the_feed_says(state: str | None, wanted: Wish, withdrawn: bool, certain: bool) -> None:
    told = remembered(state, wanted)
    assert (bool(told.reason), told.certain) == (withdrawn, certain)


def test_the_last_move_of_the_run_counts() -> None:
    def moved(status: str, output: Any, ended: Any = "ok") -> StepRecord:
        return StepRecord(path=status, action="ticket.transition", status=ended, output=output)

    first, second = moved("a", {"status": "A", "closed": False}), moved("b", {"status": "B", "closed": True})
    assert own_move([]) is None
    assert own_move([first, second]) == OwnMove(status="B", closed=True)
    assert own_move([first, moved("c", None, "failed")]) == OwnMove(status="A", closed=False)
    begun = moved("c", {"status": "C"}, "waiting")
    assert own_move([first, begun]) == OwnMove(status="C", closed=True), "it may have been closed"
