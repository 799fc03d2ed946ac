"""A change of one work item, written only if nobody else changed it since it was read.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/update
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from harken.errors import NeedsAttention, RetryLater
from harken.kit.values_from_payload import text_of
from harken.services.azure_devops.api import Api
from harken.services.azure_devops.events_from_work_item_history import Item, item_of

__all__ = ["Patch", "change_item", "find_tag", "set_field", "set_tags", "state_of"]

MAX_TRIES = 5
# somebody changed the work item after we read it: our own test of its revision failed, or the server's did
_CHANGED_MEANWHILE = (412, 409)
Patch: TypeAlias = list[dict[str, Any]]


async def change_item(
    api: Api,
    id: int,
    patch: Callable[[Item], Patch],
    *,
    fields: Sequence[str] = (),
    wanted: str = "",
    quiet: bool = False,
) -> tuple[Item, bool]:
    """Read the work item and change that revision of it. Start again when somebody else changed it meanwhile.

    `wanted` is the state that the patch sets, for the error. Return the work item, and whether it was changed.
    `quiet`: nobody is notified, where the token may do that.
    """
    for _ in range(MAX_TRIES):
        reply = await api.get(
            api.url("_apis", "wit", "workitems", str(id)), {"fields": ",".join(fields)} if fields else {}
        )
        api.check(reply, f"work item {id}")
        item = item_of(reply.json())
        operations = patch(item)
        if not operations:
            return item, False
        written = await api.patch(id, [{"op": "test", "path": "/rev", "value": item.rev}, *operations], quiet=quiet)
        if written.status == 400:
            raise await _refusal(api, item, wanted)
        if written.status not in _CHANGED_MEANWHILE:
            api.check(written, f"a change of work item {id}")
            return item_of(written.json()), True
    raise RetryLater(f"work item {id} is changed by others all the time")


async def _refusal(api: Api, item: Item, wanted: str) -> NeedsAttention:
    """The error for a 400: a rule of the work item type forbids the change."""
    if not wanted:
        return NeedsAttention(f"work item {item.id} may not be changed so", fix="Check the rules of its type")
    kind, project = str(item.fields.get("System.WorkItemType")), str(item.fields.get("System.TeamProject"))
    reply = await api.get(api.url(project, "_apis", "wit", "workitemtypes", kind, "states"))
    states = api.expect_list(reply, key="value")
    names = [name for state in states if (name := text_of(state, "name"))]
    message = f"work item {item.id} ({kind}) cannot go from {state_of(item)!r} to {wanted!r}"
    return NeedsAttention(message, fix=f"Its states are: {', '.join(names)}; or a rule wants another field first")


def set_field(field: str, value: str, op: str = "add") -> dict[str, Any]:
    return {"op": op, "path": f"/fields/{field}", "value": value}


def set_tags(before: Sequence[str], after: Sequence[str]) -> Patch:
    """The patch from the one tags to the other; empty if they are the same."""
    # `add` would merge our tags with the existing ones, and so never remove one
    op = "replace" if before else "add"
    return [set_field("System.Tags", "; ".join(after), op)] if list(after) != list(before) else []


def state_of(item: Item) -> str:
    return str(item.fields.get("System.State") or "")


def find_tag(tags: Sequence[str], wanted: str) -> str | None:
    """The tag as the work item spells it; None if it has no such tag."""
    return next((tag for tag in tags if tag.casefold() == wanted.casefold()), None)
