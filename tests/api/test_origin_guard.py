"""A web page in a browser on this machine must not be able to read or operate us."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harken.api.origin_guard import Guard, hosts_of
from tests.api.server import JSON, Served

PAUSE = "/api/triggers/oncall/pause"


async def test_the_loopback_names_and_configured_hosts_are_answered(served: Served) -> None:
    hosts = [f"127.0.0.1:{served.port}", f"localhost:{served.port}", f"[::1]:{served.port}", "Harken.Internal"]
    replies = [await served.send("GET", "/api/status", headers={"Host": host}) for host in hosts]
    assert [reply.status for reply in replies] == [200, 200, 200, 200]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:9091", ""])
async def test_a_rebound_name_is_not_answered(served: Served, host: str) -> None:
    reply = await served.send("GET", "/api/status", headers={"Host": host})
    assert reply.status in (400, 421)


async def test_a_rebound_name_reads_neither_health_nor_metrics(served: Served) -> None:
    replies = [await served.send("GET", path, headers={"Host": "evil.example"}) for path in ("/health", "/metrics")]
    assert [reply.status for reply in replies] == [421, 421]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "file://"])
async def test_another_origin_is_refused_even_for_reads(served: Served, origin: str) -> None:
    reply = await served.send("GET", "/api/status", headers={"Origin": origin})
    assert reply.status == 403
    assert "access-control-allow-origin" not in reply.headers


async def test_our_own_origin_is_answered(served: Served) -> None:
    reply = await served.send("GET", "/api/status", headers={"Origin": f"http://localhost:{served.port}"})
    assert reply.status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_fetch_from_another_site_is_refused_although_it_hides_its_origin(served: Served, site: str) -> None:
    assert (await served.send("GET", "/api/status", headers={"Sec-Fetch-Site": site})).status == 403


async def test_a_link_elsewhere_opens_a_page_and_nothing_that_has_data() -> None:
    link = [(b"host", b"ours:1"), (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")]
    opened = [*link, (b"sec-fetch-dest", b"document")]
    asked = {"/triggers/x": opened, "/": opened, "/api/status": opened, "/metrics": opened, "/framed": link}
    reached = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    async def send(message: Any) -> None: ...

    for path, headers in asked.items():
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
        await Guard(app, ["ours:1"], opens_pages=True)(scope, None, send)  # type: ignore[arg-type]
        await Guard(app, ["ours:1"])(scope, None, send)  # type: ignore[arg-type]

    assert reached == ["/triggers/x", "/"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_change_that_a_form_could_send_is_refused_and_not_done(served: Served, kind: str) -> None:
    reply = await served.send("POST", PAUSE, b"{}", {"Content-Type": kind})
    assert reply.status == 415
    assert (await served.call("triggers.show", name="oncall"))["paused"] == ""


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site", "Content-Type"])
async def test_a_header_that_decides_is_refused_when_it_comes_twice(served: Served, name: str) -> None:
    ours = {"Origin": f"http://localhost:{served.port}", "Sec-Fetch-Site": "none", "Content-Type": "application/json"}
    host = f"127.0.0.1:{served.port}"
    for values in ([ours[name]] * 2, ["https://evil.example", ours[name]], [ours[name], "https://evil.example"]):
        headers = [*((other, value) for other, value in ours.items() if other != name), *((name, it) for it in values)]
        lines = [f"POST {PAUSE} HTTP/1.1", f"Host: {host}", "Content-Length: 2", "Connection: close"]
        request = "\r\n".join([*lines, *(f"{header}: {value}" for header, value in headers), "", "{}"])
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request.encode())
        assert (await reader.readline()).split()[1] == b"403"
        writer.close()
    assert (await served.call("triggers.show", name="oncall"))["paused"] == ""


async def test_a_preflight_gets_no_leave(served: Served) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = await served.send("OPTIONS", PAUSE, headers=headers)
    assert reply.status == 403
    assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_a_change_with_json_is_done(served: Served) -> None:
    assert (await served.send("POST", PAUSE, b"{}", JSON)).status == 200


def test_a_wildcard_bind_allows_only_loopback_and_configured_names() -> None:
    assert hosts_of("0.0.0.0", 9091, ["box:9091"]) == {"127.0.0.1:9091", "localhost:9091", "[::1]:9091", "box:9091"}
    assert "[fd00::1]:80" in hosts_of("fd00::1", 80)
