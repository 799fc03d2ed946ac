"""From an issue as Jira sends it to events: the fields that they have, and since when the issue matches.

`updated` moves with every edit, so an issue that changed is not yet an occurrence. Its history is undone change by
change, starting with what the issue is now: the change before which the filter did not match is the one to report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event, Identity
from harken.kit.values_from_payload import instant, list_of, text_of, whole_number
from harken.services.jira.api import Api
from harken.services.jira.text import mentions, text_in

__all__ = [
    "FIELDS",
    "Filter",
    "History",
    "Occurrence",
    "data_of",
    "found_event",
    "occurrence_event",
    "occurrences",
    "parse_history",
    "read_history",
    "read_mentions",
    "version_event",
]

FIELDS = (
    *("summary", "description", "status", "issuetype", "priority", "labels", "components", "project", "parent"),
    *("assignee", "reporter", "created", "updated", "duedate"),
)
PAGE_SIZE = 100
MAX_PAGES = 20
# in place of the current description, of which is known only that it has the mention
_MENTIONED = "\0mentioned"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What an issue has to be, in lower case. An empty set matches everything. `mentioned` looks at the description."""

    assignees: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    mentioned: frozenset[str] = frozenset()


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of an issue, newest first. `complete`: back to its creation."""

    changes: tuple[tuple[datetime, str, tuple[Mapping[str, Any], ...]], ...]
    complete: bool = True

    def reaches(self, since: datetime) -> bool:
        return self.complete or (bool(self.changes) and self.changes[-1][0] < since)


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an issue. `name` is unique within the issue, and empty for its creation."""

    at: datetime | None
    type: str
    name: str = ""
    state: str | None = None
    extra: Mapping[str, Any] = {}


def parse_history(changelog: Any, *, total: int | None = None) -> History | None:
    """Read a `changelog`; None when it is missing or has another shape. `total`: how many changes there are."""
    listed = changelog.get("histories", changelog.get("values")) if isinstance(changelog, Mapping) else None
    if not isinstance(listed, list):
        return None
    changes = []
    for one in listed:
        at = instant(one.get("created")) if isinstance(one, Mapping) else None
        if at is None:
            return None
        items = one.get("items")
        kept = tuple(item for item in items if isinstance(item, Mapping)) if isinstance(items, list) else ()
        changes.append((at, text_of(one, "id") or at.isoformat(), kept))
    changes.sort(key=lambda change: (change[0], len(change[1]), change[1]), reverse=True)
    count = changelog.get("total") if total is None else total
    return History(changes=tuple(changes), complete=not isinstance(count, int) or count <= len(changes))


def occurrences(
    issue: Mapping[str, Any], history: History | None, wanted: Filter, *, statuses: bool
) -> list[Occurrence]:
    """Return when the issue began to match, newest first; with `statuses` also its changes of status since then."""
    fields = _table(issue, "fields")
    created = instant(fields.get("created"))
    found: list[Occurrence] = []
    values = _values(fields, wanted)
    is_match = _matches(values, wanted)
    if not is_match:
        return []  # Jira's index lags behind: the issue does not match any more
    if history is None:
        # without a history the last change is the best guess
        now = text_of(fields, "status.name") if statuses else None
        return [Occurrence(at=instant(fields.get("updated")) or created, type="jira.matched", state=now)]
    for at, id, items in history.changes:
        before = _undo(values, items)
        was_match = _matches(before, wanted)
        moved = next((item for item in items if _field(item) == "status"), None)
        if is_match and (not was_match or (statuses and moved)):
            found.append(_change(at, id, moved, "jira.status" if was_match else "jira.matched"))
        values, is_match = before, was_match
    if is_match and history.complete:
        found.append(Occurrence(at=created, type="jira.created"))
    return found


def _change(at: datetime, id: str, moved: Mapping[str, Any] | None, type: str) -> Occurrence:
    extra = {"previous_status": text_of(moved, "fromString")} if moved else {}
    state = text_of(moved, "toString") if moved else None
    return Occurrence(at=at, type=type, name=f"h{id}", state=state, extra=extra)


