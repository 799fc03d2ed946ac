"""What a step may do at Jira: comment, and move to another status. Both look first, because a step may be retried.

https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-comments/ and …/api-group-issues/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, field_validator

from harken.errors import NeedsAttention
from harken.kit.idempotent_comments import nonempty_text
from harken.kit.models import ParamsModel
from harken.kit.values_from_payload import instant, list_of, text_of
from harken.services.jira.api import Api, person_of, read_myself
from harken.services.jira.text import document_of, text_in
from harken.source import Act, Call

__all__ = ["ACTIONS", "ISSUE", "LONGEST_TEXT", "describe_choices"]

# the property of a comment that says which step of which run wrote it
MARK = "harken"
# on a server without properties, a comment with the same text counts as ours for this long
UNMARKED = timedelta(hours=1)
LONGEST_TEXT = 30_000
ISSUE = r"^(?:[A-Za-z][A-Za-z0-9_]{0,99}-[0-9]{1,18}|[0-9]{1,18})$"


class _OnIssue(ParamsModel):
    issue: str = Field(pattern=ISSUE, description="key or id of the issue, such as MYTEAM-12")

    @field_validator("issue", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Comment(_OnIssue):
    """What to say about which issue."""

    text: Annotated[str, nonempty_text(LONGEST_TEXT)] = Field(
        min_length=1, description="text of the comment; empty lines part paragraphs"
    )


class Transition(_OnIssue):
    """Where to move which issue."""

    to: str = Field(min_length=1, description="name of the status to reach, or of the transition that leads there")


async def _comment(call: Call) -> Mapping[str, Any]:
    params: Comment = call.params
    api = Api(call.account, call.host)
    earlier = await _find_earlier(api, params, call.idempotency_key)
    if earlier is not None:
        return _comment_result(api, params.issue, earlier, posted=False)
    body = document_of(params.text) if await api.is_cloud() else params.text
    mark = [{"key": MARK, "value": {"key": call.idempotency_key}}]
    created = await api.call("POST", f"/issue/{params.issue}/comment", json={"body": body, "properties": mark})
    return _comment_result(api, params.issue, created, posted=True)


async def _find_earlier(api: Api, params: Comment, key: str) -> Mapping[str, Any] | None:
    """Return our comment, if an earlier try wrote it and only the reply was lost."""
    me = person_of(await read_myself(api))
    page = await api.call("GET", f"/issue/{params.issue}/comment", params={"orderBy": "-created", "maxResults": 50})
    comments = page.get("comments") if isinstance(page, Mapping) else None
    for comment in list_of(comments):
        author = person_of(comment.get("author")) if isinstance(comment, Mapping) else None
        same_author = author is not None and me is not None and author.id == me.id
        # compared by words, because Jira may store line ends and blanks in another way
        same_text = same_author and text_in(comment.get("body")).split() == params.text.split()
        if same_text and await _is_ours(api, comment, key):
            return dict(comment)
    return None


async def _is_ours(api: Api, comment: Mapping[str, Any], key: str) -> bool:
    mark = await api.find(f"/comment/{text_of(comment, 'id')}/properties/{MARK}")
    if mark is not None:
        return text_of(mark, "value.key") == key
    created = instant(comment.get("created"))
    return created is not None and api.host.clock.now() - created < UNMARKED


def _comment_result(api: Api, issue: str, comment: Any, *, posted: bool) -> dict[str, Any]:
    id = text_of(comment, "id")
    return {"id": id, "issue": issue, "posted": posted, "url": f"{api.browse_url(issue)}?focusedCommentId={id}"}


async def _transition(call: Call) -> Mapping[str, Any]:
    params: Transition = call.params
    api = Api(call.account, call.host)
    wanted = params.to.strip().casefold()
    issue = await api.call("GET", f"/issue/{params.issue}", params={"fields": "status"})
    status = text_of(issue, "fields.status.name")
    if status is not None and status.casefold() == wanted:
        return {"issue": params.issue, "status": status, "changed": False}
    answer = await api.call("GET", f"/issue/{params.issue}/transitions")
    transitions = list_of(answer.get("transitions") if isinstance(answer, Mapping) else None)
    chosen = _choose(transitions, wanted)
    if chosen is None:
        fix = describe_choices(transitions)
        raise NeedsAttention(f"{params.issue} cannot go to {params.to!r} from {status!r}", fix=fix)
    await api.call("POST", f"/issue/{params.issue}/transitions", json={"transition": {"id": text_of(chosen, "id")}})
    return {"issue": params.issue, "status": text_of(chosen, "to.name"), "previous": status, "changed": True}


def _choose(transitions: Sequence[Any], wanted: str) -> Any:
    """Return the transition to the status of that name, or else the transition of that name; None if there is none."""
    for path in ("to.name", "name"):
        for transition in transitions:
            if (text_of(transition, path) or "").casefold() == wanted:
                return transition
    return None


def describe_choices(transitions: Sequence[Any]) -> str:
    names = [f"{text_of(one, 'name')} (to {text_of(one, 'to.name')})" for one in transitions]
    return f"It can do: {', '.join(names[:20])}" if names else "The account may not move it, or its workflow ends here"


ACTIONS = {
    "comment": Act(params=Comment, run=_comment),
    "transition": Act(params=Transition, run=_transition),
}
