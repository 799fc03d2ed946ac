"""A GitHub on loopback: repositories with issues and their histories, tokens, limits, ETags and renamed repositories.

Like GitHub it shows whole seconds, counts any change of an issue as an update, lists pull requests among the issues,
answers 404 for what a token may not see, and has at most 100 items per page. Labels are the same whatever their case.
More than 80 writes a minute meet the secondary limit. An issue that is transferred leaves a redirect behind.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import count
from math import ceil
from typing import Any

import msgspec
from aiohttp import web
from yarl import URL

from harken.clock import Clock, from_unix
from harken.testing.fakes.github_app import InstalledApp
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["GitHub", "Issue", "Repository", "label_mutations"]


ALLOWED = 5000
WRITES_A_MINUTE = 80
_MUTATION = re.compile(
    r"(\w+): (addLabelsToLabelable|removeLabelsFromLabelable)\(input: \{labelableId: \$(\w+), labelIds: \$(\w+)\}\)"
)


class Issue(msgspec.Struct, kw_only=True):
    """`visible_at`: when the list shows its last change; `history_visible_at`: when its history does.

    `broken` are odd fields in place of the right ones. `older` is what a copy that is behind shows of it until
    `older_until`. `moved_to` is where it was transferred to. `head` and `base` are the branches of a pull request.
    """

    id: int
    number: int
    title: str
    repo: str
    author: str
    user: dict[str, Any] | None
    created_at: datetime
    updated_at: datetime
    text: str | None = None
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
    older: dict[str, Any] | None = None
    older_until: float = 0.0
    moved_to: Issue | None = None
    head: str = ""
    base: str = ""

    def to_json(self) -> dict[str, Any]:
        """The issue as the API returns it."""
        what = "pull" if self.pull else "issues"
        plain = {
            "id": self.id,
            "number": self.number,
            "title": self.title,
            "body": f"About {self.title}" if self.text is None else self.text,
            "state": self.state,
            "state_reason": self.state_reason,
            "node_id": f"I_{self.id}",
            "labels": [{"id": 1, "name": name, "color": "ededed"} for name in self.labels],
            "user": self.user,
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
    """`hidden`: private, and no token may see it. `moved_to`: its new name.

    `roles` are the permissions of accounts; those without one may read.
    """

    id: int
    name: str
    labels: list[str]
    roles: dict[str, str] = {}
    branches: list[str] = []
    issues: dict[int, Issue] = {}
    hooks: list[dict[str, Any]] = []
    disabled: bool = False
    hidden: bool = False
    moved_to: str = ""


def list_issues(query: Mapping[str, str], repo: Repository, now: float) -> list[Issue]:
    """Return the issues of a list, in the order of their changes."""
    state, since = query.get("state", "open"), query.get("since", "")
    labels = {name.lower() for name in query.get("labels", "").split(",") if name}
    assignee = query.get("assignee", "").lower()
    found = [
        issue
        for issue in repo.issues.values()
        if not issue.deleted
        and issue.visible_at <= now
        and state in ("all", issue.state)
        and (not labels or labels <= {name.lower() for name in issue.labels})
        and _is_assigned_to(issue, assignee)
        and (not since or format_time(issue.updated_at) >= since)
    ]
    return sorted(found, key=lambda issue: (issue.updated_at, issue.number))


def _is_assigned_to(issue: Issue, assignee: str) -> bool:
    if assignee == "none":
        return not issue.assignees
    return not assignee or assignee in [login.lower() for login in issue.assignees]


def label_node(name: str, made: int = 0) -> str:
    """The id that GraphQL knows a label by. `made`: how often it was made anew."""
    return f"LA_{name.lower().encode().hex()}_{made}"


def event_of(number: int, kind: str, at: datetime, actor: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An entry of a history."""
    return {"id": number, "event": kind, "created_at": format_time(at), "actor": actor, **more}


def _find(names: Iterable[str], wanted: str) -> str | None:
    """The label as it is spelled here."""
    return next((name for name in names if name.lower() == wanted.lower()), None)


