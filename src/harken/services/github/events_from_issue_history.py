"""From an issue as GitHub lists it to an event. Fields that are missing or odd become null or empty.

The list says when an issue changed, but a comment is a change too. Since when an issue matches is told by its history:
the last event that made it match.
https://docs.github.com/en/rest/issues/issues#list-repository-issues
https://docs.github.com/en/rest/using-the-rest-api/issue-event-types
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from harken.event import Event, Identity
from harken.kit import issue_source
from harken.kit.digest import digest_of_json
from harken.kit.issue_source import Gone, History
from harken.kit.values_from_payload import folded_text, instant, list_of, text_of, whole_number
from harken.services.github.api import Api
from harken.services.github.query import Query

__all__ = [
    "Issue",
    "IssueFilter",
    "event_of",
    "filter_of",
    "is_pull",
    "issue_of",
    "matched_at",
    "matches",
    "needs_history",
    "read_history",
]

MAX_PAGES = 30


class Issue(issue_source.Issue, frozen=True, kw_only=True):
    """What matters of an issue. `reopened` is None where the list does not say."""

    pull: bool
    reopened: bool | None


class IssueFilter(issue_source.IssueFilter, frozen=True, kw_only=True):
    """What an issue has to be, in lower case. An empty field matches everything."""

    kind: str = "issues"
    state: str = "open"


def filter_of(query: Query, identity: Identity) -> IssueFilter:
    return IssueFilter(
        kind=query.kind,
        state=query.state,
        labels=frozenset(name.casefold() for name in query.labels),
        assignee=(query.assignee or "").casefold(),
        authors=frozenset(name.casefold() for name in query.author),
        milestone=(query.milestone or "").casefold(),
        identity=identity,
    )


def issue_of(item: Any, repo: str) -> Issue:
    """Read one item of the listing."""
    item = item if isinstance(item, dict) else {"value": item}
    pull = is_pull(item)
    reopened = None if pull or "state_reason" not in item else item["state_reason"] == "reopened"
    return Issue(
        id=text_of(item, "id") or digest_of_json(item),
        number=whole_number(item.get("number")),
        state=text_of(item, "state") or "",
        pull=pull,
        reopened=reopened,
        created_at=instant(item.get("created_at")),
        updated_at=instant(item.get("updated_at")),
        closed_at=instant(item.get("closed_at")),
        data=_data(item, repo),
    )


def matches(issue: Issue, wanted: IssueFilter) -> bool:
    """Compare what GitHub does not filter by: kind, author and milestone."""
    if wanted.kind != "both" and issue.pull != (wanted.kind == "pulls"):
        return False
    if wanted.authors and folded_text(issue.data, "author.login") not in wanted.authors:
        return False
    return not wanted.milestone or folded_text(issue.data, "milestone.title") == wanted.milestone


def needs_history(issue: Issue, wanted: IssueFilter) -> bool:
    """Whether the list alone does not tell since when the issue matches."""
    if wanted.identity == "change" or issue.number is None or issue.created_at is None:
        return False
    if issue.updated_at == issue.created_at:
        return False
    if wanted.labels or wanted.assignee or wanted.milestone:
        return True
    may_reopen = wanted.state == "open" or (wanted.identity == "transition" and issue.state != "closed")
    return may_reopen and issue.reopened is not False


async def read_history(api: Api, issue: Issue, wanted: IssueFilter, repo: str) -> History:
    """Read the events of an issue, oldest first; None when there are too many. Raise Gone if it was deleted."""
    reply = await api.get(api.repo_url(repo, "issues", str(issue.number), "events"), [("per_page", 100)])
    if reply.status == 410:
        raise Gone
    events, complete = await api.read_list(reply, MAX_PAGES)
    return [event for event in events if isinstance(event, dict)] if complete else None


def matched_at(issue: Issue, history: History, wanted: IssueFilter) -> datetime | None:
    return issue_source.matched_since(issue, history, wanted, _makes_it_match)


def event_of(issue: Issue, at: datetime | None, wanted: IssueFilter, repo: str) -> Event:
    return issue_source.issue_event(
        issue, at, wanted, repo, type="github.pull_request" if issue.pull else "github.issue"
    )


def _makes_it_match(event: Any, wanted: IssueFilter) -> bool:
    kind = text_of(event, "event") if isinstance(event, Mapping) else None
    if kind == "labeled":
        return folded_text(event, "label.name") in wanted.labels
    if kind == "assigned":
        # old servers do not name the assignee
        return bool(wanted.assignee) and folded_text(event, "assignee.login") in (wanted.assignee, "")
    if kind == "unassigned":
        return wanted.assignee == "none"
    if kind == "milestoned":
        return bool(wanted.milestone) and folded_text(event, "milestone.title") == wanted.milestone
    return kind == "reopened" and (wanted.state == "open" or wanted.identity == "transition")


def _data(item: Mapping[str, Any], repo: str) -> dict[str, Any]:
    draft, pull = item.get("draft"), item.get("pull_request")
    return {
        "id": whole_number(item.get("id")),
        "number": whole_number(item.get("number")),
        "title": text_of(item, "title") or "",
        "body": text_of(item, "body") or "",
        "state": text_of(item, "state") or "",
        "state_reason": text_of(item, "state_reason"),
        "labels": [name for one in list_of(item.get("labels")) if (name := _label(one))],
        "author": {"login": text_of(item, "user.login") or ""},
        "assignees": _assignees(item),
        "milestone": _milestone(item.get("milestone")),
        "comments": whole_number(item.get("comments")) or 0,
        "created_at": text_of(item, "created_at"),
        "updated_at": text_of(item, "updated_at"),
        "closed_at": text_of(item, "closed_at"),
        "merged_at": text_of(pull, "merged_at"),
        "html_url": text_of(item, "html_url") or "",
        "repo": repo,
        "is_pull_request": is_pull(item),
        "draft": draft if isinstance(draft, bool) else False,
    }


def is_pull(item: Any) -> bool:
    """Whether an item of the listing of issues is a pull request."""
    about = item.get("pull_request") if isinstance(item, Mapping) else None
    # old servers send an object with empty fields for every issue
    return isinstance(about, Mapping) and any(about.values())


def _assignees(item: Mapping[str, Any]) -> list[dict[str, str]]:
    several = list_of(item.get("assignees")) or [item.get("assignee")]
    return [{"login": login} for one in several if (login := text_of(one, "login"))]


def _milestone(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        return None
    return {"number": whole_number(value.get("number")), "title": text_of(value, "title") or ""}


def _label(value: Any) -> str | None:
    return value if isinstance(value, str) else text_of(value, "name")
