"""What the server answers to a browser: files to keep for ever, a strict policy, and a page at every address."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from typing import Any

import pytest

from harken.api.origin_guard import DATA
from harken.ui.files import Files
from harken.ui.single_page_app import Pages, all_files

PAGES = {
    "/": "pages/overview.js",
    "/events": "pages/events.js",
    "/events/7": "pages/event.js",
    "/triggers/new": "pages/builder.js",
    "/triggers/team/oncall": "pages/trigger.js",
    "/runs/8f3a": "pages/run.js",
    "/no/such/page": "main.js",
}
NAVIGATION = {"sec-fetch-mode": "navigate", "accept": "text/html"}


async def rest(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def ask(
    path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, Mapping[str, str], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": method, "path": path, "headers": raw, "query_string": b""}
    await Pages(rest, DATA)(scope, None, send)  # type: ignore[arg-type]
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, sent[1]["body"]


def text(files: Files, path: str) -> str:
    return files.shell(path).body.decode()


async def test_the_policy_allows_our_own_files_and_nothing_inline() -> None:
    status, headers, body = await ask("/")
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))

    assert status == 200
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert b"style=" not in body and not re.search(rb"<script(?![^>]*src=)", body)


async def test_files_have_a_hash_in_their_address_and_are_kept_for_ever() -> None:
    _, _, shell = await ask("/")
    main = re.search(rb'src="(/assets/[0-9a-f]{16}/main.js)"', shell)
    assert main is not None

    status, headers, body = await ask(main[1].decode())
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert "immutable" in headers["cache-control"]
    assert (await ask(main[1].decode(), {"if-none-match": headers["etag"]}))[0] == 304
    _, packed, small = await ask(main[1].decode(), {"accept-encoding": "gzip, br"})
    assert packed["content-encoding"] == "gzip"
    assert gzip.decompress(small) == body
    assert (await ask("/assets/0000000000000000/main.js"))[0] == 404, "of another version"


async def test_a_changed_file_has_another_address(tmp_path: Any) -> None:
    (tmp_path / "index.html").write_text("{{assets}} {{preload}}")
    (tmp_path / "main.js").write_text("one")
    before = Files(tmp_path).prefix
    (tmp_path / "main.js").write_text("two")

    assert Files(tmp_path).prefix != before


async def test_every_address_that_a_browser_opens_is_a_page_and_the_api_is_none() -> None:
    for path in ("/", "/triggers/oncall", "/runs", "/apiary"):
        assert (await ask(path, NAVIGATION))[1]["content-type"].startswith("text/html")
    for path in ("/api", "/api/status", "/webhooks/generic/x", "/health", "/metrics", "/admin/pollers", "/mcp"):
        assert (await ask(path, NAVIGATION))[0] == 418, path
    assert (await ask("/triggers/oncall"))[0] == 418, "a program that has no use for a page"
    assert (await ask("/", NAVIGATION, "POST"))[0] == 418


def test_the_page_names_all_modules_that_it_needs_at_first_and_no_others() -> None:
    files = all_files()
    named = {path: re.findall(r'modulepreload" href="/assets/\w+/([^"]+)"', text(files, path)) for path in PAGES}
    for path, module in PAGES.items():
        assert module in named[path]
        assert named[path] == files.first(module)
        assert "vendor/codemirror.js" not in named[path] and "vendor/uplot.js" not in named[path]
    assert "components/tabs.js" in named["/"]
    assert "components/virtual_list.js" not in named["/"]


def test_all_styles_come_in_one_file_in_their_order() -> None:
    files = all_files()
    shell, styles = text(files, "/"), files.get("styles.css")
    assert styles is not None
    assert re.findall(r'rel="stylesheet" href="/assets/\w+/([^"]+)"', shell) == ["styles.css"]
    bodies = [files.get(name) for name in ("theme.css", "layout.css", "pages/builder.css", "vendor/uplot.css")]
    places = [styles.body.find(file.body) for file in bodies if file is not None]
    assert len(places) == 4
    assert -1 not in places and places == sorted(places)


def test_the_first_page_needs_less_than_200_kB_of_script() -> None:
    files = all_files()
    first = [name for name in files.names if name.endswith(".js") and name != "vendor/codemirror.js"]

    def size(name: str) -> int:
        file = files.get(name)
        assert file is not None
        return len(file.packed or file.body)

    assert "components/editor.js" in first
    assert sum(map(size, first)) < 200_000


@pytest.mark.parametrize("forbidden", ["eval(", "new Function", "innerHTML", "dangerouslySet", "document.write"])
def test_our_scripts_never_make_code_or_markup_of_text(forbidden: str) -> None:
    files = all_files()
    ours = [name for name in files.names if name.endswith(".js") and not name.startswith("vendor/")]
    bodies = {name: file.body.decode() for name in ours if (file := files.get(name)) is not None}

    assert len(bodies) > 20
    assert [name for name, body in bodies.items() if forbidden in body] == []
