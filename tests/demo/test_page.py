"""The demo's page: everything in one answer, under a policy that allows nothing else."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from typing import Any

from harken.demo.legend import COUNTERS
from harken.demo.page import Page
from harken.demo.snapshot import Snapshot
from tests.demo.test_display import event, snapshot


async def answered(page: Page) -> tuple[dict[str, str], str]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await page({"type": "http", "method": "GET", "path": "/"}, None, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return headers, sent[1]["body"].decode()


def page_of(shown: Snapshot) -> Page:
    page = Page("incident service", ("export HARKEN_CONFIG=/tmp/demo", "harken runs list"))
    page.show(shown)
    return page


def digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


async def test_the_policy_allows_exactly_the_style_and_script_of_the_page() -> None:
    headers, body = await answered(page_of(snapshot((event(1),))))
    [style] = re.findall(r"<style>(.*?)</style>", body, re.DOTALL)
    [script] = re.findall(r"<script>(.*?)</script>", body, re.DOTALL)

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))

    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == digest(style)
    assert policy["script-src"] == digest(script)
    assert (policy["connect-src"], policy["frame-ancestors"]) == ("'self'", "'none'")
    assert " style=" not in body and " onclick=" not in body, "inline attributes would be refused"


async def test_it_needs_nothing_from_elsewhere() -> None:
    _, body = await answered(page_of(snapshot((event(1),))))

    loaded = re.findall(r'(?:src|href|action)\s*=\s*["\']([^"\']+)', body) + re.findall(r"url\(([^)]+)\)", body)

    assert [address for address in loaded if not address.startswith("data:")] == []
    assert "prefers-color-scheme: dark" in body


async def test_it_shows_events_runs_counters_their_meaning_and_the_next_step() -> None:
    _, body = await answered(page_of(snapshot((event(1),), runs=2)))

    assert "INC-1 checkout is slow triggered" in body
    assert ">triage fired</span>" in body
    assert ">done</span>" in body
    assert "<dt>late</dt><dd>40</dd>" in body
    assert COUNTERS["late"] in body
    assert "export HARKEN_CONFIG=/tmp/demo\nharken runs list" in body
    assert "init my-automations" in body


async def test_what_services_write_is_never_markup() -> None:
    hostile = event(1, '<img src=x onerror="alert(1)"> & </main><script>alert(2)</script>')

    _, body = await answered(page_of(snapshot((hostile,))))

    assert "<img" not in body
    assert body.count("<script>") == 1
    assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt; &amp; " in body


async def test_before_anything_happened_it_says_so() -> None:
    _, body = await answered(page_of(Snapshot()))

    assert body.count("nothing yet") == 2
