"""From a work item to the occurrence that it is. Whatever shape it has, an event comes out.

A work item tells when it was changed, which a comment does too. When it came to match is told by its history: the
fields are followed from update to update, and the last time that they began to fit counts.
https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/updates/list
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event, Identity
from harken.kit.fields import instant, rfc3339, text_of, whole_number
from harken.kit.paging import digest_of_json
from harken.kit.tracker import Gone, Histories, History
from harken.services.azure_devops.api import Api
from harken.services.azure_devops.query import Query
from harken.services.azure_devops.text import plain_text

__all__ = [
    "FIELDS",
    "Item",
    "Wanted",
    "event_of",
    "fits",
    "has_left",
    "history_of",
    "item_of",
    "matched_at",
    "needs_history",
    "tags_of",
    "wanted_by",
]


MOST_PAGES = 20


async def history_of(item: Item, histories: Histories, api: Api) -> History:
    """Its updates, oldest first; None when there are too many to read. Raises Gone.

    Updates that are behind the work item are not remembered.
    """
    id, rev = item.id, item.rev
    assert id is not None

    async def read() -> History:
        found = await api.updates(id, MOST_PAGES)
        if found is None:
            raise Gone
        updates, whole = found
        return updates if whole else None

    return await histories.of(id, rev, read, lambda updates: updates is None or _newest(updates) >= (rev or 0))


def _newest(updates: History) -> int:
    revs = [one.get("rev") for one in updates or () if isinstance(one, Mapping)]
    return max((rev for rev in revs if type(rev) is int), default=0)


STATE_CHANGED = "Microsoft.VSTS.Common.StateChangeDate"

PRIORITY = "Microsoft.VSTS.Common.Priority"

FOLLOWED = (
    "System.TeamProject",
    "System.WorkItemType",
    "System.State",
    "System.Tags",
    "System.AssignedTo",
    "System.AreaPath",
)

FIELDS = (
    *FOLLOWED,
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a work item has to be, in lower case; what is empty is not asked for."""

    types: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    assigned: bool = False
    area: str = ""
    identity: Identity = "once"

    @property
    def asks(self) -> bool:
        return bool(self.types or self.states or self.tags or self.assigned or self.area)


def wanted_by(query: Query, identity: Identity) -> Wanted:
    return Wanted(
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


def fits(values: Mapping[str, Any], wanted: Wanted, item: Item) -> bool:
    """Whether these values of the fields are what is wanted; project and person are those that the item has now."""
    kind, state = _folded(values, "System.WorkItemType"), _folded(values, "System.State")
    area = _folded(values, "System.AreaPath")
    return (
        (not wanted.types or kind in wanted.types)
        and (not wanted.states or state in wanted.states)
        and wanted.tags <= {tag.casefold() for tag in tags_of(values)}
        and (not wanted.area or area == wanted.area or area.startswith(wanted.area + "\\"))
        and (not wanted.assigned or _who(values) == _who(item.fields))
        and _folded(values, "System.TeamProject") == _folded(item.fields, "System.TeamProject")
    )


def has_left(item: Item, wanted: Wanted) -> bool:
    """Whether it was changed since the query found it, so that it does not fit any more. Odd fields prove nothing."""
    known = all(isinstance(item.fields.get(name), str) for name in ("System.WorkItemType", "System.State"))
    return known and not fits(item.fields, wanted, item)


def needs_history(item: Item, wanted: Wanted) -> bool:
    """Whether the work item alone does not tell since when it matches."""
    return wanted.identity != "change" and wanted.asks and item.id is not None and item.rev != 1


def matched_at(item: Item, history: Sequence[Any] | None, wanted: Wanted) -> datetime | None:
    """Since when it matches without a break. Where its history does not tell: its last change."""
    if wanted.identity == "change" or history is None:
        return item.changed_at or item.created_at
    since = _began_to_fit(item, history, wanted) if history else item.created_at
    if wanted.identity == "transition" and since is not None and item.state_changed_at is not None:
        return max(since, item.state_changed_at)
    return since or item.changed_at


def event_of(item: Item, at: datetime | None, wanted: Wanted, url: str) -> Event:
    """The occurrence; its subject is the number, which no other work item of the organization ever has."""
    return Event(
        subject=item.name,
        type="azure_devops.work_item",
        data={**_data(item, url), "matched_at": rfc3339(at) if wanted.identity != "change" else None},
        state=_state(item, at, wanted),
        occurred_at=at,
    )


def tags_of(fields: Mapping[str, Any]) -> list[str]:
    """The tags, which stand in one field with semicolons between."""
    written = fields.get("System.Tags")
    return [tag for part in written.split(";") if (tag := part.strip())] if isinstance(written, str) else []


def _began_to_fit(item: Item, history: Sequence[Any], wanted: Wanted) -> datetime | None:
    values: dict[str, Any] = {}
    since: datetime | None = None
    updates = [one for one in history if isinstance(one, Mapping)]
    for update in sorted(updates, key=lambda one: whole_number(one.get("rev")) or 0):
        changes = update.get("fields")
        changes = changes if isinstance(changes, Mapping) else {}
        for name in FOLLOWED:
            if isinstance(changes.get(name), Mapping):
                values[name] = changes[name].get("newValue")
        if not fits(values, wanted, item):
            since = None
        elif since is None:
            # revisedDate is when the next change came, and 9999 for the last one
            since = instant(_new(changes, "System.ChangedDate")) or item.changed_at
    return since


def _new(changes: Mapping[str, Any], name: str) -> Any:
    change = changes.get(name)
    return change.get("newValue") if isinstance(change, Mapping) else None


def _state(item: Item, at: datetime | None, wanted: Wanted) -> str:
    state = _text(item.fields, "System.State")
    if wanted.identity == "change":
        return str(item.rev) if item.rev is not None else rfc3339(item.changed_at) or state
    if wanted.identity == "transition" and wanted.asks:
        # what does not match is not listed: it may have been so since the last read, and be back
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


def _who(values: Mapping[str, Any]) -> str:
    person = _person(values.get("System.AssignedTo"))
    return (person["email"] or person["name"]).casefold() if person else ""


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else "" if value is None or isinstance(value, dict | list) else str(value)


def _folded(fields: Mapping[str, Any], name: str) -> str:
    return _text(fields, name).casefold()
