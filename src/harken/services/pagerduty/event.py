"""From an incident to an event. Unexpected shapes never raise.

https://developer.pagerduty.com/api-reference/9d0b4b12e36f9-list-incidents
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.event import Event, Identity
from harken.kit.digest import digest_of_json
from harken.kit.values_from_payload import instant, list_of, rfc3339, text_of

__all__ = ["Criteria", "Incident", "event_of", "incident_of"]

TYPE = "pagerduty.incident"
# an assignment later than this after creation is a reassignment, and an occurrence of its own
IMMEDIATE = timedelta(seconds=5)


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed fields of an incident. `assigned` is None if the answer does not have it."""

    id: str
    status: str
    data: dict[str, Any]
    created_at: datetime | None
    changed_at: datetime | None
    updated_at: datetime | None
    resolved_at: datetime | None
    assigned: Mapping[str, datetime | None] | None


class Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as an occurrence.

    `hidden`: the query leaves out an open status, so an incident can change to it and back without being seen.
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


def event_of(incident: Incident, criteria: Criteria, acked: str = "") -> Event | None:
    """The event of an incident; None if it is not assigned to the user in the query.

    `acked`: when it was last acknowledged, if known.
    """
    mine = criteria.user_id
    if mine and incident.assigned is not None and mine not in incident.assigned:
        return None
    at = (incident.assigned or {}).get(mine) if mine else None
    data = incident.data | {"assigned_at": rfc3339(at)}
    return Event(
        subject=_subject(incident, at),
        type=TYPE,
        data=data,
        state=_state(incident, criteria, acked),
        occurred_at=_occurred_at(incident, criteria, at),
    )


def _subject(incident: Incident, at: datetime | None) -> str:
    """The incident's id; with the time for each later assignment to the same user, which is another occurrence."""
    if at is None or (incident.created_at and at - incident.created_at <= IMMEDIATE):
        return incident.id
    return f"{incident.id}@{rfc3339(at)}"


def _state(incident: Incident, criteria: Criteria, acked: str) -> str:
    changed = rfc3339(incident.changed_at)
    if criteria.identity == "change":
        return rfc3339(incident.updated_at) or changed or incident.status
    if criteria.identity == "transition" and criteria.hidden:
        # it may have left this status and come back since the last read; last_status_change_at tells that, except
        # while it is triggered: then it moves with every update
        return f"{incident.status} {acked if incident.status == 'triggered' else changed or ''}".strip()
    return incident.status


def _occurred_at(incident: Incident, criteria: Criteria, at: datetime | None) -> datetime | None:
    if criteria.identity == "change":
        return incident.updated_at or incident.changed_at or incident.created_at
    if criteria.user_id:
        begin = at
    elif criteria.hidden:
        begin = incident.changed_at or incident.created_at
    else:
        begin = incident.created_at
    if criteria.identity == "transition" and incident.changed_at:
        return max(begin or incident.changed_at, incident.changed_at)
    return begin


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