def _values(fields: Mapping[str, Any], wanted: Filter) -> dict[str, frozenset[str] | None]:
    """What the issue is now, by the field names of histories. None: unknown, and counts as a match."""
    labels = fields.get("labels")
    return {
        "assignee": _set(fields["assignee"], "accountId", "name", "key") if "assignee" in fields else None,
        "labels": frozenset(name.casefold() for name in _names(labels)) if isinstance(labels, list) else None,
        # Jira compared these itself, perhaps by a translated name, so the current values match
        "status": None,
        "issuetype": None,
        "project": None,
        "description": frozenset({_MENTIONED} if mentions(fields.get("description"), wanted.mentioned) else ()),
    }


def _undo(
    values: Mapping[str, frozenset[str] | None], items: Sequence[Mapping[str, Any]]
) -> dict[str, frozenset[str] | None]:
    before = dict(values)
    moved: frozenset[str] = frozenset()
    for item in items:
        field, old = _field(item), text_of(item, "fromString") or ""
        if field == "assignee":
            before[field] = _set(item, "from")
        elif field in ("status", "issuetype"):
            before[field] = _set(item, "from", "fromString")
        elif field == "labels":
            before[field] = frozenset(old.casefold().split())
        elif field == "description":
            before[field] = frozenset({old})
        elif field in ("project", "key"):
            moved |= _set(item, "from", "fromString") | {old.rpartition("-")[0].casefold()}
            before["project"] = moved
    return before


def _matches(values: Mapping[str, frozenset[str] | None], wanted: Filter) -> bool:
    criteria = (
        ("assignee", wanted.assignees),
        ("status", wanted.statuses),
        ("issuetype", wanted.types),
        ("labels", wanted.labels),
        ("project", wanted.projects),
    )
    if any(names and (has := values[field]) is not None and not has & names for field, names in criteria):
        return False
    texts = values["description"] if wanted.mentioned else None
    return texts is None or any(text == _MENTIONED or mentions(text, wanted.mentioned) for text in texts)


def _set(data: Any, *names: str) -> frozenset[str]:
    return frozenset(text.casefold() for name in names if (text := text_of(data, name)))


def _field(item: Mapping[str, Any]) -> str:
    field = text_of(item, "field") or ""
    return field.casefold()


