"""An issue as Jira sends it: the fields that events have, and the history that tells when it came to match.

`updated` moves with every edit, so an issue that changed is not yet an occurrence. Going back through its history from
what it is now, the change before which the filter did not fit is the one that a person would name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.kit.fields import instant, text_of
from harken.services.jira.api import Site
from harken.services.jira.text import mentions, text_in

__all__ = [
    "FIELDS",
    "Filter",
    "History",
    "Occurrence",
    "data_of",
    "history_of",
    "history_since",
    "mentions_since",
    "occurrences",
]


FIELDS = (
    *("summary", "description", "status", "issuetype", "priority", "labels", "components", "project", "parent"),
    *("assignee", "reporter", "created", "updated", "duedate"),
)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What an issue has to be, in lower case; an empty set asks for nothing. `mentioned` looks at the description."""

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
    """Something that happened to an issue. `name` tells it from others of that issue; empty: its creation."""

    at: datetime | None
    type: str
    name: str = ""
    state: str | None = None
    more: Mapping[str, Any] = {}


def history_of(changelog: Any, *, total: int | None = None) -> History | None:
    """The changes in a `changelog`; None when there is none that can be read."""
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
    told = changelog.get("total") if total is None else total
    return History(changes=tuple(changes), complete=not isinstance(told, int) or told <= len(changes))


def occurrences(
    issue: Mapping[str, Any], history: History | None, wanted: Filter, *, statuses: bool
) -> list[Occurrence]:
    """When the issue came to match, newest first, and with `statuses` each change of its status while it matched."""
    fields = _table(issue, "fields")
    created = instant(fields.get("created"))
    found: list[Occurrence] = []
    values = _values(fields, wanted)
    fits = _fits(values, wanted)
    if not fits:
        return []  # the index is behind: it has left already, and will be shown when it comes back
    if history is None:
        # nothing tells when it came to match: better at its last change than not at all
        now = text_of(fields, "status.name") if statuses else None
        return [Occurrence(at=instant(fields.get("updated")) or created, type="jira.matched", state=now)]
    for at, id, items in history.changes:
        before = _undone(values, items)
        fitted = _fits(before, wanted)
        moved = next((item for item in items if _field(item) == "status"), None)
        if fits and (not fitted or (statuses and moved)):
            found.append(_changed(at, id, moved, "jira.status" if fitted else "jira.matched"))
        values, fits = before, fitted
    if fits and history.complete:
        found.append(Occurrence(at=created, type="jira.created"))
    return found


def _changed(at: datetime, id: str, moved: Mapping[str, Any] | None, type: str) -> Occurrence:
    more = {"previous_status": text_of(moved, "fromString")} if moved else {}
    return Occurrence(at=at, type=type, name=f"h{id}", state=text_of(moved, "toString") if moved else None, more=more)


def _values(fields: Mapping[str, Any], wanted: Filter) -> dict[str, frozenset[str] | None]:
    """What the issue is now, by the field names of histories. None: it cannot be told, and counts as fitting."""
    labels = fields.get("labels")
    return {
        "assignee": _set(fields["assignee"], "accountId", "name", "key") if "assignee" in fields else None,
        "labels": frozenset(name.casefold() for name in _names(labels)) if isinstance(labels, list) else None,
        # Jira found it by these, perhaps by a translated name, so what they are now fits
        "status": None,
        "issuetype": None,
        "project": None,
        "description": _marks(mentions(fields.get("description"), wanted.mentioned)),
    }


def _undone(
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


def _fits(values: Mapping[str, frozenset[str] | None], wanted: Filter) -> bool:
    asked = (
        ("assignee", wanted.assignees),
        ("status", wanted.statuses),
        ("issuetype", wanted.types),
        ("labels", wanted.labels),
        ("project", wanted.projects),
    )
    if any(names and (has := values[field]) is not None and not has & names for field, names in asked):
        return False
    texts = values["description"] if wanted.mentioned else None
    return texts is None or any(text == _MENTIONED or mentions(text, wanted.mentioned) for text in texts)


_MENTIONED = "\0mentioned"


def _marks(mentioned: bool) -> frozenset[str]:
    return frozenset({_MENTIONED} if mentioned else ())


def _set(data: Any, *names: str) -> frozenset[str]:
    return frozenset(text.casefold() for name in names if (text := text_of(data, name)))


def _field(item: Mapping[str, Any]) -> str:
    field = text_of(item, "field") or ""
    return field.casefold()


def data_of(issue: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The fields of an event, built of what is there; what is missing or odd is null or empty."""
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
    listed = values if isinstance(values, list) else []
    return [name for one in listed if (name := text_of(one, "name") if isinstance(one, Mapping) else _plain(one))]


def _plain(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _time(value: Any) -> str | None:
    found = instant(value)
    return found.isoformat() if found else None


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


PAGE = 100

MOST_PAGES = 20


async def history_since(site: Site, issue: Mapping[str, Any], since: datetime) -> History | None:
    """The changes of the issue, back to its creation or to before `since`; None when Jira shows none."""
    shown = history_of(issue.get("changelog"))
    if shown is None or shown.reaches(since):
        return shown
    id = text_of(issue, "id")
    if not await site.cloud():
        whole = await site.ask("GET", f"/issue/{id}", params={"fields": "created", "expand": "changelog"})
        return history_of(whole.get("changelog")) if isinstance(whole, Mapping) else shown
    # oldest first, so it is read from its end
    changes: list[Any] = []
    end = _count(issue.get("changelog"))
    for _ in range(MOST_PAGES):
        start = max(0, end - PAGE)
        page = await site.ask("GET", f"/issue/{id}/changelog", params={"startAt": start, "maxResults": end - start})
        values = page.get("values") if isinstance(page, Mapping) else None
        changes += values if isinstance(values, list) else []
        found = history_of({"histories": changes}, total=len(changes) + start)
        if found is None or found.reaches(since):
            return found
        end = start
    return found


async def mentions_since(
    site: Site, issue: Mapping[str, Any], ids: frozenset[str], since: datetime
) -> list[Occurrence]:
    """The comments that mention one of the users, as far as they were written since then."""
    fields = issue.get("fields")
    block = fields.get("comment") if isinstance(fields, Mapping) else None
    shown = _comments(block)
    if _count(block) > len(shown):
        shown = await _newest_comments(site, text_of(issue, "id") or "", since)
    return [_mention(comment) for comment in shown if mentions(comment.get("body"), ids)]


async def _newest_comments(site: Site, id: str, since: datetime) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for number in range(MOST_PAGES):
        params: dict[str, str | int] = {"orderBy": "-created", "startAt": number * PAGE, "maxResults": PAGE}
        page = _comments(await site.ask("GET", f"/issue/{id}/comment", params=params))
        found += page
        oldest = instant(page[-1].get("created")) if page else None
        if len(page) < PAGE or (oldest is not None and oldest < since):
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
    return Occurrence(at=at, type="jira.mention", name=f"c{id}", more={"comment": about})


def _comments(block: Any) -> list[Mapping[str, Any]]:
    listed = block.get("comments") if isinstance(block, Mapping) else None
    return [comment for comment in listed if isinstance(comment, Mapping)] if isinstance(listed, list) else []


def _count(block: Any) -> int:
    total = block.get("total") if isinstance(block, Mapping) else None
    return total if isinstance(total, int) and not isinstance(total, bool) else 0
