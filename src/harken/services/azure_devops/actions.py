"""What a step may do at Azure DevOps. A step that is retried finds what its first try did.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/update
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from harken.errors import NeedsAttention
from harken.kit.idempotent_comments import nonempty_text, step_mark
from harken.kit.models import ParamsModel
from harken.kit.values_from_payload import text_of
from harken.services.azure_devops.api import MAX_ITEMS, Api
from harken.services.azure_devops.events_from_work_item_history import Item, tags_of
from harken.services.azure_devops.optimistic_work_item_update import (
    Patch,
    change_item,
    find_tag,
    set_field,
    set_tags,
    state_of,
)
from harken.services.azure_devops.query import Tag
from harken.services.azure_devops.text import html_of
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 30_000
MAX_PAGES = 20
_READ = ("System.State", "System.Tags", "System.WorkItemType", "System.TeamProject")


class _OnItem(ParamsModel):
    work_item: int = Field(ge=1, description="number of the work item")


class Comment(_OnItem):
    text: Annotated[str, nonempty_text(LONGEST)] = Field(min_length=1, description="text of the comment")


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
    written = await api.patch(params.work_item, [set_field("System.History", html)])
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
    return await _change_tags(call, lambda tags, tag: [*tags, tag] if find_tag(tags, tag) is None else tags)


async def remove_tag(call: Call) -> dict[str, Any]:
    """Remove the tag if the work item has it."""
    return await _change_tags(call, lambda tags, tag: [one for one in tags if one != find_tag(tags, tag)])


async def _change_tags(call: Call, change: Callable[[list[str], str], list[str]]) -> dict[str, Any]:
    def patch(item: Item) -> Patch:
        before = tags_of(item.fields)
        return set_tags(before, change(before, call.params.tag))

    item, changed = await _change(call, patch)
    return {"work_item": call.params.work_item, "tags": tags_of(item.fields), "changed": changed}


async def set_state(call: Call) -> dict[str, Any]:
    """Move the work item to the state, with the comment in the same change. Do nothing if it is there already."""
    params: Move = call.params

    def patch(item: Item) -> Patch:
        if state_of(item).casefold() == params.state.strip().casefold():
            return []
        comment = [set_field("System.History", html_of(params.comment))] if params.comment.strip() else []
        return [set_field("System.State", params.state.strip()), *comment]

    item, changed = await _change(call, patch)
    return {"work_item": params.work_item, "state": state_of(item), "changed": changed}


async def _change(call: Call, patch: Callable[[Item], Patch]) -> tuple[Item, bool]:
    api = Api(call.account, call.host)
    return await change_item(api, call.params.work_item, patch, fields=_READ, wanted=getattr(call.params, "state", ""))


ACTIONS = {
    "comment": Act(params=Comment, run=comment),
    "add_tag": Act(params=TagParams, run=add_tag),
    "remove_tag": Act(params=TagParams, run=remove_tag),
    "set_state": Act(params=Move, run=set_state),
}
