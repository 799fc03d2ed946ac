"""What a step may do at Azure DevOps. A step that is retried finds what its first try did.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/update
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from harken.errors import NeedsAttention, RetryLater
from harken.kit.comments import nonempty_text, step_mark
from harken.kit.fields import text_of
from harken.kit.models import ParamsModel
from harken.services.azure_devops.api import MAX_ITEMS, Api
from harken.services.azure_devops.event import Item, item_of, tags_of
from harken.services.azure_devops.query import Tag
from harken.services.azure_devops.text import html_of
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 30_000
MAX_PAGES = 20
MAX_TRIES = 5
# somebody changed the work item after we read it: our own test of its revision failed, or the server's did
_CHANGED_MEANWHILE = (412, 409)
_READ = ("System.State", "System.Tags", "System.WorkItemType", "System.TeamProject")
_Patch = list[dict[str, Any]]


class _OnItem(ParamsModel):
    work_item: int = Field(ge=1, description="number of the work item")


class Comment(_OnItem):
    text: str = Field(min_length=1, description="text of the comment")

    _check_text = field_validator("text")(nonempty_text(LONGEST))


class TagParams(_OnItem):
    tag: Tag = Field(description="name of the tag")


class Move(_OnItem):
    state: str = Field(min_length=1, max_length=128, description="name of the state to reach, such as Resolved")
    comment: str = Field("", max_length=LONGEST, description="comment that is written together with the change")


async def comment(call: Call) -> dict[str, Any]:
    """Write a comment that ends with a mark of this step, unless one with that mark exists."""
    api, params = Api(call.account, call.host), call.params
    mark = f"[harken {step_mark(call)}]"
    if await _is_written(api, params.work_item, mark):
        return {"work_item": params.work_item, "changed": False}
    html = f"<div>{html_of(params.text)}</div><div><small>{mark}</small></div>"
    written = await api.patch(params.work_item, [_set("System.History", html)])
    api.check(written, f"a comment on {params.work_item}")
    return {"work_item": params.work_item, "changed": True}


async def _is_written(api: Api, id: int, mark: str) -> bool:
    found = await api.read_updates(id, MAX_PAGES)
    if found is None:
        raise NeedsAttention(f"there is no work item {id}", fix="Check the number, and what the token may see")
    updates, complete = found
    if any(mark in _comment_text(update) for update in updates):
        return True
    if not complete:
        about = f"work item {id} has more than {MAX_PAGES * MAX_ITEMS:,} changes"
        raise NeedsAttention(f"{about}, and our comment cannot be looked for among them", fix="Use another work item")
    return False


def _comment_text(update: Any) -> str:
    fields = update.get("fields") if isinstance(update, Mapping) else None
    history = fields.get("System.History") if isinstance(fields, Mapping) else None
    return text_of(history, "newValue") or "" if isinstance(history, Mapping) else ""


async def add_tag(call: Call) -> dict[str, Any]:
    """Add the tag; other tags are never touched."""
    return await _change_tags(call, lambda tags, tag: [*tags, tag] if _find_tag(tags, tag) is None else tags)


async def remove_tag(call: Call) -> dict[str, Any]:
    """Remove the tag if the work item has it."""
    return await _change_tags(call, lambda tags, tag: [one for one in tags if one != _find_tag(tags, tag)])


async def _change_tags(call: Call, change: Callable[[list[str], str], list[str]]) -> dict[str, Any]:
    def patch(item: Item) -> _Patch:
        before = tags_of(item.fields)
        after = change(before, call.params.tag)
        # `add` would merge our tags with the existing ones, and so never remove one
        return [_set("System.Tags", "; ".join(after), op="replace" if before else "add")] if after != before else []

    item, changed = await _change_item(call, patch)
    return {"work_item": call.params.work_item, "tags": tags_of(item.fields), "changed": changed}


async def set_state(call: Call) -> dict[str, Any]:
    """Move the work item to the state, with the comment in the same change. Do nothing if it is there already."""
    params: Move = call.params

    def patch(item: Item) -> _Patch:
        if _state(item).casefold() == params.state.strip().casefold():
            return []
        comment = [_set("System.History", html_of(params.comment))] if params.comment.strip() else []
        return [_set("System.State", params.state.strip()), *comment]

    item, changed = await _change_item(call, patch)
    return {"work_item": params.work_item, "state": _state(item), "changed": changed}


async def _change_item(call: Call, patch: Callable[[Item], _Patch]) -> tuple[Item, bool]:
    """Read the work item and change that revision of it. Start again when somebody else changed it meanwhile."""
    api, id = Api(call.account, call.host), call.params.work_item
    for _ in range(MAX_TRIES):
        reply = await api.get(api.url("_apis", "wit", "workitems", str(id)), {"fields": ",".join(_READ)})
        api.check(reply, f"work item {id}")
        item = item_of(reply.json())
        operations = patch(item)
        if not operations:
            return item, False
        written = await api.patch(id, [{"op": "test", "path": "/rev", "value": item.rev}, *operations])
        if written.status == 400:
            raise await _refusal(api, item, call.params)
        if written.status not in _CHANGED_MEANWHILE:
            api.check(written, f"a change of work item {id}")
            return item_of(written.json()), True
    raise RetryLater(f"work item {id} is changed by others all the time")


async def _refusal(api: Api, item: Item, params: ParamsModel) -> NeedsAttention:
    """The error for a 400: a rule of the work item type forbids the change."""
    wanted = getattr(params, "state", "")
    if not wanted:
        return NeedsAttention(f"work item {item.id} may not be changed so", fix="Check the rules of its type")
    kind, project = str(item.fields.get("System.WorkItemType")), str(item.fields.get("System.TeamProject"))
    reply = await api.get(api.url(project, "_apis", "wit", "workitemtypes", kind, "states"))
    states = api.expect_list(reply, key="value")
    names = [name for state in states if (name := text_of(state, "name"))]
    message = f"work item {item.id} ({kind}) cannot go from {_state(item)!r} to {wanted!r}"
    return NeedsAttention(message, fix=f"Its states are: {', '.join(names)}; or a rule wants another field first")


def _set(field: str, value: str, op: str = "add") -> dict[str, Any]:
    return {"op": op, "path": f"/fields/{field}", "value": value}


def _state(item: Item) -> str:
    return str(item.fields.get("System.State") or "")


def _find_tag(tags: Sequence[str], wanted: str) -> str | None:
    """The tag as the work item spells it; None if it has no such tag."""
    return next((tag for tag in tags if tag.casefold() == wanted.casefold()), None)


ACTIONS = {
    "comment": Act(params=Comment, run=comment),
    "add_tag": Act(params=TagParams, run=add_tag),
    "remove_tag": Act(params=TagParams, run=remove_tag),
    "set_state": Act(params=Move, run=set_state),
}