def data_of(issue: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return the fields of an event. What is missing or odd becomes null or empty."""
    fields = _table(issue, "fields")
    return {
        "id": text_of(issue, "id"),
        "key": text_of(issue, "key"),
        "url": url,
        "summary": text_of(fields, "summary") or "",
        "description": text_in(fields.get("description")),
        "status": text_of(fields, "status.name"),
        "status_category": text_of(fields, "status.statusCategory.name"),
        "issue_type": text_of(fields, "issuetype.name"),
        "priority": text_of(fields, "priority.name"),
        "labels": _names(fields.get("labels")),
        "components": _names(fields.get("components")),
        "assignee": _person(fields.get("assignee")),
        "reporter": _person(fields.get("reporter")),
        "project": {"key": text_of(fields, "project.key"), "name": text_of(fields, "project.name")},
        "parent": _parent(fields.get("parent")),
        "created": _time(fields.get("created")),
        "updated": _time(fields.get("updated")),
        "due_date": text_of(fields, "duedate"),
        "previous_status": None,
        "comment": None,
    }


def _person(user: Any) -> dict[str, Any] | None:
    if not isinstance(user, Mapping):
        return None
    id = text_of(user, "accountId") or text_of(user, "name") or text_of(user, "key")
    return {"id": id, "name": text_of(user, "displayName") or id, "email": text_of(user, "emailAddress")}


def _parent(parent: Any) -> dict[str, Any] | None:
    if not isinstance(parent, Mapping):
        return None
    return {"key": text_of(parent, "key"), "summary": text_of(parent, "fields.summary")}


def _names(values: Any) -> list[str]:
    named = [text_of(value, "name") if isinstance(value, Mapping) else value for value in list_of(values)]
    return [name for name in named if isinstance(name, str) and name]


def _time(value: Any) -> str | None:
    found = instant(value)
    return found.isoformat() if found else None


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


async def read_history(api: Api, issue: Mapping[str, Any], since: datetime) -> History | None:
    """Read the changes of the issue, back to its creation or to before `since`; None when Jira shows none."""
    shown = parse_history(issue.get("changelog"))
    if shown is None or shown.reaches(since):
        return shown
    id = text_of(issue, "id")
    if not await api.is_cloud():
        whole = await api.call("GET", f"/issue/{id}", params={"fields": "created", "expand": "changelog"})
        return parse_history(whole.get("changelog")) if isinstance(whole, Mapping) else shown
    # pages are oldest first, so read them from the end
    changes: list[Any] = []
    end = _count(issue.get("changelog"))
    for _ in range(MAX_PAGES):
        start = max(0, end - PAGE_SIZE)
        page = await api.call("GET", f"/issue/{id}/changelog", params={"startAt": start, "maxResults": end - start})
        values = page.get("values") if isinstance(page, Mapping) else None
        changes += values if isinstance(values, list) else []
        found = parse_history({"histories": changes}, total=len(changes) + start)
        if found is None or found.reaches(since):
            return found
        end = start
    return found


async def read_mentions(api: Api, issue: Mapping[str, Any], ids: frozenset[str], since: datetime) -> list[Occurrence]:
    """Read the comments since then that mention one of the users."""
    fields = issue.get("fields")
    block = fields.get("comment") if isinstance(fields, Mapping) else None
    shown = _comments(block)
    if _count(block) > len(shown):
        shown = await _newest_comments(api, text_of(issue, "id") or "", since)
    return [_mention(comment) for comment in shown if mentions(comment.get("body"), ids)]


async def _newest_comments(api: Api, id: str, since: datetime) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for number in range(MAX_PAGES):
        params: dict[str, str | int] = {"orderBy": "-created", "startAt": number * PAGE_SIZE, "maxResults": PAGE_SIZE}
        page = _comments(await api.call("GET", f"/issue/{id}/comment", params=params))
        found += page
        oldest = instant(page[-1].get("created")) if page else None
        if len(page) < PAGE_SIZE or (oldest is not None and oldest < since):
            break
    return found


def _mention(comment: Mapping[str, Any]) -> Occurrence:
    at, id = instant(comment.get("created")), text_of(comment, "id")
    about = {
        "id": id,
        "text": text_in(comment.get("body")),
        "author": text_of(comment, "author.displayName"),
        "created": at.isoformat() if at else None,
    }
    return Occurrence(at=at, type="jira.mention", name=f"c{id}", extra={"comment": about})


def _comments(block: Any) -> list[Mapping[str, Any]]:
    comments = block.get("comments") if isinstance(block, Mapping) else None
    return [comment for comment in list_of(comments) if isinstance(comment, Mapping)]


def _count(block: Any) -> int:
    return whole_number(block.get("total") if isinstance(block, Mapping) else None) or 0


def occurrence_event(data: Mapping[str, Any], occurrence: Occurrence) -> Event:
    subject = f"{data['id']}:{occurrence.name}" if occurrence.name else str(data["id"])
    return Event(
        subject=subject,
        key=_key(data, occurrence.name or subject),
        type=occurrence.type,
        state=occurrence.state,
        occurred_at=occurrence.at,
        data={**data, **occurrence.extra},
    )


def version_event(data: Mapping[str, Any]) -> Event:
    """The event for one update of an issue, for `identity: change`."""
    id, updated = str(data["id"]), data["updated"]
    key = _key(data, f"{id}@{updated}")
    return Event(subject=id, key=key, type="jira.updated", state=updated, occurred_at=instant(updated), data=data)


def found_event(data: Mapping[str, Any], identity: Identity) -> Event:
    """The event for an issue that raw JQL found. Nothing tells since when it matches, so the event has no time."""
    id = str(data["id"])
    state = {"once": None, "transition": data["status"], "change": data["updated"]}[identity]
    key = _key(data, f"{id}@{state}" if state else id)
    return Event(subject=id, key=key, type="jira.found", state=state, data=data)


def _key(data: Mapping[str, Any], occurrence: str) -> str:
    # the key of an issue changes when it moves, and can be given to another issue later; the id cannot
    return f"{data['key'] or 'issue'}#{occurrence}"
