"""What a step may do at GitLab. A step that is tried again finds what its first try has done.

https://docs.gitlab.com/api/notes/ · https://docs.gitlab.com/api/issues/#update-an-issue
"""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.errors import NeedsAttention
from harken.http import Reply
from harken.services.fields import text_of
from harken.services.gitlab.api import Api, Project, told
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 900_000
MOST_PAGES = 50


class _OnIssue(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    project: Project = Field(description="project, as group/name or by number")
    issue: int = Field(ge=1, description="number of the issue in its project (iid)")


class Note(_OnIssue):
    text: str = Field(min_length=1, description="text of the comment, in Markdown")

    @field_validator("text")
    @classmethod
    def _something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"


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
    mark = f"<!-- harken {hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:16]} -->"
    first = await api.ask(api.project(params.project, "issues", str(params.issue), "notes"), [("per_page", 100)])
    notes, whole = await api.rest(first, MOST_PAGES)
    for found in notes:
        if mark in (text_of(found, "body") or ""):
            return _noted(params, found, changed=False)
    if not whole:
        about = f"{params.project}#{params.issue} has more than {MOST_PAGES * 100:,} comments"
        raise NeedsAttention(f"{about}, and ours cannot be looked for among them", fix="Comment on another issue")
    # where the look ended: a project that was moved is somewhere else
    written = await api.write("POST", str(first.url.with_query(None)), {"body": f"{params.text}\n\n{mark}"})
    told(written)
    return _noted(params, written.json(), changed=True)


def _noted(params: Note, found: Any, *, changed: bool) -> dict[str, Any]:
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