def format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class GitHub(FakeServer):
    """Its methods change issues. `skew`: seconds its clock is ahead of ours. `tokens` map to their scopes.

    All tokens are mia's, but those of `apps`, which map to the bot that they act as. `app` signs in with a key instead
    and is given tokens for an hour. `triage` are tokens that may label and not push. `writes_a_minute` is where the
    secondary limit begins. With another `graphql_status` it has no GraphQL.
    """

    def __init__(self, clock: Clock, *, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.skew = skew
        self.tokens: dict[str, str | None] = {"classic": "repo, read:org", "fine": None}
        self.read_only: set[str] = set()
        self.triage: set[str] = set()
        self.apps: dict[str, str] = {}
        self.app: InstalledApp | None = None
        self.writes_a_minute = WRITES_A_MINUTE
        self.graphql_status = 200
        self.users = {"mia": "Mia Engel", "leo": "Leo Park"}
        self.milestones = ["1.0"]
        self.org_hooks: dict[str, list[dict[str, Any]]] = {}
        self.repos: dict[str, Repository] = {}
        self.remaining = ALLOWED
        self._ids = count(9001)
        self._limited_until = 0.0
        self._writes: list[float] = []
        self._renewed: Counter[str] = Counter()
        self._accounts: dict[str, dict[str, Any]] = {"mia": {"login": "mia", "id": 7, "type": "User"}}
        self.add_repo("acme/shop")

    def now(self) -> datetime:
        """The time on its clock, in whole seconds."""
        return from_unix(self.clock.time() + self.skew).replace(microsecond=0)

    def add_repo(self, name: str) -> Repository:
        labels = ["bug", "good first issue", "area/ui ü?"]
        repo = Repository(
            id=next(self._ids), name=name, labels=labels, issues={}, hooks=[], roles={"mia": "admin"}, branches=["main"]
        )
        self.repos[name.lower()] = repo
        return repo

    def account(self, login: str) -> dict[str, Any]:
        """An account as answers show it; the same object each time, so that a rename shows everywhere."""
        kind = "Bot" if login.endswith("[bot]") else "User"
        return self._accounts.setdefault(login, {"login": login, "id": next(self._ids), "type": kind})

    def rename(self, login: str, new: str) -> None:
        account = self._accounts[new] = self._accounts.pop(login)
        account["login"] = new

    def forget(self, login: str) -> None:
        """Delete an account: what it did has no actor any more."""
        gone = self._accounts.pop(login)
        for issue in self._issues():
            for entry in issue.events:
                entry["actor"] = None if entry["actor"] is gone else entry["actor"]
            for comment in issue.comments:
                comment["user"] = None if comment["user"] is gone else comment["user"]

    def open(
        self,
        *labels: str,
        repo: str = "acme/shop",
        title: str = "",
        text: str | None = None,
        author: str = "leo",
        by: str = "mia",
        to: str = "",
        pull: bool = False,
        age: float = 0.0,
        late: float = 0.0,
    ) -> Issue:
        """Open an issue, `age` seconds ago, that the list shows in `late` seconds; `by` labels it."""
        at, project = self.now() - timedelta(seconds=age), self.repos[repo.lower()]
        number = len(project.issues) + 1
        issue = Issue(
            id=next(self._ids),
            number=number,
            title=title or f"Trouble {number}",
            repo=project.name,
            text=text,
            author=author,
            user=self.account(author),
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
            issue.events.append(event_of(next(self._ids), "labeled", at, self.account(by), label={"name": name}))
        project.issues[number] = issue
        return issue

    def label(self, issue: Issue, name: str, by: str = "mia") -> None:
        issue.labels = [*issue.labels, name]
        self._record(issue, "labeled", by, label={"name": name})

    def unlabel(self, issue: Issue, name: str, by: str = "mia") -> None:
        issue.labels = [one for one in issue.labels if one != name]
        self._record(issue, "unlabeled", by, label={"name": name})

    def renew_label(self, name: str) -> None:
        """Delete a label of a repository and make it anew: GraphQL knows it by another id now."""
        self._renewed[name.lower()] += 1

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

    def comment(self, issue: Issue, body: str = "hm", by: str = "mia") -> dict[str, Any]:
        issue.updated_at = self.now()
        id = next(self._ids)
        comment = {
            "id": id,
            "body": body,
            "user": self.account(by),
            "created_at": format_time(self.now()),
            "updated_at": format_time(self.now()),
            "html_url": f"https://github.com/{issue.repo}/issues/{issue.number}#c{id}",
        }
        issue.comments.append(comment)
        return comment

    def edit(self, comment: dict[str, Any], body: str) -> None:
        comment.update(body=body, updated_at=format_time(self.now()))

    def delete(self, issue: Issue) -> None:
        issue.deleted = True

    def transfer(self, issue: Issue, repo: str) -> Issue:
        """Move an issue into another repository: it is made anew there, with another id and number."""
        labels = [name for name in issue.labels if _find(self.repos[repo.lower()].labels, name)]
        issue.deleted = True
        issue.moved_to = self.open(*labels, repo=repo, title=issue.title, author=issue.author)
        return issue.moved_to

    def lag(self, issue: Issue, seconds: float) -> None:
        """Show the issue as it is now for so many seconds when it is read alone, from a copy that is behind."""
        issue.older, issue.older_until = issue.to_json(), self.clock.time() + seconds

    def limit(self, seconds: float) -> None:
        """Answer 403 for so many seconds, as GitHub does when the quota is used up."""
        self._limited_until = self.clock.time() + seconds

    def _record(self, issue: Issue, kind: str, by: str = "mia", **more: Any) -> None:
        issue.updated_at = self.now()
        issue.events.append(event_of(next(self._ids), kind, self.now(), self.account(by), **more))

    def _issues(self) -> list[Issue]:
        return [issue for repo in self.repos.values() for issue in repo.issues.values()]

    def routes(self) -> Mapping[str, Handler]:
        within: dict[str, Handler] = {
            "": self._repo,
            "/labels": self._repo_labels,
            "/labels/{label}": self._label,
            "/milestones": self._milestones,
            "/collaborators/{login}/permission": self._permission,
            "/pulls": self._pulls,
            "/installation": self._installation,
            "/hooks": self._hooks,
            "/issues": self._list,
            "/issues/comments/{comment}": self._comment,
            "/issues/{number}": self._one,
            "/issues/{number}/events": self._events,
            "/issues/{number}/comments": self._comments,
            "/issues/{number}/labels": self._labels,
            "/issues/{number}/labels/{label}": self._labels,
        }
        places = ("/repos/{owner}/{name}", "/repositories/{id}")
        everywhere: dict[str, Handler] = {
            "/user": self._me,
            "/users/{login}": self._user,
            "/graphql": self._graphql,
            "/rate_limit": self._rate_limit,
            "/orgs/{org}/hooks": self._org_hooks,
            "/app": self._app,
            "/app/hook/config": self._app_hook,
            "/app/installations/{installation}/access_tokens": self._access_tokens,
        }
        return everywhere | {place + path: view for place in places for path, view in within.items()}

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._authorize(request, view)
        wait = max(0.0, self._limited_until - self.clock.time())
        if reply.status != 304:
            self.remaining -= 1
        until = ceil(self.clock.time() + self.skew + (wait or 3600))
        resource = "graphql" if request.path == "/graphql" else "core"
        limits = {"Limit": ALLOWED, "Remaining": 0 if wait else self.remaining, "Reset": until, "Resource": resource}
        reply.headers.update({f"X-RateLimit-{name}": str(value) for name, value in limits.items()})
        reply.headers["Date"] = format_datetime(self.now(), usegmt=True)
        return reply

    async def _authorize(self, request: web.Request, view: Handler) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self.clock.time() < self._limited_until:
            return _error(403, "API rate limit exceeded")
        of_app = request.path.startswith("/app") or request.path.endswith("/installation")
        refused = self._jwt_problem(token) if of_app else "" if token in self.tokens else "Bad credentials"
        if scheme != "Bearer" or refused:
            return _error(401, refused or "Bad credentials")
        if request.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return _error(400, "unsupported version")
        repo = self._repo_of(request)
        if repo is not None and repo.moved_to:
            path = request.rel_url.raw_path.split("/", 4)
            target = "/".join([f"/repositories/{self.repos[repo.moved_to.lower()].id}", *path[4:]])
            return _redirect(request, 301 if request.method == "GET" else 307, target)
        if "name" in request.match_info and (repo is None or repo.hidden):
            return _error(404, "Not Found")
        if (problem := self._app_token_problem(token, request, repo)) is not None:
            return problem
        if request.method != "GET" and token in self.read_only and request.path != "/graphql":
            return _error(403, "Resource not accessible by personal access token")
        if request.method != "GET" and self._too_many_writes():
            return _error(403, "You have exceeded a secondary rate limit", {"Retry-After": "60"})
        issue = self._issue(request) if "number" in request.match_info else None
        if issue is not None and issue.moved_to is not None:
            rest = request.rel_url.raw_path.split(f"/issues/{issue.number}", 1)[1].lstrip("/")
            there = self.repos[issue.moved_to.repo.lower()].id
            return _redirect(request, 301, f"/repositories/{there}/issues/{issue.moved_to.number}/{rest}".rstrip("/"))
        return await view(request)

    def _jwt_problem(self, token: str) -> str:
        return self.app.jwt_problem(token, self.now()) if self.app else "Integration not found"

    def _app_token_problem(self, token: str, request: web.Request, repo: Repository | None) -> web.Response | None:
        """What is wrong with a token that the app was given; None for every other token."""
        given = self.app.tokens.get(token) if self.app else None
        if given is None:
            return None
        if not given.usable_at <= self.now() < given.expires_at:
            return _error(401, "Bad credentials")
        if repo is not None and repo.id not in given.repositories:
            return _error(404, "Not Found")
        needed = "pull_requests" if request.path.endswith("/pulls") else "issues"
        if repo is not None and request.method != "GET" and given.permissions.get(needed) != "write":
            return _error(403, "Resource not accessible by integration")
        return None

    async def _app(self, request: web.Request) -> web.Response:
        assert self.app is not None
        return json_reply(self.app.describe())

    async def _app_hook(self, request: web.Request) -> web.Response:
        assert self.app is not None
        return json_reply({"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": self.app.hook_url})

    async def _installation(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        if self.app is None or repo is None or repo.name.lower() not in self.app.repositories:
            return _error(404, "Not Found")
        return json_reply(self.app.installation())

    async def _access_tokens(self, request: web.Request) -> web.Response:
        assert self.app is not None
        if self.app.suspended:
            return _error(403, "This installation has been suspended")
        installed = [repo for name, repo in self.repos.items() if name in self.app.repositories]
        known = {repo.name.partition("/")[2].lower(): repo.id for repo in installed}
        status, answer = self.app.make_token(await request.json(), known, self.now())
        if status == 201:
            self.tokens[answer["token"]], self.apps[answer["token"]] = None, self.app.login
        return json_reply(answer, status)

    def _too_many_writes(self) -> bool:
        now = self.clock.time()
        self._writes = [at for at in self._writes if now - at < 60] + [now]
        return len(self._writes) > self.writes_a_minute

    def _token(self, request: web.Request) -> str:
        return request.headers["Authorization"].partition(" ")[2]

    def _login(self, request: web.Request) -> str:
        return self.apps.get(self._token(request), "mia")

    def _repo_of(self, request: web.Request) -> Repository | None:
        found = request.match_info
        if "id" in found:
            return next((repo for repo in self.repos.values() if str(repo.id) == found["id"]), None)
        return self.repos.get(f"{found.get('owner')}/{found.get('name')}".lower())

    def _issue(self, request: web.Request) -> Issue | None:
        repo = self._repo_of(request)
        return repo.issues.get(int(request.match_info["number"])) if repo else None

    async def _me(self, request: web.Request) -> web.Response:
        scopes = self.tokens[self._token(request)]
        if self._token(request) in self.apps:
            return _error(403, "Resource not accessible by integration")
        headers = {} if scopes is None else {"X-OAuth-Scopes": scopes}
        return json_reply(self.account("mia") | {"name": "Mia Engel", "email": None}, headers=headers)

    async def _rate_limit(self, request: web.Request) -> web.Response:
        return json_reply({"resources": {"core": {"limit": ALLOWED, "remaining": self.remaining}}})

    async def _graphql(self, request: web.Request) -> web.Response:
        """Who is asking, and mutations of labels, whose fields are done one after the other, each for itself."""
        asked = await request.json()
        if request.method != "POST" or self.graphql_status != 200:
            return _error(self.graphql_status if request.method == "POST" else 404, "Not Found")
        if asked["query"].split() == ["query", "{", "viewer", "{", "login", "databaseId", "}", "}"]:
            account = self.account(self._login(request))
            return json_reply({"data": {"viewer": {"login": account["login"], "databaseId": account["id"]}}})
        fields = label_mutations(asked["query"], asked.get("variables", {}))
        if not fields:
            return json_reply({"errors": [{"message": "this fake does nothing but labels"}]})
        data: dict[str, Any] = {}
        errors: list[dict[str, Any]] = []
        for alias, mutation, issue_node, labels in fields:
            kind = self._change_labels(request, mutation, issue_node, labels)
            data[alias] = None if isinstance(kind, str) else kind
            errors += [{"type": kind, "path": [alias], "message": kind}] if isinstance(kind, str) else []
        return json_reply({"data": data, **({"errors": errors} if errors else {})})

    def _change_labels(self, request: web.Request, mutation: str, node: str, labels: list[str]) -> dict[str, Any] | str:
        """What the mutation answers, or the type of its error."""
        issue = next((one for one in self._issues() if f"I_{one.id}" == node and not one.deleted), None)
        repo = self.repos.get(issue.repo.lower()) if issue is not None else None
        token = self._token(request)
        given = self.app.tokens.get(token) if self.app else None
        if issue is None or repo is None or repo.hidden or (given is not None and repo.id not in given.repositories):
            return "NOT_FOUND"
        if token in self.read_only or (given is not None and given.permissions.get("issues") != "write"):
            return "FORBIDDEN"
        known = {label_node(name, self._renewed[name.lower()]): name for name in (*repo.labels, *issue.labels)}
        if not labels or any(id not in known for id in labels):
            return "NOT_FOUND" if labels else "UNPROCESSABLE"
        for name in (known[id] for id in labels):
            present = _find(issue.labels, name)
            if mutation == "addLabelsToLabelable" and present is None:
                self.label(issue, name, self._login(request))
            elif mutation == "removeLabelsFromLabelable" and present is not None:
                self.unlabel(issue, present, self._login(request))
        return {"clientMutationId": None, "labelable": {"labels": {"nodes": [{"name": name} for name in issue.labels]}}}

    async def _user(self, request: web.Request) -> web.Response:
        name = self.users.get(request.match_info["login"].lower())
        if self.app is not None and request.match_info["login"] == self.app.login:
            return json_reply(self.account(self.app.login))
        return json_reply({"login": request.match_info["login"], "name": name}) if name else _error(404, "Not Found")

    async def _repo(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        assert repo is not None
        about = {"id": repo.id, "full_name": repo.name, "url": self._api_url(repo.name), "private": True}
        return json_reply(about | {"has_issues": not repo.disabled})

    def _api_url(self, repo: str) -> str:
        return f"{self.url}/repos/{repo}"

    async def _repo_labels(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        assert repo is not None
        if request.method == "GET":
            return self._page(request, [{"name": name} for name in repo.labels])
        name = (await request.json())["name"]
        if _find(repo.labels, name) is not None:
            return _error(422, "Validation Failed", errors=[{"resource": "Label", "code": "already_exists"}])
        if not name.strip() or len(name) > 50:
            return _error(422, "Validation Failed", errors=[{"resource": "Label", "code": "invalid"}])
        repo.labels.append(name)
        return json_reply({"node_id": label_node(name, self._renewed[name.lower()]), "name": name}, 201)

    async def _permission(self, request: web.Request) -> web.Response:
        repo, login = self._repo_of(request), request.match_info["login"]
        assert repo is not None
        if self._token(request) in self.triage:
            return _error(403, "Must have push access to view collaborator permission.")
        known = _find(self._accounts, login)
        if known is None or known.endswith("[bot]"):
            return _error(404, f"{login} is not a user")
        role = repo.roles.get(known, "read")
        base = {"maintain": "write", "triage": "read", "triager": "read"}.get(role, role)
        permissions = {
            "pull": role != "none",
            "triage": role not in ("none", "read"),
            "push": base in ("write", "admin"),
        }
        user = self.account(known) | {"permissions": permissions}
        return json_reply({"permission": base, "role_name": role, "user": user})

    def add_hook(self, url: str, *events: str, repo: str = "acme/shop", org: str = "", **fields: Any) -> dict[str, Any]:
        """Register a webhook of a repository, or of an organization, that has not been sent yet."""
        hook: dict[str, Any] = {
            "id": next(self._ids),
            "name": "web",
            "active": True,
            "events": list(events),
            "config": {"url": url, "content_type": "json", "secret": "********"},
            "last_response": {"code": None, "status": "unused", "message": None},
        }
        hook.update(fields)
        (self.org_hooks.setdefault(org, []) if org else self.repos[repo.lower()].hooks).append(hook)
        return hook

    async def _hooks(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        assert repo is not None
        if self._token(request) in self.triage | self.read_only or repo.roles.get(self._login(request)) != "admin":
            return _error(404, "Not Found")
        return self._page(request, repo.hooks)

    async def _org_hooks(self, request: web.Request) -> web.Response:
        hooks = self.org_hooks.get(request.match_info["org"])
        may = "admin:org_hook" in (self.tokens[self._token(request)] or "")
        return _error(404, "Not Found") if hooks is None or not may else self._page(request, hooks)

    async def _label(self, request: web.Request) -> web.Response:
        repo, name = self._repo_of(request), request.match_info["label"].lower()
        assert repo is not None
        used = [label for issue in repo.issues.values() for label in issue.labels]
        known = _find((*repo.labels, *used), name) is not None
        about = {"node_id": label_node(name, self._renewed[name]), "name": name}
        return json_reply(about) if known else _error(404, "Not Found")

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
        return self._page(request, list_issues(query, repo, self.clock.time()), Issue.to_json)

    def _page(
        self, request: web.Request, items: list[Any], to_json: Callable[[Any], Any] | None = None
    ) -> web.Response:
        size, number = min(int(request.query.get("per_page", 30)), 100), int(request.query.get("page", 1))
        shown = items[(number - 1) * size : number * size]
        shown = [to_json(item) for item in shown] if to_json else shown
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

    async def _one(self, request: web.Request) -> web.Response:
        issue = self._issue(request)
        if issue is None or issue.deleted:
            return _error(404, "Not Found") if issue is None else _error(410, "This issue was deleted")
        if request.method == "PATCH":
            wanted = await request.json()
            if wanted.keys() - {"state", "state_reason"} or wanted["state"] not in ("open", "closed"):
                return _error(422, "this fake changes nothing but the state")
            (self.close if wanted["state"] == "closed" else self.reopen)(issue)
            issue.state_reason = wanted.get("state_reason", issue.state_reason)
        elif issue.older is not None and self.clock.time() < issue.older_until:
            return json_reply(issue.older)
        return json_reply(issue.to_json() | {"repository_url": self._api_url(issue.repo)})

    async def _comments(self, request: web.Request) -> web.Response:
        issue = self._issue(request)
        if issue is None or issue.deleted:
            return _error(404, "Not Found")
        if request.method == "POST":
            return json_reply(self.comment(issue, (await request.json())["body"], self._login(request)), 201)
        since = request.query.get("since", "")
        return self._page(request, [comment for comment in issue.comments if comment["updated_at"] >= since])

    async def _comment(self, request: web.Request) -> web.Response:
        id, repo = request.match_info["comment"], self._repo_of(request)
        there = [one for issue in repo.issues.values() if not issue.deleted for one in issue.comments] if repo else []
        comment = next((one for one in there if str(one["id"]) == id), None)
        if comment is None:
            return _error(404, "Not Found")
        if request.method == "PATCH":
            self.edit(comment, (await request.json())["body"])
        return json_reply(comment)

    async def _labels(self, request: web.Request) -> web.Response:
        issue, repo = self._issue(request), self._repo_of(request)
        if issue is None or issue.deleted or repo is None:
            return _error(404, "Not Found")
        if request.method == "POST":
            for wanted in (await request.json())["labels"]:
                if (name := _find(repo.labels, wanted)) is None:
                    repo.labels.append(name := wanted)
                if _find(issue.labels, name) is None:
                    self.label(issue, name, self._login(request))
        if request.method == "DELETE":
            if (name := _find(issue.labels, request.match_info["label"])) is None:
                return _error(404, "Label does not exist")
            self.unlabel(issue, name, self._login(request))
        return json_reply([{"name": name} for name in issue.labels])

    async def _pulls(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        assert repo is not None
        pulls = [issue for issue in repo.issues.values() if issue.head and issue.state == "open"]
        if request.method == "GET":
            head = request.query.get("head", "")
            # without an owner the filter is ignored
            wanted = [pull for pull in pulls if ":" not in head or head.lower() == _head(pull).lower()]
            return self._page(request, [self._pull_json(pull, repo) for pull in wanted])
        asked = await request.json()
        if asked["base"] not in repo.branches or (":" not in asked["head"] and asked["head"] not in repo.branches):
            return _error(422, "Validation Failed", errors=[{"resource": "PullRequest", "code": "invalid"}])
        if any((pull.head, pull.base) == (asked["head"], asked["base"]) for pull in pulls):
            return _error(422, "Validation Failed", errors=[{"message": "A pull request already exists"}])
        made = self.open_pull(asked["head"], asked["base"], repo=repo.name, title=asked["title"], text=asked["body"])
        return json_reply(self._pull_json(made, repo), 201)

    def open_pull(self, head: str, base: str = "main", *, repo: str = "acme/shop", **more: Any) -> Issue:
        """Open a pull request from a branch of the repository, or from `owner:branch` of a fork."""
        pull = self.open(repo=repo, pull=True, author="mia", **more)
        pull.head, pull.base = head, base
        return pull

    def _pull_json(self, pull: Issue, repo: Repository) -> dict[str, Any]:
        owner, _, branch = _head(pull).partition(":")
        head_repo = repo.id + (1_000_000 if ":" in pull.head else 0)
        head = {"ref": branch, "label": _head(pull), "user": {"login": owner}, "repo": {"id": head_repo}}
        return pull.to_json() | {"head": head, "base": {"ref": pull.base, "repo": {"id": repo.id}}}


def _head(pull: Issue) -> str:
    return pull.head if ":" in pull.head else f"{pull.repo.partition('/')[0]}:{pull.head}"


def label_mutations(query: str, variables: Mapping[str, Any]) -> list[tuple[str, str, str, list[str]]]:
    """The fields of a mutation of labels: its alias, what it does, the issue and the labels."""
    return [
        (alias, mutation, variables[issue], variables[labels])
        for alias, mutation, issue, labels in _MUTATION.findall(" ".join(query.split()))
    ]


def _redirect(request: web.Request, status: int, path: str) -> web.Response:
    target = URL(path, encoded=True).with_query(request.query)
    return web.Response(status=status, headers={"Location": str(target)})


def _error(status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any) -> web.Response:
    about = {"message": message, "documentation_url": "https://docs.github.com/rest"}
    return json_reply(about | more, status, headers)
