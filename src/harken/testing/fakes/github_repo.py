"""What the fake GitHub keeps of a repository, and how it shows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

__all__ = ["Issue", "Repository", "event_of", "picked", "stamp"]


class Issue(msgspec.Struct, kw_only=True):
    """`visible_at`: when the list shows its last change; `told_at`: when its history does. `broken` replaces parts."""

    id: int
    number: int
    title: str
    repo: str
    author: str
    created_at: datetime
    updated_at: datetime
    state: str = "open"
    state_reason: str | None = None
    closed_at: datetime | None = None
    labels: list[str] = []
    assignees: list[str] = []
    milestone: str | None = None
    pull: bool = False
    visible_at: float = 0.0
    told_at: float = 0.0
    deleted: bool = False
    comments: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    broken: dict[str, Any] = {}

    def shown(self) -> dict[str, Any]:
        """As the API shows it."""
        what = "pull" if self.pull else "issues"
        plain = {
            "id": self.id,
            "number": self.number,
            "title": self.title,
            "body": f"About {self.title}",
            "state": self.state,
            "state_reason": self.state_reason,
            "labels": [{"id": 1, "name": name, "color": "ededed"} for name in self.labels],
            "user": {"login": self.author, "id": 7, "type": "User"},
            "assignee": {"login": self.assignees[0]} if self.assignees else None,
            "assignees": [{"login": login} for login in self.assignees],
            "milestone": {"number": 1, "title": self.milestone} if self.milestone else None,
            "comments": len(self.comments),
            "created_at": stamp(self.created_at),
            "updated_at": stamp(self.updated_at),
            "closed_at": stamp(self.closed_at) if self.closed_at else None,
            "html_url": f"https://github.com/{self.repo}/{what}/{self.number}",
        }
        pull = (
            {"draft": False, "pull_request": {"url": f"/pulls/{self.number}", "merged_at": None}} if self.pull else {}
        )
        return plain | pull | self.broken


class Repository(msgspec.Struct, kw_only=True):
    """`hidden`: private, and no token may see it. `moved_to`: the name under which it is found now."""

    id: int
    name: str
    labels: list[str]
    issues: dict[int, Issue] = {}
    disabled: bool = False
    hidden: bool = False
    moved_to: str = ""


def picked(query: Mapping[str, str], repo: Repository, now: float) -> list[Issue]:
    """The issues that a list shows, in the order of their changes."""
    state, since = query.get("state", "open"), query.get("since", "")
    labels = [name.lower() for name in query.get("labels", "").split(",") if name]
    assignee = query.get("assignee", "").lower()
    found = [
        issue
        for issue in repo.issues.values()
        if not issue.deleted
        and issue.visible_at <= now
        and state in ("all", issue.state)
        and set(labels) <= {name.lower() for name in issue.labels}
        and _has(issue, assignee)
        and stamp(issue.updated_at) >= since
    ]
    return sorted(found, key=lambda issue: (issue.updated_at, issue.number))


def _has(issue: Issue, assignee: str) -> bool:
    if assignee == "none":
        return not issue.assignees
    return not assignee or assignee in [login.lower() for login in issue.assignees]


def event_of(number: int, kind: str, at: datetime, **more: Any) -> dict[str, Any]:
    """An entry of a history."""
    return {"id": number, "event": kind, "created_at": stamp(at), "actor": {"login": "mia"}, **more}


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
