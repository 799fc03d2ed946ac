"""A GitLab on loopback: projects with issues, labels, merge requests and members, tokens, limits and moved projects.

It shows thousandths of a second, takes any change of an issue for an update, compares labels with their capitals,
answers 404 for what a token may not see, and tells the next page by its number. What the role of the account does not
allow is left out of a write that is answered with 200. A line of a note such as /close is executed.
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
# the account of all tokens
ME = "mia"
REPORTER = 20


class Issue(msgspec.Struct, kw_only=True):
    """`visible_at`: when the list shows it. `broken`: odd fields in place of the right ones."""

    id: int
    iid: int
    project: str
    project_id: int
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
            "project_id": self.project_id,
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
            "references": {"short": f"#{self.iid}", "full": f"{self.project}#{self.iid}"},
        } | self.broken


class GitLab(FakeServer):
    """Its methods change issues. `skew`: seconds its clock is ahead of ours. `tokens` map to their scopes.

    `members` map to their access levels, `blocked` and `bots` are names. `group_labels` are labels that the token may
    not see. `knows_search` is false for servers that list all labels whatever is searched for.
    """

    def __init__(self, clock: Clock, *, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.skew = skew
        self.tokens = {"glpat-full": ["api"], "glpat-read": ["read_api"]}
        self.users = {"mia": "Mia Engel", "leo": "Leo Park"}
        self.members = {"mia": 40, "leo": 30}
        self.blocked: set[str] = set()
        self.bots: set[str] = set()
        self.labels = ["bug", "area::ui ü/?"]
        self.group_labels: list[str] = []
        self.knows_search = True
        self.branches = {"main", "harken/1"}
        self.merge_requests: list[dict[str, Any]] = []
        self.hooks: list[dict[str, Any]] = []
        self.unreachable: set[str] = set()
        self.notes_per_minute = 300
        self.projects: dict[str, dict[int, Issue]] = {"acme/web/shop": {}}
        self.moved: dict[str, str] = {}
        self._ids = count(9001)
        self._limited_until = 0.0
        self._user_ids = {ME: 7}
        self._noted: list[float] = []

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
            project_id=self.project_id(project),
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

    def project_id(self, project: str) -> int:
        return 3 + list(self.projects).index(project)

    def user(self, name: str) -> dict[str, Any]:
        """An account as issues, events and notes show it, which is without `bot`."""
        id = self._user_ids.setdefault(name, 7 + len(self._user_ids))
        state = "blocked" if name in self.blocked else "active"
        return {"id": id, "username": name, "name": self.users.get(name, name.title()), "state": state}

    def label(self, issue: Issue, name: str, by: str | None = "leo") -> None:
        """Put a label on. Without `by`, the history does not tell who."""
        issue.labels = [*issue.labels, name]
        self._record(issue, "label", user=by and self.user(by), label={"name": name}, action="add")

    def unlabel(self, issue: Issue, name: str, by: str | None = "leo") -> None:
        issue.labels = [one for one in issue.labels if one != name]
        self._record(issue, "label", user=by and self.user(by), label={"name": name}, action="remove")

    def delete_label(self, name: str) -> None:
        """Delete it from all projects: issues lose it, and their histories its name."""
        self.labels = [one for one in self.labels if one != name]
        for issue in (issue for kept in self.projects.values() for issue in kept.values()):
            issue.labels = [one for one in issue.labels if one != name]
            for event in issue.happened["label"]:
                event["label"] = event["label"] if event["label"] != {"name": name} else None

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

    def comment(self, issue: Issue, body: str = "assigned to @mia, I think", by: str = "leo") -> dict[str, Any]:
        return self._record(issue, "notes", body=body, system=False, author=self.user(by))

    def delete_note(self, issue: Issue, id: int) -> None:
        issue.happened["notes"] = [note for note in issue.happened["notes"] if note["id"] != id]

    def merge_request(self, source: str, target: str = "main", *, fork: bool = False, **what: Any) -> dict[str, Any]:
        """Open a merge request in the first project, from a branch of the same name in a `fork` if wanted."""
        project, number = next(iter(self.projects)), len(self.merge_requests) + 1
        made = {
            "iid": number,
            "state": "opened",
            "source_branch": source,
            "target_branch": target,
            "source_project_id": 99 if fork else self.project_id(project),
            "target_project_id": self.project_id(project),
            "web_url": f"https://gitlab.com/{project}/-/merge_requests/{number}",
            **what,
        }
        self.merge_requests.append(made)
        return made

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
            "/api/v4/users/{user}": self._user,
            "/api/v4/personal_access_tokens/self": self._token,
            PROJECT: self._project,
            PROJECT + "/labels": self._labels,
            PROJECT + "/labels/{label}": self._label,
            PROJECT + "/members/all/{user}": self._member,
            PROJECT + "/merge_requests": self._merge_requests,
            PROJECT + "/milestones": self._milestones,
            PROJECT + "/hooks": self._hooks,
            PROJECT + "/hooks/{hook}/test/{trigger}": self._test_hook,
            PROJECT + "/issues": self._list,
            ISSUE: self._issue,
            ISSUE + "/resource_{kind}_events": self._events,
            ISSUE + "/{kind:notes}": self._events,
            ISSUE + "/notes/{note}": self._note,
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
        if name.isdecimal():
            name = next((one for one in self.projects if self.project_id(one) == int(name)), name)
            request.match_info["project"] = name
        elif name in self.moved and request.method != "GET":
            return json_reply({"message": "Non GET methods are not allowed for moved projects"}, 405)
        elif name in self.moved:
            rest = request.rel_url.raw_path.split("/", 5)[5:]
            path = "/".join(["/api/v4/projects", self.moved[name].replace("/", "%2F"), *rest])
            return web.Response(status=301, headers={"Location": f"{path}?{request.query_string}"})
        if name and name not in self.projects:
            return json_reply({"message": "404 Project Not Found"}, 404)
        return await view(request)

    async def _me(self, request: web.Request) -> web.Response:
        return json_reply({**self.user(ME), "email": "mia@example.com", "bot": ME in self.bots})

    def _named(self, request: web.Request) -> str | None:
        """The name of the account whose number is in the path."""
        return next((name for name, id in self._user_ids.items() if str(id) == request.match_info["user"]), None)

    async def _user(self, request: web.Request) -> web.Response:
        name = self._named(request)
        if name is None:
            return json_reply({"message": "404 User Not Found"}, 404)
        return json_reply({**self.user(name), "bot": name in self.bots})

    async def _member(self, request: web.Request) -> web.Response:
        name = self._named(request)
        if name is None or name not in self.members:
            return json_reply({"message": "404 Not found"}, 404)
        return json_reply({**self.user(name), "access_level": self.members[name]})

    def add_hook(self, url: str, **fields: Any) -> dict[str, Any]:
        """Register a webhook of the project."""
        told = {"issues_events": True, "note_events": True, "alert_status": "executable", "disabled_until": None}
        hook = {"id": len(self.hooks) + 1, "url": url, **told, **fields}
        self.hooks.append(hook)
        return hook

    async def _hooks(self, request: web.Request) -> web.Response:
        if self.members.get(ME, 0) < 40:
            return json_reply({"message": "403 Forbidden"}, 403)
        return json_reply(self.hooks)

    async def _test_hook(self, request: web.Request) -> web.Response:
        hook = next((one for one in self.hooks if str(one["id"]) == request.match_info["hook"]), None)
        if hook is None or request.match_info["trigger"] != "issues_events":
            return json_reply({"message": "404 Not found"}, 404)
        if hook["url"] in self.unreachable:
            return json_reply({"message": "Hook execution failed"}, 422)
        hook.update(alert_status="executable", disabled_until=None)
        return json_reply({"message": "201 Created"}, 201)

    async def _users(self, request: web.Request) -> web.Response:
        name = request.query["username"].lower()
        return json_reply([{"username": name, "name": self.users[name]}] if name in self.users else [])

    async def _token(self, request: web.Request) -> web.Response:
        return json_reply({"scopes": self.tokens[request.headers["PRIVATE-TOKEN"]], "expires_at": "2026-12-31"})

    async def _project(self, request: web.Request) -> web.Response:
        name = request.match_info["project"]
        return json_reply({"id": self.project_id(name), "path_with_namespace": name})

    async def _labels(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            return self._make_label(await request.json())
        wanted = request.query.get("search", "").lower() if self.knows_search else ""
        return self._page(request, [{"name": name} for name in sorted(self._known()) if wanted in name.lower()])

    def _known(self) -> set[str]:
        """The labels that the token may see: whatever is on an issue is a label of the project, or of a group."""
        issues = (issue for kept in self.projects.values() for issue in kept.values())
        return {*self.labels, *(name for issue in issues for name in issue.labels)} - {*self.group_labels}

    def _make_label(self, asked: Mapping[str, str]) -> web.Response:
        if self.members.get(ME, 0) < REPORTER:
            return json_reply({"message": "403 Forbidden"}, 403)
        name = asked["name"]
        if name in self._known():
            return json_reply({"message": "Label already exists"}, 409)
        if name in self.group_labels:
            problem = "already exists at group level for Acme. Please choose another one."
            return json_reply({"message": {"title": [problem]}}, 400)
        if "," in name or not asked.get("color"):
            return json_reply({"message": {"title": ["is invalid"]}}, 400)
        self.labels.append(name)
        return json_reply({"name": name}, 201)

    async def _merge_requests(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            wanted = {name: request.query[name] for name in ("state", "source_branch") if name in request.query}
            found = [one for one in self.merge_requests if wanted.items() <= one.items()]
            return self._page(request, found)
        asked = await request.json()
        source, target = asked["source_branch"], asked["target_branch"]
        if source not in self.branches:
            return json_reply({"message": [f'Source branch "{source}" does not exist']}, 400)
        branches = {"state": "opened", "source_branch": source, "target_branch": target}
        inside = [one for one in self.merge_requests if one["source_project_id"] == one["target_project_id"]]
        if any(branches.items() <= one.items() for one in inside):
            return json_reply({"message": ["Another open merge request already exists for this source branch"]}, 409)
        return json_reply(self.merge_request(**{"source": source, **asked, "target": target}), 201)

    async def _label(self, request: web.Request) -> web.Response:
        name = request.match_info["label"]
        return json_reply({"name": name}) if name in self._known() else json_reply({"message": "404"}, 404)

    async def _milestones(self, request: web.Request) -> web.Response:
        return json_reply([{"title": "1.0"}] if request.query["title"] == "1.0" else [])

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        order = query.get("order_by", "")
        if order not in ("updated_at", "created_at") or query.get("sort") != "asc":
            return json_reply({"error": "this fake lists by times, oldest first"}, 400)
        now, kept = self.clock.time(), self.projects[request.match_info["project"]].values()
        found = [issue for issue in kept if issue.visible_at <= now and _is_listed(issue, query)]
        found.sort(key=lambda issue: (getattr(issue, order), issue.id))
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
            if not asked.keys() & {"add_labels", "remove_labels", "state_event"}:
                return json_reply({"error": "add_labels, state_event, … are missing"}, 400)
            if self.members.get(ME, 0) >= REPORTER:
                self._change(issue, asked)
        return json_reply(issue.to_json())

    def _change(self, issue: Issue, asked: Mapping[str, str]) -> None:
        for name in map(str.strip, asked.get("add_labels", "").split(",") if "add_labels" in asked else []):
            if name not in issue.labels:
                self.label(issue, name, by=ME)
        for name in map(str.strip, asked.get("remove_labels", "").split(",")):
            if name in issue.labels:
                self.unlabel(issue, name, by=ME)
        if asked.get("state_event") == "close" and issue.state != "closed":
            self.close(issue)
        if asked.get("state_event") == "reopen" and issue.state != "opened":
            self.reopen(issue)

    async def _events(self, request: web.Request) -> web.Response:
        issue = self._issue_of(request)
        if issue is None:
            return json_reply({"message": "404 Not found"}, 404)
        if request.method == "POST":
            return self._post_note(issue, (await request.json())["body"])
        events = issue.happened[request.match_info["kind"]]
        return self._page(request, events[::-1] if request.query.get("sort") == "desc" else events)

    def _post_note(self, issue: Issue, body: str) -> web.Response:
        now = self.clock.time()
        self._noted = [at for at in self._noted if at > now - 60]
        if len(self._noted) >= self.notes_per_minute:
            # as GitLab does, without a word about when
            return json_reply({"message": {"error": "This endpoint has been requested too many times."}}, 429)
        self._noted.append(now)
        return json_reply(self.comment(issue, self._execute(issue, body), by=ME), 201)

    def _execute(self, issue: Issue, body: str) -> str:
        lines = body.replace("\r", "").split("\n")
        if any(line.split(" ")[0] == "/close" for line in lines):
            self.close(issue)
        return "\n".join(line for line in lines if line.split(" ")[0] != "/close")

    async def _note(self, request: web.Request) -> web.Response:
        issue = self._issue_of(request)
        notes = issue.happened["notes"] if issue else []
        note = next((note for note in notes if str(note["id"]) == request.match_info["note"]), None)
        if issue is None or note is None:
            return json_reply({"message": "404 Not found"}, 404)
        if request.method == "PUT" and note["author"]["username"] != ME:
            return json_reply({"message": "403 Forbidden"}, 403)
        if request.method == "PUT":
            note["body"] = self._execute(issue, (await request.json())["body"])
        return json_reply(note)


def _is_listed(issue: Issue, query: Mapping[str, str]) -> bool:
    labels = [name for name in query.get("labels", "").split(",") if name]
    labelled = bool(issue.labels) if labels == ["any"] else set(labels) <= set(issue.labels)
    assignee = query.get("assignee_username", "").lower()
    return (
        not issue.deleted
        and query.get("state", "all") in ("all", issue.state)
        and labelled
        and (not assignee or assignee in issue.assignees)
        and (query.get("assignee_id") != "None" or not issue.assignees)
        and format_time(issue.updated_at) >= query.get("updated_after", "")
        and format_time(issue.created_at) >= query.get("created_after", "")
    )


def format_time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
