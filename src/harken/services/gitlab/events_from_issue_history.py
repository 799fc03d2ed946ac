"""From an issue as GitLab lists it to an event. Fields that are missing or odd become null or empty.

The list says when an issue changed, but a comment is a change too. Since when an issue matches is told by its label,
state and milestone events and its system notes: the last of those that made it match.
https://docs.gitlab.com/api/issues/ · https://docs.gitlab.com/api/resource_label_events/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from harken.event import Event, Identity
from harken.kit import issue_source
from harken.kit.digest import digest_of_json
from harken.kit.issue_source import Gone, History, Issue
from harken.kit.values_from_payload import folded_text, instant, list_of, text_of, whole_number
from harken.services.gitlab.api import Api
from harken.services.gitlab.query import Query

__all__ = ["IssueFilter", "event_of", "filter_of", "histories", "issue_of", "matched_at", "matches", "read_history"]

MAX_PAGES = 30
_ASSIGNED = re.compile(r"\bassigned to (.*?)(?: and unassigned |$)", re.IGNORECASE | re.MULTILINE)
_UNASSIGNED = re.compile(r"\bunassigned @|\bremoved assignee", re.IGNORECASE)


class IssueFilter(issue_source.IssueFilter, frozen=True, kw_only=True):
    state: str = "opened"


def filter_of(query: Query, identity: Identity) -> IssueFilter:
    return IssueFilter(
        state=query.state,
        labels=frozenset(query.labels),
        assignee=(query.assignee or "").casefold(),
        authors=frozenset(name.casefold() for name in query.author),
        milestone=(query.milestone or "").casefold(),
        identity=identity,
    )


def issue_of(item: Any, project: str) -> Issue:
    """Read one item of the listing."""
    item = item if isinstance(item, dict) else {"value": item}
    return Issue(
        id=text_of(item, "id") or digest_of_json(item),
        number=whole_number(item.get("iid")),
        state=text_of(item, "state") or "",
        created_at=instant(item.get("created_at")),
        updated_at=instant(item.get("updated_at")),
        closed_at=instant(item.get("closed_at")),
        data=_data(item, project),
    )


def matches(issue: Issue, wanted: IssueFilter) -> bool:
    """Compare what GitLab does not filter by: author and milestone."""
    if wanted.authors and folded_text(issue.data, "author.username") not in wanted.authors:
        return False
    return not wanted.milestone or folded_text(issue.data, "milestone.title") == wanted.milestone


def histories(issue: Issue, wanted: IssueFilter) -> list[str]:
    """The histories that tell since when the issue matches; none where the list alone does."""
    if wanted.identity == "change" or issue.number is None or issue.updated_at == issue.created_at:
        return []
    may_reopen = wanted.state == "opened" or (wanted.identity == "transition" and issue.state != "closed")
    needed = {
        "resource_label_events": bool(wanted.labels),
        "resource_milestone_events": bool(wanted.milestone),
        "resource_state_events": may_reopen,
        "notes": bool(wanted.assignee),
    }
    return [name for name, is_needed in needed.items() if is_needed]


async def read_history(api: Api, issue: Issue, wanted: IssueFilter, project: str) -> History:
    """Read all events of an issue that matter; None when there are too many. Raise Gone if it was deleted."""
    events: list[Any] = []
    for kind in histories(issue, wanted):
        only: list[tuple[str, str | int]] = [("activity_filter", "only_activity")] if kind == "notes" else []
        url = api.project_url(project, "issues", str(issue.number), kind)
        reply = await api.get(url, [("per_page", 100), *only])
        if reply.status == 404:
            await _check_exists(api, issue, project)
        found, complete = await api.read_list(reply, MAX_PAGES)
        if not complete:
            return None
        events += [event for event in found if isinstance(event, dict)]
    return events


async def _check_exists(api: Api, issue: Issue, project: str) -> None:
    """Raise Gone if the issue was deleted. The 404 of a history may also mean that the token may not read it."""
    reply = await api.get(api.project_url(project, "issues", str(issue.number)))
    if reply.status == 404:
        raise Gone


def matched_at(issue: Issue, history: History, wanted: IssueFilter) -> datetime | None:
    return issue_source.matched_since(issue, history, wanted, _makes_it_match)


def event_of(issue: Issue, at: datetime | None, wanted: IssueFilter, project: str) -> Event:
    return issue_source.issue_event(issue, at, wanted, project, type="gitlab.issue", precision="milliseconds")


def _makes_it_match(event: Mapping[str, Any], wanted: IssueFilter) -> bool:
    """Histories of several kinds are mixed: the fields tell which kind an event is."""
    if "label" in event:
        return event.get("action") == "add" and text_of(event, "label.name") in wanted.labels
    if "milestone" in event:
        named = folded_text(event, "milestone.title") == wanted.milestone
        return bool(wanted.milestone) and event.get("action") == "add" and named
    if "body" in event:
        return event.get("system") is True and _assigns(text_of(event, "body") or "", wanted.assignee)
    return event.get("state") == "reopened" and (wanted.state == "opened" or wanted.identity == "transition")


def _assigns(note: str, assignee: str) -> bool:
    if assignee == "none":
        return bool(_UNASSIGNED.search(note))
    names = " ".join(_ASSIGNED.findall(note)).casefold()
    return f"@{assignee}" in re.split(r"[\s,]+", names)


def _data(item: Mapping[str, Any], project: str) -> dict[str, Any]:
    secret = item.get("confidential")
    return {
        "id": whole_number(item.get("id")),
        "iid": whole_number(item.get("iid")),
        "title": text_of(item, "title") or "",
        "description": text_of(item, "description") or "",
        "state": text_of(item, "state") or "",
        "type": text_of(item, "issue_type") or "issue",
        "labels": [name for one in list_of(item.get("labels")) if (name := _label(one))],
        "author": _person(item.get("author")),
        "assignees": [_person(one) for one in list_of(item.get("assignees")) if isinstance(one, Mapping)],
        "milestone": text_of(item, "milestone.title") and {"title": text_of(item, "milestone.title")},
        "comments": whole_number(item.get("user_notes_count")) or 0,
        "created_at": text_of(item, "created_at"),
        "updated_at": text_of(item, "updated_at"),
        "closed_at": text_of(item, "closed_at"),
        "due_date": text_of(item, "due_date"),
        "confidential": secret if isinstance(secret, bool) else False,
        "web_url": text_of(item, "web_url") or "",
        "project": project,
    }


def _person(user: Any) -> dict[str, str]:
    return {"username": text_of(user, "username") or "", "name": text_of(user, "name") or ""}


def _label(value: Any) -> str | None:
    return value if isinstance(value, str) else text_of(value, "name")
