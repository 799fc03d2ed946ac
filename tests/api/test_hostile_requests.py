"""What nobody should send, to every operation that takes it: in the body, the path, the query and the headers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest

from harken.api.routes import ROUTES, Route
from tests.api.server import JSON, Reply, Served

WITH_BODY = [route for route in ROUTES.values() if not route.in_query]
WITH_PATH = [route for route in ROUTES.values() if route.placed]
WITH_QUERY = [route for route in ROUTES.values() if route.in_query and set(route.params) - route.placed - {"match"}]
MEGABYTES_100 = 100 << 20

BODIES = {
    "nul": b'{"%b": "a\\u0000b"}',
    "nul in a key": b'{"%b": {"a\\u0000b": 1}}',
    "lone surrogate": b'{"%b": "\\ud800"}',
    "infinite": b'{"%b": 1e400}',
    "infinite within": b'{"%b": [[-1e400]]}',
    "nan": b'{"%b": NaN}',
    "deep": b'{"%b": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep objects": b'{"%b": ' * 10_000 + b"1" + b"}" * 10_000,
    "twice": b'{"%b": "a", "%b": "a"}',
    "twice within": b'{"%b": {"a": 1, "a": 2}}',
    "not utf-8": b'{"%b": "\xff"}',
    "no object": b'["%b"]',
}
TEXTS = {
    "nul": "a%00b",
    "lone surrogate": "%ED%A0%80",
    "not utf-8": "a%FFb",
    "half a character": "%C3",
}


def place(route: Route, text: str = "1") -> str:
    """The path, with this text in place of the first parameter."""
    names = iter(sorted(route.placed))
    path, first = route.template, next(names, "")
    return path.replace(f"{{{first}}}", text).replace("{id}", "1").replace("{name}", "x")


def headers_of(route: Route) -> dict[str, str]:
    return {**JSON, **({"If-Match": '"1"'} if route.needs_match else {})}


def refused(reply: Reply) -> bool:
    """Whether it is a problem of the sender's, told as every problem is; /admin has a form of its own."""
    kind = reply.headers.get("content-type", "")
    of_admin = set(reply.json()) == {"error", "fix", "code"} and kind == "application/json"
    told = of_admin or (kind == "application/problem+json" and reply.json()["status"] == reply.status)
    return 400 <= reply.status < 500 and told


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_body_is_refused_by_every_operation_that_takes_one(served: Served, body: bytes) -> None:
    accepted = {}
    for route in WITH_BODY:
        names = sorted(set(route.params) - route.placed - {"match"}) or ["reason"]
        sent = body.replace(b"%b", names[0].encode())
        reply = await served.send(route.method, place(route), sent, headers_of(route))
        if not refused(reply):
            accepted[route.operation] = (reply.status, reply.body[:200])
    assert accepted == {}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
async def test_a_path_is_refused_by_every_operation_that_names_a_thing(served: Served, text: str) -> None:
    accepted = {}
    for route in WITH_PATH:
        body = None if route.in_query else b"{}"
        reply = await served.send(route.method, place(route, text), body, headers_of(route))
        if not refused(reply):
            accepted[route.operation] = (reply.status, reply.body[:200])
    assert accepted == {}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
async def test_a_query_is_refused_by_every_operation_that_takes_one(served: Served, text: str) -> None:
    accepted = {}
    for route in WITH_QUERY:
        for name in sorted(set(route.params) - route.placed - {"match"}):
            reply = await served.send(route.method, f"{place(route)}?{name}={text}", None, headers_of(route))
            if not refused(reply):
                accepted[route.operation, name] = (reply.status, reply.body[:200])
    assert accepted == {}


@pytest.mark.parametrize("text", ["1e400", "NaN", "9" * 5_000, "-1", "0x10", "%D9%A1"])
async def test_numbers_in_a_query_are_numbers(served: Served, text: str) -> None:
    accepted = {}
    for route in WITH_QUERY:
        for name in [name for name, kind in route.params.items() if kind in ("limit", "count", "number")]:
            reply = await served.send(route.method, f"{place(route)}?{name}={text}", None, headers_of(route))
            if name not in route.placed and not refused(reply):
                accepted[route.operation, name] = (reply.status, reply.body[:200])
    assert accepted == {}


