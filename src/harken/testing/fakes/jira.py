"""A Jira, Cloud or Server: issues with their histories, found by JQL through an index that may lag behind.

Cloud pages by token and forgets tokens, shows 40 changes and 20 comments per issue, and answers 410 to the old search.
Server pages by offset, which drifts while issues are edited.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import format_datetime
from functools import partial
from typing import Any, Literal

from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.jira_tickets import STATUSES, TYPES, Issue, Tickets
from harken.testing.fakes.jql import BadJql, compiled
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["Issue", "Jira"]

TOKEN = "not-a-secret-token"


class Jira(Tickets, FakeServer):
    """`login`: what failed logins lead to. `hidden`: the paths that the account may not see."""

    def __init__(self, clock: Clock, *, cloud: bool = True, cap: int = 100, zone: str = "Europe/Berlin") -> None:
        FakeServer.__init__(self, clock)
        Tickets.__init__(self, clock, cloud=cloud, zone=zone)
        self.cap = cap
        self.token = TOKEN
        self.home = ""
        self.login: Literal["", "captcha", "anonymous"] = ""
        self.hidden: set[str] = set()
        self.limited_until = 0.0
        self.workflow = {"21": ("Start", "In Progress"), "31": ("Done", "Done"), "41": ("Reject", "Not Done")}
        self._tokens: dict[str, list[str]] = {}

    def limit(self, seconds: float) -> None:
        """Answer 429 for so long."""
        self.limited_until = self.clock.time() + seconds

    def forget_tokens(self) -> None:
        self._tokens.clear()

    def routes(self) -> Mapping[str, Handler]:
        both = {
            "/serverInfo": self._server_info,
            "/myself": self._myself,
            "/user": self._user,
            "/user/search": self._user_search,
            "/status": self._named(STATUSES),
            "/issuetype": self._named(TYPES),
            "/project/{key}": self._project,
            "/issue/{id}": self._one,
            "/issue/{id}/changelog": self._changelog,
            "/issue/{id}/comment": self._comments,
            "/issue/{id}/transitions": self._transitions,
            "/comment/{id}/properties/{name}": self._property,
            "/search": self._offset_search,
            "/search/jql": self._token_search,
        }
        return {f"/rest/api/{version}{path}": view for version in (2, 3) for path, view in both.items()}

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._guarded(request, view)
        reply.headers["Date"] = format_datetime(self.now().astimezone(UTC), usegmt=True)
        return reply

    async def _guarded(self, request: web.Request, view: Handler) -> web.Response:
        wait = self.limited_until - self.clock.time()
        if wait > 0:
            headers = {"Retry-After": f"{wait:.0f}", "X-RateLimit-Remaining": "0", "X-RateLimit-Limit": "100"}
            return _refused(429, "Rate limit exceeded.", headers)
        if self.login == "captcha":
            headers = {"X-Seraph-LoginReason": "AUTHENTICATION_DENIED"}
            headers["X-Authentication-Denied-Reason"] = f"CAPTCHA_CHALLENGE; login-url={self.url}/login.jsp"
            return _refused(403, "Login denied", headers)
        if self.login == "anonymous":
            return json_reply({"issues": []}, headers={"X-Seraph-LoginReason": "AUTHENTICATED_FAILED"})
        if not self._signed_in(request):
            return _refused(401, "Client must be authenticated to access this resource.")
        if any(request.path.endswith(path) for path in self.hidden):
            return _refused(403, "You do not have permission.")
        if not self.cloud and "/rest/api/3/" in request.path:
            return web.Response(status=404, text="<html>Not found</html>", content_type="text/html")
        return await view(request)

    def _signed_in(self, request: web.Request) -> bool:
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            user = "me@example.com" if self.cloud else "me"
            return base64.b64decode(value).decode() == f"{user}:{self.token}"
        return scheme == "Bearer" and not self.cloud and value == self.token

    def _found(self, jql: str) -> list[Issue]:
        known = {
            "project": {name.casefold() for pair in self.projects.items() for name in pair},
            "status": {name.casefold() for name in STATUSES.values()} | set(STATUSES),
            "issuetype": {name.casefold() for name in TYPES.values()},
        }
        test, order = compiled(jql, known)
        if test is None and self.cloud:
            raise BadJql("Unbounded JQL queries are not allowed here. Please add a search restriction to your query.")
        now = self.clock.time()
        listed: list[tuple[dict[str, Any], Issue]] = []
        for issue in self.issues.values():
            seen = [entry for at, entry in issue.shown if at <= now]
            if seen and (test is None or test(seen[-1])):
                listed.append((seen[-1], issue))
        for field in reversed(order):
            name = field.lstrip("-")
            listed.sort(key=partial(_rank, name), reverse=field.startswith("-"))
        return [issue for _, issue in listed]

    async def _token_search(self, request: web.Request) -> web.Response:
        asked = await request.json() if request.method == "POST" else dict(request.query)
        strange = set(asked) - {"jql", "fields", "expand", "maxResults", "nextPageToken"}
        if not self.cloud or strange:
            return _refused(404 if not self.cloud else 400, f"Invalid request payload: {sorted(strange)}")
        size = min(int(asked.get("maxResults", 50)), self.cap)
        token = asked.get("nextPageToken")
        try:
            ids = self._tokens[token] if token else [issue.id for issue in self._found(asked["jql"])]
        except BadJql as error:
            return _refused(400, str(error))
        except KeyError:
            return _refused(400, "The provided next page token is invalid or expired.")
        page = [self.issues[id] for id in ids[:size] if id in self.issues]
        answer: dict[str, Any] = {"issues": self._shown(page, asked.get("fields"), asked.get("expand", ""))}
        if len(ids) > size:
            answer["nextPageToken"] = f"page-{len(self._tokens) + 1}"
            self._tokens[answer["nextPageToken"]] = ids[size:]
        return json_reply(answer)

    async def _offset_search(self, request: web.Request) -> web.Response:
        if self.cloud:
            return _refused(
                410, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API."
            )
        asked = request.query
        try:
            found = self._found(asked["jql"])
        except BadJql as error:
            return _refused(400, str(error))
        start, size = int(asked.get("startAt", 0)), min(int(asked.get("maxResults", 50)), self.cap)
        page = self._shown(found[start : start + size], asked.get("fields"), asked.get("expand", ""))
        return json_reply({"startAt": start, "maxResults": size, "total": len(found), "issues": page})

    def _shown(self, issues: Iterable[Issue], fields: Any, expand: str) -> list[dict[str, Any]]:
        names = fields.split(",") if isinstance(fields, str) else fields or []
        return [self.json(issue, names, "changelog" in expand) for issue in issues]

    async def _server_info(self, request: web.Request) -> web.Response:
        return json_reply({"deploymentType": "Cloud" if self.cloud else "Server", "baseUrl": self.home or self.url})

    async def _myself(self, request: web.Request) -> web.Response:
        return json_reply(self.public(self.me))

    async def _user(self, request: web.Request) -> web.Response:
        name = request.query.get("accountId" if self.cloud else "username", "")
        return json_reply(self.public(name)) if name in self.users else _refused(404, "Specified user does not exist.")

    async def _user_search(self, request: web.Request) -> web.Response:
        asked = request.query.get("query" if self.cloud else "username", "").casefold()
        names = [id for id, user in self.users.items() if _starts(user, asked)]
        return json_reply([self.public(name) for name in names])

    def _named(self, names: Mapping[str, str]) -> Handler:
        async def listed(request: web.Request) -> web.Response:
            return json_reply([{"id": id, "name": name} for id, name in names.items()])

        return listed

    async def _project(self, request: web.Request) -> web.Response:
        key = request.match_info["key"]
        known = key in self.projects
        return json_reply({"key": key, "name": self.projects[key]}) if known else _refused(404, f"No project {key}")

    async def _one(self, request: web.Request) -> web.Response:
        issue = self._asked(request)
        names = request.query.get("fields", "").split(",")
        return json_reply(self.json(issue, names, "changelog" in request.query.get("expand", "")))

    async def _changelog(self, request: web.Request) -> web.Response:
        start, size = int(request.query.get("startAt", 0)), min(int(request.query.get("maxResults", 100)), 100)
        histories = self._asked(request).histories
        return json_reply({"startAt": start, "total": len(histories), "values": histories[start : start + size]})

    async def _comments(self, request: web.Request) -> web.Response:
        issue = self._asked(request)
        if request.method == "POST":
            return await self._post(request, issue)
        newest = request.query.get("orderBy") == "-created"
        start, size = int(request.query.get("startAt", 0)), int(request.query.get("maxResults", 50))
        listed = issue.comments[::-1] if newest else issue.comments
        page = [self.comment_json(one) for one in listed[start : start + size]]
        return json_reply({"startAt": start, "total": len(listed), "comments": page})

    async def _post(self, request: web.Request, issue: Issue) -> web.Response:
        asked = await request.json()
        if isinstance(asked["body"], str) is self.cloud:
            return _refused(400, "Comment body is not valid!")
        id = self.comment(issue.key, asked["body"])
        issue.properties[id] = {one["key"]: one["value"] for one in asked.get("properties", [])}
        return json_reply({"id": id}, status=201)

    async def _property(self, request: web.Request) -> web.Response:
        id, name = request.match_info["id"], request.match_info["name"]
        found = [issue.properties[id] for issue in self.issues.values() if id in issue.properties]
        known = found and name in found[0]
        return json_reply({"key": name, "value": found[0][name]}) if known else _refused(404, "No such property")

    async def _transitions(self, request: web.Request) -> web.Response:
        issue = self._asked(request)
        if request.method == "GET":
            offered = [
                {"id": id, "name": name, "to": {"name": to}}
                for id, (name, to) in self.workflow.items()
                if to != issue.fields["status"]
            ]
            return json_reply({"transitions": offered})
        self.move(issue.key, self.workflow[(await request.json())["transition"]["id"]][1])
        return web.Response(status=204)

    def _asked(self, request: web.Request) -> Issue:
        try:
            return self.issue(request.match_info["id"])
        except KeyError:
            text = '{"errorMessages": ["Issue does not exist or you do not have permission."]}'
            raise web.HTTPNotFound(text=text, content_type="application/json") from None


def _starts(user: Mapping[str, Any], asked: str) -> bool:
    words = [*str(user["displayName"]).split(), user["displayName"], user["mail"], user.get("name", "")]
    return any(str(word).casefold().startswith(asked) for word in words if word)


def _rank(name: str, pair: tuple[dict[str, Any], Issue]) -> int:
    return int(pair[0][name])


def _refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return json_reply({"errorMessages": [message], "errors": {}}, status=status, headers=headers)
