"""What an observation of a ticket tells, given what we wrote on it: the table of the claim rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from harken.ticket import Ticket
from harken.tickets import Lifecycle, ProjectScope, TicketMemory
from harken.tickets.observation_against_last_write import Age, Observation, age_of, observe
from tests.services.github import SHOP
from tests.tickets.tracked import project, settings

WROTE = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
DONE, FAILED, ACTIVE = Lifecycle.DONE, Lifecycle.FAILED, Lifecycle.IN_PROGRESS


def at(seconds: float) -> datetime:
    return WROTE + timedelta(seconds=seconds)


def ticket(*labels: str, after: float = 10.0, **changes: Any) -> Ticket:
    """A ticket as it was so many seconds after our write."""
    made: dict[str, Any] = {"id": "1@9", "ref": "#1", "title": "t", "url": "u", "status": "open", "closed": False}
    shown = {"labels": labels, "repo": SHOP, "updated_at": at(after), "version": at(after).isoformat()}
    return Ticket(**(made | shown | changes))


def memory(
    shown: Lifecycle | None = DONE, status: str = "done", *, confirmed: bool = True, settled: bool = True
) -> TicketMemory:
    return TicketMemory(
        settled=f"r1:{status}:1" if settled else "",
        project="shop",
        run="r1",
        status=status,
        shown=shown,
        wrote_at=WROTE,
        version=WROTE.isoformat(),
        confirmed=confirmed,
    )


ENDED_TOO_LATE = replace(memory(None, "cancelled", confirmed=False), settled="r1:done:1")
"""The run was done when its wish had been taken back: it counts as cancelled."""


def told(seen: Observation) -> str | None:
    if seen.look:
        assert seen.placed is None
        return "look"
    return seen.placed.standing.state if seen.placed else None


def judged(shown: Ticket, of: TicketMemory | None, known: str | None = None, *, single: bool = True) -> Observation:
    return observe(shown, settings(), SHOP, memory=of, known=known, single=single)


@pytest.mark.parametrize(
    ("shown", "of", "known", "single", "state"),
    [
        # our label was seen, and a single read that is newer shows it gone
        (ticket("fix"), memory(), "claimed:done", True, "ready:fix@r1"),
        (ticket("fix"), memory(FAILED, "failed"), "claimed:failed", True, "ready:fix@r1"),
        (ticket("fix"), memory(FAILED, "dead"), "claimed:failed", True, "ready:fix@r1"),
        (ticket("fix", "harken:pending"), memory(), "claimed:done", True, "ready:fix@r1"),
        (ticket("scan"), memory(), "claimed:done", True, "ready:scan@r1"),
        # a list shows it gone: look first
        (ticket("fix"), memory(), "claimed:done", False, "look"),
        # our label was never seen: what shows it gone is behind
        (ticket("fix"), memory(confirmed=False), "claimed:in-progress", True, "claimed:done"),
        (ticket("fix"), memory(confirmed=False), "claimed:in-progress", False, "claimed:done"),
        (ticket("fix"), memory(FAILED, "dead", confirmed=False), "ready:fix", True, "claimed:failed"),
        # as it was at our write
        (ticket("fix", after=0), memory(), "claimed:done", True, "claimed:done"),
        # older than our write: it tells nothing
        (ticket("fix", after=-1), memory(), "claimed:done", True, None),
        (ticket("fix", after=-1), memory(), "claimed:done", False, None),
        (ticket("fix", closed=True, after=-60), memory(), "claimed:done", True, None),
        # our label is on it
        (ticket("fix", "harken:done"), memory(), "claimed:done", False, "claimed:done"),
        (ticket("fix", "HARKEN:DONE"), memory(), "claimed:done", True, "claimed:done"),
        (ticket("harken:done"), memory(), "claimed:done", True, "claimed:done"),
        (ticket("fix", "harken:done", "harken:pending"), memory(), "claimed:done", True, "claimed:done"),
        # the run is over and its label is not written yet
        (ticket("fix", "harken:in-progress"), memory(ACTIVE, "done"), "ready:fix", True, "claimed:in-progress"),
        (ticket("harken:in-progress"), memory(ACTIVE, "done"), "withdrawn:label", True, "claimed:in-progress"),
        (ticket("fix"), memory(ACTIVE, "done", confirmed=False), "ready:fix", True, "claimed:in-progress"),
        # over, and nobody wants anything of it
        (ticket(), memory(), "claimed:done", True, "unrouted"),
        (ticket("fix", closed=True), memory(), "claimed:done", True, "closed"),
        (ticket("fix", "harken:done", closed=True), memory(), "claimed:done", False, "closed"),
        # a person ended the run and left the label: that is no wish
        (ticket("fix"), memory(None, "cancelled", confirmed=False), "claimed:in-progress", True, "claimed:cancelled"),
        (ticket("fix"), memory(None, "cancelled", confirmed=False), "claimed:cancelled", True, "claimed:cancelled"),
        (ticket("fix"), memory(None, "cancelled", confirmed=False), None, True, "claimed:cancelled"),
        # the wish was taken back and made anew
        (ticket("fix"), memory(None, "cancelled"), "unrouted", True, "ready:fix@r1"),
        (ticket("fix"), memory(None, "cancelled", confirmed=False), "withdrawn:label", True, "ready:fix@r1"),
        (ticket("fix"), memory(None, "cancelled", confirmed=False), "withdrawn:label", False, "look"),
        (ticket("fix"), memory(None, "cancelled", confirmed=False), "closed", True, "ready:fix@r1"),
        (ticket("fix", after=0), memory(None, "cancelled", confirmed=False), "withdrawn:label", True, "ready:fix@r1"),
        (ticket("fix", "harken:pending"), memory(None, "cancelled"), "claimed:cancelled", True, "ready:fix@r1"),
        (ticket("fix", after=-1), memory(None, "cancelled", confirmed=False), "withdrawn:label", True, None),
        # the end of the run is not shown on the ticket yet
        (ticket("fix"), memory(None, confirmed=False, settled=False), "ready:fix@r0", True, "claimed:done"),
        (ticket("fix"), memory(None, confirmed=False, settled=False), "withdrawn:label", True, None),
        (
            ticket("fix", "harken:pending"),
            memory(None, confirmed=False, settled=False),
            "ready:fix",
            True,
            "claimed:done",
        ),
        (ticket("fix"), memory(None, "cancelled", confirmed=False, settled=False), "withdrawn:label", True, None),
        # it ended in the moment in which the wish was taken back
        (ticket("fix"), memory(None, confirmed=False), "unrouted", True, "ready:fix@r1"),
        (ticket("fix"), ENDED_TOO_LATE, "unrouted", True, "ready:fix@r1"),
        (ticket("fix"), ENDED_TOO_LATE, "unrouted", False, "look"),
        (ticket("fix"), ENDED_TOO_LATE, "claimed:cancelled", True, "claimed:cancelled"),
    ],
)
def test_after_a_run(shown: Ticket, of: TicketMemory, known: str | None, single: bool, state: str | None) -> None:
    assert told(judged(shown, of, known, single=single)) == state


@pytest.mark.parametrize(
    ("shown", "status", "known", "single", "state"),
    [
        (ticket("fix", "harken:in-progress"), "running", "ready:fix", False, "claimed:in-progress"),
        # somebody took our label off, or it is not shown yet: that is the projector's to repair
        (ticket("fix"), "running", "claimed:in-progress", True, "claimed:in-progress"),
        (ticket("fix"), "running", "ready:fix", False, "claimed:in-progress"),
        (ticket("fix", "harken:done"), "running", "claimed:in-progress", True, "claimed:in-progress"),
        (ticket("fix", "harken:pending"), "running", "claimed:in-progress", True, "claimed:in-progress"),
        (ticket("fix", after=-1), "running", "claimed:in-progress", True, None),
        # what started it is gone
        (ticket("harken:in-progress"), "running", "claimed:in-progress", True, "withdrawn:label"),
        (ticket("harken:in-progress"), "running", "claimed:in-progress", False, "look"),
        (ticket("harken:in-progress"), "running", "withdrawn:label", False, "withdrawn:label"),
        (ticket(), "running", "ready:fix", True, "withdrawn:label"),
        (ticket(), "waiting", "claimed:waiting", True, "withdrawn:label"),
        (ticket("fix", closed=True), "running", "claimed:in-progress", True, "closed"),
        (ticket("fix", closed=True), "running", "claimed:in-progress", False, "look"),
        # the label was off for a moment
        (ticket("fix", "harken:in-progress"), "running", "withdrawn:label", True, "claimed:in-progress"),
        (ticket("fix", "harken:in-progress"), "running", "withdrawn:label", False, "claimed:in-progress"),
        # made ready again: the state stays until the run is over
        (ticket("fix", "harken:in-progress"), "running", "withdrawn:status", True, None),
        (ticket("fix"), "running", "closed", True, None),
    ],
)
def test_during_a_run(shown: Ticket, status: str, known: str, single: bool, state: str | None) -> None:
    assert told(judged(shown, memory(ACTIVE, status), known, single=single)) == state


def test_a_label_that_is_back_after_its_run_was_ended_for_it_is_a_wish_for_another_run() -> None:
    ended = replace(memory(ACTIVE, "running"), withdrawn="r1")
    assert told(judged(ticket("fix", "harken:in-progress"), ended, "withdrawn:label", single=True)) is None


def test_a_run_of_which_nothing_is_shown_yet_claims_its_ticket() -> None:
    young = TicketMemory(project="shop", run="r1", status="ready")
    assert told(judged(ticket("fix"), young, "ready:fix")) == "claimed:enqueued"
    assert told(judged(ticket(), young, "ready:fix")) == "withdrawn:label"


def test_a_ticket_whose_run_was_lost_is_ready_when_it_shows_our_pending() -> None:
    lost = replace(memory(Lifecycle.PENDING, "", confirmed=False), run="")
    assert told(judged(ticket("fix", after=-1), lost, "claimed:in-progress")) is None
    assert told(judged(ticket("fix", "harken:pending", after=0), lost, "claimed:in-progress")) == "ready:fix"


def test_a_ticket_that_moves_to_another_project_during_its_run_is_withdrawn() -> None:
    web = project("web", scope=ProjectScope(name="web", tag="web"))
    both = settings(web, project("api", scope=ProjectScope(name="api", tag="api")))
    running = TicketMemory(project="web", run="r1", status="running", shown=ACTIVE)
    for labels in (("fix", "api"), ("fix",)):
        seen = observe(ticket(*labels), both, SHOP, memory=running, known="claimed:in-progress", single=True)
        assert told(seen) == "withdrawn:project"


@pytest.mark.parametrize(
    ("shown", "known", "single", "state"),
    [
        (ticket("fix"), None, False, "ready:fix"),
        (ticket("fix"), "ready:fix", False, "ready:fix"),
        (ticket(), None, False, "unrouted"),
        (ticket(), "unrouted", False, "unrouted"),
        (ticket("fix", closed=True), None, False, "closed"),
        (ticket("fix", "harken:done"), None, False, "claimed:done"),
        (ticket("fix", "harken:in-progress"), "ready:fix", False, "claimed:in-progress"),
        # it has started a run: a list that is behind must not take it back
        (ticket(), "ready:fix", False, "look"),
        (ticket(), "ready:fix", True, "withdrawn:label"),
        (ticket(), "withdrawn:label", False, "withdrawn:label"),
        (ticket("fix", closed=True), "ready:fix", False, "look"),
        (ticket("fix", closed=True), "ready:fix", True, "closed"),
        (ticket("fix", closed=True), "withdrawn:label", False, "closed"),
        (ticket("fix"), "withdrawn:label", False, "ready:fix"),
        # its label was seen, so a list without it may be behind
        (ticket("fix"), "claimed:done", False, "look"),
        (ticket("fix"), "claimed:done", True, "ready:fix"),
    ],
)
def test_without_a_memory(shown: Ticket, known: str | None, single: bool, state: str) -> None:
    assert told(judged(shown, None, known, single=single)) == state


def test_a_ticket_that_left_its_trigger_status_before_its_run_was_shown_is_withdrawn() -> None:
    given = settings(trigger_statuses=frozenset({"to do"}))
    seen = observe(ticket("fix", status="Review"), given, SHOP, known="ready:fix", single=True)
    assert told(seen) == "withdrawn:status"


@pytest.mark.parametrize(
    ("shown", "of", "confirms"),
    [
        (ticket("fix", "harken:done"), memory(confirmed=False), True),
        (ticket("fix", "harken:done", after=0), memory(confirmed=False), True),
        (ticket("fix", "harken:done", closed=True), memory(confirmed=False), True),
        (ticket("fix", "harken:done"), memory(), False),
        (ticket("fix", "harken:done", after=-1), memory(confirmed=False), False),
        (ticket("fix", "harken:in-progress"), memory(confirmed=False), False),
        (ticket("fix"), memory(confirmed=False), False),
        (ticket("fix", "harken:in-progress"), memory(ACTIVE, "running", confirmed=False), True),
        (ticket("harken:in-progress"), memory(ACTIVE, "running", confirmed=False), True),
        (ticket("fix"), memory(None, "cancelled", confirmed=False), False),
        (ticket(), memory(None, "cancelled", confirmed=False), True),
        (ticket(), memory(None, "cancelled", confirmed=False, settled=False), False),
        (ticket("fix", closed=True), memory(None, "cancelled", confirmed=False), True),
    ],
)
def test_what_confirms_our_write(shown: Ticket, of: TicketMemory, confirms: bool) -> None:
    assert judged(shown, of, "claimed:done").confirms is confirms


@pytest.mark.parametrize(
    ("shown", "ours", "age"),
    [
        ("10", "9", Age.NEWER),
        ("9", "10", Age.OLDER),
        ("9", "9", Age.SAME),
        ("2026-01-05T09:00:01Z", "2026-01-05T09:00:00Z", Age.NEWER),
        ("2026-01-05T09:00:00.500Z", "2026-01-05T09:00:00.600Z", Age.OLDER),
        ("2026-01-05T10:00:00+01:00", "2026-01-05T09:00:00Z", Age.SAME),
    ],
)
def test_versions_are_compared_as_what_they_are(shown: str, ours: str, age: Age) -> None:
    wrote = TicketMemory(project="shop", run="r1", version=ours)
    assert age_of(ticket(version=shown), wrote) is age


@pytest.mark.parametrize(("after", "age"), [(-1, Age.OLDER), (0.4, Age.SAME), (1, Age.NEWER)])
@pytest.mark.parametrize("version", ["", "abc", "17"])
def test_without_a_comparable_version_the_times_count(version: str, after: float, age: Age) -> None:
    assert age_of(ticket(after=after, version=version), memory()) is age


def test_what_we_never_wrote_on_is_newer() -> None:
    assert age_of(ticket(), TicketMemory(project="shop", run="r1")) is Age.NEWER
    assert age_of(ticket(updated_at=None, version=""), memory()) is Age.NEWER
