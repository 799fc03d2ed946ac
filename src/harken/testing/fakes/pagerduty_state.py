"""What the fake PagerDuty account holds, and which of it a listing shows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from multidict import MultiMapping

from harken.kit.fields import instant

__all__ = ["Incident", "Key", "Note", "User", "ordered", "picked", "span_of"]

LONGEST_RANGE = timedelta(days=184)
DEFAULT_RANGE = timedelta(days=30)
_SORTABLE = {"created_at": "created_at", "resolved_at": "changed_at", "incident_number": "number"}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A REST API key: of a user, or general when it is nobody's."""

    user: str | None = None
    read: bool = True
    write: bool = True


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    email: str


class Note(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    content: str
    user: str


class Incident(msgspec.Struct, kw_only=True):
    """`assigned`: since when each person has it. `broken`: what the API shows instead of the truth."""

    id: str
    number: int
    title: str
    service: str
    urgency: str
    team: str
    created_at: datetime
    changed_at: datetime
    visible_at: float
    status: str = "triggered"
    touched_at: datetime | None = None
    assigned: dict[str, datetime] = {}
    notes: list[Note] = []
    broken: dict[str, Any] = {}


def span_of(query: MultiMapping[str], now: datetime) -> tuple[datetime, datetime] | None:
    """Which creation times a listing is about; None when the API would refuse it."""
    if query.get("date_range") == "all":
        return datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    end = instant(query["until"]) if "until" in query else now
    if end is None:
        return None
    start = instant(query["since"]) if "since" in query else end - DEFAULT_RANGE
    return None if start is None or not timedelta(0) <= end - start <= LONGEST_RANGE else (start, end)


def picked(query: MultiMapping[str], span: tuple[datetime, datetime], incidents: Iterable[Incident]) -> list[Incident]:
    """What matches all filters; a filter with several values is matched by any of them."""
    start, end = span
    statuses, urgencies, services, teams, users = (
        frozenset(query.getall(f"{name}[]", []))
        for name in ("statuses", "urgencies", "service_ids", "team_ids", "user_ids")
    )
    return [
        it
        for it in incidents
        if start <= it.created_at < end
        and (not statuses or it.status in statuses)
        and (not urgencies or it.urgency in urgencies)
        and (not services or it.service in services)
        and (not teams or it.team in teams)
        and (not users or not users.isdisjoint(it.assigned))
    ]


def ordered(query: MultiMapping[str], found: list[Incident]) -> list[Incident]:
    order = query.get("sort_by", "created_at:desc").split(",")
    for name, _, direction in reversed([part.partition(":") for part in order]):
        found.sort(key=lambda incident: getattr(incident, _SORTABLE[name]), reverse=direction == "desc")
    return found
