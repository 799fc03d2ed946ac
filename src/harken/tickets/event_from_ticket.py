"""The event of a ticket. Polls and webhooks make it with the same function, so that both tell the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.event import Event
from harken.ticket import Ticket
from harken.tickets.project_of_ticket import resolve
from harken.tickets.readiness import Standing, standing
from harken.tickets.settings import ProjectSettings, TrackerSettings, scope_of

__all__ = ["VOUCHED", "Placed", "event_of", "gone_event", "place", "released_event", "vouch_for"]

LONGEST_TITLE = 1_000
LONGEST_TEXT = 100_000
MOST_LABELS = 200
VOUCHED = "vouched"
"""The field of an event whose run an operator answers for."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket with the first project that it matches, and where it stands there. `also`: further projects."""

    ticket: Ticket
    standing: Standing
    project: str = ""
    also: tuple[str, ...] = ()


def place(ticket: Ticket, settings: TrackerSettings, location: str) -> Placed:
    """Find the project of a ticket of this location, and say where the ticket stands for it."""
    projects = [project for project in settings.projects if project.location.casefold() == location.casefold()]
    found = resolve(ticket, [project.scope for project in projects])
    project = settings.project(found.project) if found.project else None
    return Placed(
        ticket=ticket,
        standing=_without_project(ticket, projects)
        if project is None
        else standing(ticket, scope_of(settings, project)),
        project=found.project,
        also=found.also,
    )


def event_of(placed: Placed, tracker: str) -> Event:
    """Make the event. Its state changes only with the standing: nothing else about a ticket is an occurrence."""
    return Event(
        subject=placed.ticket.id,
        type=_type_of(placed.standing),
        state=placed.standing.state,
        data=_data_of(placed, tracker),
        occurred_at=placed.ticket.updated_at,
    )


def gone_event(id: str, project: str, tracker: str) -> Event:
    """The event of a ticket that was deleted or moved away, about which nothing else can be read any more."""
    gone = Ticket(id=id, ref=id, title="", url="", status="", closed=True)
    reason = Standing(state="closed", reason="the ticket is gone")
    return event_of(Placed(ticket=gone, standing=reason, project=project), tracker)


def released_event(ticket: Ticket, project: str, tracker: str, at: str) -> Event:
    """A person gave the ticket back at this time: whatever it shows next is a change, and may start its pipeline."""
    released = Standing(state=f"released:{at}", reason="an operator has released the ticket")
    return event_of(Placed(ticket=ticket, standing=released, project=project), tracker)


def vouch_for(event: Event) -> Event:
    """The event of a ticket that an operator starts: whoever put the label on. Nothing from a platform sets this."""
    return msgspec.structs.replace(event, data={**event.data, VOUCHED: True})


def _without_project(ticket: Ticket, projects: Sequence[ProjectSettings]) -> Standing:
    if ticket.closed:
        return Standing(state="closed", reason="the ticket is closed")
    known = ", ".join(project.name for project in projects) or "there is none"
    return Standing(state="unrouted", reason=f"the ticket belongs to no project ({known})")


def _type_of(standing: Standing) -> str:
    return f"ticket.{standing.state.partition(':')[0]}"


def _data_of(placed: Placed, tracker: str) -> dict[str, Any]:
    ticket, where = placed.ticket, placed.standing
    data = {
        "tracker": tracker,
        "project": placed.project,
        "pipeline": where.pipeline,
        "label": where.label,
        "reason": where.reason,
        "id": ticket.id,
        "ref": ticket.ref,
        "number": ticket.number,
        "title": _cut(ticket.title, LONGEST_TITLE),
        "text": _cut(ticket.text, LONGEST_TEXT),
        "url": ticket.url,
        "status": ticket.status,
        "closed": ticket.closed,
        "labels": list(ticket.labels[:MOST_LABELS]),
        "author": ticket.author,
        "repo": ticket.repo,
        "area_path": ticket.area_path,
    }
    return data | ({"also": list(placed.also)} if placed.also else {})


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
