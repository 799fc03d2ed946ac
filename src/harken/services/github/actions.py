"""What a step may do at GitHub. A step that is tried again finds what its first try has done.

https://docs.github.com/en/rest/issues/comments#create-an-issue-comment
https://docs.github.com/en/rest/issues/labels#add-labels-to-an-issue
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.http import Reply
from harken.kit.comments import comment_once, nonempty_text
from harken.kit.fields import text_of
from harken.services.github.api import Api, Repo
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 65_000


class _OnIssue(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    repo: Repo = Field(description="repository, as owner/name")
    issue: int = Field(ge=1, description="number of the issue or pull request")


class Comment(_OnIssue):
    text: str = Field(min_length=1, description="text of the comment, in Markdown")

    _something = field_validator("text")(nonempty_text(LONGEST))


class Label(_OnIssue):
    label: str = Field(min_length=1, max_length=100, description="name of the label")

    @field_validator("label")
    @classmethod
    def _whole(cls, value: str) -> str:
        if not value.strip() or not value.isprintable():
            raise ValueError("is no name of a label")
        return value.strip()


async def comment(call: Call) -> dict[str, Any]:
    """Write a comment that ends with an unseen mark of this step, unless one with that mark is there."""
    api, params = Api(call.account, call.host), call.params
    address = api.repo(params.repo, "issues", str(params.issue), "comments")
    found, changed = await comment_once(api, address, call, params.text, f"{params.repo}#{params.issue}")
    return _commented(params, found, changed=changed)


def _commented(params: Comment, found: Any, *, changed: bool) -> dict[str, Any]:
    return {
        "repo": params.repo,
        "issue": params.issue,
        "comment": text_of(found, "id") or "",
        "url": text_of(found, "html_url") or "",
        "changed": changed,
    }


async def label(call: Call) -> dict[str, Any]:
    """Add the label to those that are there; others are never touched."""
    api, params = Api(call.account, call.host), call.params
    reply = await _ask_labels(api, params)
    labels = _names(api, reply)
    if _spelt(labels, params.label) is not None:
        return _labelled(params, labels, changed=False)
    written = await api.write("POST", str(reply.url.with_query(None)), {"labels": [params.label]})
    return _labelled(params, _names(api, written), changed=True)


async def unlabel(call: Call) -> dict[str, Any]:
    """Take the label away if it is there."""
    api, params = Api(call.account, call.host), call.params
    reply = await _ask_labels(api, params)
    labels = _names(api, reply)
    there = _spelt(labels, params.label)
    if there is None:
        return _labelled(params, labels, changed=False)
    written = await api.write("DELETE", f"{reply.url.with_query(None)}/{quote(there, safe='')}")
    if written.status == 404:
        # somebody else was quicker
        return _labelled(params, [name for name in labels if name != there], changed=False)
    return _labelled(params, _names(api, written), changed=True)


async def _ask_labels(api: Api, params: Label) -> Reply:
    return await api.ask(api.repo(params.repo, "issues", str(params.issue), "labels"), [("per_page", 100)])


def _names(api: Api, reply: Reply) -> list[str]:
    return [text_of(one, "name") or "" for one in api.listed(reply)]


def _spelt(labels: list[str], wanted: str) -> str | None:
    """The label as the repository writes it."""
    return next((name for name in labels if name.casefold() == wanted.casefold()), None)


def _labelled(params: Label, labels: list[str], *, changed: bool) -> dict[str, Any]:
    return {"repo": params.repo, "issue": params.issue, "labels": labels, "changed": changed}


ACTIONS = {
    "comment": Act(params=Comment, run=comment),
    "label": Act(params=Label, run=label),
    "unlabel": Act(params=Label, run=unlabel),
}
