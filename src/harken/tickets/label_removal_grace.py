"""A trigger label that was taken off: by whom, and whether it stays off.

People take a label off and put it on again at once, by a slip or to give a ticket a push. A label that is back within
its grace was never off, so the run goes on, and there is one run and not two.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from harken.ticket import Ticket, TicketTracker
from harken.tickets.settings import TrackerSettings
from harken.tickets.unique_comments import inert

__all__ = ["GRACE_SECONDS", "Removal", "find_removal", "grace_of", "is_meant", "seconds_left"]

GRACE_SECONDS = 5.0
"""The grace of a run that has begun: its agent has to be gone soon after the label."""
LONGEST_GRACE = 60.0
"""What has not begun does nothing that would have to be ended, so its grace is the time between two polls."""
BEHIND_SECONDS = 10.0
"""If the history says that the label is on, the read that does not show it is behind for so long at most."""


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The last change of a label that a read of the ticket did not show, as the platform's history tells it.

    `by` and `at` are empty if the history does not tell them. `back`: by the history the label is on again.
    """

    label: str
    by: str = ""
    at: datetime | None = None
    back: bool = False

    @property
    def text(self) -> str:
        return f"the label {inert(self.label)} was taken off" + (f" by {self.by}" if self.by else "")


async def find_removal(tracker: TicketTracker, ticket: Ticket, label: str) -> Removal:
    """Find out who took the label off, and when."""
    history = await tracker.label_history(ticket) or ()
    changes = [change for change in history if change.label.casefold() == label.casefold()]
    if not changes:
        return Removal(label=label)
    last = changes[-1]
    if last.added:
        return Removal(label=label, back=True)
    return Removal(label=label, by=inert(last.actor.login) if last.actor is not None else "", at=last.at)


def grace_of(settings: TrackerSettings, *, begun: bool) -> float:
    """For how many seconds a label may be off without withdrawing its run."""
    return GRACE_SECONDS if begun else max(GRACE_SECONDS, min(LONGEST_GRACE, settings.interval))


def is_meant(removal: Removal, grace: float, *, seen_for: float, now: datetime) -> bool:
    """Whether the label was off for long enough: by what we have seen for so many seconds, or by the history."""
    if removal.back:
        return seen_for >= BEHIND_SECONDS
    return seen_for >= grace or (removal.at is not None and (now - removal.at).total_seconds() >= grace)


def seconds_left(removal: Removal, grace: float, now: datetime) -> float:
    """What is left of the grace by the history; 0 if it is over, or if the history cannot tell."""
    if removal.at is None:
        return 0.0
    left = grace - (now - removal.at).total_seconds()
    # a time in the future comes from a clock that is wrong
    return left if 0.0 < left <= grace else 0.0
