"""Writing back: a comment, and a move to another status. Both look first, because a step may be tried twice.

https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-comments/ and …/api-group-issues/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.errors import NeedsAttention
from harken.kit.fields import instant, text_of
from harken.services.jira.api import Site, myself, person_of
from harken.services.jira.text import document_of, text_in
from harken.source import Act, Call

__all__ = ["COMMENT", "TRANSITION", "Comment", "Transition"]

MARK = "harken"
"""The property of a comment that says which step of which run wrote it."""
UNMARKED = timedelta(hours=1)
LONGEST_TEXT = 30_000
_ISSUE = r"^(?:[A-Za-z][A-Za-z0-9_]{0,99}-[0-9]{1,18}|[0-9]{1,18})$"


class _OnIssue(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    issue: str = Field(pattern=_ISSUE, description="key or id of the issue, such as MYTEAM-12")

    @field_validator("issue", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Comment(_OnIssue):
    """What to say about which issue."""

    text: str = Field(min_length=1, description="text of the comment; empty lines part paragraphs")

    @field_validator("text")
    @classmethod
    def _something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value if len(value) <= LONGEST_TEXT else value[: LONGEST_TEXT - 1] + "…"


class Transition(_OnIssue):
    """Where to move which issue."""

    to: str = Field(min_length=1, description="name of the status to reach, or of the transition that leads there")


async def _comment(call: Call) -> Mapping[str, Any]:
    params: Comment = call.params
    site = Site(call.account, call.host)
    earlier = await _written(site, params, call.idempotency_key)
    if earlier is not None:
        return _shown(site, params.issue, earlier, posted=False)
    body = document_of(params.text) if await site.cloud() else params.text
    mark = [{"key": MARK, "value": {"key": call.idempotency_key}}]
    made = await site.ask("POST", f"/issue/{params.issue}/comment", json={"body": body, "properties": mark})
    return _shown(site, params.issue, made, posted=True)


async def _written(site: Site, params: Comment, key: str) -> Mapping[str, Any] | None:
    """Our comment, if an earlier try has written it and only its answer was lost."""
    me = person_of(await myself(site))
    listed = await site.ask("GET", f"/issue/{params.issue}/comment", params={"orderBy": "-created", "maxResults": 50})
    comments = listed.get("comments") if isinstance(listed, Mapping) else None
    for comment in comments if isinstance(comments, list) else []:
        author = person_of(comment.get("author")) if isinstance(comment, Mapping) else None
        same = author is not None and me is not None and author.id == me.id
        if same and _words(text_in(comment.get("body"))) == _words(params.text) and await _ours(site, comment, key):
            return dict(comment)
    return None


async def _ours(site: Site, comment: Mapping[str, Any], key: str) -> bool:
    mark = await site.find(f"/comment/{text_of(comment, 'id')}/properties/{MARK}")
    if mark is not None:
        return text_of(mark, "value.key") == key
    # a server that keeps no properties: the same words by the same account, just now
    written = instant(comment.get("created"))
    return written is not None and site.host.clock.now() - written < UNMARKED


def _words(text: str) -> list[str]:
    """What stays of a text when line ends and blanks are stored in another way."""
    return text.split()


def _shown(site: Site, issue: str, comment: Any, *, posted: bool) -> dict[str, Any]:
    id = text_of(comment, "id")
    return {"id": id, "issue": issue, "posted": posted, "url": f"{site.browse(issue)}?focusedCommentId={id}"}


async def _transition(call: Call) -> Mapping[str, Any]:
    params: Transition = call.params
    site = Site(call.account, call.host)
    wanted = params.to.strip().casefold()
    now = text_of(await site.ask("GET", f"/issue/{params.issue}", params={"fields": "status"}), "fields.status.name")
    if now is not None and now.casefold() == wanted:
        return {"issue": params.issue, "status": now, "changed": False}
    listed = await site.ask("GET", f"/issue/{params.issue}/transitions")
    offered = listed.get("transitions") if isinstance(listed, Mapping) else None
    chosen = _chosen(offered if isinstance(offered, list) else [], wanted)
    if chosen is None:
        raise NeedsAttention(f"{params.issue} cannot go to {params.to!r} from {now!r}", fix=_choices(offered))
    await site.ask("POST", f"/issue/{params.issue}/transitions", json={"transition": {"id": text_of(chosen, "id")}})
    return {"issue": params.issue, "status": text_of(chosen, "to.name"), "previous": now, "changed": True}


def _chosen(offered: Sequence[Any], wanted: str) -> Any:
    """The transition to the status of that name, or else the one that is called so; whole names only."""
    for path in ("to.name", "name"):
        for one in offered:
            if (text_of(one, path) or "").casefold() == wanted:
                return one
    return None


def _choices(offered: Any) -> str:
    names = [
        f"{text_of(one, 'name')} (to {text_of(one, 'to.name')})"
        for one in (offered if isinstance(offered, list) else [])
    ]
    return f"It can do: {', '.join(names[:20])}" if names else "The account may not move it, or its workflow ends here"


COMMENT = Act(params=Comment, run=_comment)
TRANSITION = Act(params=Transition, run=_transition)
