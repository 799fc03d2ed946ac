"""The ASGI application: operations as routes, the event tail, health and metrics, behind the guard."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Routed
from starlette.types import ASGIApp, Receive, Scope, Send

from harken.api import errors
from harken.api.authentication import Authentication, is_known, operator_of, session_routes
from harken.api.errors import problem, problem_of
from harken.api.oidc_login import login_routes
from harken.api.origin_guard import Guard
from harken.api.params import TooLarge, read_params, refuse_odd_address
from harken.api.request_ids import RequestIds
from harken.api.request_rate import RequestRate
from harken.api.routes import ROUTES, Route
from harken.docs_urls import address_of
from harken.errors import HarkenError, Malformed, StoreUnavailable
from harken.operate.idempotency import Answer
from harken.operate.list_filter import FIELDS
from harken.operate.merge_events_and_runs import Position
from harken.operate.oidc import Provider
from harken.operate.operator import Operator
from harken.operate.permissions import METRICS, RUNS_TAIL, SHOWN_ONCE, TAIL
from harken.suggest import suggest_fix

__all__ = ["build", "build_waiting"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Endpoint = Callable[[Request], Awaitable[Response]]

LONGEST_KEY = 255
SMALLEST_PACKED = 2_000
"""The bytes from which on an answer is compressed for those who can read that."""
PACK_LEVEL = 3

HEARTBEAT = b": still here\n\n"

WAIT_SECONDS = 5.0
"""When those who ask while the store is waited for should ask again."""


def build(
    operator: Operator,
    *,
    hosts: Collection[str],
    metrics: Callable[[], Awaitable[bytes]] | None,
    health: Callable[[], Mapping[str, Any]],
    mcp: ASGIApp | None = None,
    pages: Callable[[ASGIApp], ASGIApp] | None = None,
    requests_per_minute: int = 0,
    local_token: str = "",
    provider: Provider | None = None,
) -> ASGIApp:
    """The application. `hosts` are the Host headers it answers to; `health` is {status, subsystems[…]}.

    Without `metrics` there is no such page; `mcp` is the MCP endpoint, behind the same guard. `pages` puts the web UI
    around the rest: its files are the same for everybody, so whoever opens the address gets them, and signs in there.
    A caller may ask `requests_per_minute` under /api, or without limit if that is 0.
    With `local_token` nobody is the operator without it, and everybody needs a token. With a `provider` people log in.
    """
    routes = [
        Routed("/health", _health(health), methods=["GET"]),
        Routed("/health/ready", _ready(health), methods=["GET"]),
        Routed("/api/openapi.json", _openapi, methods=["GET"]),
        *([Routed("/metrics", _metrics(operator, metrics), methods=["GET"])] if metrics else []),
        *session_routes(operator),
        *(login_routes(operator, provider) if provider else []),
        Routed("/api/events/tail", _tail(operator), methods=["GET"]),
        Routed("/api/runs/tail", _tail_runs(operator), methods=["GET"]),
        Routed("/api/live", _live(operator), methods=["GET"]),
        *([Routed("/mcp", mcp), Routed("/mcp/{agent:path}", mcp)] if mcp else []),
        *_operations(operator),
    ]
    known = Authentication(_starlette(routes), operator, local_token, logins=provider is not None)
    api: ASGIApp = RequestRate(known, requests_per_minute, time.monotonic)
    return RequestIds(Guard(pages(api) if pages else api, hosts, opens_pages=bool(pages or provider)))


def _operations(operator: Operator) -> list[Routed]:
    """One route for each path, whatever the method: the first path that fits decides, and what it has not is a 405."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for route in ROUTES.values():
        paths.setdefault(route.path, {})[route.method] = _endpoint(operator, route)
    return [Routed(path, _Methods(endpoints)) for path, endpoints in paths.items()]


