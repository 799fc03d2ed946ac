"""What is in the fake Jira: users, projects, issues and their histories, and the index that learns of them later."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from harken.clock import Clock

__all__ = ["STATUSES", "TYPES", "Issue", "Tickets"]

STATUSES = {"1": "To Do", "2": "In Progress", "3": "Done", "4": "Not Done", "5": "In Review"}
TYPES = {"1": "Task", "2": "Bug", "3": "Epic"}
_CHANGES, _COMMENTS = 40, 20
_MENTION = re.compile(r"\[~(?:accountid:)?([^\]]+)\]")


class Issue:
    """One issue as it is now, with what happened to it. `shown` are the states that the index knows, and from when."""

    def __init__(self, id: str, key: str, created: datetime, fields: dict[str, Any]) -> None:
        self.id = id
        self.key = key
        self.created = created
        self.updated = created
        self.fields = fields
        self.histories: list[dict[str, Any]] = []
        self.comments: list[dict[str, Any]] = []
        self.properties: dict[str, dict[str, Any]] = {}
        self.shown: list[tuple[float, dict[str, Any]]] = []


class Tickets:
    """`late` seconds pass until the index shows a change. `skew`: how far Jira's clock is ahead of ours."""

    def __init__(self, clock: Clock, *, cloud: bool, zone: str) -> None:
        self.clock = clock
        self.cloud = cloud
        self.zone = ZoneInfo(zone)
        self.late = 0.0
        self.skew = 0.0
        self.issues: dict[str, Issue] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.projects: dict[str, str] = {}
        self._made = 10_000
        self.me = self.user("me", email="me@example.com", name="Mia Me")
        self.project("TEAM", "The Team")

    def user(self, id: str, *, email: str = "", name: str = "", hidden: bool = False) -> str:
        """Add a user; on Server `id` is the user name. A hidden e-mail address can be searched, but is not shown."""
        names = {"accountId": id} if self.cloud else {"name": id, "key": f"JIRAUSER-{id}"}
        shown = {} if hidden else {"emailAddress": email}
        self.users[id] = {**names, **shown, "displayName": name or id, "timeZone": str(self.zone), "mail": email}
        return id

    def project(self, key: str, name: str = "") -> str:
        self.projects[key] = name or key
        return key

    def create(self, project: str = "TEAM", summary: str = "Something is broken", **fields: Any) -> str:
        """Make an issue now; its key. Fields: assignee, status, type, labels, description, priority."""
        self._made += 1
        count = sum(issue.key.startswith(f"{project}-") for issue in self.issues.values()) + 1
        values = {"project": project, "summary": summary, "assignee": None, "status": "To Do", "type": "Task"}
        values |= {"labels": (), "description": None, "priority": "Medium"} | fields
        key = f"{project}-{count}"
        issue = self.issues[str(self._made)] = Issue(str(self._made), key, self.now(), values)
        self._index(issue)
        return issue.key

    def assign(self, key: str, user: str | None) -> None:
        self._change(key, "assignee", user)

    def move(self, key: str, status: str) -> None:
        self._change(key, "status", status)

    def label(self, key: str, *labels: str) -> None:
        self._change(key, "labels", labels)

    def edit(self, key: str, summary: str) -> None:
        self._change(key, "summary", summary)

    def prioritise(self, key: str, priority: str) -> None:
        self._change(key, "priority", priority)

    def describe(self, key: str, description: str) -> None:
        self._change(key, "description", description)

    def relocate(self, key: str, project: str) -> str:
        """Move the issue to another project, where it gets another key."""
        issue, count = self.issue(key), len(self.issues) + 500
        items = [
            _item("project", issue.fields["project"], project, self.projects[issue.fields["project"]]),
            {"field": "Key", "from": None, "fromString": key, "to": None, "toString": f"{project}-{count}"},
        ]
        issue.key, issue.fields["project"] = f"{project}-{count}", project
        self._write(issue, items)
        return issue.key

    def comment(self, key: str, text: str, author: str = "me") -> str:
        """Comment now; the id. `[~user]` in the text mentions that user."""
        issue = self.issue(key)
        self._made += 1
        id = str(self._made)
        issue.comments.append({"id": id, "author": author, "text": text, "created": self.now()})
        self._touch(issue)
        return id

    def delete(self, key: str) -> None:
        del self.issues[self.issue(key).id]

    def now(self) -> datetime:
        return (self.clock.now() + timedelta(seconds=self.skew)).astimezone(self.zone)

    def issue(self, name: str) -> Issue:
        found = self.issues.get(name) or next((one for one in self.issues.values() if one.key == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def _change(self, key: str, field: str, value: Any) -> None:
        issue = self.issue(key)
        old, issue.fields[field] = issue.fields[field], value
        self._write(issue, [self._changed(field, old, value)])

    def _changed(self, field: str, old: Any, new: Any) -> dict[str, Any]:
        if field == "assignee":
            ids = [self._history_id(user) for user in (old, new)]
            names = [self.users[user]["displayName"] if user else None for user in (old, new)]
            return {"field": "assignee", "from": ids[0], "fromString": names[0], "to": ids[1], "toString": names[1]}
        if field == "status":
            ids = [next(id for id, name in STATUSES.items() if name == value) for value in (old, new)]
            return {"field": "status", "from": ids[0], "fromString": old, "to": ids[1], "toString": new}
        texts = [" ".join(value) if isinstance(value, tuple) else value for value in (old, new)]
        return {"field": field, "from": None, "fromString": texts[0], "to": None, "toString": texts[1]}

    def _history_id(self, user: str | None) -> str | None:
        return None if user is None else user if self.cloud else f"JIRAUSER-{user}"

    def _write(self, issue: Issue, items: list[dict[str, Any]]) -> None:
        self._made += 1
        self._touch(issue)
        issue.histories.append({"id": str(self._made), "created": self._time(issue.updated), "items": items})

    def _touch(self, issue: Issue) -> None:
        issue.updated = self.now()
        self._index(issue)

    def _index(self, issue: Issue) -> None:
        fields = issue.fields
        entry = {
            "project": [fields["project"], self.projects[fields["project"]]],
            "assignee": [fields["assignee"]] if fields["assignee"] else [],
            "status": [fields["status"]],
            "issuetype": [fields["type"]],
            "labels": list(fields["labels"]),
            "priority": [fields["priority"]],
            "updated": int(issue.updated.timestamp() * 1000),
            "created": int(issue.created.timestamp() * 1000),
            "key": issue.id,
        }
        issue.shown.append((self.clock.time() + self.late, entry))

    def json(self, issue: Issue, names: Sequence[str], changelog: bool) -> dict[str, Any]:
        whole = self._fields(issue)
        shown: dict[str, Any] = {"id": issue.id, "key": issue.key}
        shown["fields"] = {name: whole[name] for name in names if name in whole}
        if changelog:
            newest = issue.histories[::-1][:_CHANGES] if self.cloud else issue.histories
            shown["changelog"] = {"startAt": 0, "maxResults": _CHANGES, "histories": newest}
            shown["changelog"]["total"] = len(issue.histories)
        return shown

    def _fields(self, issue: Issue) -> dict[str, Any]:
        fields = issue.fields
        status = next(id for id, name in STATUSES.items() if name == fields["status"])
        comments = [self.comment_json(one) for one in issue.comments]
        return {
            "summary": fields["summary"],
            "description": self._rich(fields["description"]),
            "status": {"id": status, "name": fields["status"], "statusCategory": {"name": fields["status"]}},
            "issuetype": {"id": "1", "name": fields["type"]},
            "priority": {"name": fields["priority"]},
            "labels": list(fields["labels"]),
            "components": [],
            "assignee": self.public(fields["assignee"]),
            "reporter": self.public("me"),
            "project": {"id": fields["project"], "key": fields["project"], "name": self.projects[fields["project"]]},
            "created": self._time(issue.created),
            "updated": self._time(issue.updated),
            "duedate": None,
            "comment": {"comments": comments[:_COMMENTS] if self.cloud else comments, "total": len(comments)},
        }

    def comment_json(self, one: Mapping[str, Any]) -> dict[str, Any]:
        created = self._time(one["created"])
        return {
            "id": one["id"],
            "author": self.public(one["author"]),
            "body": self._rich(one["text"]),
            "created": created,
        }

    def _rich(self, text: Any) -> Any:
        """Text as this Jira sends it; a document that was written as one stays what it is."""
        if not self.cloud or not isinstance(text, str):
            return text
        nodes: list[dict[str, Any]] = []
        for number, part in enumerate(_MENTION.split(text)):
            mention = {"type": "mention", "attrs": {"id": part, "text": f"@{part}"}}
            nodes += [mention if number % 2 else {"type": "text", "text": part}] if part else []
        return {"type": "doc", "version": 1, "content": [{"type": "paragraph", "content": nodes}]}

    def public(self, user: str | None) -> dict[str, Any] | None:
        return {name: value for name, value in self.users[user].items() if name != "mail"} if user else None

    def _time(self, at: datetime) -> str:
        return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}{at:%z}"


def _item(field: str, old: str, new: str, name: str) -> dict[str, Any]:
    return {"field": field, "from": old, "fromString": name, "to": new, "toString": new}
