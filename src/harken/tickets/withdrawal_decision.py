"""Whether a run is still wanted: by the ticket as it was read, or by what the feed remembers of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from harken.runs import StepRecord
from harken.ticket import Ticket
from harken.tickets.project_of_ticket import resolve
from harken.tickets.routing import route
from harken.tickets.settings import ProjectSettings, TrackerSettings

__all__ = ["OwnMove", "Remembered", "Wish", "is_replaced", "missing_label", "own_move", "remembered", "why_withdrawn"]

TRANSITION = "ticket.transition"


class OwnMove(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run itself has moved its ticket. That is no sign that a person does not want the run any more."""

    status: str
    closed: bool


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a ticket wanted when its run was made. Without a label it was the default pipeline of its project.

    `begun`: the run has been let through once, so its ticket may have left the trigger statuses.
    """

    tracker: TrackerSettings
    project: ProjectSettings
    label: str
    begun: bool = False
    moved: OwnMove | None = None


def own_move(journal: Iterable[StepRecord]) -> OwnMove | None:
    """The last place that the run moved its ticket to. A move that was cut short may have closed it."""
    moves = [record for record in journal if record.action == TRANSITION and record.status in ("ok", "waiting")]
    output = moves[-1].output if moves else None
    if not isinstance(output, Mapping):
        return None
    return OwnMove(status=str(output.get("status", "")), closed=output.get("closed", True) is True)


def why_withdrawn(ticket: Ticket, wish: Wish) -> str:
    """The reason why the ticket does not want this run (any more); empty if it does."""
    return _why_not_open(ticket, wish) or _why_unlabelled(ticket, wish) or _why_elsewhere(ticket, wish)


def missing_label(ticket: Ticket, wish: Wish) -> str:
    """The label of the run, if nothing but its absence speaks against the run; else empty."""
    if not wish.label or _why_not_open(ticket, wish) or _why_elsewhere(ticket, wish):
        return ""
    return wish.label if _why_unlabelled(ticket, wish) else ""


def is_replaced(ticket: Ticket, wish: Wish) -> bool:
    """Whether another label of the ticket chooses a pipeline. Then the one that is missing is not expected back."""
    return bool(route(ticket.labels, wish.project.routes, wish.tracker.lifecycle).pipeline)


def _why_not_open(ticket: Ticket, wish: Wish) -> str:
    if not (wish.moved is not None and _is_there(ticket, wish.moved)):
        if ticket.closed:
            return "the ticket was closed"
        if (allowed := wish.tracker.open_states) and ticket.status.casefold() not in allowed:
            return f"its status {ticket.status} is not one of open_states"
    if (first := wish.tracker.trigger_statuses) and not wish.begun and ticket.status.casefold() not in first:
        return f"its status {ticket.status} is not one of trigger_statuses"
    return ""


def _is_there(ticket: Ticket, moved: OwnMove) -> bool:
    return ticket.closed == moved.closed and (moved.closed or ticket.status.casefold() == moved.status.casefold())


def _why_unlabelled(ticket: Ticket, wish: Wish) -> str:
    labels = {label.casefold() for label in ticket.labels}
    if wish.label:
        return "" if wish.label.casefold() in labels else f"the label {wish.label} is not on the ticket any more"
    return route(ticket.labels, wish.project.routes, wish.tracker.lifecycle).reason


def _why_elsewhere(ticket: Ticket, wish: Wish) -> str:
    location = wish.project.location.casefold()
    scopes = [project.scope for project in wish.tracker.projects if project.location.casefold() == location]
    found = resolve(ticket, scopes).project
    if found == wish.project.name:
        return ""
    return f"the ticket belongs to {found} now" if found else f"the ticket does not belong to {wish.project.name} now"


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What the feed's memory of a ticket says about its run. `certain`: the ticket need not be read to be sure.

    `unlabelled`: all that was seen is that the label is off."""

    reason: str = ""
    certain: bool = True
    unlabelled: bool = False


def remembered(state: str | None, wish: Wish) -> Remembered:
    """Why the run is not wanted any more, by the state that the feed has seen last; no reason if it may go on."""
    kind, _, detail = (state or "").partition(":")
    moved = wish.moved is not None
    if kind == "closed":
        return Remembered(reason="the ticket was closed, or is gone", certain=not moved)
    if kind == "unrouted" or (kind == "withdrawn" and detail == "label"):
        return Remembered(reason="its label was taken off", unlabelled=True)
    if kind == "withdrawn" and detail == "project":
        return Remembered(reason="the ticket does not belong to the project any more")
    if kind in ("withdrawn", "status"):
        # what has begun may be out of the trigger statuses: the run itself may have moved its ticket
        return Remembered(reason="its status was changed", certain=not moved and not wish.begun)
    return Remembered()
