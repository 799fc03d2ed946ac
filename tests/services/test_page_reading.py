"""What people read on a page, and how a difference looks to them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from harken.errors import NeedsAttention, RetryLater
from harken.services.page import Query
from harken.services.page.diff import change_of
from harken.services.page.text import remove_matches
from harken.source import Host
from harken.testing import HandClock
from tests.services.reading import page
from tests.services.site import Site, watch


@pytest.fixture
async def site(clock: HandClock) -> AsyncIterator[Site]:
    served = Site(clock)
    async with served.serve():
        yield served


async def text(site: Site, host: Host, body: bytes | str, kind: str = "text/html", **fields: Any) -> str:
    site.body, site.kind = body.encode() if isinstance(body, str) else body, kind
    (event,) = (await page(watch(site, host, **fields))).events
    return str(event.data["new"])


class TestText:
    @pytest.mark.parametrize(
        ("markup", "shown"),
        [
            ("Hello <b>wor</b>ld", "Hello world"),
            ("<p>one\n  two</p><p>three", "one two\nthree"),
            ("a<br>b<hr>c", "a\nb\nc"),
            ("<ul><li>1<li>2</ul>", "1\n2"),
            ("<table><tr><td>a<td>b<tr><th>c<td>d</table>", "a b\nc d"),
            ("<pre>if x:\n    y</pre>", "if x:\ny"),
            ("x<script>var y</script><style>p{}</style><noscript>n</noscript><!-- c --><svg><text>s</text></svg>", "x"),
            ("AT&amp;T &lt;b&gt; &eacute;&nbsp;&#128512;", "AT&T <b> é 😀"),
            ("<title>not this</title><p>this", "this"),
            ("<p>unclosed <b>bold <p>next", "unclosed bold\nnext"),
        ],
    )
    async def test_a_page_is_read_as_people_read_it(self, site: Site, host: Host, markup: str, shown: str):
        assert await text(site, host, markup) == shown

    @pytest.mark.parametrize(
        "tag", ["<div>", "<b>", "<DIV/>", "<path/>", "<svg><div><path/>", "<svg><path>", "<rp>", "<x-y z>"]
    )
    async def test_nesting_that_would_take_the_parser_hours_needs_a_person(self, site: Site, host: Host, tag: str):
        with pytest.raises(NeedsAttention, match="nests its elements deeper"):
            await text(site, host, tag * 100_000 + "deep")

    @pytest.mark.parametrize(
        "markup",
        [
            "<div>" * 900 + "{}",
            "<p>{}" + "<p>" * 9_000,
            "<ul>" + "<li>" * 9_000 + "{}</ul>",
            "{}<img src=x><br><input>" + "<br/>" * 9_000,
            "<table>" + "<tr><td>" * 9_000 + "{}</table>",
            "{}<svg>" + "<path d='M0 0'/><circle r=1 />" * 9_000 + "</svg>",
            "{}" + "<i></i>" * 9_000,
            "{}" + "<script>" * 200_000,
            "{}<script>" + "print('<div>')" * 9_000 + "</script>",
        ],
    )
    async def test_a_page_that_is_only_long_is_read(self, site: Site, host: Host, markup: str):
        assert await text(site, host, markup.format("words")) == "words"

    @pytest.mark.parametrize(
        ("fields", "shown"),
        [
            ({"selector": "a"}, "one\ntwo"),
            ({"selector": "a", "attribute": "href"}, "/1\n/2"),
            ({"selector": "script[type='application/ld+json']"}, '{"price": 5}'),
            ({"selector": "li:nth-child(2) > a"}, "two"),
            ({"selector": "title"}, "T"),
        ],
    )
    async def test_a_selector_finds_its_parts(self, site: Site, host: Host, fields: Any, shown: str):
        data = "<script type='application/ld+json'>{\"price\": 5}</script>"
        markup = f"<title>T</title>{data}<ul><li><a href=/1>one</a><li><a href='/2'>two</a><li><a name=x></a></ul>"
        assert await text(site, host, markup, **fields) == shown

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ("<p>café</p>".encode("latin-1"), "text/html; charset=iso-8859-1"),
            (b"<meta charset=windows-1252>" + "<p>café</p>".encode("cp1252"), "text/html"),
            ("<p>café</p>".encode("utf-16"), "text/html"),
            ("<p>café</p>".encode(), "text/html"),
            ("<p>café</p>".encode("cp1252"), "text/html; charset=nonsense"),
            ("  café\n\n".encode(), "text/plain"),
        ],
    )
    async def test_every_encoding_is_understood(self, site: Site, host: Host, body: bytes, kind: str):
        assert await text(site, host, body, kind) == "café"

    async def test_plain_text_keeps_its_signs(self, site: Site, host: Host):
        assert await text(site, host, "a <b> c\nd", "text/plain; charset=utf-8") == "a <b> c\nd"

    async def test_a_picture_needs_a_person(self, site: Site, host: Host):
        with pytest.raises(NeedsAttention, match="image/png"):
            await text(site, host, b"\x89PNG", "image/png")

    @pytest.mark.parametrize(("path", "shown"), [("a.b.1", "2"), ("a.c", "words\nand more"), ("a.d", "null")])
    async def test_a_json_path_finds_a_value(self, site: Site, host: Host, path: str, shown: str):
        body = '{"a": {"b": [1, 2], "c": " words\\n and more", "d": null}}'
        assert await text(site, host, body, "application/json", json_path=path) == shown

    async def test_a_web_page_in_place_of_json_passes(self, site: Site, host: Host):
        with pytest.raises(RetryLater, match="not JSON"):
            await text(site, host, "<p>Sorry</p>", json_path="a")

    async def test_a_missing_parser_says_how_to_install_it(
        self, site: Site, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
        assert Query(url=f"{site.url}/page", selector="p[")
        with pytest.raises(NeedsAttention, match=r"pip install 'harken\[page\]'"):
            await text(site, host, "<p>x</p>")


def lines(*numbers: int, **changed: str) -> str:
    return "\n".join(changed.get(f"n{number}", f"line {number}") for number in range(*numbers))


class TestDifference:
    def test_distant_changes_are_shown_with_their_surroundings(self):
        diff = change_of(lines(50), lines(50, n10="ten", n40="forty")).diff.splitlines()
        assert diff[:7] == ["@@ -9 +9 @@", " line 8", " line 9", "-line 10", "+ten", " line 11", " line 12"]
        assert diff[7:10] == ["@@ -39 +39 @@", " line 38", " line 39"]

    def test_an_insertion_says_where(self):
        change = change_of(lines(5), lines(7))
        assert (change.diff, change.added) == (
            "@@ -4 +4 @@\n line 3\n line 4\n+line 5\n+line 6",
            "line 5\nline 6",
        )

    def test_nothing_left_is_a_difference(self):
        assert change_of("a\nb", "").diff == "@@ -1 +1 @@\n-a\n-b"

    def test_a_line_that_looks_like_a_sign_keeps_it(self):
        assert change_of("- x", "+ y").diff == "@@ -1 +1 @@\n-- x\n++ y"

    def test_one_change_in_a_page_of_many_lines_is_found(self):
        assert "+here" in change_of(lines(20_000), lines(20_000, n15000="here")).diff

    def test_a_page_that_is_wholly_new_is_compared_in_part(self):
        assert change_of(lines(3000), lines(5000, 8000)).diff.count("\n") < 2_100


class TestIgnoring:
    async def test_lines_that_become_empty_go(self):
        assert await remove_matches("a 1\n12\nb 3", [r"\d+"]) == "a\nb"

    async def test_every_script_passes(self):
        assert await remove_matches("東京 👩‍👩‍👧 x", ["x"]) == "東京 👩‍👩‍👧"

    async def test_anchors_are_those_of_lines(self):
        assert await remove_matches("keep\nUpdated now\nkeep", ["^Updated.*$"]) == "keep\nkeep"
