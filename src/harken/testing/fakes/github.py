"""A GitHub on loopback: repositories with issues and their histories, tokens, limits, ETags and renamed repositories.

Like GitHub it shows whole seconds, counts any change of an issue as an update, lists pull requests among the issues,
answers 404 for what a token may not see, and has at most 100 items per page.
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
from yarl import URL

from harken.clock import Clock, from_unix
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["GitHub", "Issue", "Repository"]


ALLOWED = 5000
REPO = "/repos/{owner}/{name}"


class Issue(msgspec.Struct, kw_only=True):
    """`visible_at`: when the list shows its last change; `history_visible_at`: when its history does.

    `broken` are odd fields in place of the right ones.
    """

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
    history_visible_at: float = 0.0
    deleted: bool = False
    comments: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    broken: dict[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """The issue as the API returns it."""
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
            "created_at": format_time(self.created_at),
            "updated_at": format_time(self.updated_at),
            "closed_at": format_time(self.closed_at) if self.closed_at else None,
            "html_url": f"https://github.com/{self.repo}/{what}/{self.number}",
        }
        pull = (
            {"draft": False, "pull_request": {"url": f"/pulls/{self.number}", "merged_at": None}} if self.pull else {}
        )
        return plain | pull | self.broken


class Repository(msgspec.Struct, kw_only=True):
    """`hidden`: private, and no token may see it. `moved_to`: its new name."""

    id: int
    name: str
    labels: list[str]
    issues: dict[int, Issue] = {}
    disabled: bool = False
    hidden: bool = False
    moved_to: str = ""


def list_issues(query: Mapping[str, str], repo: Repository, now: float) -> list[Issue]:
    """Return the issues of a list, in the order of their changes."""
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
        and _is_assigned_to(issue, assignee)
        and format_time(issue.updated_at) >= since
    ]
    return sorted(found, key=lambda issue: (issue.updated_at, issue.number))


def _is_assigned_to(issue: Issue, assignee: str) -> bool:
    if assignee == "none":
        return not issue.assignees
    return not assignee or assignee in [login.lower() for login in issue.assignees]


def event_of(number: int, kind: str, at: datetime, **more: Any) -> dict[str, Any]:
    """An entry of a history."""
    return {"id": number, "event": kind, "created_at": format_time(at), "actor": {"login": "mia"}, **more}


def format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class GitHub(FakeServer):
    """Its methods change issues. `skew`: seconds its clock is ahead of ours. `tokens` map to their scopes."""

    def __init__(self, clock: Clock, *, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.skew = skew
        self.tokens: dict[str, str | None] = {"classic": "repo, read:org", "fine": None}
        self.read_only: set[str] = set()
        self.users = {"mia": "Mia Engel", "leo": "Leo Park"}
        self.milestones = ["1.0"]
        self.repos: dict[str, Repository] = {}
        self.remaining = ALLOWED
        self._ids = count(9001)
        self._limited_until = 0.0
        self.add_repo("acme/shop")

    def now(self) -> datetime:
        """The time on its clock, in whole seconds."""
        return from_unix(self.clock.time() + self.skew).replace(microsecond=0)

    def add_repo(self, name: str) -> Repository:
        labels = ["bug", "good first issue", "area/ui ü?"]
        repo = Repository(id=next(self._ids), name=name, labels=labels, issues={})
        self.repos[name.lower()] = repo
        return repo

    def open(
        self,
        *labels: str,
        repo: str = "acme/shop",
        title: str = "",
        author: str = "leo",
        to: str = "",
        pull: bool = False,
        age: float = 0.0,
        late: float = 0.0,
    ) -> Issue:
        """Open an issue, `age` seconds ago, that the list shows in `late` seconds."""
        at, project = self.now() - timedelta(seconds=age), self.repos[repo.lower()]
        number = len(project.issues) + 1
        issue = Issue(
            id=next(self._ids),
            number=number,
            title=title or f"Trouble {number}",
            repo=project.name,
            author=author,
            created_at=at,
            updated_at=at,
            labels=list(labels),
            assignees=[to] if to else [],
            pull=pull,
            visible_at=self.clock.time() + late,
            comments=[],
            events=[],
        )
        for name in labels:
            issue.events.append(event_of(next(self._ids), "labeled", at, label={"name": name}))
        project.issues[number] = issue
        return issue

    def label(self, issue: Issue, name: str) -> None:
        issue.labels = [*issue.labels, name]
        self._record(issue, "labeled", label={"name": name})

    def unlabel(self, issue: Issue, name: str) -> None:
        issue.labels = [one for one in issue.labels if one != name]
        self._record(issue, "unlabeled", label={"name": name})

    def assign(self, issue: Issue, login: str) -> None:
        issue.assignees = [*issue.assignees, login]
        self._record(issue, "assigned", assignee={"login": login})

    def unassign(self, issue: Issue, login: str) -> None:
        issue.assignees = [one for one in issue.assignees if one != login]
        self._record(issue, "unassigned", assignee={"login": login})

    def plan(self, issue: Issue, milestone: str) -> None:
        issue.milestone = milestone
        self._record(issue, "milestoned", milestone={"title": milestone})

    def close(self, issue: Issue) -> None:
        issue.state, issue.state_reason, issue.closed_at = "closed", "completed", self.now()
        self._record(issue, "closed")

    def reopen(self, issue: Issue) -> None:
        issue.state, issue.state_reason, issue.closed_at = "open", None if issue.pull else "reopened", None
        self._record(issue, "reopened")

    def comment(self, issue: Issue, body: str = "hm") -> dict[str, Any]:
        issue.updated_at = self.now()
        id = next(self._ids)
        comment = {"id": id, "body": body, "html_url": f"https://github.com/{issue.repo}/issues/{issue.number}#c{id}"}
        issue.comments.append(comment)
        return comment

    def limit(self, seconds: float) -> None:
        """Answer 403 for so many seconds, as GitHub does when the quota is used up."""
        self._limited_until = self.clock.time() + seconds

    def _record(self, issue: Issue, kind: str, **more: Any) -> None:
        issue.updated_at = self.now()
        issue.events.append(event_of(next(self._ids), kind, self.now(), **more))

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/user": self._me,
            "/users/{login}": self._user,
            REPO: self._repo,
            REPO + "/labels/{label}": self._label,
            REPO + "/milestones": self._milestones,
            REPO + "/issues": self._list,
            "/repositories/{id}/issues": self._list,
            REPO + "/issues/{number}/events": self._events,
            REPO + "/issues/{number}/comments": self._comments,
            "/repositories/{id}/issues/{number}/comments": self._comments,
            REPO + "/issues/{number}/labels": self._labels,
            REPO + "/issues/{number}/labels/{label}": self._labels,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._authorize(request, view)
        wait = max(0.0, self._limited_until - self.clock.time())
        if reply.status != 304:
            self.remaining -= 1
        until = ceil(self.clock.time() + self.skew + (wait or 3600))
        limits = {"Limit": ALLOWED, "Remaining": 0 if wait else self.remaining, "Reset": until}
        reply.headers.update({f"X-RateLimit-{name}": str(value) for name, value in limits.items()})
        reply.headers["Date"] = format_datetime(self.now(), usegmt=True)
        return reply

    async def _authorize(self, request: web.Request, view: Handler) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self.clock.time() < self._limited_until:
            return _error(403, "API rate limit exceeded")
        if scheme != "Bearer" or token not in self.tokens:
            return _error(401, "Bad credentials")
        if request.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return _error(400, "unsupported version")
        repo = self._repo_of(request)
        if repo is not None and repo.moved_to:
            path = request.path.split("/")
            away = self.repos[repo.moved_to.lower()]
            target = URL(f"/repositories/{away.id}/{'/'.join(path[4:])}").with_query(request.query)
            return web.Response(status=301 if request.method == "GET" else 307, headers={"Location": str(target)})
        if "name" in request.match_info and (repo is None or repo.hidden):
            return _error(404, "Not Found")
        if request.method != "GET" and token in self.read_only:
            return _error(403, "Resource not accessible by personal access token")
        return await view(request)

    def _repo_of(self, request: web.Request) -> Repository | None:
        found = request.match_info
        if "id" in found:
            return next((repo for repo in self.repos.values() if str(repo.id) == found["id"]), None)
        return self.repos.get(f"{found.get('owner')}/{found.get('name')}".lower())

    def _issue(self, request: web.Request) -> Issue | None:
        repo = self._repo_of(request)
        return repo.issues.get(int(request.match_info["number"])) if repo else None

    async def _me(self, request: web.Request) -> web.Response:
        scopes = self.tokens[request.headers["Authorization"].partition(" ")[2]]
        headers = {} if scopes is None else {"X-OAuth-Scopes": scopes}
        return json_reply({"login": "mia", "id": 7, "name": "Mia Engel", "email": None}, headers=headers)

    async def _user(self, request: web.Request) -> web.Response:
        name = self.users.get(request.match_info["login"].lower())
        return json_reply({"login": request.match_info["login"], "name": name}) if name else _error(404, "Not Found")

    async def _repo(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        assert repo is not None
        return json_reply({"id": repo.id, "full_name": repo.name, "private": True, "has_issues": not repo.disabled})

    async def _label(self, request: web.Request) -> web.Response:
        repo, name = self._repo_of(request), request.match_info["label"].lower()
        known = repo is not None and name in [label.lower() for label in repo.labels]
        return json_reply({"name": name}) if known else _error(404, "Not Found")

    async def _milestones(self, request: web.Request) -> web.Response:
        return json_reply([{"number": 1, "title": title} for title in self.milestones])

    async def _list(self, request: web.Request) -> web.Response:
        repo, query = self._repo_of(request), request.query
        assert repo is not None
        if repo.disabled:
            return _error(410, "Issues are disabled for this repo")
        if query.get("assignee", "none").lower() not in ("none", *self.users):
            return _error(422, "Validation Failed")
        if (query.get("sort"), query.get("direction")) != ("updated", "asc"):
            return _error(422, "this fake lists by changes, oldest first")
        return self._page(request, [issue.to_json() for issue in list_issues(query, repo, self.clock.time())])

    def _page(self, request: web.Request, items: list[Any]) -> web.Response:
        size, number = min(int(request.query.get("per_page", 30)), 100), int(request.query.get("page", 1))
        shown = items[(number - 1) * size : number * size]
        headers = {"ETag": f'W/"{hashlib.sha256(msgspec.json.encode(shown)).hexdigest()}"'}
        if len(items) > number * size:
            following = URL(f"{self.url}{request.path}").with_query({**request.query, "page": str(number + 1)})
            headers["Link"] = f'<{following}>; rel="next", <{following}>; rel="last"'
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return json_reply(shown, headers=headers)

    async def _events(self, request: web.Request) -> web.Response:
        issue = self._issue(request)
        if issue is None or issue.deleted:
            return _error(410, "This issue was deleted")
        # a replica that lags behind does not show them yet
        events = issue.events if issue.history_visible_at <= self.clock.time() else []
        return self._page(request, events)

    async def _comments(self, request: web.Request) -> web.Response:
        issue = self._issue(request)
        if issue is None:
            return _error(404, "Not Found")
        if request.method == "POST":
            return json_reply(self.comment(issue, (await request.json())["body"]), 201)
        return self._page(request, issue.comments)

    async def _labels(self, request: web.Request) -> web.Response:
        issue = self._issue(request)
        if issue is None:
            return _error(404, "Not Found")
        if request.method == "POST":
            for name in (await request.json())["labels"]:
                self.label(issue, name)
        if request.method == "DELETE":
            if request.match_info["label"] not in issue.labels:
                return _error(404, "Label does not exist")
            self.unlabel(issue, request.match_info["label"])
        return json_reply([{"name": name} for name in issue.labels])


def _error(status: int, message: str) -> web.Response:
    return json_reply({"message": message, "documentation_url": "https://docs.github.com/rest"}, status)
