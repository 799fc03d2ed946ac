"""OpenAPI 3.1 of the table of operations: parameters from the routes, answers from the shapes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec

from harken import __version__
from harken.api.params import BODY_LIMIT, MOST, PAGE
from harken.api.response_types import ANSWERS, Problem
from harken.api.routes import ROUTES, Param, Route
from harken.operate.bulk import ACTIONS, OF_RUNS
from harken.operate.config_schema import OFFERED
from harken.operate.list_filter import FIELDS
from harken.operate.operator import OPERATIONS
from harken.operate.principal import ROLES
from harken.runs import RunState

__all__ = ["CHOSEN", "document", "specification"]

Schema = dict[str, Any]

TEXT = r"^[^\u0000]*$"
SOME = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
DURATION = r"^ *([0-9]{1,12}(\.[0-9]{1,6})? *(ms|[wdhms]) *)+$"
MOMENT = r"^[0-9]{4}-?[0-9W][0-9-]+([T ][0-9:.,]+)?(Z|[+-][0-9:]+)?$"
SINCE = f"^$|{MOMENT}|{DURATION}"
WHOLE = {"type": "integer", "minimum": -(2**63) + 1, "maximum": 2**63 - 1}

PARAMS: Mapping[Param, Schema] = {
    "text": {"type": "string", "pattern": TEXT},
    "number": {"type": "number"},
    "count": WHOLE,
    "flag": {"type": "boolean"},
    "object": {"$ref": "#/components/schemas/JsonObject"},
    "any": {"$ref": "#/components/schemas/Json"},
    "texts": {"type": "array", "items": {"type": "string", "pattern": r"^[^\u0000,]+$"}},
    "since": {
        "type": "string",
        "format": "harken-since",
        "pattern": SINCE,
        "description": "A time, or a duration before now.",
        "examples": ["10m", "2026-03-01T10:00:00Z"],
    },
    "duration": {"type": "string", "format": "harken-duration", "pattern": DURATION, "examples": ["1h30m"]},
    "cel": {
        "type": "string",
        "format": "harken-condition",
        "pattern": TEXT,
        "description": "A condition in CEL.",
        "examples": ["event.n > 3"],
    },
    "filter": {
        "type": "string",
        "format": "harken-filter",
        "pattern": TEXT,
        "description": "A filter in CEL over the fields of the items.",
    },
    "cursor": {
        "type": "string",
        "format": "harken-cursor",
        "pattern": "^[A-Za-z0-9_-]*$",
        "description": "The `next` of the page before; opaque.",
    },
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE},
    "match": {"type": "string"},
    "fields": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Only these fields of the items; all without it.",
    },
}

_SCALARS = ({"type": ["null", "boolean"]}, {"type": "string", "pattern": TEXT}, {**WHOLE, "type": "number"})
JSON: Mapping[str, Schema] = {
    "Json": {
        "description": "Any JSON in which each reader finds the same: no NUL, and numbers that have a value.",
        "anyOf": [
            *_SCALARS,
            {"type": "array", "items": {"$ref": "#/components/schemas/Json"}},
            {"$ref": "#/components/schemas/JsonObject"},
        ],
    },
    "JsonObject": {
        "type": "object",
        "propertyNames": {"pattern": TEXT},
        "additionalProperties": {"$ref": "#/components/schemas/Json"},
    },
}
"""What the parameters `object` and `any` take."""

_TOKEN_NAME = {"type": "string", "maxLength": 60, "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$"}
_BEGIN = {**PARAMS["since"], "pattern": f"{MOMENT}|{DURATION}", "format": "harken-begin"}
_EXPIRES = {"type": "string", "format": "harken-expiry", "examples": ["90d"]}
_WORKFLOW = {"anyOf": [{"type": "string", "pattern": SOME}, PARAMS["object"]]}
_FILTERS = {
    "events": 'type == "webhook.received"',
    "runs": 'status == "failed"',
    "dead": 'what == "run"',
    "triggers": 'status == "healthy"',
}

_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}

CHOSEN: Schema = {"type": "object", "description": "With `fields`: an item that has only those."}

NARROWED: Mapping[str, Schema] = {
    "events.list.after": _COUNT,
    "events.list.before": _COUNT,
    "runs.show.cut": _COUNT,
    "runs.list.status": {"type": "string", "enum": ["", *get_args(RunState)]},
    "webhooks.curl.event": _COUNT,
    "events.list.include": {"type": "array", "items": {"enum": ["data"]}},
    "events.forget.subject": {"type": "string", "pattern": r"^\s*[^\s\u0000][^\u0000]+[^\s\u0000]\s*$"},
    "events.replay_range.trigger": {"type": "string", "pattern": r"^[^\u0000]*[^\s,\u0000][^\u0000]*$"},
    "events.replay_range.since": _BEGIN,
    "triggers.seek.to": _BEGIN,
    "triggers.seek.token": {"type": "string", "pattern": "^([0-9]{1,17}-[0-9]{1,17})?$"},
    "triggers.draft.limit": {"type": "integer", "minimum": 0, "maximum": 1000},
    "triggers.draft.hours": {"type": "integer", "minimum": 0, "maximum": 744},
    "triggers.bank.limit": {"type": "integer", "minimum": 1, "maximum": 200},
    "tools.list.agent": {"type": "string", "pattern": r"^[^\u0000]+$"},
    "tools.schemas.agent": {"type": "string", "pattern": r"^[^\u0000]+$"},
    "config.schema.file": {"enum": list(OFFERED)},
    "bulk.plan.action": {"enum": list(ACTIONS)},
    "bulk.plan.agent": {"type": "string", "pattern": TEXT},
    "triggers.explain.agent": {"type": "string", "pattern": r"^[^\u0000]+$"},
    "tokens.create.name": _TOKEN_NAME,
    "tokens.create.owner": {**_TOKEN_NAME, "pattern": r"^$|^[A-Za-z0-9][A-Za-z0-9_.@-]*$"},
    "tokens.create.expires": {**_EXPIRES, "pattern": f"^never$|{MOMENT}|{DURATION}"},
    "tokens.rotate.expires": {**_EXPIRES, "pattern": f"^$|^never$|{MOMENT}|{DURATION}"},
    **{f"triggers.{change}.workflow": _WORKFLOW for change in ("create", "replace", "edit")},
    "tokens.create.role": {"enum": list(ROLES)},
    **{
        f"{operation}.fields": {**PARAMS["fields"], "items": {"enum": list(names)}}
        for operation, names in FIELDS.items()
    },
    **{f"{noun}.list.where": {**PARAMS["filter"], "examples": [example]} for noun, example in _FILTERS.items()},
}
"""What the name of an operation and of its parameter tells beyond the kind of the parameter."""

_ROW = {
    "name": "every-hour",
    "provider": "schedule",
    "config": {"every": "1h"},
    "workflow": {"steps": [{"id": "say", "action": "transform", "set": {"text": "hello"}}]},
}

_BOTH = {"properties": {"latest": {"const": True}, "same": {"const": True}}, "required": ["latest", "same"]}
_NOT_BOTH = {"not": _BOTH}


def _plan(action: Schema, **others: Schema) -> Schema:
    """A plan chooses by a filter or by ids, and only a replay names its trigger."""
    parts: dict[str, Schema] = {
        "where": {"pattern": SOME},
        "ids": {"maxItems": 0},
        "trigger": {"maxLength": 0},
        **others,
    }
    needed = [name for name, part in parts.items() if {"minLength", "minItems"} & set(part)]
    needed += ["where"] if parts["where"]["pattern"] == SOME else []
    return {"required": ["action", *needed], "properties": {"action": action, **parts}}


_FILLED, _WITH_FIELDS = {"minLength": 1}, {"minProperties": 1}

RULES: Mapping[str, Schema] = {
    "bulk.plan": {
        "anyOf": [
            _plan({"enum": list(OF_RUNS)}),
            _plan({"enum": list(OF_RUNS)}, where={"pattern": r"^\s*$"}, ids={"minItems": 1}),
            # a dead letter has no time that could be asked for
            _plan({"const": "drop"}, since={"maxLength": 0}),
            _plan({"const": "replay"}, trigger={"minLength": 1}),
        ],
    },
    "tokens.create": {
        "if": {"properties": {"role": {"const": "admin"}}, "required": ["role"]},
        "then": {"properties": {"owner": {"maxLength": 0}, "triggers": {"maxItems": 0}}},
    },
    "dead.retry": _NOT_BOTH,
    "dead.retry_all": _NOT_BOTH,
    "triggers.backtest": {"not": {"required": ["last", "since"]}},
    "runs.rerun": {
        # what came before the step was done with the input as it was; and only a step has an input of its own
        "not": {"required": ["from_step", "input"], "properties": {"from_step": _FILLED, "input": _WITH_FIELDS}},
        "if": {"required": ["step_input"], "properties": {"step_input": _WITH_FIELDS}},
        "then": {"required": ["from_step"], "properties": {"from_step": _FILLED}},
    },
    "triggers.create": {"examples": [_ROW]},
    "triggers.draft": {"examples": [_ROW]},
}
"""What parameters in a body have to do with each other."""

HEADERS: Schema = {
    "Idempotency-Key": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Equal requests with the same key have one effect and one answer, for 24 hours.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
    "If-Match": {
        "name": "If-Match",
        "in": "header",
        "required": True,
        "description": "The ETag of the version that is to be changed.",
        "schema": {"type": "string", "pattern": '^"[!#-~]{1,100}"$'},
    },
}

PROBLEMS: Mapping[str, str] = {
    "400": "A parameter or a body that cannot be used.",
    "401": "A token is needed, or the one that came is not valid.",
    "403": "Not allowed: a request of a web page, or a role that does not reach so far.",
    "404": "There is nothing of that name.",
    "405": "Another method is needed; see Allow.",
    "409": "It is not possible as things are, or the first request with this key is still running.",
    "412": "Somebody changed it since: If-Match names an older version.",
    "413": f"The body is larger than {BODY_LIMIT} bytes.",
    "415": "The body is not declared as application/json.",
    "421": "The server does not answer for this Host.",
    "422": "What was written cannot be used as it stands, or the key was used for another request.",
    "428": "If-Match is missing.",
    "429": "Too many requests; see Retry-After.",
    "502": "Another service needs a person.",
    "503": "Try again after Retry-After seconds.",
}


TAIL_PROBLEMS = ("400", "401", "403", "409", "421", "429", "503")


@cache
def document() -> bytes:
    """The specification as JSON."""
    return msgspec.json.encode(specification())


def specification() -> Schema:
    shapes = {Problem, *ANSWERS.values()}
    _, components = msgspec.json.schema_components(
        sorted(shapes, key=lambda shape: str(shape.__name__)), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Schema] = {}
    for route in ROUTES.values():
        if not route.path.startswith("/admin"):
            paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
    for path, tail in _tails().items():
        paths[path] = {"get": tail}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Harken",
            "version": __version__,
            "description": "Watches the services people use, and starts their workflows when something happens there.",
        },
        "paths": paths,
        "components": {
            "schemas": {**JSON, **{name: components[name] for name in sorted(components)}},
            "responses": {f"Problem{status}": _problem(text) for status, text in PROBLEMS.items()},
            "parameters": HEADERS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # on loopback whoever can open a connection is the operator; anywhere else a token is needed
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> Schema:
    needed = _required(route)
    found: Schema = {
        "operationId": route.operation,
        "tags": [route.operation.partition(".")[0]],
        "summary": _summary(route.operation),
        "parameters": [*_parameters(route, needed), *_headers(route)],
        "responses": _responses(route),
    }
    if not route.in_query:
        found["requestBody"] = {
            "required": bool(needed - route.placed),
            "content": {"application/json": {"schema": _body(route, needed)}},
        }
    return found


def _required(route: Route) -> frozenset[str]:
    taken = inspect.signature(OPERATIONS[route.operation]).parameters.values()
    return frozenset(one.name for one in taken if one.default is inspect.Parameter.empty and one.name in route.params)


def _summary(operation: str) -> str:
    text = inspect.getdoc(OPERATIONS[operation]) or operation
    return text.partition("\n\n")[0].replace("\n", " ")


def _parameters(route: Route, needed: frozenset[str]) -> list[Schema]:
    places = [
        {"name": name, "in": "path", "required": True, "schema": _in_path(route.params[name])}
        for name in route.params
        if name in route.placed
    ]
    if not route.in_query:
        return places
    return places + [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "schema": _schema(route, name),
            **({"style": "form", "explode": False} if param in ("texts", "fields") else {}),
        }
        for name, param in route.params.items()
        if name not in route.placed and param != "match"
    ]


def _schema(route: Route, name: str) -> Schema:
    return NARROWED.get(f"{route.operation}.{name}", PARAMS[route.params[name]])


def _in_path(param: Param) -> Schema:
    if param == "count":
        return _COUNT
    return {"type": "string", "minLength": 1, "pattern": r"^[^\u0000]+$"}


def _headers(route: Route) -> list[Schema]:
    names = ["Idempotency-Key"] if route.takes_key else ["If-Match"] if route.needs_match else []
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _body(route: Route, needed: frozenset[str]) -> Schema:
    names = [name for name, param in route.params.items() if name not in route.placed and param != "match"]
    beside = {name: _schema(route, name) for name in names}
    found: Schema = {"type": "object", "properties": beside, "additionalProperties": False}
    required = sorted(needed - route.placed)
    return found | ({"required": required} if required else {}) | RULES.get(route.operation, {})


def _responses(route: Route) -> Schema:
    answer: Schema = {
        "description": "Made." if route.creates else "Done.",
        "content": {"application/json": {"schema": _answer(route)}},
    }
    headers = ["X-Request-Id", *(["ETag"] if route.method == "GET" or route.versioned else [])]
    headers += ["Link"] if route.pages else []
    answer["headers"] = {name: {"schema": {"type": "string"}} for name in headers}
    statuses = ["400", "401", "403", "404", "405", "409", "413", "415", "421", "422", "429", "502", "503"]
    statuses += ["412", "428"] if route.needs_match else []
    problems = {status: {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(statuses)}
    if links := _links(route):
        answer["links"] = links
    return {"201" if route.creates else "200": answer, **problems}


def _links(route: Route) -> Schema:
    """Where the answer leads: from a list to its first thing, from a thing that has versions to its changes, from a
    plan to its execution."""
    noun, _, verb = route.operation.partition(".")
    found: Schema = {}
    for other in ROUTES.values():
        if not other.operation.startswith(f"{noun}.") or len(other.placed) != 1:
            continue
        [name] = other.placed
        if verb == "list":
            found[other.operation] = _link(other, {name: f"$response.body#/items/0/{name}"})
        elif verb == "plan":
            found[other.operation] = _link(other, {name: f"$response.body#/{name}"})
        elif route.versioned and route.method in ("GET", "POST") and other.versioned:
            match = {"header.If-Match": "$response.header.ETag"} if other.needs_match else {}
            found[other.operation] = _link(other, {name: f"$response.body#/{name}", **match})
    return found


def _link(route: Route, parameters: Mapping[str, str]) -> Schema:
    return {"operationId": route.operation, "parameters": dict(parameters)}


def _answer(route: Route) -> Schema:
    shape = ANSWERS.get(route.operation)
    inner: Schema = {"$ref": f"#/components/schemas/{shape.__name__}"} if shape else {"type": "object"}
    if not route.pages:
        return inner
    if "fields" in route.params:
        inner = {"anyOf": [inner, CHOSEN]}
    return {
        "type": "object",
        "required": ["items", "next"],
        "properties": {"items": {"type": "array", "items": inner}, "next": {"type": ["string", "null"]}},
    }


def _problem(text: str) -> Schema:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}


NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
DIGITS: Schema = {"type": "string", "pattern": "^[0-9]+$"}
POSITION: Schema = {"type": "string", "pattern": "^[0-9]{1,18}-[0-9]{1,18}$"}


def _tails() -> Mapping[str, Schema]:
    """The streams of server-sent events, which are no operations of the table: they do not end."""
    events, runs = _frame(DIGITS, ["event"]), _frame(DIGITS, ["run"])
    both = _frame(POSITION, ["position", "event", "run"])
    after = "in Last-Event-ID or `after`."
    return {
        "/api/events/tail": _tail("events", f"Events as they are committed, after the id {after}", events),
        "/api/runs/tail": _tail("runs", f"Runs as they move, after the position {after}", runs),
        "/api/live": _tail("live", f"Events and runs in one stream, after the id {after}", both, POSITION),
    }


def _frame(id: Schema, events: Sequence[str]) -> Schema:
    """One event of a stream, as those who read server-sent events take it apart."""
    return {
        "type": "object",
        "required": ["id", "event", "data"],
        "properties": {
            "id": id,
            "event": {"enum": list(events)},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
    }


def _tail(noun: str, summary: str, frame: Schema, position: Schema = NUMBER) -> Schema:
    after = {"name": "after", "in": "query", "schema": position}
    return {
        "operationId": f"{noun}.tail",
        "tags": [noun],
        "summary": summary,
        "parameters": [after],
        "responses": {
            "200": {"description": "A stream.", "content": {"text/event-stream": {"schema": frame}}},
            **{status: {"$ref": f"#/components/responses/Problem{status}"} for status in TAIL_PROBLEMS},
        },
    }
