"""What a step may do at GitHub. A step that is retried finds what its first try did.

https://docs.github.com/en/rest/issues/comments#create-an-issue-comment
https://docs.github.com/en/rest/issues/labels#add-labels-to-an-issue
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

from harken.http import Reply
from harken.kit.idempotent_comments import comment_once, nonempty_text
from harken.kit.models import ParamsModel
from harken.kit.query_fields import one_label
from harken.kit.values_from_payload import text_of
from harken.services.github.api import Api, Repo
from harken.source import Act, Call

__all__ = ["ACTIONS"]

LONGEST = 65_000


class _OnIssue(ParamsModel):
    repo: Repo = Field(description="repository, as owner/name")
    issue: int = Field(ge=1, description="number of the issue or pull request")


class Comment(_OnIssue):
    text: Annotated[str, nonempty_text(LONGEST)] = Field(min_length=1, description="text of the comment, in Markdown")


class Label(_OnIssue):
    label: Annotated[str, one_label()] = Field(min_length=1, max_length=100, description="name of the label")


async def comment(call: Call) -> dict[str, Any]:
    """Write a comment that ends with a hidden mark of this step, unless one with that mark exists."""
    api, params = Api(call.account, call.host), call.params
    address = api.repo_url(params.repo, "issues", str(params.issue), "comments")
    found, changed = await comment_once(api, address, call, params.text, f"{params.repo}#{params.issue}")
    return _comment_result(params, found, changed=changed)


def _comment_result(params: Comment, found: Any, *, changed: bool) -> dict[str, Any]:
    return {
        "repo": params.repo,
        "issue": params.issue,
        "comment": text_of(found, "id") or "",
        "url": text_of(found, "html_url") or "",
        "changed": changed,
    }


async def label(call: Call) -> dict[str, Any]:
    """Add the label; other labels are never touched."""
    api, params = Api(call.account, call.host), call.params
    reply = await _read_labels(api, params)
    labels = _label_names(api, reply)
    if _find_label(labels, params.label) is not None:
        return _label_result(params, labels, changed=False)
    written = await api.send("POST", str(reply.url.with_query(None)), json={"labels": [params.label]})
    return _label_result(params, _label_names(api, written), changed=True)


async def unlabel(call: Call) -> dict[str, Any]:
    """Remove the label if the issue has it."""
    api, params = Api(call.account, call.host), call.params
    reply = await _read_labels(api, params)
    labels = _label_names(api, reply)
    existing = _find_label(labels, params.label)
    if existing is None:
        return _label_result(params, labels, changed=False)
    written = await api.send("DELETE", f"{reply.url.with_query(None)}/{quote(existing, safe='')}")
    if written.status == 404:
        # somebody else removed it meanwhile
        return _label_result(params, [name for name in labels if name != existing], changed=False)
    return _label_result(params, _label_names(api, written), changed=True)


async def _read_labels(api: Api, params: Label) -> Reply:
    return await api.get(api.repo_url(params.repo, "issues", str(params.issue), "labels"), [("per_page", 100)])


def _label_names(api: Api, reply: Reply) -> list[str]:
    return [text_of(label, "name") or "" for label in api.expect_list(reply)]


def _find_label(labels: list[str], wanted: str) -> str | None:
    """The label as the repository spells it; None if it is not in the list."""
    return next((name for name in labels if name.casefold() == wanted.casefold()), None)


def _label_result(params: Label, labels: list[str], *, changed: bool) -> dict[str, Any]:
    return {"repo": params.repo, "issue": params.issue, "labels": labels, "changed": changed}


ACTIONS = {
    "comment": Act(params=Comment, run=comment),
    "label": Act(params=Label, run=label),
    "unlabel": Act(params=Label, run=unlabel),
}
