"""/admin/pollers on a real socket, in front of a whole controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harken.api.app import build
from harken.api.origin_guard import hosts_of
from harken.app import App
from harken.app.server import Listener, bind
from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.operate.load_and_check_configuration import load_directory
from harken.operate.operator import Operator
from tests.operate.counting_service import readings
from tests.operate.poller_jobs import job, metered, write

JSON = {"Content-Type": "application/json"}


class Site:
    def __init__(self, url: str, directory: Path) -> None:
        self.directory = directory
        self._port = urlsplit(url).port

    async def send(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"{}") -> Any:
        """Status, answer and headers."""
        return await asyncio.to_thread(self._send, method, path, JSON if headers is None else headers, body)

    def _send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request(method, path, body if method == "POST" else None, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer, found


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    with metered(tmp_path, monkeypatch) as directory:
        readings.latency = 0.0
        write(directory, job("one"), job("two", agent="bea"))
        async with App.start(directory, port=0) as app:
            yield Site(app.url, directory)


async def test_jobs_are_listed_and_shown(site: Site) -> None:
    status, answer, _ = await site.send("GET", "/admin/pollers")
    assert (status, [row["id"] for row in answer["items"]]) == (200, ["one", "two"])
    status, answer, _ = await site.send("GET", "/admin/pollers?agent=bea")
    assert (status, [row["id"] for row in answer["items"]]) == (200, ["two"])
    status, answer, _ = await site.send("GET", "/admin/pollers/one")
    assert (status, answer["settings"]["config"]["name"]) == (200, "one")


async def test_a_plain_post_from_loopback_without_an_origin_works(site: Site) -> None:
    answers = [await site.send("POST", f"/admin/pollers/one/{act}", {}, b"") for act in ("pause", "resume")]
    assert [(status, answer["paused"]) for status, answer, _ in answers] == [(200, True), (200, False)]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Mode": "no-cors"},
        {"Referer": "https://evil.example/"},
        {"Cookie": "a=b"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "text/plain"},
        {"X-Forwarded-For": "192.0.2.1"},
        {"Host": "evil.example"},
    ],
)
async def test_a_browser_page_still_cannot_pause_a_job(site: Site, headers: dict[str, str]) -> None:
    status, _, _ = await site.send("POST", "/admin/pollers/one/pause", headers, b"")
    assert status in (403, 415, 421)
    assert (await site.send("GET", "/admin/pollers/one"))[1]["paused"] is False


async def test_a_body_still_needs_its_content_type(site: Site) -> None:
    assert (await site.send("POST", "/admin/pollers/one/pause", {}, b"{}"))[0] == 415


async def test_a_plain_post_elsewhere_is_still_refused(site: Site) -> None:
    assert (await site.send("POST", "/api/reload", {}, b""))[0] == 415


async def test_a_job_is_run_paused_resumed_and_reset(site: Site) -> None:
    status, found, _ = await site.send("POST", "/admin/pollers/one/run")
    assert (status, found["new"], found["error"]) == (200, 1, None)
    answers = [(await site.send("POST", f"/admin/pollers/one/{act}"))[1] for act in ("pause", "resume", "reset")]
    assert [answer["paused"] for answer in answers] == [True, False, False]


async def test_a_reload_says_what_it_does_to_jobs_and_to_nothing_else(site: Site) -> None:
    write(site.directory, job("one", every=2), job("new"), job("bad", kind="metre"))
    status, plan, _ = await site.send("POST", "/admin/pollers/reload")
    [bad] = plan.pop("refused")
    assert (status, plan) == (200, {"ok": False, "add": ["new"], "replace": ["one"], "remove": ["two"], "keep": []})
    assert (bad["id"], bad["runs"]) == ("bad", False)
    assert "there is no kind 'metre'. Did you mean meter?" in bad["errors"][0]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/admin/pollers/onr", 404),
        ("POST", "/admin/pollers/onr/run", 404),
        ("POST", "/admin/pollers/one/explode", 404),
        ("GET", "/admin/nothing", 404),
        ("POST", "/admin/pollers", 405),
        ("POST", "/admin/pollers/one", 405),
        ("GET", "/admin/pollers/one/run", 405),
        ("DELETE", "/admin/pollers/one", 405),
        ("GET", "/admin/pollers?agents=ana", 400),
    ],
)
async def test_whatever_is_wrong_is_an_error_in_words(site: Site, method: str, path: str, status: int) -> None:
    found, answer, headers = await site.send(method, path)
    assert (found, headers["content-type"]) == (status, "application/json")
    assert answer["error"]


async def test_an_unknown_id_comes_with_the_nearest(site: Site) -> None:
    _, answer, _ = await site.send("GET", "/admin/pollers/onr")
    assert answer == {"error": "there is no job onr", "fix": "Did you mean one?", "code": "not_found"}


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"agent": 7}', b'{"id": "two"}', b'{"force": true}'])
async def test_a_body_that_cannot_be_used_is_a_bad_request(site: Site, body: bytes) -> None:
    status, answer, _ = await site.send("POST", "/admin/pollers/one/pause", body=body)
    assert (status, bool(answer["error"])) == (400, True)


async def test_a_paused_job_is_not_run(site: Site) -> None:
    await site.send("POST", "/admin/pollers/one/pause")
    status, answer, _ = await site.send("POST", "/admin/pollers/one/run")
    assert (status, answer["error"]) == (400, "job one is paused: paused by a person")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**JSON, "Host": "evil.example"}, 421),
        ({**JSON, "Origin": "https://evil.example"}, 403),
        ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
    ],
)
async def test_web_pages_are_kept_out(site: Site, headers: dict[str, str], status: int) -> None:
    found, answer, _ = await site.send("POST", "/admin/pollers/one/reset", headers)
    assert (found, bool(answer["error"])) == (status, True)
    listed = (await site.send("GET", "/admin/pollers", {name: headers[name] for name in headers if name == "Host"}))[0]
    assert listed == (421 if "Host" in headers else 200)


@pytest.mark.parametrize("section", ["", "pollers: {enabled: false}\n"])
async def test_without_a_section_there_is_nothing_there(site: Site, section: str) -> None:
    (site.directory / "pollers.yaml").write_text(section)
    assert (await site.send("POST", "/admin/pollers/reload"))[0] == 200
    for method, path in (("GET", ""), ("GET", "/one"), ("POST", "/one/run"), ("POST", "/reload")):
        status, answer, _ = await site.send(method, f"/admin/pollers{path}")
        assert (status, answer["error"]) == (404, "there is no pollers section")


async def test_a_store_that_is_too_busy_asks_for_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    with metered(tmp_path, monkeypatch) as directory:
        write(directory, job("one"))
        loaded = load_directory(directory)
        store = SqliteStore.at(loaded.store, clock)
        await store.open(loaded.definitions())
        await store.close()
        # it takes no writes at all, but still answers
        store = SqliteStore.at(loaded.store, clock, limit=0)
        sock = bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        hosts = hosts_of("127.0.0.1", sock.getsockname()[1])
        operator = Operator(store, None, loaded, clock)
        listener = Listener(build(operator, hosts=hosts, metrics=None, health=dict), sock)
        await listener.start()
        status, answer, headers = await Site(url, directory).send("POST", "/admin/pollers/one/pause")
        assert (status, headers["retry-after"], "writes waiting" in answer["error"]) == (503, "1", True)
        assert (await Site(url, directory).send("GET", "/admin/pollers"))[0] == 200
        await listener.stop()
        store.abandon()
