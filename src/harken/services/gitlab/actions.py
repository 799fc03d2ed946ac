"""What a step may do at GitLab. A step that is tried again finds what its first try has done.

https://docs.gitlab.com/api/notes/ · https://docs.gitlab.com/api/issues/#update-an-issue
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.http import Reply
from harken.kit.comments import comment_once, nonempty_text
from harken.kit.fields import text_of
from harken.services.gitlab.api import Api, Project, told
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 900_000


class _OnIssue(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    project: Project = Field(description="project, as group/name or by number")
    issue: int = Field(ge=1, description="number of the issue in its project (iid)")


class Note(_OnIssue):
    text: str = Field(min_length=1, description="text of the comment, in Markdown")

    _something = field_validator("text")(nonempty_text(LONGEST))


class Label(_OnIssue):
    label: str = Field(min_length=1, max_length=255, description="name of the label")

    @field_validator("label")
    @classmethod
    def _whole(cls, value: str) -> str:
        if not value.strip() or not value.isprintable() or "," in value:
            raise ValueError("is no name of a label")
        return value.strip()


async def note(call: Call) -> dict[str, Any]:
    """Write a comment that ends with an unseen mark of this step, unless one with that mark is there."""
    api, params = Api(call.account, call.host), call.params
    address = api.project(params.project, "issues", str(params.issue), "notes")
    found, changed = await comment_once(api, address, call, params.text, f"{params.project}#{params.issue}")
    id = text_of(found, "id") or ""
    return {"project": params.project, "issue": params.issue, "note": id, "changed": changed}


async def label(call: Call) -> dict[str, Any]:
    """Add the label to those that are there; others are never touched."""
    return await _labelled(call, "add_labels", wanted=True)


async def unlabel(call: Call) -> dict[str, Any]:
    """Take the label away if it is there."""
    return await _labelled(call, "remove_labels", wanted=False)


async def _labelled(call: Call, how: str, *, wanted: bool) -> dict[str, Any]:
    api, params = Api(call.account, call.host), call.params
    reply = await api.ask(api.project(params.project, "issues", str(params.issue)))
    labels = _labels(reply)
    changed = (params.label in labels) != wanted
    if changed:
        labels = _labels(await api.write("PUT", str(reply.url), {how: params.label}))
    return {"project": params.project, "issue": params.issue, "labels": labels, "changed": changed}


def _labels(reply: Reply) -> list[str]:
    told(reply)
    document = reply.json()
    found = document.get("labels") if isinstance(document, dict) else None
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


ACTIONS = {
    "note": Act(params=Note, run=note),
    "label": Act(params=Label, run=label),
    "unlabel": Act(params=Label, run=unlabel),
}
