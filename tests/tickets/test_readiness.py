"""Where a ticket stands, and which changes of it are an occurrence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harken.ticket import Ticket
from harken.tickets import Routes, Scope, standing

SCOPE = Scope(routes=Routes(by_label={"fix": "fix-bug", "scan": "security-scan"}))


def ticket(*labels: str, **changes: Any) -> Ticket:
    plain = {"id": "1", "ref": "#1", "title": "t", "url": "", "status": "open", "closed": False}
    return Ticket(labels=labels, **{**plain, **changes})


@pytest.mark.parametrize(
    ("given", "state", "pipeline"),
    [
        (ticket(), "unrouted", ""),
        (ticket("bug"), "unrouted", ""),
        (ticket("Fix"), "ready:fix", "fix-bug"),
        (ticket("fix", "harken:pending"), "ready:fix", "fix-bug"),
        (ticket("harken:pending"), "unrouted", ""),
        (ticket("fix", "harken:enqueued"), "claimed:enqueued", ""),
        (ticket("fix", "harken:in-progress"), "claimed:in-progress", ""),
        (ticket("fix", "harken:done"), "claimed:done", ""),
        (ticket("fix", "harken:failed"), "claimed:failed", ""),
        (ticket("fix", "harken:waiting"), "claimed:waiting", ""),
        (ticket("fix", closed=True), "closed", ""),
        (ticket("harken:enqueued"), "withdrawn:label", ""),
        (ticket("harken:in-progress", "bug"), "withdrawn:label", ""),
        (ticket("harken:waiting"), "withdrawn:label", ""),
        (ticket("harken:done"), "claimed:done", ""),
    ],
)
def test_only_a_labelled_open_ticket_without_a_run_is_ready(given: Ticket, state: str, pipeline: str) -> None:
    found = standing(given, SCOPE)
    assert (found.state, found.pipeline) == (state, pipeline)
    assert found.ready is not bool(found.reason)


@pytest.mark.parametrize(
    ("status", "state"), [("Active", "ready:fix"), ("DONE", "status:DONE"), ("Not Active", "status:Not Active")]
)
def test_pitfall_67_statuses_are_compared_whole(status: str, state: str) -> None:
    for field in ("open_states", "trigger_statuses"):
        scope = msgspec.structs.replace(SCOPE, **{field: frozenset({"active"})})
        assert standing(ticket("fix", status=status), scope).state == state


@pytest.mark.parametrize(
    ("status", "state"),
    [("Ready", "claimed:in-progress"), ("Active", "claimed:in-progress"), ("Parked", "withdrawn:status")],
)
def test_a_run_may_move_its_ticket_on_but_a_ticket_out_of_scope_is_withdrawn(status: str, state: str) -> None:
    statuses = {"open_states": frozenset({"ready", "active"}), "trigger_statuses": frozenset({"ready"})}
    scope = msgspec.structs.replace(SCOPE, **statuses)
    assert standing(ticket("fix", "harken:in-progress", status=status), scope).state == state


@pytest.mark.parametrize(
    ("given", "statuses", "state"),
    [
        (ticket(), frozenset(), "unrouted"),
        (ticket("bug"), frozenset(), "unrouted"),
        (ticket("harken:pending"), frozenset(), "ready:"),
        (ticket(status="Ready"), frozenset({"ready"}), "ready:"),
        (ticket(status="Done"), frozenset({"ready"}), "status:Done"),
        (ticket("harken:in-progress"), frozenset(), "claimed:in-progress"),
    ],
)
def test_without_a_label_map_a_ticket_is_asked_for_by_pending_or_a_status(
    given: Ticket, statuses: frozenset[str], state: str
) -> None:
    scope = Scope(routes=Routes(default="fix-bug"), trigger_statuses=statuses)
    assert standing(given, scope).state == state


def test_a_comment_or_another_label_changes_nothing() -> None:
    before = standing(ticket("fix"), SCOPE)
    assert standing(ticket("fix", "urgent", "harken:urgent", title="changed"), SCOPE) == before


def test_another_trigger_label_is_another_occurrence() -> None:
    same = Scope(routes=Routes(by_label={"fix": "fix-bug", "fix-again": "fix-bug"}))
    assert standing(ticket("fix"), same).state != standing(ticket("fix-again"), same).state
