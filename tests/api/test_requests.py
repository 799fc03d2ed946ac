"""What a request has to be, and what every answer has: ids, rates, tags, pages, problems."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.api.request_rate import RequestRate
from harken.api.routes import ROUTES
from harken.errors import Malformed, TooManyRequests
from harken.operate.paging import bind_cursor, id_after, page_by, to_cursor
from tests.api.server import JSON, Reply, Served, serving
from tests.operate.operator_world import opened

PAUSE = "/api/triggers/oncall/pause"


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Served]:
    async with opened(tmp_path) as office, serving(office, requests_per_minute=3) as made:
        yield made


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"reason": "a\\u0000b"}', id="nul"),
        pytest.param(b'{"reason": "\\ud800"}', id="lone surrogate"),
        pytest.param(b'{"reason": 1e400}', id="infinite"),
        pytest.param(b'{"reason": NaN}', id="nan"),
        pytest.param(b'{"reason": 123456789012345678901234567890}', id="large"),
        pytest.param(b'{"reason": ' + b"9" * 5000 + b"}", id="very large"),
        pytest.param(b'{"reason": "a", "reason": "b"}', id="twice"),
        pytest.param(b'{"reason": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", id="deep"),
        pytest.param(b'{"a": ' * 200 + b"1" + b"}" * 200, id="deeper than it may be"),
        pytest.param(b'{"reason": "\xff"}', id="not utf-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(b'{"reason": null}', id="null"),
    ],
)
async def test_json_that_two_readers_may_understand_differently_is_refused(served: Served, body: bytes) -> None:
    reply = await served.send("POST", PAUSE, body, JSON)
    assert_problem(reply, 400, "malformed", PAUSE)


@pytest.mark.parametrize("path", ["/api/events?key=a%00b", "/api/events?limit=0", "/api/events?limit=501",
                                  "/api/events?cursor=nonsense", "/api/events?cursor=WyJhIl0", "/api/feeds?cursor=WzFd",
                                  "/api/events?include=everything", "/api/events?limit=1&limit=2"])  # fmt: skip
async def test_queries_that_mean_nothing_are_refused(served: Served, path: str) -> None:
    assert_problem(await served.send("GET", path), 400, "malformed", path.partition("?")[0])


PAGES = [route for route in ROUTES.values() if route.pages]


async def test_a_cursor_of_another_list_is_refused_by_every_list(served: Served) -> None:
    wrong: dict[tuple[str, str], object] = {}
    for route in PAGES:
        for other in PAGES:
            for key in (7, "a"):
                cursor = bind_cursor(to_cursor(key) or "", other.operation, {})
                reply = await served.send("GET", f"{route.path}?cursor={cursor}")
                told = (reply.status, reply.json().get("code"), "another list" in reply.json().get("detail", ""))
                if route is not other and told != (400, "malformed", True):
                    wrong[other.operation, route.operation] = told
        with_filters = [name for name in route.params if name not in ("cursor", "limit", "fields", "include", "before")]
        for name in with_filters:
            cursor = bind_cursor(to_cursor(7) or "", route.operation, {name: "x"})
            reply = await served.send("GET", f"{route.path}?cursor={cursor}")
            if reply.status != 400 or "other filters" not in reply.json()["detail"]:
                wrong[route.operation, name] = reply.status
    assert wrong == {}


async def test_the_next_page_may_be_larger_and_show_other_fields(served: Served) -> None:
    await served.office.shows(*(served.office.incident(f"INC-{n}") for n in range(7)))
    first = (await served.send("GET", "/api/events?limit=2&include=data&fields=id")).json()
    rest = (await served.send("GET", f"/api/events?limit=6&cursor={first['next']}")).json()
    assert [len(first["items"]), len(rest["items"]), rest["next"]] == [2, 5, None]


@pytest.mark.parametrize("number", [b"1.0", b"1e0", b"10e-1"])
async def test_a_whole_number_may_be_written_with_a_fraction(served: Served, number: bytes) -> None:
    whole = await served.send("POST", "/api/webhooks/curl", b'{"id": "nobody", "event": 1}', JSON)
    other = await served.send("POST", "/api/webhooks/curl", b'{"id": "nobody", "event": ' + number + b"}", JSON)
    assert (other.status, other.json()["detail"]) == (whole.status, whole.json()["detail"])


@pytest.mark.parametrize("number", [b"1.5", b"1e300", b"true", b'"1"'])
async def test_what_is_no_whole_number_is_no_count(served: Served, number: bytes) -> None:
    path = "/api/webhooks/curl"
    reply = await served.send("POST", path, b'{"id": "nobody", "event": ' + number + b"}", JSON)
    assert_problem(reply, 400, "malformed", path)


async def test_a_hundred_megabytes_are_refused_before_they_are_read(served: Served) -> None:
    head = f"POST {PAUSE} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    reply = await asyncio.to_thread(_send_raw, served.port, f"{head}Content-Length: 104857600\r\n\r\n".encode())
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in reply


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/api/nothing", {}, 404),
        ("GET", "/api/runs/", {}, 404),
        ("POST", "/api/status", JSON, 405),
        ("PUT", PAUSE, JSON, 405),
        ("OPTIONS", "/api/triggers", {}, 405),
        ("POST", PAUSE, {"Content-Type": "text/plain"}, 415),
        ("PUT", "/api/triggers/oncall", {"Content-Type": "text/plain"}, 415),
        ("GET", "/api/status", {"Host": "evil.example"}, 421),
        ("GET", "/api/status", {"Origin": "https://evil.example"}, 403),
    ],
)
async def test_every_refusal_is_a_problem(
    served: Served, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    reply = await served.send(method, path, b"{}" if method in ("POST", "PUT") else None, headers)
    problem = reply.json()
    assert (reply.status, problem["status"], problem["instance"]) == (status, status, path)
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["request_id"] == reply.headers["x-request-id"]


async def test_a_method_that_a_path_has_not_is_answered_with_those_that_it_has(served: Served) -> None:
    found = [await served.send("OPTIONS", path) for path in ("/api/triggers", "/api/triggers/oncall", PAUSE)]
    assert [reply.headers["allow"] for reply in found] == ["GET, HEAD, POST", "DELETE, GET, HEAD, PATCH, PUT", "POST"]


async def test_an_id_that_came_is_the_id_of_the_answer_unless_it_is_none(served: Served) -> None:
    good = await served.send("GET", "/api/feeds", headers={"X-Request-Id": "deploy-7"})
    bad = await served.send("GET", "/api/feeds", headers={"X-Request-Id": "a b"})
    assert good.headers["x-request-id"] == "deploy-7"
    assert len(bad.headers["x-request-id"]) == 16


async def test_who_asks_too_much_is_told_when_to_ask_again(slow: Served) -> None:
    replies = [await slow.send("GET", "/api/feeds") for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert [reply.headers["ratelimit-remaining"] for reply in replies] == ["2", "1", "0", "0"]
    assert {reply.headers["ratelimit-limit"] for reply in replies} == {"3"}
    assert 1 <= int(replies[3].headers["retry-after"]) <= 20
    assert_problem(replies[3], 429, "too_many_requests", "/api/feeds")
    assert (await slow.send("GET", "/health")).status == 200
    with pytest.raises(TooManyRequests):
        await slow.call("feeds.list")


def test_a_bucket_fills_evenly_and_waiting_helps_although_others_were_refused() -> None:
    now = [0.0]
    rate = RequestRate(None, 60, lambda: now[0])  # type: ignore[arg-type]
    first = [rate._spend("a") for _ in range(60)]
    refused = [rate._spend("a") for _ in range(100)]
    now[0] = 1.0
    assert first[-1] == 0
    assert all(left < 0 for left in refused)
    assert rate._spend("a") == pytest.approx(0)
    assert rate._spend("b") == 59


async def test_a_thing_that_has_not_changed_is_not_sent_again(served: Served) -> None:
    first = await served.send("GET", "/api/workflows")
    again = await served.send("GET", "/api/workflows", headers={"If-None-Match": first.headers["etag"]})
    other = await served.send("GET", "/api/workflows", headers={"If-None-Match": '"x"'})
    assert (again.status, again.body, other.status) == (304, b"", 200)


async def test_a_page_names_the_next_one_in_its_headers(served: Served) -> None:
    await served.office.shows(*(served.office.incident(f"INC-{n}") for n in range(3)))
    page = await served.send("GET", "/api/events?limit=2&trigger=oncall")
    following = page.headers["link"].partition(">")[0].removeprefix("<")
    rest = await served.send("GET", following)
    assert [event["key"] for event in rest.json()["items"]] == ["INC-0"]
    assert "link" not in rest.headers


async def test_lists_have_payloads_only_for_who_asks(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    [plain] = (await served.call("events.list"))["items"]
    [full] = (await served.call("events.list", include=["data"]))["items"]
    assert "data" not in plain
    assert full["data"]["urgency"] == "high"


async def test_a_list_without_a_limit_is_read_page_by_page(served: Served) -> None:
    await served.office.shows(*(served.office.incident(f"INC-{n}") for n in range(7)))
    found = [event["id"] for event in served_items(await served.call("events.list"))]
    assert found == sorted(found, reverse=True)
    assert len(found) == 7


def test_pages_by_name_neither_repeat_nor_skip_what_stays_whatever_comes_and_goes() -> None:
    names = [f"t{n:03}" for n in range(100)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = page_by([{"name": name} for name in names], cursor, 10)
        seen += [row["name"] for row in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
        # one that was seen goes, one that was not goes, and two come on either side of the cursor
        names = [name for name in names if name not in (seen[0], "t095")] + [f"{seen[-1]}-after", f"a{len(seen)}"]
    stayed = [f"t{n:03}" for n in range(100) if n != 95]
    assert len(seen) == len(set(seen))
    assert [name for name in stayed if name not in seen] == []


@pytest.mark.parametrize("cursor", ["x", "!", "W10", "WzEsMl0", "WyJhIl0", "Wy0xXQ", "W3RydWVd", "WzFlM10"])
def test_a_cursor_that_no_list_gave_is_refused(cursor: str) -> None:
    with pytest.raises(Malformed):
        id_after(cursor)


def test_a_cursor_leads_back_to_its_key() -> None:
    assert id_after(to_cursor(2**62) or "") == 2**62
    assert to_cursor(None) is None


def served_items(answer: dict[str, list[dict[str, int]]]) -> list[dict[str, int]]:
    return answer["items"]


def assert_problem(reply: Reply, status: int, code: str, path: str) -> None:
    problem = reply.json()
    assert (reply.status, problem["status"], problem["code"], problem["instance"]) == (status, status, code, path)
    assert problem["request_id"] == reply.headers["x-request-id"]
    assert {"type", "title", "detail", "fix"} <= set(problem)


def _send_raw(port: int, head: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head)
        return connection.recv(65_536)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        # the first and the last day of the calendar have no equal in some zones
        ("GET", "/api/events?since=0001-01-01", None, 400),
        ("GET", "/api/audit?since=9999-12-31T23:59:59-14:00", None, 400),
        ("GET", "/api/runs?since=yesterday", None, 400),
        ("GET", "/api/runs?status=faild", None, 400),
        ("GET", "/api/triggers/oncall/explain?key=0001-01-01", None, 200),
        ("POST", "/api/tokens", b'{"name": "a", "expires": "9999-12-31T23:59:59-14:00"}', 422),
        ("POST", "/api/models/test", b'{"name": "nothing"}', 404),
        ("POST", "/api/dead/retry", b'{"latest": true, "same": true}', 422),
        ("PATCH", "/api/triggers/oncall", b'{"workflow": {}}', 428),
        ("GET", "/api/events/tail?after=1&after=2", None, 400),
        ("GET", "/api/events?key=%ED%A0%80", None, 400),
    ],
)
async def test_what_a_fuzzer_found(served: Served, method: str, path: str, body: bytes | None, status: int) -> None:
    assert (await served.send(method, path, body, JSON)).status == status
