"""An Azure DevOps on loopback: projects with work items and their updates, tokens with scopes, limits and late queries.

It answers queries with ids only, refuses times without time precision, more than 200 work items at once, more than
`cap` results and changes of another revision than was tested, and joins tags that are added to those that are there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import format_datetime
from math import ceil
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import msgspec
from aiohttp import web

from harken.clock import Clock, from_unix
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["AzureDevOps", "BadQuery", "WorkItem", "compile_wiql"]


_TOKEN = re.compile(
    r"\s*(?:(\[[\w.]+\])|'((?:[^']|'')*)'|(@project)|(>=|<=|<|>|=|,|\(|\))|(\d+)|([A-Za-z]+))", re.IGNORECASE
)

_HEAD = ["SELECT", "[System.Id]", "FROM", "WorkItems", "WHERE"]

_ORDERS = {
    "[System.ChangedDate], [System.Id]": ("System.ChangedDate", "System.Id"),
    "[System.Id]": ("System.Id",),
}

Test = Callable[[Mapping[str, Any]], bool]


class BadQuery(Exception):
    """The fake does not understand the query."""


class _Text(str):
    """A quoted string."""


def compile_wiql(source: str, project: str, *, with_time: bool) -> tuple[Test, tuple[str, ...]]:
    """Return the test for the fields of a work item, and the fields that results are sorted by.

    Without time precision, a date with a time is refused.
    """
    if len(source) > 32_000:
        raise BadQuery("the query is too long")
    where, _, order = source.rpartition(" ORDER BY ")
    tokens = _tokens(where, project)
    if tokens[: len(_HEAD)] != _HEAD or order not in _ORDERS:
        raise BadQuery("the frame of the query")
    test, rest = _all_of(tokens[len(_HEAD) :], with_time)
    if rest:
        raise BadQuery(f"after the query: {rest[0]}")
    return test, _ORDERS[order]


def _all_of(body: list[str], with_time: bool) -> tuple[Test, list[str]]:
    tests, rest = _joined(body, "AND", with_time)
    return (lambda fields: all(test(fields) for test in tests)), rest


def _joined(body: list[str], word: str, with_time: bool) -> tuple[list[Test], list[str]]:
    test, body = _clause(body, with_time)
    tests = [test]
    while body and body[0] == word:
        test, body = _clause(body[1:], with_time)
        tests.append(test)
    return tests, body


def _tokens(source: str, project: str) -> list[str]:
    found: list[str] = []
    place = 0
    while source[place:].strip():
        match = _TOKEN.match(source, place)
        if match is None:
            raise BadQuery(f"at {place}")
        field, quoted, macro, sign, number, word = match.groups()
        text = quoted.replace("''", "'") if quoted is not None else project if macro else None
        found.append(field or sign or number or word if text is None else _Text(text))
        place = match.end()
    return found


def _clause(body: list[str], with_time: bool) -> tuple[Test, list[str]]:
    if body and body[0] == "(" and not isinstance(body[0], _Text):
        tests, rest = _joined(body[1:], "OR", with_time)
        if not rest or rest[0] != ")":
            raise BadQuery("a bracket is not closed")
        return (lambda fields: any(test(fields) for test in tests)), rest[1:]
    field, sign, *rest = body
    if not field.startswith("[") or isinstance(field, _Text):
        raise BadQuery("a field is missing")
    name = field[1:-1]
    if sign in ("IN", "NOT"):
        rest = rest[sign == "NOT" :]
        end = rest.index(")")
        values = {_value(one).casefold() for one in rest[1:end:2]}
        return (lambda fields: (_text(fields, name) in values) == (sign == "IN")), rest[end + 1 :]
    if name == "System.Id":
        return _number_test(name, sign, int(rest[0])), rest[1:]
    value = _value(rest[0])
    if name == "System.ChangedDate":
        return _date_test(name, sign, value, with_time), rest[1:]
    return _text_test(name, sign, value.casefold()), rest[1:]


def _number_test(name: str, sign: str, value: int) -> Test:
    return {
        ">": lambda fields: bool(fields[name] > value),
        "<=": lambda fields: bool(fields[name] <= value),
        "=": lambda fields: bool(fields[name] == value),
    }[sign]


def _value(token: str) -> str:
    if not isinstance(token, _Text):
        raise BadQuery("a value has no quotes")
    return token


def _date_test(name: str, sign: str, value: str, with_time: bool) -> Test:
    if "T" in value and not with_time:
        raise BadQuery("You cannot supply a time with the date when running a query using date precision")
    at = datetime.fromisoformat(value)
    return {
        ">=": lambda fields: datetime.fromisoformat(fields[name]) >= at,
        "<": lambda fields: datetime.fromisoformat(fields[name]) < at,
    }[sign]


def _text_test(name: str, sign: str, value: str) -> Test:
    tests: dict[str, Test] = {
        "=": lambda fields: value in _names(fields.get(name)),
        "CONTAINS": lambda fields: value in [tag.strip() for tag in _text(fields, name).split(";")],
        "UNDER": lambda fields: _text(fields, name) == value or _text(fields, name).startswith(value + "\\"),
    }
    if sign not in tests:
        raise BadQuery(f"the operator {sign}")
    return tests[sign]


def _names(value: Any) -> Sequence[str]:
    """What a field may be called: a person is known by name and by address."""
    if isinstance(value, Mapping):
        return [str(value.get(key, "")).casefold() for key in ("uniqueName", "displayName")]
    return [str(value or "").casefold()]


def _text(fields: Mapping[str, Any], name: str) -> str:
    return str(fields.get(name) or "").casefold()


STATES = {"Bug": ["New", "Active", "Resolved", "Closed"], "Task": ["To Do", "Doing", "Not Done", "Done"]}

CATEGORIES = {
    "New": "Proposed",
    "To Do": "Proposed",
    "Resolved": "Resolved",
    "Closed": "Completed",
    "Done": "Completed",
    "Cut": "Removed",
}

ORG, WIT = "/{organization}", "/_apis/wit"

GIT = "/_apis/git/repositories/{repo}"


class WorkItem(msgspec.Struct, kw_only=True):
    """`visible_at`: when queries find it; `history_visible_at`: when its last update is shown. `broken`: odd fields."""

    id: int
    fields: dict[str, Any]
    rev: int = 0
    updates: list[dict[str, Any]] = []
    visible_at: float = 0.0
    history_visible_at: float = 0.0
    deleted: bool = False
    broken: dict[str, Any] = {}
    comments: list[dict[str, Any]] = []

    def to_json(self, names: str | None = None) -> dict[str, Any]:
        fields = {**self.fields, **self.broken}
        wanted = {name: value for name, value in fields.items() if names is None or name in names.split(",")}
        return {"id": self.id, "rev": self.rev, "fields": wanted, "url": f"https://dev.azure.com/w/{self.id}"}


def project_id(name: str) -> str:
    return str(uuid5(NAMESPACE_DNS, name.lower()))


class AzureDevOps(FakeServer):
    """Its methods change work items. `skew`: seconds its clock is ahead. `tokens` map to their scopes.

    `may_suppress`: writes may be without notifications; `notified` are the numbers of those that were not.
    `may_create_tags`: a tag that no work item has may be set.
    `people` are accounts that have more than a name, such as bots. `slowed`: seconds that a delayed success asks for.
    """

    def __init__(self, clock: Clock, *, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.skew = skew
        self.cap = 20_000
        self.tokens = {"reader": "read", "writer": "read write", "coder": "read write code", "other": ""}
        self.projects = {"Shop", "Search"}
        self.areas = {"Shop", "Shop\\Checkout", "Search"}
        self.items: dict[int, WorkItem] = {}
        self.states = {kind: list(names) for kind, names in STATES.items()}
        self.people: dict[str, dict[str, Any]] = {"mia": {"id": "7f1c"}}
        self.may_suppress = True
        self.may_create_tags = True
        self.notified: list[int] = []
        self.slowed = 0
        self.repos = {"web": "5febef5a"}
        self.branches = {"main", "harken/1"}
        self.pull_requests: list[dict[str, Any]] = []
        self.subscriptions: list[dict[str, Any]] = []
        self.may_see_subscriptions = True
        self._limited_until = 0.0

    def now(self) -> datetime:
        return from_unix(self.clock.time() + self.skew)

    def create(
        self,
        *tags: str,
        project: str = "Shop",
        kind: str = "Bug",
        title: str = "",
        to: str = "",
        area: str = "",
        age: float = 0.0,
        late: float = 0.0,
        by: str = "leo",
    ) -> WorkItem:
        """Create a work item, `age` seconds ago, that queries find in `late` seconds."""
        id = len(self.items) + 1
        item = WorkItem(id=id, fields={}, updates=[], comments=[], visible_at=self.clock.time() + late)
        self.items[id] = item
        at = self.now() - timedelta(seconds=age)
        made = {
            "System.Id": id,
            "System.TeamProject": project,
            "System.AreaPath": area or project,
            "System.IterationPath": project,
            "System.WorkItemType": kind,
            "System.State": STATES[kind][0],
            "System.Reason": "New",
            "System.Title": title or f"Trouble {id}",
            "System.Description": f"<div>About &lt;{id}&gt;</div>",
            "System.CreatedDate": _format_time(at),
            "System.CreatedBy": self.person(by),
            "System.CommentCount": 0,
            "Microsoft.VSTS.Common.StateChangeDate": _format_time(at),
            "Microsoft.VSTS.Common.Priority": 2,
        }
        tagged = {"System.Tags": "; ".join(tags)} if tags else {}
        self.change(item, made | tagged | ({"System.AssignedTo": _person(to)} if to else {}), at, by=by)
        return item

    def person(self, name: str) -> dict[str, Any]:
        return {**_person(name), **self.people.get(name, {})}

    def change(self, item: WorkItem, fields: Mapping[str, Any], at: datetime | None = None, *, by: str = "leo") -> None:
        """Add a revision. None removes a field."""
        at = at or self.now()
        item.rev += 1
        who = self.person(by)
        changed = {"System.ChangedDate": _format_time(at), "System.ChangedBy": who, "System.Rev": item.rev}
        new = {**fields, **changed}
        if fields.get("System.State") not in (None, item.fields.get("System.State")):
            new["Microsoft.VSTS.Common.StateChangeDate"] = _format_time(at)
        told = {name: _difference(item.fields.get(name), value) for name, value in new.items()}
        update = {"id": item.rev, "rev": item.rev, "revisedBy": who, "revisedDate": "9999-01-01T00:00:00Z"}
        item.updates.append({**update, "fields": told})
        if fields.get("System.History"):
            text, id = fields["System.History"], item.id * 1000 + len(item.comments)
            said = {"id": id, "workItemId": item.id, "text": text, "createdBy": who, "createdDate": _format_time(at)}
            item.comments.append(said)
        kept = {**item.fields, **new}
        # what was said stands in the updates only
        item.fields = {n: v for n, v in kept.items() if v not in (None, "") and n != "System.History"}

    def tag(self, item: WorkItem, *tags: str, by: str = "leo") -> None:
        self.change(item, {"System.Tags": "; ".join([*_tags(item), *tags])}, by=by)

    def untag(self, item: WorkItem, tag: str, by: str = "leo") -> None:
        self.change(item, {"System.Tags": "; ".join(one for one in _tags(item) if one != tag) or None}, by=by)

    def assign(self, item: WorkItem, to: str) -> None:
        self.change(item, {"System.AssignedTo": _person(to) if to else None})

    def move(self, item: WorkItem, state: str) -> None:
        self.change(item, {"System.State": state})

    def comment(self, item: WorkItem, text: str = "hm", by: str = "leo") -> None:
        count = item.fields["System.CommentCount"] + 1
        self.change(item, {"System.History": text, "System.CommentCount": count}, by=by)

    def comments(self, item: WorkItem) -> list[str]:
        """The comments on it."""
        return [
            one["fields"]["System.History"]["newValue"] for one in item.updates if "System.History" in one["fields"]
        ]

    def limit(self, seconds: float) -> None:
        """Answer 429 for so many seconds."""
        self._limited_until = self.clock.time() + seconds

    def routes(self) -> Mapping[str, Handler]:
        return {
            ORG + "/_apis/connectionData": self._me,
            ORG + "/_apis/hooks/subscriptions": self._subscriptions,
            ORG + "/_apis/projects/{project}": self._project,
            ORG + WIT + "/workitems": self._list,
            ORG + WIT + "/workitems/{id}": self._one,
            ORG + WIT + "/workItems/{id}/updates": self._updates,
            ORG + "/{project}" + WIT + "/workItems/{id}/comments": self._comments,
            ORG + "/{project}" + WIT + "/workItems/{id}/comments/{comment}": self._comment,
            ORG + "/{project}" + GIT + "/pullrequests": self._pull_requests,
            ORG + "/{project}" + WIT + "/wiql": self._wiql,
            ORG + "/{project}" + WIT + "/workitemtypes": self._types,
            ORG + "/{project}" + WIT + "/workitemtypes/{type}/states": self._states,
            ORG + "/{project}" + WIT + "/tags": self._all_tags,
            ORG + "/{project}" + WIT + "/classificationnodes/Areas{below:.*}": self._areas,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._authorize(request, view)
        reply.headers["Date"] = format_datetime(self.now(), usegmt=True)
        if self.slowed and reply.status == 200:
            reset = str(int(self.clock.time()) + 300)
            quota = {"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "40", "X-RateLimit-Reset": reset}
            reply.headers.update({"Retry-After": str(self.slowed), **quota})
        return reply

    async def _authorize(self, request: web.Request, view: Handler) -> web.Response:
        scopes = self._scopes(request)
        project = request.match_info.get("project")
        if self.clock.time() < self._limited_until:
            left = str(ceil(self._limited_until - self.clock.time()))
            return json_reply({}, 429, {"Retry-After": left, "X-RateLimit-Remaining": "0"})
        if request.match_info["organization"] != "acme":
            return _error(404, "OrganizationNotFoundException")
        if scopes is None:
            polite = request.headers.get("X-TFS-FedAuthRedirect") == "Suppress"
            return _error(401, "UnauthorizedRequestException") if polite else web.Response(status=203, text="<html>")
        if "api-version" not in request.query:
            return _error(400, "VssVersionNotSpecifiedException")
        writes = request.method == "PATCH" or (request.method == "POST" and view != self._wiql)
        needed = "code" if view == self._pull_requests else "write" if writes else "read"
        if needed not in scopes.split() and view != self._me:
            return _error(403, "AccessCheckException")
        if project is not None and project.lower() not in {name.lower() for name in self.projects}:
            return _error(404, "ProjectDoesNotExistWithNameException")
        return await view(request)

    def _scopes(self, request: web.Request) -> str | None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        user, _, token = base64.b64decode(given).decode().partition(":")
        return self.tokens.get(token) if scheme == "Basic" and not user else None

    def _item(self, request: web.Request) -> WorkItem | None:
        item = self.items.get(int(request.match_info["id"]))
        return None if item is None or item.deleted else item

    async def _me(self, request: web.Request) -> web.Response:
        properties = {"Account": {"$type": "System.String", "$value": "mia@acme.example"}}
        user = {"id": "7f1c", "providerDisplayName": "Mia Engel", "properties": properties}
        return json_reply({"authenticatedUser": user, "authorizedUser": user})

    def subscribe(self, url: str, event: str, *, project: str = "Shop", status: str = "enabled") -> dict[str, Any]:
        """Make a subscription of a service hook."""
        made = {
            "id": str(len(self.subscriptions) + 1),
            "publisherId": "tfs",
            "eventType": event,
            "consumerId": "webHooks",
            "consumerActionId": "httpRequest",
            "status": status,
            "publisherInputs": {"projectId": project_id(project)},
            "consumerInputs": {"url": url, "basicAuthPassword": "********"},
        }
        self.subscriptions.append(made)
        return made

    async def _subscriptions(self, request: web.Request) -> web.Response:
        if not self.may_see_subscriptions:
            return _error(403, "AccessCheckException")
        wanted = {name: request.query[name] for name in ("publisherId", "consumerId") if name in request.query}
        found = [one for one in self.subscriptions if all(one[name] == value for name, value in wanted.items())]
        return json_reply({"count": len(found), "value": found})

    async def _project(self, request: web.Request) -> web.Response:
        name = request.match_info["project"]
        return json_reply({"id": project_id(name), "name": name})

    async def _wiql(self, request: web.Request) -> web.Response:
        document = await request.json()
        project = next(name for name in self.projects if name.lower() == request.match_info["project"].lower())
        with_time = request.query.get("timePrecision") == "true"
        try:
            wanted, order = compile_wiql(document["query"], project, with_time=with_time)
        except (BadQuery, ValueError) as error:
            return _error(400, "InvalidQueryException", str(error))
        now = self.clock.time()
        there = [item for item in self.items.values() if not item.deleted and item.visible_at <= now]
        found = [item for item in there if wanted(item.fields)]
        if len(found) > self.cap:
            return _error(400, "WorkItemTrackingQueryResultSizeLimitExceededException", "VS402337")
        found.sort(key=lambda item: [item.fields[name] for name in order])
        top = int(request.query.get("$top", self.cap))
        return json_reply({"queryType": "flat", "workItems": [{"id": item.id, "url": "…"} for item in found[:top]]})

    async def _list(self, request: web.Request) -> web.Response:
        ids = [int(id) for id in request.query["ids"].split(",")]
        if len(ids) > 200:
            return _error(400, "ArgumentException", "VS403474")
        found = [self.items.get(id) for id in ids]
        if request.query.get("errorPolicy") != "omit" and any(item is None or item.deleted for item in found):
            return _error(404, "WorkItemUnauthorizedAccessException")
        names = request.query.get("fields")
        shown = [None if item is None or item.deleted else item.to_json(names) for item in found]
        return json_reply({"count": len(shown), "value": shown})

    async def _one(self, request: web.Request) -> web.Response:
        item = self._item(request)
        if item is None:
            return _error(404, "WorkItemUnauthorizedAccessException")
        if request.method != "PATCH":
            return json_reply(item.to_json(request.query.get("fields")))
        if request.content_type != "application/json-patch+json":
            return _error(415, "UnsupportedMediaType")
        quiet = request.query.get("suppressNotifications") == "true"
        if quiet and not self.may_suppress:
            return _error(403, "AccessCheckException")
        reply = self._apply_patch(item, await request.json())
        self.notified += [item.id] if reply.status == 200 and not quiet else []
        return reply

    def _apply_patch(self, item: WorkItem, operations: list[dict[str, Any]]) -> web.Response:
        fields: dict[str, Any] = {}
        for one in operations:
            name, value = one["path"].removeprefix("/fields/"), one["value"]
            if one["op"] == "test" and value != item.rev:
                return _error(412, "TestPatchOperationFailedException", "VS403351")
            if name == "System.State" and value not in self.states[item.fields["System.WorkItemType"]]:
                return _error(400, "RuleValidationException")
            if name == "System.Tags" and one["op"] == "add":
                value = "; ".join(dict.fromkeys([*_tags(item), *value.split("; ")]))
            if name == "System.Tags" and not (self.may_create_tags or self._has_tags(value.split("; "))):
                return _error(403, "VssServiceException", "TF401289: no permissions to create tags")
            if one["op"] != "test":
                fields[name] = value or None
        self.change(item, fields, by="mia")
        return json_reply(item.to_json())

    def _has_tags(self, tags: list[str]) -> bool:
        return set(tags) <= {tag for item in self.items.values() for tag in _tags(item)}

    async def _comments(self, request: web.Request) -> web.Response:
        item = self._item(request)
        if "-preview" not in request.query["api-version"]:
            return _error(400, "VssInvalidPreviewVersionException")
        if item is None:
            return _error(404, "WorkItemUnauthorizedAccessException")
        if request.method == "POST":
            self.comment(item, (await request.json())["text"], by="mia")
            item.comments[-1] |= {"format": request.query.get("format", "html")}
            return json_reply(item.comments[-1])
        shown = [one for one in item.comments if not one.get("isDeleted")]
        shown = shown[::-1] if request.query.get("order") == "desc" else shown
        start, top = int(request.query.get("continuationToken", 0)), int(request.query.get("$top", 200))
        following = {"continuationToken": str(start + top)} if len(shown) > start + top else {}
        page = shown[start : start + top]
        return json_reply({"totalCount": len(shown), "count": len(page), "comments": page, **following})

    async def _comment(self, request: web.Request) -> web.Response:
        item = self._item(request)
        id = int(request.match_info["comment"])
        found = [one for one in (item.comments if item else []) if one["id"] == id and not one.get("isDeleted")]
        if not found or item is None:
            return _error(404, "WorkItemCommentNotFoundException")
        found[0]["text"] = (await request.json())["text"]
        item.rev += 1
        return json_reply(found[0])

    async def _pull_requests(self, request: web.Request) -> web.Response:
        named = request.match_info["repo"]
        repo = next((name for name, id in self.repos.items() if named.lower() in (name.lower(), id)), None)
        if repo is None:
            return _error(404, "GitRepositoryNotFoundException")
        if request.method == "POST":
            return self._open_pull_request(repo, await request.json(), request.match_info["project"])
        source, skip = request.query["searchCriteria.sourceRefName"], int(request.query.get("$skip", 0))
        found = [one for one in self.pull_requests if one["status"] == request.query["searchCriteria.status"]]
        found = [one for one in found if one["sourceRefName"] == source]
        return json_reply({"value": found[skip : skip + int(request.query.get("$top", 100))]})

    def _open_pull_request(self, repo: str, wanted: dict[str, Any], project: str = "Shop") -> web.Response:
        refs = [wanted["sourceRefName"], wanted["targetRefName"]]
        if not {ref.removeprefix("refs/heads/") for ref in refs} <= self.branches:
            return _error(400, "GitPullRequestCannotBeActivated", "TF401398")
        same = [[one["sourceRefName"], one["targetRefName"], one["status"]] for one in self.pull_requests]
        if [*refs, "active"] in same:
            return _error(409, "GitPullRequestExistsException", "TF401179")
        number = len(self.pull_requests) + 1
        where = {"name": repo, "project": {"name": project}}
        opened = {**wanted, "pullRequestId": number, "status": "active", "repository": where}
        self.pull_requests.append(opened)
        return json_reply(opened, 201)

    async def _updates(self, request: web.Request) -> web.Response:
        item = self._item(request)
        if item is None:
            return _error(404, "WorkItemUnauthorizedAccessException")
        skip, top = int(request.query.get("$skip", 0)), int(request.query.get("$top", 200))
        # a copy that is behind does not have the last one yet
        told = item.updates if item.history_visible_at <= self.clock.time() else item.updates[:-1]
        return json_reply({"count": len(told), "value": told[skip : skip + top]})

    async def _types(self, request: web.Request) -> web.Response:
        return json_reply({"value": [{"name": kind, "states": self._states_of(kind)} for kind in self.states]})

    def _states_of(self, kind: str) -> list[dict[str, str]]:
        return [{"name": name, "category": CATEGORIES.get(name, "InProgress")} for name in self.states[kind]]

    async def _states(self, request: web.Request) -> web.Response:
        return json_reply({"value": self._states_of(request.match_info["type"])})

    async def _all_tags(self, request: web.Request) -> web.Response:
        return json_reply({"value": [{"name": tag} for item in self.items.values() for tag in _tags(item)]})

    async def _areas(self, request: web.Request) -> web.Response:
        path = request.match_info["project"] + request.match_info["below"].replace("/", "\\")
        return json_reply({"name": path}) if path in self.areas else _error(404, "ClassificationNodeNotFound")


def _tags(item: WorkItem) -> list[str]:
    return [tag for tag in item.fields.get("System.Tags", "").split("; ") if tag]


def _person(name: str) -> dict[str, str]:
    return {"id": f"id-{name}", "displayName": name.title(), "uniqueName": f"{name}@acme.example"}


def _difference(old: Any, new: Any) -> dict[str, Any]:
    return ({"oldValue": old} if old is not None else {}) | ({"newValue": new} if new is not None else {})


def _format_time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _error(status: int, kind: str, message: str = "") -> web.Response:
    return json_reply(
        {"$id": "1", "message": message or kind, "typeKey": kind, "errorCode": 0, "eventId": 3000}, status
    )
