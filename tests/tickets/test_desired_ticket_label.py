"""What a ticket shows for its run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from harken.runs import FINAL, RunState
from harken.ticket import Ticket
from harken.tickets import Lifecycle, LifecycleLabels, TicketMemory, desired_state, repairs_allowed
from harken.tickets.desired_ticket_label import is_lost

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(minutes=1)


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        ("ready", Lifecycle.ENQUEUED),
        ("blocked", Lifecycle.ENQUEUED),
        ("gathering", Lifecycle.ENQUEUED),
        ("held", Lifecycle.WAITING),
        ("waiting", Lifecycle.WAITING),
        ("running", Lifecycle.IN_PROGRESS),
        ("done", Lifecycle.DONE),
        ("failed", Lifecycle.FAILED),
        ("dead", Lifecycle.FAILED),
        ("cancelled", None),
    ],
)
def test_each_state_of_a_run_is_shown(run: RunState, shown: Lifecycle | None) -> None:
    assert desired_state(run, LONG_AGO, NOW, None) == shown


def test_no_state_of_a_run_is_forgotten() -> None:
    silent = {run for run in get_args(RunState) if desired_state(run, LONG_AGO, NOW, None) is None}
    assert silent == {"cancelled"} <= FINAL


@pytest.mark.parametrize("before", [None, Lifecycle.PENDING, Lifecycle.FAILED])
def test_enqueued_is_left_out_if_it_lasts_under_five_seconds(before: Lifecycle | None) -> None:
    just_now = NOW - timedelta(seconds=4.9)
    assert desired_state("ready", just_now, NOW, before) == before
    assert desired_state("ready", NOW - timedelta(seconds=5), NOW, before) is Lifecycle.ENQUEUED
    assert desired_state("running", NOW, NOW, before) is Lifecycle.IN_PROGRESS


def test_after_five_repairs_in_an_hour_we_stop() -> None:
    repairs = [NOW - timedelta(minutes=10 * number) for number in range(5)]
    assert not repairs_allowed(repairs, NOW)
    assert repairs_allowed(repairs[1:], NOW)
    assert repairs_allowed(repairs, NOW + timedelta(minutes=20))


@pytest.mark.parametrize(
    ("labels", "version", "confirmed", "age", "lost"),
    [
        (["harken:in-progress"], "5", True, 600, False),
        ([], "4", True, 600, False),
        ([], "6", True, 1, True),
        (["harken:done"], "6", True, 1, True),
        ([], "6", False, 1, False),
        ([], "6", False, 120, True),
        ([], "5", True, 1, False),
        ([], "5", True, 120, True),
    ],
)
def test_a_label_is_lost_only_if_a_read_after_our_write_shows_it(
    labels: list[str], version: str, confirmed: bool, age: float, lost: bool
) -> None:
    memory = TicketMemory(
        project="web",
        shown=Lifecycle.IN_PROGRESS,
        version="5",
        confirmed=confirmed,
        wrote_at=NOW - timedelta(seconds=age),
    )
    ticket = Ticket(
        id="1", ref="#1", title="", url="", status="open", closed=False, labels=tuple(labels), version=version
    )
    assert is_lost(memory, ticket, LifecycleLabels(), NOW) is lost


@pytest.mark.parametrize("before", [None, Lifecycle.ENQUEUED])
@pytest.mark.parametrize("run", ["gathering", "ready", "blocked", "held", "running"])
def test_of_a_run_that_may_be_a_strangers_nothing_new_is_shown(run: RunState, before: Lifecycle | None) -> None:
    assert desired_state(run, LONG_AGO, NOW, before, trusted=False) is before


def test_the_end_of_a_run_and_a_question_are_shown_whoever_asked_for_it() -> None:
    states: dict[RunState, Lifecycle | None] = {
        "waiting": Lifecycle.WAITING,
        "failed": Lifecycle.FAILED,
        "dead": Lifecycle.FAILED,
        "cancelled": None,
    }
    assert {run: desired_state(run, LONG_AGO, NOW, None, trusted=False) for run in states} == states