class _Methods:
    """The endpoints of one path by method, as an application: those take every method, also ones nobody knows."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._allowed = ", ".join(sorted({*endpoints, *(["HEAD"] if "GET" in endpoints else [])}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        found = self._endpoints.get("GET" if request.method == "HEAD" else request.method)
        if found is None:
            raise HTTPException(405, headers={"allow": self._allowed})
        await (await found(request))(scope, receive, send)


def _starlette(routes: Sequence[Routed]) -> Starlette:
    found = Starlette(routes=list(routes), exception_handlers=HANDLERS)
    # a redirect would lead from /api/runs/ to /api/runs, and a program that follows it sends its body twice
    found.router.redirect_slashes = False
    return found


def build_waiting(health: Callable[[], Mapping[str, Any]], hosts: Collection[str]) -> tuple[ASGIApp, ASGIApp]:
    """The applications of API and webhooks while the store is waited for: health, and 503 for all else."""
    everything = Routed("/{path:path}", _wait(health), methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    routes = [
        Routed("/health", _health(health), methods=["GET"]),
        Routed("/health/ready", _ready(health), methods=["GET"]),
        everything,
    ]
    api = RequestIds(Guard(_starlette(routes), hosts))
    return api, RequestIds(_starlette([everything]))


def _wait(health: Callable[[], Mapping[str, Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        reasons = [part["reason"] for part in health()["subsystems"]]
        raise StoreUnavailable(", ".join(reasons), after=WAIT_SECONDS)

    return endpoint


def _endpoint(operator: Operator, route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        params = await read_params(route, request)
        fields = _known_fields(route, params.pop("fields", ()))
        caller = operator_of(operator, request)

        async def act() -> Answer:
            answer = await caller.call(route.operation, **params)
            if fields:
                answer = answer | {"items": [_only(fields, row) for row in answer["items"]]}
            body = operator.discreet(msgspec.json.encode(answer))
            return Answer(201 if route.creates else 200, body.decode())

        key = _key(request) if route.takes_key else ""
        if key:
            # an answer that is given again is for those only who may ask now
            caller.require(route.operation)
        secret, asked = route.operation in SHOWN_ONCE, _fingerprint(route, params)
        found = await caller.once(key, asked, act, secret=secret) if key else await act()
        body = found.body.encode()
        headers = _headers(route, request, msgspec.json.decode(body), body)
        if found.replayed:
            headers["idempotency-replayed"] = "true"
        if route.method == "GET" and not route.versioned and headers.get("etag", "") in _if_none_match(request):
            return Response(status_code=304, headers=headers)
        if route.method == "GET" and not route.versioned:
            body = await _packed(request, body, headers)
        return Response(body, found.status, headers, media_type="application/json")

    return endpoint


def _known_fields(route: Route, fields: Sequence[str]) -> Sequence[str]:
    """The fields, if the items of the list can have them."""
    for name in fields:
        if name not in FIELDS[route.operation]:
            fix = suggest_fix(name, FIELDS[route.operation])
            raise Malformed(f"the items of {route.operation} have no field {name}", fix=fix)
    return fields


def _only(fields: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in fields if name in row}


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key")
    if key is None:
        return ""
    if not 1 <= len(key) <= LONGEST_KEY or not all("!" <= letter <= "~" for letter in key):
        raise Malformed(f"an Idempotency-Key has 1 to {LONGEST_KEY} visible characters", fix="Use a UUID")
    return key


def _fingerprint(route: Route, params: Mapping[str, Any]) -> str:
    asked = msgspec.json.encode([route.operation, params], order="deterministic")
    return hashlib.sha256(asked).hexdigest()


def _headers(route: Route, request: Request, answer: Mapping[str, Any], body: bytes) -> dict[str, str]:
    if route.versioned:
        found = {"location": f"/api/triggers/{answer['id']}"} if route.creates else {}
        # what it shows beside changes with every read, so that it never is the same for If-None-Match
        return found | ({"etag": f'"{answer["revision"]}"'} if answer.get("revision") else {})
    if route.method != "GET" or errors.is_admin(route.path):
        return {}
    found = {"etag": f'W/"{hashlib.sha256(body).hexdigest()[:20]}"', "cache-control": "no-cache"}
    if route.pages and answer["next"] is not None:
        query = urlencode({**dict(request.query_params), "cursor": answer["next"]})
        found["link"] = f'<{request.url.path}?{query}>; rel="next"'
    return found


async def _packed(request: Request, body: bytes, headers: dict[str, str]) -> bytes:
    """The body, compressed where it is long and whoever asked can read that; the headers say so."""
    if len(body) < SMALLEST_PACKED:
        return body
    headers["vary"] = "accept-encoding"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return body
    headers["content-encoding"] = "gzip"
    # a row of a list takes a tenth of its size on the wire; a long answer must not hold up the others
    return await asyncio.to_thread(gzip.compress, body, PACK_LEVEL, mtime=0)


def _if_none_match(request: Request) -> frozenset[str]:
    header = request.headers.get("if-none-match", "")
    return frozenset(tag.strip() for tag in header.split(",") if tag.strip())


async def _openapi(request: Request) -> Response:
    # made when somebody asks: few do, and it takes a while
    from harken.api.openapi import document

    headers = {"cache-control": "no-cache"}
    return Response(await _packed(request, document(), headers), media_type="application/json", headers=headers)


def _health(health: Callable[[], Mapping[str, Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        found = health()
        return _json(found if is_known(request) else {"status": found["status"]})

    return endpoint


def _ready(health: Callable[[], Mapping[str, Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        found = health()
        waiting = [part for part in found["subsystems"] if part["state"] not in ("up", "disabled")]
        shown = {"waiting": waiting} if is_known(request) else {}
        return _json({"ready": not waiting, **shown}, 503 if waiting else 200)

    return endpoint


def _metrics(operator: Operator, metrics: Callable[[], Awaitable[bytes]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        operator_of(operator, request).require(METRICS)
        return Response(await metrics(), headers={"content-type": METRICS_TYPE})

    return endpoint


def _tail(operator: Operator) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        after, caller = _position(request), operator_of(operator, request)
        # here and not in the stream, which answers 200 before it begins
        caller.require(TAIL)
        return _stream(caller, caller.tail(after), "event", "id")

    return endpoint


def _tail_runs(operator: Operator) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        after, caller = _position(request), operator_of(operator, request)
        caller.require(RUNS_TAIL)
        return _stream(caller, caller.tail_runs(after), "run", "position")

    return endpoint


def _live(operator: Operator) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        given, caller = _after(request), operator_of(operator, request)
        caller.require(TAIL)
        caller.require(RUNS_TAIL)
        after = await caller.position() if given is None else Position.parse(given)
        return _event_stream(_live_frames(caller, after))

    return endpoint


async def _live_frames(operator: Operator, after: Position) -> AsyncIterator[bytes]:
    # with the position at once, so that who loses the connection before the first event misses none
    yield b"id: %b\nevent: position\ndata: {}\n\n" % str(after).encode()
    async for moved in operator.live(after):
        if moved.row is None:
            yield HEARTBEAT
            continue
        # a list has no payloads either: pages ask for the one that somebody looks at
        row = {name: value for name, value in moved.row.items() if name != "data"}
        yield operator.discreet(_frame(row, moved.kind, str(moved.position)))


def _position(request: Request) -> int | None:
    """Where a tail goes on: what the caller had last."""
    after = _after(request)
    if after is None:
        return None
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise Malformed("Last-Event-ID must be the id of an event")
    return int(after)


def _after(request: Request) -> str | None:
    refuse_odd_address(request)
    for name in request.query_params:
        if name != "after":
            raise Malformed(f"a tail has no parameter {name}", fix="There is: after")
    if len(request.query_params.multi_items()) > 1:
        raise Malformed("after is given twice", fix="Give it once")
    return request.headers.get("last-event-id") or request.query_params.get("after")


def _stream(operator: Operator, rows: AsyncIterator[Any], kind: str, id: str) -> Response:
    async def frames() -> AsyncIterator[bytes]:
        # a first comment line, so that a client knows at once that it is connected
        yield b": harken\n\n"
        async for row in rows:
            yield HEARTBEAT if row is None else operator.discreet(_frame(row, kind, str(row[id])))

    return _event_stream(frames())


def _event_stream(frames: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(frames, media_type="text/event-stream", headers={"cache-control": "no-store"})


def _frame(row: Mapping[str, Any], kind: str, id: str) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), kind.encode(), msgspec.json.encode(row))


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, TooLarge):
        return _wrong(request)(413, error.message, error.fix, code=error.code)
    assert isinstance(error, HarkenError)
    return errors.error_of(error) if errors.is_admin(request.url.path) else problem_of(error)


async def _http_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    fix = f"See {address_of('docs/reference/http.md')} for what there is"
    code = "not_found" if error.status_code == 404 else "refused"
    return _wrong(request)(error.status_code, str(error.detail), fix, code=code, headers=error.headers)


async def _crashed(request: Request, error: Exception) -> Response:
    # the exception's text is not shown, as it may quote a secret; the log has the traceback
    return _wrong(request)(500, f"unexpected {type(error).__name__}", "See the controller's log", code="error")


def _wrong(request: Request) -> Callable[..., Response]:
    """The error response in the form of this part of the API: /admin has its own."""
    return errors.error if errors.is_admin(request.url.path) else problem


async def _hung_up(request: Request, error: Exception) -> Response:
    # nobody is there to read it; it is no fault that the log should have
    return _wrong(request)(400, "the caller hung up before the body was complete", code="malformed")


HANDLERS: dict[Any, Any] = {
    HarkenError: _failed,
    HTTPException: _http_failed,
    ClientDisconnect: _hung_up,
    Exception: _crashed,
}
