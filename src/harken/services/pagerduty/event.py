"""From an incident, as PagerDuty shows it, to the occurrence that it is. Whatever shape it has, an event comes out.

https://developer.pagerduty.com/api-reference/9d0b4b12e36f9-list-incidents
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.event import Event, Identity
from harken.kit.digest import digest_of_json
from harken.kit.fields import instant, list_of, rfc3339, text_of

__all__ = ["Incident", "Wanted", "event_of", "incident_of"]

TYPE = "pagerduty.incident"
# who is assigned when an incident is made gets it within moments; whoever gets it later was assigned anew
AT_ONCE = timedelta(seconds=5)


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of an incident. `assigned` is None where the answer does not say who has it."""

    id: str
    status: str
    data: dict[str, Any]
    created_at: datetime | None
    changed_at: datetime | None
    updated_at: datetime | None
    resolved_at: datetime | None
    assigned: Mapping[str, datetime | None] | None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as an occurrence.

    `hidden`: the query leaves out an open status, so an incident may go there unseen and come back.
    """

    user_id: str = ""
    hidden: bool = False
    identity: Identity = "once"


def incident_of(item: Any) -> Incident:
    """Read one item of the listing."""
    item = item if isinstance(item, dict) else {"value": item}
    resolved = instant(item.get("resolved_at"))
    changed = instant(item.get("last_status_change_at")) or resolved
    return Incident(
        id=text_of(item, "id") or _without_id(item),
        status=text_of(item, "status") or "",
        data=_data(item),
        created_at=instant(item.get("created_at")),
        changed_at=changed,
        updated_at=instant(item.get("updated_at")),
        resolved_at=resolved or changed,
        assigned=_assigned(item.get("assignments")),
    )


def event_of(incident: Incident, wanted: Wanted, acked: str = "") -> Event | None:
    """The occurrence that the incident is; None when it is not, or no longer, assigned to whom the query names.

    `acked`: when it was last acknowledged, if that is known.
    """
    mine = wanted.user_id
    if mine and incident.assigned is not None and mine not in incident.assigned:
        return None
    at = (incident.assigned or {}).get(mine) if mine else None
    data = incident.data | {"assigned_at": rfc3339(at)}
    return Event(
        subject=_subject(incident, at),
        type=TYPE,
        data=data,
        state=_state(incident, wanted, acked),
        occurred_at=_occurred_at(incident, wanted, at),
    )


def _subject(incident: Incident, at: datetime | None) -> str:
    """The incident's id; each later assignment to the same person is an occurrence with a name of its own."""
    if at is None or (incident.created_at and at - incident.created_at <= AT_ONCE):
        return incident.id
    return f"{incident.id}@{rfc3339(at)}"


def _state(incident: Incident, wanted: Wanted, acked: str) -> str:
    changed = rfc3339(incident.changed_at)
    if wanted.identity == "change":
        return rfc3339(incident.updated_at) or changed or incident.status
    if wanted.identity == "transition" and wanted.hidden:
        # it may have been in a status that is not wanted since the last read, and be back; while an incident is
        # triggered, its last_status_change_at moves with every update and tells nothing
        return f"{incident.status} {acked if incident.status == 'triggered' else changed or ''}".strip()
    return incident.status


def _occurred_at(incident: Incident, wanted: Wanted, at: datetime | None) -> datetime | None:
    if wanted.identity == "change":
        return incident.updated_at or incident.changed_at or incident.created_at
    if wanted.user_id:
        came = at
    elif wanted.hidden:
        came = incident.changed_at or incident.created_at
    else:
        came = incident.created_at
    if wanted.identity == "transition" and incident.changed_at:
        return max(came or incident.changed_at, incident.changed_at)
    return came


def _assigned(assignments: Any) -> Mapping[str, datetime | None] | None:
    if not isinstance(assignments, list):
        return None
    found: dict[str, datetime | None] = {}
    for assignment in assignments:
        who = text_of(assignment, "assignee.id")
        if who is None:
            return None
        at, known = instant(assignment.get("at")), found.get(who)
        found[who] = max(at, known) if at and known else at or known
    return found


def _data(item: Mapping[str, Any]) -> dict[str, Any]:
    number = item.get("incident_number")
    return {
        "id": text_of(item, "id") or "",
        "number": number if isinstance(number, int) and not isinstance(number, bool) else None,
        "title": text_of(item, "title") or text_of(item, "summary") or "",
        "description": text_of(item, "description") or "",
        "status": text_of(item, "status") or "",
        "urgency": text_of(item, "urgency") or "",
        "priority": text_of(item, "priority.summary") or text_of(item, "priority.name"),
        "created_at": text_of(item, "created_at"),
        "updated_at": text_of(item, "updated_at"),
        "last_status_change_at": text_of(item, "last_status_change_at"),
        "resolved_at": text_of(item, "resolved_at"),
        "html_url": text_of(item, "html_url") or "",
        "incident_key": text_of(item, "incident_key") or "",
        "service": _named(item.get("service")),
        "escalation_policy": _named(item.get("escalation_policy")),
        "teams": [_named(team) for team in list_of(item.get("teams"))],
        "assignments": [_assignment(found) for found in list_of(item.get("assignments"))],
    }


def _assignment(found: Any) -> dict[str, Any]:
    return _named(found.get("assignee") if isinstance(found, dict) else None) | {"at": text_of(found, "at")}


def _named(reference: Any) -> dict[str, Any]:
    return {
        "id": text_of(reference, "id") or "",
        "name": text_of(reference, "summary") or text_of(reference, "name") or "",
    }


def _without_id(item: Mapping[str, Any]) -> str:
    return text_of(item, "incident_number") or digest_of_json(item)
