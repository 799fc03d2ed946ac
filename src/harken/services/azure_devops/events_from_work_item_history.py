"""From a work item to an event. Fields that are missing or odd become null or empty.

A work item says when it changed, but a comment is a change too. Since when it matches is told by its history: the
fields are replayed from update to update, and the last time that they began to match counts.
https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/updates/list
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event, Identity
from harken.kit.digest import digest_of_json
from harken.kit.issue_source import Gone, History
from harken.kit.values_from_payload import instant, rfc3339, text_of, whole_number
from harken.services.azure_devops.api import Api
from harken.services.azure_devops.query import Query
from harken.services.azure_devops.text import plain_text

__all__ = [
    "FIELDS",
    "Item",
    "ItemFilter",
    "event_of",
    "filter_of",
    "includes_last_change",
    "item_of",
    "matched_at",
    "matches",
    "needs_history",
    "new_value",
    "no_longer_matches",
    "read_history",
    "tags_of",
]


MAX_PAGES = 20
STATE_CHANGED = "Microsoft.VSTS.Common.StateChangeDate"

PRIORITY = "Microsoft.VSTS.Common.Priority"

REPLAYED_FIELDS = (
    "System.TeamProject",
    "System.WorkItemType",
    "System.State",
    "System.Tags",
    "System.AssignedTo",
    "System.AreaPath",
)

FIELDS = (
    *REPLAYED_FIELDS,
    "System.Id",
    "System.Rev",
    "System.Title",
    "System.Description",
    "System.Reason",
    "System.IterationPath",
    "System.CreatedBy",
    "System.CreatedDate",
    "System.ChangedBy",
    "System.ChangedDate",
    "System.CommentCount",
    STATE_CHANGED,
    PRIORITY,
)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of a work item."""

    id: int | None
    name: str
    rev: int | None
    fields: Mapping[str, Any]
    created_at: datetime | None
    changed_at: datetime | None
    state_changed_at: datetime | None

    @property
    def version(self) -> int | None:
        return self.rev


class ItemFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a work item has to be, in lower case. An empty field matches everything."""

    types: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    assigned: bool = False
    area: str = ""
    identity: Identity = "once"

    @property
    def is_restrictive(self) -> bool:
        return bool(self.types or self.states or self.tags or self.assigned or self.area)


def filter_of(query: Query, identity: Identity) -> ItemFilter:
    return ItemFilter(
        types=frozenset(map(str.casefold, query.types)),
        states=frozenset(map(str.casefold, query.states)),
        tags=frozenset(map(str.casefold, query.tags)),
        assigned=query.assigned_to is not None,
        area=(query.area_path or "").casefold(),
        identity=identity,
    )


def item_of(found: Any) -> Item:
    """Read one work item."""
    document = found if isinstance(found, Mapping) else {"value": found}
    fields = document.get("fields")
    fields = fields if isinstance(fields, Mapping) else {}
    id = whole_number(document.get("id")) or whole_number(fields.get("System.Id"))
    return Item(
        id=id,
        name=digest_of_json(document) if id is None else str(id),
        rev=whole_number(document.get("rev")) or whole_number(fields.get("System.Rev")),
        fields=fields,
        created_at=instant(fields.get("System.CreatedDate")),
        changed_at=instant(fields.get("System.ChangedDate")),
        state_changed_at=instant(fields.get(STATE_CHANGED)),
    )


def matches(values: Mapping[str, Any], wanted: ItemFilter, item: Item) -> bool:
    """Whether these values of fields match. Project and person are compared with those that the item has now."""
    kind, state = _folded(values, "System.WorkItemType"), _folded(values, "System.State")
    area = _folded(values, "System.AreaPath")
    return (
        (not wanted.types or kind in wanted.types)
        and (not wanted.states or state in wanted.states)
        and wanted.tags <= {tag.casefold() for tag in tags_of(values)}
        and (not wanted.area or area == wanted.area or area.startswith(wanted.area + "\\"))
        and (not wanted.assigned or _assignee(values) == _assignee(item.fields))
        and _folded(values, "System.TeamProject") == _folded(item.fields, "System.TeamProject")
    )


def no_longer_matches(item: Item, wanted: ItemFilter) -> bool:
    """Whether the item changed after the query found it and does not match any more. Odd fields prove nothing."""
    known = all(isinstance(item.fields.get(name), str) for name in ("System.WorkItemType", "System.State"))
    return known and not matches(item.fields, wanted, item)


def needs_history(item: Item, wanted: ItemFilter) -> bool:
    """Whether the work item alone does not tell since when it matches."""
    return wanted.identity != "change" and wanted.is_restrictive and item.id is not None and item.rev != 1


async def read_history(api: Api, item: Item) -> History:
    """Read the updates of a work item, oldest first; None when there are too many. Raise Gone if it was deleted."""
    assert item.id is not None
    found = await api.read_updates(item.id, MAX_PAGES)
    if found is None:
        raise Gone
    updates, complete = found
    return updates if complete else None


def includes_last_change(item: Item, history: History) -> bool:
    """Whether the history is not behind the work item."""
    revs = [update.get("rev") for update in history or () if isinstance(update, Mapping)]
    newest = max((rev for rev in revs if type(rev) is int), default=0)
    return history is None or newest >= (item.rev or 0)


def matched_at(item: Item, history: Sequence[Any] | None, wanted: ItemFilter) -> datetime | None:
    """Return since when the item matches without a break; its last change if the history does not tell."""
    if wanted.identity == "change" or history is None:
        return item.changed_at or item.created_at
    since = _began_to_match(item, history, wanted) if history else item.created_at
    if wanted.identity == "transition" and since is not None and item.state_changed_at is not None:
        return max(since, item.state_changed_at)
    return since or item.changed_at


def event_of(item: Item, at: datetime | None, wanted: ItemFilter, url: str) -> Event:
    """Return the event. Its subject is the number, which no other work item of the organization ever has."""
    return Event(
        subject=item.name,
        type="azure_devops.work_item",
        data={**_data(item, url), "matched_at": rfc3339(at) if wanted.identity != "change" else None},
        state=_state(item, at, wanted),
        occurred_at=at,
    )


def tags_of(fields: Mapping[str, Any]) -> list[str]:
    """The tags. They are one field, with semicolons between."""
    joined = fields.get("System.Tags")
    return [tag for part in joined.split(";") if (tag := part.strip())] if isinstance(joined, str) else []


def _began_to_match(item: Item, history: Sequence[Any], wanted: ItemFilter) -> datetime | None:
    values: dict[str, Any] = {}
    since: datetime | None = None
    updates = [one for one in history if isinstance(one, Mapping)]
    for update in sorted(updates, key=lambda one: whole_number(one.get("rev")) or 0):
        changes = update.get("fields")
        changes = changes if isinstance(changes, Mapping) else {}
        for name in REPLAYED_FIELDS:
            if isinstance(changes.get(name), Mapping):
                values[name] = changes[name].get("newValue")
        if not matches(values, wanted, item):
            since = None
        elif since is None:
            # revisedDate is when the next change came, and 9999 for the last one
            since = instant(new_value(changes, "System.ChangedDate")) or item.changed_at
    return since


def new_value(changes: Mapping[str, Any], name: str) -> Any:
    """What an update of a work item made of a field; None if it left the field as it was."""
    change = changes.get(name)
    return change.get("newValue") if isinstance(change, Mapping) else None


def _state(item: Item, at: datetime | None, wanted: ItemFilter) -> str:
    state = _text(item.fields, "System.State")
    if wanted.identity == "change":
        return str(item.rev) if item.rev is not None else rfc3339(item.changed_at) or state
    if wanted.identity == "transition" and wanted.is_restrictive:
        # items that do not match are not listed: it may have been one and come back since the last read
        return f"{state} {rfc3339(at) or ''}".strip()
    return state


def _data(item: Item, url: str) -> dict[str, Any]:
    fields = item.fields
    return {
        "id": item.id,
        "rev": item.rev,
        "title": _text(fields, "System.Title"),
        "description": plain_text(_text(fields, "System.Description")),
        "type": _text(fields, "System.WorkItemType"),
        "state": _text(fields, "System.State"),
        "reason": _text(fields, "System.Reason"),
        "tags": tags_of(fields),
        "project": _text(fields, "System.TeamProject"),
        "area_path": _text(fields, "System.AreaPath"),
        "iteration_path": _text(fields, "System.IterationPath"),
        "priority": whole_number(fields.get(PRIORITY)),
        "assigned_to": _person(fields.get("System.AssignedTo")),
        "created_by": _person(fields.get("System.CreatedBy")),
        "changed_by": _person(fields.get("System.ChangedBy")),
        "comments": whole_number(fields.get("System.CommentCount")) or 0,
        "created_at": rfc3339(item.created_at),
        "changed_at": rfc3339(item.changed_at),
        "state_changed_at": rfc3339(item.state_changed_at),
        "url": url,
    }


def _person(value: Any) -> dict[str, str] | None:
    """A person as name and e-mail address; old servers write both as one text."""
    if isinstance(value, str) and value:
        name, _, rest = value.partition(" <")
        return {"id": "", "name": name, "email": rest.rstrip(">")}
    if not isinstance(value, Mapping):
        return None
    found = {"id": "id", "name": "displayName", "email": "uniqueName"}
    return {ours: text_of(value, theirs) or "" for ours, theirs in found.items()}


def _assignee(values: Mapping[str, Any]) -> str:
    person = _person(values.get("System.AssignedTo"))
    return (person["email"] or person["name"]).casefold() if person else ""


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else "" if value is None or isinstance(value, dict | list) else str(value)


def _folded(fields: Mapping[str, Any], name: str) -> str:
    return _text(fields, name).casefold()