async def test_a_hundred_megabytes_are_refused_unread_by_every_operation_that_takes_a_body(served: Served) -> None:
    accepted = {}
    for route in WITH_BODY:
        announced = await exchange(served, route, {"Content-Length": str(MEGABYTES_100)})
        chunked = await exchange(served, route, {"Transfer-Encoding": "chunked"}, b"200000\r\n" + b" " * 0x200000)
        if not all(one.startswith(b"HTTP/1.1 413 ") and b"too_large" in one for one in (announced, chunked)):
            accepted[route.operation] = (announced[:200], chunked[:200])
    assert accepted == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Idempotency-Key", b"a\xffb"),
        ("Idempotency-Key", b"a b"),
        ("Idempotency-Key", b"k" * 5_000),
    ],
)
async def test_a_key_that_is_none_is_refused_by_every_operation_that_takes_one(
    served: Served, name: str, value: bytes
) -> None:
    accepted = {}
    for route in [route for route in WITH_BODY if route.takes_key]:
        reply = await exchange(served, route, {"Content-Length": "2"}, b"{}", [(name, value)])
        if not is_refusal(reply):
            accepted[route.operation] = reply[:200]
    assert accepted == {}


@pytest.mark.parametrize("route", [one for one in ROUTES.values() if one.needs_match], ids=lambda one: one.operation)
@pytest.mark.parametrize("value", [b'"\xff"', b"", b'W/"1"', b"k" * 5_000])
async def test_a_version_that_is_none_is_refused(served: Served, route: Route, value: bytes) -> None:
    sent = {} if route.in_query else {"Content-Length": "2"}
    assert is_refusal(await exchange(served, route, sent, b"" if route.in_query else b"{}", [("If-Match", value)]))


@pytest.mark.parametrize("path", ["/api/events/tail", "/api/runs/tail", "/api/live"])
@pytest.mark.parametrize("value", ["1e400", "-1", "9" * 30, "a%00b", "%ED%A0%80", "1&after=2"])
async def test_a_tail_begins_at_a_position_and_nowhere_else(served: Served, path: str, value: str) -> None:
    assert refused(await served.send("GET", f"{path}?after={value}"))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /api/status HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n", id="nul in a header"),
        pytest.param(b"GET /api/sta\0tus HTTP/1.1\r\nHost: {host}\r\n\r\n", id="nul in the path"),
        pytest.param(b"GET /api/st\xffatus HTTP/1.1\r\nHost: {host}\r\n\r\n", id="no letter in the path"),
        pytest.param(b"GET /api/status?x=\xff HTTP/1.1\r\nHost: {host}\r\n\r\n", id="no letter in the query"),
        pytest.param(b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n", id="long path"),
        pytest.param(b"GET /api/status HTTP/1.1\r\nHost: {host}\r\nX: " + b"a" * 200_000, id="long header"),
    ],
)
async def test_what_is_no_http_is_a_problem_too(served: Served, head: bytes) -> None:
    host = f"127.0.0.1:{served.port}".encode()
    reply = await asyncio.to_thread(_exchange, served.port, head.replace(b"{host}", host))
    assert reply.startswith(b"HTTP/1.1 4"), reply[:200]
    assert b"application/problem+json" in reply, reply[:400]


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        ("http://evil.example/api/status", "{host}", 421),
        ("http://evil.example/api/status", "localhost:{port}", 421),
        ("http://{host}/api/status", "evil.example", 200),
        ("http://[::1]:{port}/api/status", "{host}", 200),
        ("http://user@{host}/api/status", "{host}", 200),
        ("http://{host}/api/status", "{host}\r\nHost: evil.example", 421),
    ],
)
async def test_the_host_of_a_whole_url_counts_in_place_of_the_header(
    served: Served, target: str, header: str, status: int
) -> None:
    head = f"GET {target} HTTP/1.1\r\nHost: {header}\r\n\r\n"
    head = head.replace("{host}", f"127.0.0.1:{served.port}").replace("{port}", str(served.port))
    reply = await asyncio.to_thread(_exchange, served.port, head.encode())
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply[:200]


def is_refusal(reply: bytes) -> bool:
    head, _, body = reply.partition(b"\r\n\r\n")
    told = b"application/problem+json" in head or b'"error":' in body
    return head.startswith(b"HTTP/1.1 4") and told


async def exchange(
    served: Served,
    route: Route,
    headers: Mapping[str, str],
    body: bytes = b"",
    more: Sequence[tuple[str, bytes]] = (),
) -> bytes:
    """What is answered to the head, and as much of the body as there is."""
    lines = [f"{route.method} {place(route)} HTTP/1.1", f"Host: 127.0.0.1:{served.port}"]
    lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
    sent = [line.encode() for line in lines] + [f"{name}: ".encode() + value for name, value in more]
    return await asyncio.to_thread(_exchange, served.port, b"\r\n".join(sent) + b"\r\n\r\n" + body)


def _exchange(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        # it may be answered before its end
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        return connection.recv(65_536)
