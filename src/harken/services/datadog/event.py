"""From a monitor to the status of each of its groups, and to the data of an event. Unexpected shapes never raise.

https://docs.datadoghq.com/api/latest/monitors/get-all-monitors/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from harken.kit.values_from_payload import instant

__all__ = [
    "STATUSES",
    "GroupStatus",
    "event_data",
    "group_statuses",
    "has_any_tag",
    "is_muted",
    "name_of",
    "number_of",
    "rfc3339_of",
    "word",
]

STATUSES = ("unknown", "ok", "triggered", "warn", "no_data", "ignored", "skipped")
# keys that a monitor without groups has instead of them; a Synthetics test has its locations beside the first
_SYNTHETICS = "@SYNTHETICS_OVERALL@"
_WHOLE_MONITOR = (_SYNTHETICS, "*", "total", "")
_LATEST = 2**32 - 1


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a group (empty: the whole monitor), and Datadog's dates in epoch seconds, 0 if there is none.

    `changed` is when the status last changed. `entered` moves only when the group comes to this status again, not
    with reminders, and not with further evaluations that find no data.
    """

    group: str
    status: str
    changed: int = 0
    entered: int = 0
    triggered: int = 0


def word(status: Any) -> str:
    """Datadog's status as the query writes it: Alert is triggered, No Data is no_data, others are unknown."""
    text = "_".join(status.lower().split()) if isinstance(status, str) else ""
    text = "triggered" if text == "alert" else text
    return text if text in STATUSES else "unknown"


def rfc3339_of(seconds: int) -> str:
    """Epoch seconds as ISO 8601; empty for 0."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z") if seconds else ""


def number_of(monitor: Any) -> int | None:
    number = monitor.get("id") if isinstance(monitor, dict) else None
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number)
    return number if type(number) is int else None


def group_statuses(monitor: Any) -> list[GroupStatus]:
    """The status of each group, or of a monitor that has no groups."""
    monitor = monitor if isinstance(monitor, dict) else {}
    groups = _groups(monitor)
    named = {name: group for name, group in groups.items() if name not in _WHOLE_MONITOR}
    if named and monitor.get("multi") is not False and _SYNTHETICS not in groups:
        return [_group_status(name, group) for name, group in named.items()]
    whole = next((groups[name] for name in _WHOLE_MONITOR if name in groups), None)
    if whole is None and len(named) == 1:
        (whole,) = named.values()
    return [_monitor_status(monitor) if whole is None else _group_status("", whole)]


def has_any_tag(monitor: Any, group: str, tags: Iterable[str]) -> bool:
    """Whether the monitor or the group has any of these tags."""
    has = {tag.casefold() for tag in [*_tags(monitor), *group.split(",")]}
    return any(tag.casefold() in has for tag in tags)


def is_muted(monitor: Any, group: str, now: datetime) -> bool:
    """Whether a mute or a downtime silences this group."""
    parts, at = set(group.split(",")), now.timestamp()
    silenced = _inside(monitor, "options", "silenced")
    if isinstance(silenced, dict):
        for scope, end in silenced.items():
            ended = _seconds(end)
            if (scope in _WHOLE_MONITOR or set(scope.split(",")) <= parts) and not 0 < ended < at:
                return True
    downtimes = _inside(monitor, "matching_downtimes")
    matching = [one for one in downtimes if isinstance(one, dict)] if isinstance(downtimes, list) else []
    return any(one.get("active") is not False and _is_covered(one, group) for one in matching)


def event_data(monitor: Any, current: GroupStatus, *, previous: str, web: str, now: datetime) -> dict[str, Any]:
    """The event's data."""
    monitor = monitor if isinstance(monitor, dict) else {}
    number, group = number_of(monitor), current.group
    url = f"{web}/monitors/{number}" if number is not None else ""
    priority = monitor.get("priority")
    return {
        "id": number,
        "name": name_of(monitor),
        "status": current.status,
        "previous_status": previous,
        "group": group,
        "type": _text(monitor.get("type")),
        "tags": _tags(monitor),
        "message": _text(monitor.get("message")),
        "query": _text(monitor.get("query")),
        "url": f"{url}?group={quote(group, safe='')}" if group and url else url,
        "modified": _text(monitor.get("modified")),
        "priority": priority if type(priority) is int else None,
        "creator": {part: _text(_inside(monitor, "creator", part)) for part in ("name", "email", "handle")},
        "overall_status": word(monitor.get("overall_state")),
        "last_triggered_at": rfc3339_of(current.triggered),
        "muted": is_muted(monitor, group, now),
    }


def name_of(monitor: Any) -> str:
    return _text(monitor.get("name")) if isinstance(monitor, dict) else ""


def _groups(monitor: Mapping[str, Any]) -> dict[str, Any]:
    groups = _inside(monitor, "state", "groups")
    return groups if isinstance(groups, dict) else {}


def _group_status(name: str, group: Any) -> GroupStatus:
    fields = group if isinstance(group, dict) else {"status": group}
    status = word(fields.get("status"))
    triggered, resolved = _seconds(fields.get("last_triggered_ts")), _seconds(fields.get("last_resolved_ts"))
    # a group triggers whenever it comes to a status that is not OK, also from another such status
    entered = {"ok": resolved, "no_data": max(triggered, resolved)}.get(status, triggered)
    changed = max(triggered, resolved, _seconds(fields.get("last_nodata_ts")))
    return GroupStatus(group=name, status=status, changed=changed, entered=entered, triggered=triggered)


def _monitor_status(monitor: Mapping[str, Any]) -> GroupStatus:
    changed = _seconds(monitor.get("overall_state_modified"))
    status = word(monitor.get("overall_state"))
    triggered = changed if status in ("triggered", "warn", "no_data") else 0
    return GroupStatus(group="", status=status, changed=changed, entered=changed, triggered=triggered)


def _is_covered(downtime: Mapping[str, Any], group: str) -> bool:
    scope, groups = downtime.get("scope"), downtime.get("groups")
    scopes = scope if isinstance(scope, list) else [scope]
    named = groups if isinstance(groups, list) else []
    return any(one in _WHOLE_MONITOR for one in [*scopes, *named]) or group in named or not group


def _tags(monitor: Any) -> list[str]:
    tags = _inside(monitor, "tags")
    return [tag for tag in map(_text, tags) if tag] if isinstance(tags, list) else []


def _inside(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _seconds(value: Any) -> int:
    at = instant(value) if value else None
    return min(max(int(at.timestamp()), 0), _LATEST) if at else 0
