"""What a step may do at Azure DevOps. A step that is tried again finds what its first try has done.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/update
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.errors import NeedsAttention, RetryLater
from harken.kit.comments import nonempty_text, step_mark
from harken.kit.fields import text_of
from harken.services.azure_devops.api import Api, listed, told
from harken.services.azure_devops.event import Item, item_of, tags_of
from harken.services.azure_devops.query import Tag
from harken.services.azure_devops.text import html_of
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 30_000
MOST_PAGES = 20
TRIES = 5
# the work item is another one than we read: by our own test, or by the server's
_CHANGED_MEANWHILE = (412, 409)
_READ = ("System.State", "System.Tags", "System.WorkItemType", "System.TeamProject")
_Patch = list[dict[str, Any]]


class _OnItem(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    work_item: int = Field(ge=1, description="number of the work item")


class Comment(_OnItem):
    text: str = Field(min_length=1, description="text of the comment")

    _something = field_validator("text")(nonempty_text(LONGEST))


class Tagged(_OnItem):
    tag: Tag = Field(description="name of the tag")


class Move(_OnItem):
    state: str = Field(min_length=1, max_length=128, description="name of the state to reach, such as Resolved")
    comment: str = Field("", max_length=LONGEST, description="comment that is written together with the change")


async def comment(call: Call) -> dict[str, Any]:
    """Write a comment that ends with a mark of this step, unless one with that mark is there."""
    api, params = Api(call.account, call.host), call.params
    mark = f"[harken {step_mark(call)}]"
    if await _is_written(api, params.work_item, mark):
        return {"work_item": params.work_item, "changed": False}
    said = f"<div>{html_of(params.text)}</div><div><small>{mark}</small></div>"
    told(await api.patch(params.work_item, [_set("System.History", said)]), f"a comment on {params.work_item}")
    return {"work_item": params.work_item, "changed": True}


async def _is_written(api: Api, id: int, mark: str) -> bool:
    found = await api.updates(id, MOST_PAGES)
    if found is None:
        raise NeedsAttention(f"there is no work item {id}", fix="Check the number, and what the token may see")
    updates, whole = found
    if any(mark in _said(update) for update in updates):
        return True
    if not whole:
        about = f"work item {id} has more than {MOST_PAGES * 200:,} changes"
        raise NeedsAttention(f"{about}, and our comment cannot be looked for among them", fix="Use another work item")
    return False


def _said(update: Any) -> str:
    fields = update.get("fields") if isinstance(update, Mapping) else None
    history = fields.get("System.History") if isinstance(fields, Mapping) else None
    return text_of(history, "newValue") or "" if isinstance(history, Mapping) else ""


async def add_tag(call: Call) -> dict[str, Any]:
    """Add the tag to those that are there; others are never touched."""
    return await _retagged(call, lambda tags, tag: [*tags, tag] if _spelt(tags, tag) is None else tags)


async def remove_tag(call: Call) -> dict[str, Any]:
    """Take the tag away if it is there."""
    return await _retagged(call, lambda tags, tag: [one for one in tags if one != _spelt(tags, tag)])


async def _retagged(call: Call, change: Callable[[list[str], str], list[str]]) -> dict[str, Any]:
    def patch(item: Item) -> _Patch:
        before = tags_of(item.fields)
        after = change(before, call.params.tag)
        # `add` would join what we write with what is there, and so never take a tag away
        return [_set("System.Tags", "; ".join(after), op="replace" if before else "add")] if after != before else []

    item, changed = await _changed(call, patch)
    return {"work_item": call.params.work_item, "tags": tags_of(item.fields), "changed": changed}


async def set_state(call: Call) -> dict[str, Any]:
    """Move it to the state, with the comment in the same change; one that is there already is left alone."""
    params: Move = call.params

    def patch(item: Item) -> _Patch:
        if _state(item).casefold() == params.state.strip().casefold():
            return []
        said = [_set("System.History", html_of(params.comment))] if params.comment.strip() else []
        return [_set("System.State", params.state.strip()), *said]

    item, changed = await _changed(call, patch)
    return {"work_item": params.work_item, "state": _state(item), "changed": changed}


async def _changed(call: Call, patch: Callable[[Item], _Patch]) -> tuple[Item, bool]:
    """Read the work item and change it as it was read; where somebody was quicker, begin again."""
    api, id = Api(call.account, call.host), call.params.work_item
    for _ in range(TRIES):
        reply = await api.ask("_apis", "wit", "workitems", str(id), params={"fields": ",".join(_READ)})
        told(reply, f"work item {id}")
        item = item_of(reply.json())
        operations = patch(item)
        if not operations:
            return item, False
        written = await api.patch(id, [{"op": "test", "path": "/rev", "value": item.rev}, *operations])
        if written.status == 400:
            raise await _refused(api, item, call.params)
        if written.status not in _CHANGED_MEANWHILE:
            told(written, f"a change of work item {id}")
            return item_of(written.json()), True
    raise RetryLater(f"work item {id} is changed by others all the time")


async def _refused(api: Api, item: Item, params: BaseModel) -> NeedsAttention:
    """What a 400 means: a rule of the type of the work item forbids the change."""
    wanted = getattr(params, "state", "")
    if not wanted:
        return NeedsAttention(f"work item {item.id} may not be changed so", fix="Check the rules of its type")
    kind, project = str(item.fields.get("System.WorkItemType")), str(item.fields.get("System.TeamProject"))
    reply = await api.ask(project, "_apis", "wit", "workitemtypes", kind, "states")
    names: Sequence[str] = [name for one in listed(reply) if (name := text_of(one, "name"))]
    message = f"work item {item.id} ({kind}) cannot go from {_state(item)!r} to {wanted!r}"
    return NeedsAttention(message, fix=f"Its states are: {', '.join(names)}; or a rule wants another field first")


def _set(field: str, value: str, op: str = "add") -> dict[str, Any]:
    return {"op": op, "path": f"/fields/{field}", "value": value}


def _state(item: Item) -> str:
    return str(item.fields.get("System.State") or "")


def _spelt(tags: Sequence[str], wanted: str) -> str | None:
    """The tag as the work item has it."""
    return next((tag for tag in tags if tag.casefold() == wanted.casefold()), None)


ACTIONS = {
    "comment": Act(params=Comment, run=comment),
    "add_tag": Act(params=Tagged, run=add_tag),
    "remove_tag": Act(params=Tagged, run=remove_tag),
    "set_state": Act(params=Move, run=set_state),
}
