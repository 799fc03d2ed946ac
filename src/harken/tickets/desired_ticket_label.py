"""What a ticket should show for its newest run. Labels are a projection of the run, repaired until they match."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from harken.runs import RunState
from harken.ticket import Ticket
from harken.tickets.last_written_ticket_state import TicketMemory
from harken.tickets.lifecycle_labels import Lifecycle, LifecycleLabels
from harken.tickets.observation_against_last_write import Age, age_of

__all__ = ["ENQUEUED_AFTER", "LATEST_REPAIRS", "UNSURE", "desired_state", "is_lost", "repairs_allowed"]

ENQUEUED_AFTER = timedelta(seconds=5)
"""A run that starts sooner is never shown as enqueued: each label is a write, and some platforms mail it."""

LATEST_REPAIRS = 5
"""So often in an hour we put our label back on one ticket; then another account is fighting with us."""

SETTLED_AFTER = timedelta(minutes=2)
"""So long after a write, a read that does not show it is no longer one of a copy that is behind."""

_SHOWN: dict[RunState, Lifecycle] = {
    "gathering": Lifecycle.ENQUEUED,
    "ready": Lifecycle.ENQUEUED,
    "blocked": Lifecycle.ENQUEUED,
    "held": Lifecycle.WAITING,
    "waiting": Lifecycle.WAITING,
    "running": Lifecycle.IN_PROGRESS,
    "done": Lifecycle.DONE,
    "failed": Lifecycle.FAILED,
    "dead": Lifecycle.FAILED,
}

UNSURE: frozenset[RunState] = frozenset({"gathering", "ready", "blocked", "held", "running"})
"""In these states of a run it may still have to be found out whether somebody who may has asked for it."""


def desired_state(
    run: RunState, began: datetime, now: datetime, shown: Lifecycle | None, *, trusted: bool = True
) -> Lifecycle | None:
    """The state that the ticket should show; None for none. `began`: when the run came into its state.

    A cancelled run shows nothing: the ticket can be claimed again. Of a run that nobody who may has asked for, as far
    as we know, only its end is shown, and that it waits for somebody to approve it.
    """
    wanted = _SHOWN.get(run)
    if run in UNSURE and not trusted:
        return shown
    if wanted is Lifecycle.ENQUEUED and now - began < ENQUEUED_AFTER:
        return shown
    return wanted


def repairs_allowed(repairs: Sequence[datetime], now: datetime) -> bool:
    """Whether our label may be put back once more on a ticket where that was done at these times."""
    return sum(now - repair < timedelta(hours=1) for repair in repairs) < LATEST_REPAIRS


def is_lost(memory: TicketMemory, ticket: Ticket, labels: LifecycleLabels, now: datetime) -> bool:
    """Whether somebody took off or changed the label that we wrote. A read that is behind our write proves nothing."""
    age = age_of(ticket, memory)
    if labels.state_of(ticket.labels) == memory.shown or age is Age.OLDER:
        return False
    if memory.confirmed and age is Age.NEWER:
        return True
    return memory.wrote_at is None or now - memory.wrote_at >= SETTLED_AFTER
