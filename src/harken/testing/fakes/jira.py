"""A Jira, Cloud or Server: issues with their histories, found by JQL through an index that may lag behind.

Cloud pages by token and forgets tokens, shows 40 changes and 20 comments per issue, and answers 410 to the old search.
Server pages by offset, which drifts while issues are edited.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from math import ceil
from typing import Any, Literal
from zoneinfo import ZoneInfo

from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["STATUSES", "TYPES", "BadJql", "Issue", "Jira", "Test", "Tickets", "compile_jql"]


Test = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(>=|<=|!=|=|>|<|~|\(|\)|,)|([^\s"'()=<>!~,\\]+))""")

_JQL_FIELDS = frozenset(
    {"project", "assignee", "issuetype", "status", "statuscategory", "labels", "updated", "created", "priority"}
)

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class BadJql(Exception):
    """What Jira would answer with 400."""


def compile_jql(jql: str, known: Mapping[str, Collection[str]]) -> tuple[Test | None, list[str]]:
    """The test that an issue has to pass (None: there is none), and the fields that the result is ordered by.

    `known` has the values of some fields, in lower case; any other value of them is refused, as Jira does it.
    """
    parser = _Parser(_tokens(jql), known)
    test = None if parser.peek() in ("", "order") else parser.either()
    order = parser.order()
    if parser.peek():
        raise BadJql(f"Error in the JQL Query: Expecting either 'OR' or 'AND' but got '{parser.peek()}'.")
    return test, order


