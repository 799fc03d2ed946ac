"""A GitLab on loopback: projects with issues, their events and notes, tokens, limits and moved projects.

It shows thousandths of a second, takes any change of an issue for an update, compares labels with their capitals,
answers 404 for what a token may not see, and tells the next page by its number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import count
from math import ceil
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock, from_unix
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["GitLab", "Issue"]

ALLOWED = 2000
PROJECT = "/api/v4/projects/{project}"
ISSUE = PROJECT + "/issues/{iid}"


class Issue(msgspec.Struct, kw_only=True):
    """`visible_at`: when the list shows it. `broken`: odd fields in place of the right ones."""

    id: int
    iid: int
    project: str
    title: str
    author: str
    created_at: datetime
    updated_at: datetime
    state: str = "opened"
    closed_at: datetime | None = None
    labels: list[str] = []
    assignees: list[str] = []
    milestone: str | None = None
    visible_at: float = 0.0
    deleted: bool = False
    happened: dict[str, list[dict[str, Any]]] = {}
    broken: dict[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """The issue as the API returns it."""
        return {
            "id": self.id,
            "iid": self.iid,
            "title": self.title,
            "description": f"About {self.title}",
            "state": self.state,
            "issue_type": "issue",
            "labels": self.labels,
            "author": {"id": 7, "username": self.author, "name": self.author.title()},
            "assignees": [{"id": 7, "username": name, "name": name.title()} for name in self.assignees],
            "milestone": {"id": 1, "title": self.milestone} if self.milestone else None,
            "user_notes_count": sum(not note["system"] for note in self.happened["notes"]),
            "created_at": format_time(self.created_at),
            "updated_at": format_time(self.updated_at),
            "closed_at": format_time(self.closed_at) if self.closed_at else None,
            "due_date": None,
            "confidential": False,
            "web_url": f"https://gitlab.com/{self.project}/-/issues/{self.iid}",
        } | self.broken


class GitLab(FakeServer):
    """Its methods change issues. `skew`: seconds its clock is ahead of ours. `tokens` map to their scopes."""

    def __init__(self, clock: Clock, *, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.skew = skew
        self.tokens = {"glpat-full": ["api"], "glpat-read": ["read_api"]}
        self.users = {"mia": "Mia Engel", "leo": "Leo Park"}
        self.labels = ["bug", "area::ui ü/?"]
        self.projects: dict[str, dict[int, Issue]] = {"acme/web/shop": {}}
        self.moved: dict[str, str] = {}
        self._ids = count(9001)
        self._limited_until = 0.0

    def now(self) -> datetime:
        return from_unix(self.clock.time() + self.skew)

    def open(
        self,
        *labels: str,
        project: str = "acme/web/shop",
        author: str = "leo",
        to: str = "",
        age: float = 0.0,
        late: float = 0.0,
    ) -> Issue:
        """Open an issue, `age` seconds ago, that the list shows in `late` seconds."""
        at, kept = self.now() - timedelta(seconds=age), self.projects[project]
        iid = len(kept) + 1
        kept[iid] = Issue(
            id=next(self._ids),
            iid=iid,
            project=project,
            title=f"Trouble {iid}",
            author=author,
            created_at=at,
            updated_at=at,
            labels=list(labels),
            assignees=[to] if to else [],
            visible_at=self.clock.time() + late,
            happened={"label": [], "state": [], "milestone": [], "notes": []},
        )
        return kept[iid]

    def label(self, issue: Issue, name: str) -> None:
        issue.labels = [*issue.labels, name]
        self._record(issue, "label", label={"name": name}, action="add")

    def unlabel(self, issue: Issue, name: str) -> None:
        issue.labels = [one for one in issue.labels if one != name]
        self._record(issue, "label", label={"name": name}, action="remove")

    def assign(self, issue: Issue, name: str) -> None:
        """Reassign. GitLab writes one note for the new and the old assignee."""
        before, issue.assignees = issue.assignees, [name]
        gone = "".join(f" and unassigned @{one}" for one in before)
        self._record(issue, "notes", body=f"assigned to @{name}{gone}", system=True)

    def unassign(self, issue: Issue) -> None:
        body = " and ".join(f"unassigned @{one}" for one in issue.assignees)
        issue.assignees = []
        self._record(issue, "notes", body=body, system=True)

    def plan(self, issue: Issue, milestone: str) -> None:
        issue.milestone = milestone
        self._record(issue, "milestone", milestone={"title": milestone}, action="add")

    def close(self, issue: Issue) -> None:
        issue.state, issue.closed_at = "closed", self.now()
        self._record(issue, "state", state="closed")

    def reopen(self, issue: Issue) -> None:
        issue.state, issue.closed_at = "opened", None
        self._record(issue, "state", state="reopened")

    def comment(self, issue: Issue, body: str = "assigned to @mia, I think") -> dict[str, Any]:
        return self._record(issue, "notes", body=body, system=False)

    def limit(self, seconds: float) -> None:
        """Answer 429 for so many seconds."""
        self._limited_until = self.clock.time() + seconds

    def _record(self, issue: Issue, kind: str, **what: Any) -> dict[str, Any]:
        issue.updated_at = self.now()
        event = {"id": next(self._ids), "created_at": format_time(self.now()), **what}
        issue.happened[kind].append(event)
        return event

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/api/v4/user": self._me,
            "/api/v4/users": self._users,
            "/api/v4/personal_access_tokens/self": self._token,
            PROJECT: self._project,
            PROJECT + "/labels/{label}": self._label,
            PROJECT + "/milestones": self._milestones,
            PROJECT + "/issues": self._list,
            ISSUE: self._issue,
            ISSUE + "/resource_{kind}_events": self._events,
            ISSUE + "/{kind:notes}": self._events,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._authorize(request, view)
        wait = max(0.0, self._limited_until - self.clock.time())
        told = {
            "RateLimit-Limit": str(ALLOWED),
            "RateLimit-Remaining": "0" if wait else "1900",
            "RateLimit-Reset": str(ceil(self.clock.time() + (wait or 60))),
            "Date": format_datetime(self.now().replace(microsecond=0), usegmt=True),
        }
        reply.headers.update(told)
        return reply

    async def _authorize(self, request: web.Request, view: Handler) -> web.Response:
        if self.clock.time() < self._limited_until:
            return json_reply({"message": "Retry later"}, 429)
        scopes = self.tokens.get(request.headers.get("PRIVATE-TOKEN", ""))
        if scopes is None:
            return json_reply({"message": "401 Unauthorized"}, 401)
        if request.method != "GET" and "api" not in scopes:
            return json_reply({"error": "insufficient_scope"}, 403)
        name = request.match_info.get("project", "")
        if name in self.moved:
            rest = request.rel_url.raw_path.split("/", 5)[5:]
            path = "/".join(["/api/v4/projects", self.moved[name].replace("/", "%2F"), *rest])
            return web.Response(status=301, headers={"Location": f"{path}?{request.query_string}"})
        if name and name not in self.projects:
            return json_reply({"message": "404 Project Not Found"}, 404)
        return await view(request)

    async def _me(self, request: web.Request) -> web.Response:
        return json_reply({"id": 7, "username": "mia", "name": "Mia Engel", "email": "mia@example.com"})

    async def _users(self, request: web.Request) -> web.Response:
        name = request.query["username"].lower()
        return json_reply([{"username": name, "name": self.users[name]}] if name in self.users else [])

    async def _token(self, request: web.Request) -> web.Response:
        return json_reply({"scopes": self.tokens[request.headers["PRIVATE-TOKEN"]], "expires_at": "2026-12-31"})

    async def _project(self, request: web.Request) -> web.Response:
        return json_reply({"id": 3, "path_with_namespace": request.match_info["project"]})

    async def _label(self, request: web.Request) -> web.Response:
        name = request.match_info["label"]
        return json_reply({"name": name}) if name in self.labels else json_reply({"message": "404"}, 404)

    async def _milestones(self, request: web.Request) -> web.Response:
        return json_reply([{"title": "1.0"}] if request.query["title"] == "1.0" else [])

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        if (query.get("order_by"), query.get("sort")) != ("updated_at", "asc"):
            return json_reply({"error": "this fake lists by changes, oldest first"}, 400)
        now, kept = self.clock.time(), self.projects[request.match_info["project"]].values()
        found = [issue for issue in kept if issue.visible_at <= now and _is_listed(issue, query)]
        found.sort(key=lambda issue: (issue.updated_at, issue.id))
        return self._page(request, [issue.to_json() for issue in found])

    def _page(self, request: web.Request, items: list[Any]) -> web.Response:
        size, number = min(int(request.query.get("per_page", 20)), 100), int(request.query.get("page", 1))
        shown = items[(number - 1) * size : number * size]
        more = str(number + 1) if len(items) > number * size else ""
        headers = {"ETag": f'W/"{hashlib.sha256(msgspec.json.encode(shown)).hexdigest()}"', "X-Next-Page": more}
        # as behind a proxy that the server does not know of
        headers["Link"] = '<http://inside.example/next>; rel="next"' if more else ""
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return json_reply(shown, headers=headers)

    def _issue_of(self, request: web.Request) -> Issue | None:
        issue = self.projects[request.match_info["project"]].get(int(request.match_info["iid"]))
        return None if issue is None or issue.deleted else issue

    async def _issue(self, request: web.Request) -> web.Response:
        issue = self._issue_of(request)
        if issue is None:
            return json_reply({"message": "404 Not found"}, 404)
        if request.method == "PUT":
            asked = await request.json()
            for name in asked.get("add_labels", "").split(",") if "add_labels" in asked else []:
                self.label(issue, name)
            for name in asked.get("remove_labels", "").split(",") if "remove_labels" in asked else []:
                self.unlabel(issue, name)
        return json_reply(issue.to_json())

    async def _events(self, request: web.Request) -> web.Response:
        issue = self._issue_of(request)
        if issue is None:
            return json_reply({"message": "404 Not found"}, 404)
        if request.method == "POST":
            return json_reply(self.comment(issue, (await request.json())["body"]), 201)
        return self._page(request, issue.happened[request.match_info["kind"]])


def _is_listed(issue: Issue, query: Mapping[str, str]) -> bool:
    labels = [name for name in query.get("labels", "").split(",") if name]
    assignee = query.get("assignee_username", "").lower()
    return (
        not issue.deleted
        and query.get("state", "all") in ("all", issue.state)
        and set(labels) <= set(issue.labels)
        and (not assignee or assignee in issue.assignees)
        and (query.get("assignee_id") != "None" or not issue.assignees)
        and format_time(issue.updated_at) >= query.get("updated_after", "")
    )


def format_time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
