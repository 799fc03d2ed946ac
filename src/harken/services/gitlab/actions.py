"""What a step may do at GitLab. A step that is retried finds what its first try did.

https://docs.gitlab.com/api/notes/ · https://docs.gitlab.com/api/issues/#update-an-issue
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from harken.http import Reply
from harken.kit.idempotent_comments import comment_once, nonempty_text
from harken.kit.models import ParamsModel
from harken.kit.query_fields import one_label
from harken.kit.values_from_payload import list_of, text_of
from harken.services.gitlab.api import Api, Project
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 900_000


class _OnIssue(ParamsModel):
    project: Project = Field(description="project, as group/name or by number")
    issue: int = Field(ge=1, description="number of the issue in its project (iid)")


class Note(_OnIssue):
    text: Annotated[str, nonempty_text(LONGEST)] = Field(min_length=1, description="text of the comment, in Markdown")


class Label(_OnIssue):
    label: Annotated[str, one_label(comma=False)] = Field(min_length=1, max_length=255, description="name of the label")


async def note(call: Call) -> dict[str, Any]:
    """Write a comment that ends with a hidden mark of this step, unless one with that mark exists."""
    api, params = Api(call.account, call.host), call.params
    address = api.project_url(params.project, "issues", str(params.issue), "notes")
    found, changed = await comment_once(api, address, call, params.text, f"{params.project}#{params.issue}")
    id = text_of(found, "id") or ""
    return {"project": params.project, "issue": params.issue, "note": id, "changed": changed}


async def label(call: Call) -> dict[str, Any]:
    """Add the label; other labels are never touched."""
    return await _change_label(call, "add_labels", wanted=True)


async def unlabel(call: Call) -> dict[str, Any]:
    """Remove the label if the issue has it."""
    return await _change_label(call, "remove_labels", wanted=False)


async def _change_label(call: Call, param: str, *, wanted: bool) -> dict[str, Any]:
    api, params = Api(call.account, call.host), call.params
    reply = await api.get(api.project_url(params.project, "issues", str(params.issue)))
    labels = _label_names(api, reply)
    changed = (params.label in labels) != wanted
    if changed:
        labels = _label_names(api, await api.send("PUT", str(reply.url), json={param: params.label}))
    return {"project": params.project, "issue": params.issue, "labels": labels, "changed": changed}


def _label_names(api: Api, reply: Reply) -> list[str]:
    return [name for name in list_of(api.expect_object(reply).get("labels")) if isinstance(name, str)]


ACTIONS = {
    "note": Act(params=Note, run=note),
    "label": Act(params=Label, run=label),
    "unlabel": Act(params=Label, run=unlabel),
}