def _tokens(jql: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = jql.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise BadJql(f"Error in the JQL Query: The character at {at} is a reserved or illegal JQL character.")
        string, sign, word = match.groups()
        kind = "string" if string is not None else "sign" if sign else "word"
        found.append((kind, _unescape(string[1:-1]) if string is not None else sign or word))
        at = match.end()
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


class _Parser:
    def __init__(self, tokens: Sequence[tuple[str, str]], known: Mapping[str, Collection[str]]) -> None:
        self._tokens = list(tokens)
        self._known = known

    def peek(self) -> str:
        """Return the next word or operator in lower case; empty before a quoted string."""
        if not self._tokens:
            return ""
        kind, text = self._tokens[0]
        return '"' if kind == "string" else text.casefold()

    def take(self, expected: str = "") -> str:
        if not self._tokens or (expected and self.peek() != expected):
            raise BadJql(f"Error in the JQL Query: Expecting '{expected or 'a value'}' but got '{self.peek()}'.")
        return self._tokens.pop(0)[1]

    def either(self) -> Test:
        tests = [self.both()]
        while self.peek() == "or":
            self.take()
            tests.append(self.both())
        return lambda issue: any(test(issue) for test in tests)

    def both(self) -> Test:
        tests = [self.clause()]
        while self.peek() == "and":
            self.take()
            tests.append(self.clause())
        return lambda issue: all(test(issue) for test in tests)

    def clause(self) -> Test:
        if self.peek() == "not":
            self.take()
            inner = self.clause()
            return lambda issue: not inner(issue)
        if self.peek() == "(":
            self.take()
            test = self.either()
            self.take(")")
            return test
        return self._comparison()

    def order(self) -> list[str]:
        if self.peek() != "order":
            return []
        self.take()
        self.take("by")
        fields = [self._order_field()]
        while self.peek() == ",":
            self.take()
            fields.append(self._order_field())
        return fields

    def _order_field(self) -> str:
        field = self.take().casefold()
        return f"-{field}" if self.peek() in ("asc", "desc") and self.take().casefold() == "desc" else field

    def _comparison(self) -> Test:
        field, sign = self.take().casefold(), self.take().casefold()
        if field not in _JQL_FIELDS:
            raise BadJql(f"Field '{field}' does not exist or you do not have permission to view it.")
        if sign in (">=", "<=", ">", "<"):
            return _comparison_test(field, sign, self.take())
        if sign not in ("=", "!=", "in"):
            raise BadJql(f"Error in the JQL Query: '{sign}' is not an operator here.")
        values = self._values() if sign == "in" else [self.take()]
        for value in values:
            if field in self._known and value.casefold() not in self._known[field]:
                raise BadJql(f"The value '{value}' does not exist for the field '{field}'.")
        return _named(field, values, sign != "!=")

    def _values(self) -> list[str]:
        self.take("(")
        values = [self.take()]
        while self.peek() == ",":
            self.take()
            values.append(self.take())
        self.take(")")
        return values


def _comparison_test(field: str, sign: str, value: str) -> Test:
    if field not in ("updated", "created") or not value.isdigit():
        raise BadJql(f"Date value '{value}' for field '{field}' is invalid.")
    bound = int(value)
    tests: dict[str, Callable[[int], bool]] = {
        ">=": lambda ms: ms >= bound,
        "<=": lambda ms: ms <= bound,
        ">": lambda ms: ms > bound,
        "<": lambda ms: ms < bound,
    }
    return lambda issue: tests[sign](issue[field])


def _named(field: str, values: Sequence[str], wanted: bool) -> Test:
    names = {value.casefold() for value in values}
    return lambda issue: bool({name.casefold() for name in issue[field]} & names) is wanted


STATUSES = {"1": "To Do", "2": "In Progress", "3": "Done", "4": "Not Done", "5": "In Review"}

# the category of each status that is not in progress: its key, and its name in English
CATEGORIES = {"To Do": ("new", "To Do"), "Done": ("done", "Done")}

TYPES = {"1": "Task", "2": "Bug", "3": "Epic"}

_CHANGES, _COMMENTS, _PAGE, _LONGEST_LABEL = 40, 20, 100, 255

_MENTION = re.compile(r"\[~(?:accountid:)?([^\]]+)\]")


class Issue:
    """An issue and its history. `shown` are the states that the search index knows, and from when on."""

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
        self.renamed: dict[str, str] = {}
        self._made = 10_000
        self.me = self.user("me", email="me@example.com", name="Mia Me")
        self.project("TEAM", "The Team")

    def user(self, id: str, *, email: str = "", name: str = "", hidden: bool = False, type: str = "atlassian") -> str:
        """Add a user; on Server `id` is the user name. A hidden e-mail address can be searched, but is not shown.

        Cloud tells the `type`: atlassian, app or customer.
        """
        names = {"accountId": id, "accountType": type} if self.cloud else {"name": id, "key": f"JIRAUSER-{id}"}
        shown = {} if hidden else {"emailAddress": email}
        self.users[id] = {**names, **shown, "displayName": name or id, "timeZone": str(self.zone), "mail": email}
        return id

    def project(self, key: str, name: str = "") -> str:
        self.projects[key] = name or key
        return key

    def create(self, project: str = "TEAM", summary: str = "Something is broken", **fields: Any) -> str:
        """Create an issue and return its key. Fields: assignee, status, type, labels, description, priority, creator.

        Labels that are set here are in no history.
        """
        self._made += 1
        count = sum(issue.key.startswith(f"{project}-") for issue in self.issues.values()) + 1
        values = {"project": project, "summary": summary, "assignee": None, "status": "To Do", "type": "Task"}
        values |= {"labels": (), "description": None, "priority": "Medium", "creator": "me"} | fields
        key = f"{project}-{count}"
        issue = self.issues[str(self._made)] = Issue(str(self._made), key, self.now(), values)
        self._index(issue)
        return issue.key

    def assign(self, key: str, user: str | None) -> None:
        self._change(key, "assignee", user)

    def move(self, key: str, status: str) -> None:
        self._change(key, "status", status)

    def label(self, key: str, *labels: str, by: str | None = "me") -> None:
        """Replace all labels. `by` nobody: the account is gone."""
        self._change(key, "labels", labels, by)

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
        """Comment and return the id. `[~user]` in the text mentions that user."""
        issue = self.issue(key)
        self._made += 1
        id = str(self._made)
        issue.comments.append({"id": id, "author": author, "text": text, "created": self.now()})
        self._touch(issue)
        return id

    def edit_comment(self, key: str, id: str, text: Any) -> None:
        issue = self.issue(key)
        next(one for one in issue.comments if one["id"] == id)["text"] = text
        self._touch(issue)

    def delete_comment(self, key: str, id: str) -> None:
        issue = self.issue(key)
        issue.comments = [one for one in issue.comments if one["id"] != id]
        self._touch(issue)

    def delete(self, key: str) -> None:
        del self.issues[self.issue(key).id]

    def now(self) -> datetime:
        return (self.clock.now() + timedelta(seconds=self.skew)).astimezone(self.zone)

    def issue(self, name: str) -> Issue:
        found = self.issues.get(name) or next((one for one in self.issues.values() if one.key == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def _change(self, key: str, field: str, value: Any, by: str | None = "me") -> None:
        issue = self.issue(key)
        old, issue.fields[field] = issue.fields[field], value
        self._write(issue, [self._changed(field, old, value)], by)

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

    def _write(self, issue: Issue, items: list[dict[str, Any]], by: str | None = "me") -> None:
        self._made += 1
        self._touch(issue)
        author = {"author": self.public(by)} if by else {}
        change = {"id": str(self._made), **author, "created": self._time(issue.updated), "items": items}
        issue.histories.append(change)

    def _touch(self, issue: Issue) -> None:
        issue.updated = self.now()
        self._index(issue)

    def _index(self, issue: Issue) -> None:
        fields = issue.fields
        entry = {
            "project": [fields["project"], self.projects[fields["project"]]],
            "assignee": [fields["assignee"]] if fields["assignee"] else [],
            "status": [fields["status"]],
            "statuscategory": list(_category(fields["status"])),
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
            "status": {"id": status, "name": fields["status"], "statusCategory": _category_json(fields["status"])},
            "issuetype": {"id": "1", "name": fields["type"]},
            "priority": {"name": fields["priority"]},
            "labels": list(fields["labels"]),
            "components": [],
            "assignee": self.public(fields["assignee"]),
            "reporter": self.public("me"),
            "creator": self.public(fields["creator"]),
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
        """Return text as this kind of Jira sends it. A document stays a document."""
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


def _category(status: str) -> tuple[str, str]:
    return CATEGORIES.get(status, ("indeterminate", "In Progress"))


def _category_json(status: str) -> dict[str, str]:
    key, name = _category(status)
    return {"key": key, "name": name}


def _item(field: str, old: str, new: str, name: str) -> dict[str, Any]:
    return {"field": field, "from": old, "fromString": name, "to": new, "toString": new}


TOKEN = "not-a-secret-token"


class Jira(Tickets, FakeServer):
    """`login`: what failed logins lead to. `hidden`: the paths that the account may not see.

    `admin`: whether the account administers the projects. `may_edit`: whether it may edit issues. `editors`: the
    others who may. `mails` has the key of an issue for each edit that its watchers got a mail about.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        cloud: bool = True,
        cap: int = 100,
        zone: str = "Europe/Berlin",
        webhooks_path: str = "/rest/webhooks/1.0/webhook",
    ) -> None:
        FakeServer.__init__(self, clock)
        Tickets.__init__(self, clock, cloud=cloud, zone=zone)
        self.cap = cap
        self.token = TOKEN
        self.home = ""
        self.login: Literal["", "captcha", "anonymous"] = ""
        self.hidden: set[str] = set()
        self.admin = True
        self.webhooks: list[dict[str, Any]] = []
        self.webhooks_path = webhooks_path
        self.may_edit = True
        self.editors: set[str] = set()
        self.mails: list[str] = []
        self.limited_until = 0.0
        self._unwritable_until: dict[str, float] = {}
        self.workflow = {"21": ("Start", "In Progress"), "31": ("Done", "Done"), "41": ("Reject", "Not Done")}
        self._tokens: dict[str, list[str]] = {}

    def limit(self, seconds: float) -> None:
        """Answer 429 for so many seconds."""
        self.limited_until = self.clock.time() + seconds

    def limit_writes(self, key: str, seconds: float) -> None:
        """Answer 429 to writes of this issue for so many seconds, as Cloud does after many in a short time."""
        self._unwritable_until[self.issue(key).id] = self.clock.time() + seconds

    def forget_tokens(self) -> None:
        self._tokens.clear()

    def routes(self) -> Mapping[str, Handler]:
        both = {
            "/serverInfo": self._server_info,
            "/myself": self._myself,
            "/user": self._user,
            "/user/search": self._user_search,
            "/user/permission/search": self._editors,
            "/status": self._named(STATUSES),
            "/issuetype": self._named(TYPES),
            "/project/{key}": self._project,
            "/issue/{id}": self._one,
            "/issue/{id}/changelog": self._changelog,
            "/issue/{id}/comment": self._comments,
            "/issue/{id}/comment/{comment}": self._one_comment,
            "/issue/{id}/transitions": self._transitions,
            "/comment/{id}/properties/{name}": self._property,
            "/search": self._offset_search,
            "/search/jql": self._token_search,
        }
        api = {f"/rest/api/{version}{path}": view for version in (2, 3) for path, view in both.items()}
        return {**api, self.webhooks_path: self._webhooks}

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._authorize(request, view)
        reply.headers["Date"] = format_datetime(self.now().astimezone(UTC), usegmt=True)
        return reply

    async def _authorize(self, request: web.Request, view: Handler) -> web.Response:
        wait = self.limited_until - self.clock.time()
        if wait > 0:
            headers = {"Retry-After": str(ceil(wait)), "X-RateLimit-Remaining": "0", "X-RateLimit-Limit": "100"}
            return _error(429, "Rate limit exceeded.", headers)
        if self.login == "captcha":
            headers = {"X-Seraph-LoginReason": "AUTHENTICATION_DENIED"}
            headers["X-Authentication-Denied-Reason"] = f"CAPTCHA_CHALLENGE; login-url={self.url}/login.jsp"
            return _error(403, "Login denied", headers)
        if self.login == "anonymous":
            return json_reply({"issues": []}, headers={"X-Seraph-LoginReason": "AUTHENTICATED_FAILED"})
        if not self._is_signed_in(request):
            return _error(401, "Client must be authenticated to access this resource.")
        if any(request.path.endswith(path) for path in self.hidden):
            return _error(403, "You do not have permission.")
        if not self.cloud and "/rest/api/3/" in request.path:
            return web.Response(status=404, text="<html>Not found</html>", content_type="text/html")
        return await view(request)

    async def _webhooks(self, request: web.Request) -> web.Response:
        return json_reply(self.webhooks) if self.admin else _error(403, "Only administrators can see webhooks.")

    def _is_signed_in(self, request: web.Request) -> bool:
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            user = "me@example.com" if self.cloud else "me"
            return base64.b64decode(value).decode() == f"{user}:{self.token}"
        return scheme == "Bearer" and not self.cloud and value == self.token

    def _search(self, jql: str, reconcile: Collection[str] = ()) -> list[Issue]:
        known = {
            "project": {name.casefold() for pair in self.projects.items() for name in pair},
            "status": {name.casefold() for name in STATUSES.values()} | set(STATUSES),
            "issuetype": {name.casefold() for name in TYPES.values()},
        }
        test, order = compile_jql(jql, known)
        if test is None and self.cloud:
            raise BadJql("Unbounded JQL queries are not allowed here. Please add a search restriction to your query.")
        now = self.clock.time()
        listed: list[tuple[dict[str, Any], Issue]] = []
        for issue in self.issues.values():
            seen = [entry for at, entry in issue.shown if at <= now or issue.id in reconcile]
            if seen and (test is None or test(seen[-1])):
                listed.append((seen[-1], issue))
        for field in reversed(order):
            name = field.lstrip("-")
            listed.sort(key=partial(_rank, name), reverse=field.startswith("-"))
        return [issue for _, issue in listed]

    async def _token_search(self, request: web.Request) -> web.Response:
        asked = await request.json() if request.method == "POST" else dict(request.query)
        strange = set(asked) - {"jql", "fields", "expand", "maxResults", "nextPageToken", "reconcileIssues"}
        if not self.cloud or strange:
            return _error(404 if not self.cloud else 400, f"Invalid request payload: {sorted(strange)}")
        size = min(int(asked.get("maxResults", 50)), self.cap)
        token, reconcile = asked.get("nextPageToken"), [str(id) for id in asked.get("reconcileIssues", ())]
        if len(reconcile) > 50:
            return _error(400, "reconcileIssues takes up to 50 ids.")
        try:
            ids = self._tokens[token] if token else [issue.id for issue in self._search(asked["jql"], reconcile)]
        except BadJql as error:
            return _error(400, str(error))
        except KeyError:
            return _error(400, "The provided next page token is invalid or expired.")
        page = [self.issues[id] for id in ids[:size] if id in self.issues]
        answer: dict[str, Any] = {"issues": self._issues_json(page, asked.get("fields"), asked.get("expand", ""))}
        if len(ids) > size:
            answer["nextPageToken"] = f"page-{len(self._tokens) + 1}"
            self._tokens[answer["nextPageToken"]] = ids[size:]
        return json_reply(answer)

    async def _offset_search(self, request: web.Request) -> web.Response:
        if self.cloud:
            return _error(410, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API.")
        asked = request.query
        try:
            found = self._search(asked["jql"])
        except BadJql as error:
            return _error(400, str(error))
        start, size = int(asked.get("startAt", 0)), min(int(asked.get("maxResults", 50)), self.cap)
        page = self._issues_json(found[start : start + size], asked.get("fields"), asked.get("expand", ""))
        return json_reply({"startAt": start, "maxResults": size, "total": len(found), "issues": page})

    def _issues_json(self, issues: Iterable[Issue], fields: Any, expand: str) -> list[dict[str, Any]]:
        names = fields.split(",") if isinstance(fields, str) else fields or []
        return [self.json(issue, names, "changelog" in expand) for issue in issues]

    async def _server_info(self, request: web.Request) -> web.Response:
        return json_reply({"deploymentType": "Cloud" if self.cloud else "Server", "baseUrl": self.home or self.url})

    async def _myself(self, request: web.Request) -> web.Response:
        return json_reply(self.public(self.me))

    async def _user(self, request: web.Request) -> web.Response:
        name = request.query.get("accountId" if self.cloud else "username", "")
        return json_reply(self.public(name)) if name in self.users else _error(404, "Specified user does not exist.")

    async def _user_search(self, request: web.Request) -> web.Response:
        asked = request.query.get("query" if self.cloud else "username", "").casefold()
        names = [id for id, user in self.users.items() if _starts(user, asked)]
        return json_reply([self.public(name) for name in names])

    async def _editors(self, request: web.Request) -> web.Response:
        if not self.admin or request.query.get("projectKey") not in self.projects:
            return _error(403 if not self.admin else 404, "Not for this account.")
        if request.query.get("permissions") != ("EDIT_ISSUES" if self.cloud else "EDIT_ISSUE"):
            return _error(400, "No such permission.")
        asked = request.query.get("accountId" if self.cloud else "username", "")
        # Server finds all names that begin so
        names = [id for id in self.editors if id == asked or (not self.cloud and id.startswith(asked))]
        return json_reply([self.public(name) for name in sorted(names)])

    def _named(self, names: Mapping[str, str]) -> Handler:
        async def listed(request: web.Request) -> web.Response:
            return json_reply([{"id": id, "name": name} for id, name in names.items()])

        return listed

    async def _project(self, request: web.Request) -> web.Response:
        key = self.renamed.get(request.match_info["key"], request.match_info["key"])
        if key not in self.projects:
            return _error(404, f"No project {key}")
        return json_reply({"id": key, "key": key, "name": self.projects[key]})

    async def _one(self, request: web.Request) -> web.Response:
        issue = self._requested_issue(request)
        if request.method == "PUT":
            return await self._edit(request, issue)
        names = request.query.get("fields", "").split(",")
        return json_reply(self.json(issue, names, "changelog" in request.query.get("expand", "")))

    async def _edit(self, request: web.Request, issue: Issue) -> web.Response:
        quiet = request.query.get("notifyUsers") == "false"
        refusal = self._refuse_write(issue, quiet)
        if refusal is not None:
            return refusal
        if not self.may_edit:
            error = {"labels": "Field 'labels' cannot be set. It is not on the appropriate screen, or unknown."}
            return json_reply({"errorMessages": [], "errors": error}, status=400)
        labels = list(issue.fields["labels"])
        for change in (await request.json())["update"]["labels"]:
            ((verb, label),) = change.items()
            if " " in label or len(label) > _LONGEST_LABEL:
                error = {"labels": f"The label '{label}' contains spaces which is invalid."}
                return json_reply({"errorMessages": [], "errors": error}, status=400)
            labels = [one for one in labels if one != label] + ([label] if verb == "add" else [])
        if set(labels) != set(issue.fields["labels"]):
            # labels have no order of their own: Jira sorts them
            self.label(issue.key, *sorted(labels), by=self.me)
            self.mails += [] if quiet and self.admin else [issue.key]
        return web.Response(status=204)

    def _refuse_write(self, issue: Issue, quiet: bool) -> web.Response | None:
        wait = self._unwritable_until.get(issue.id, 0.0) - self.clock.time()
        if wait > 0:
            headers = {"Retry-After": str(ceil(wait)), "RateLimit-Reason": "jira-per-issue-on-write"}
            return _error(429, "Too many writes of this issue.", headers)
        # Cloud ignores the wish of an account that is not allowed to be quiet
        if quiet and not self.admin and not self.cloud:
            return _error(403, "You do not have permission to disable notifications.")
        return None

    async def _changelog(self, request: web.Request) -> web.Response:
        if not self.cloud:
            return web.Response(status=404, text="<html>Not found</html>", content_type="text/html")
        start, size = int(request.query.get("startAt", 0)), min(int(request.query.get("maxResults", _PAGE)), _PAGE)
        histories = self._requested_issue(request).histories
        return json_reply({"startAt": start, "total": len(histories), "values": histories[start : start + size]})

    async def _comments(self, request: web.Request) -> web.Response:
        issue = self._requested_issue(request)
        if request.method == "POST":
            return await self._post(request, issue)
        newest = request.query.get("orderBy") == "-created"
        start, size = int(request.query.get("startAt", 0)), min(int(request.query.get("maxResults", 50)), _PAGE)
        listed = issue.comments[::-1] if newest else issue.comments
        page = [self.comment_json(one) for one in listed[start : start + size]]
        return json_reply({"startAt": start, "total": len(listed), "comments": page})

    async def _post(self, request: web.Request, issue: Issue) -> web.Response:
        asked = await request.json()
        if isinstance(asked["body"], str) is self.cloud:
            return _error(400, "Comment body is not valid!")
        refusal = self._refuse_write(issue, quiet=False)
        if refusal is not None:
            return refusal
        id = self.comment(issue.key, asked["body"])
        issue.properties[id] = {one["key"]: one["value"] for one in asked.get("properties", [])}
        return json_reply(self.comment_json(issue.comments[-1]), status=201)

    async def _one_comment(self, request: web.Request) -> web.Response:
        issue, id = self._requested_issue(request), request.match_info["comment"]
        if all(one["id"] != id for one in issue.comments):
            return _error(404, f"Can not find a comment for the id: {id}.")
        if request.method == "PUT":
            body = (await request.json())["body"]
            refusal = self._refuse_write(issue, quiet=False)
            if refusal is not None or isinstance(body, str) is self.cloud:
                return refusal or _error(400, "Comment body is not valid!")
            self.edit_comment(issue.key, id, body)
            self.mails += [] if self.cloud and request.query.get("notifyUsers") == "false" else [issue.key]
        return json_reply(self.comment_json(next(one for one in issue.comments if one["id"] == id)))

    async def _property(self, request: web.Request) -> web.Response:
        id, name = request.match_info["id"], request.match_info["name"]
        found = [issue.properties[id] for issue in self.issues.values() if id in issue.properties]
        known = found and name in found[0]
        return json_reply({"key": name, "value": found[0][name]}) if known else _error(404, "No such property")

    async def _transitions(self, request: web.Request) -> web.Response:
        issue = self._requested_issue(request)
        if request.method == "GET":
            offered = [
                {"id": id, "name": name, "to": {"name": to}}
                for id, (name, to) in self.workflow.items()
                if to != issue.fields["status"]
            ]
            return json_reply({"transitions": offered})
        refusal = self._refuse_write(issue, quiet=False)
        if refusal is not None:
            return refusal
        self.move(issue.key, self.workflow[(await request.json())["transition"]["id"]][1])
        return web.Response(status=204)

    def _requested_issue(self, request: web.Request) -> Issue:
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


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return json_reply({"errorMessages": [message], "errors": {}}, status=status, headers=headers)
