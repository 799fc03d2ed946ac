"""Every feed of feedparser's own tests, served with the headers that it asks for, goes through the rss service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import feedparser
import pytest
from aiohttp import web

from harken.errors import HarkenError, NeedsAttention
from harken.event import Event
from harken.http import Client
from harken.kit.html import html_to_line
from harken.services.rss import NewsFeed, Query
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.server import FakeServer, Handler
from tests.downloads.corpora import corpus

FEEDS = 2242
HEADER = re.compile(rb"^Header:\s+(content-type|content-language):\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)

BASE64 = "titles in base64 were a part of Atom 0.3, and are shown as they are written"
AS_WRITTEN = "an Atom id is compared as it is written (RFC 4287, 4.2.6.1), so it is not resolved or normalised"
DISAGREEMENTS = {
    "wellformed/atom/entry_title_base64.xml": BASE64,
    "wellformed/atom/entry_title_base64_2.xml": BASE64,
    "wellformed/atom/entry_title_content_mode_base64.xml": BASE64,
    "wellformed/atom10/entry_title_base64.xml": BASE64,
    "wellformed/atom10/entry_title_base64_2.xml": BASE64,
    "wellformed/base/http_entry_title_base64_base_content_location.xml": BASE64,
    "wellformed/base/http_entry_title_base64_base_docuri.xml": BASE64,
    "wellformed/atom10/entry_id_no_normalization_4.xml": AS_WRITTEN,
    "wellformed/atom10/entry_id_with_attributes.xml": AS_WRITTEN,
    "wellformed/base/http_entry_id_base_content_location.xml": AS_WRITTEN,
    "wellformed/base/http_entry_id_base_docuri.xml": AS_WRITTEN,
    "wellformed/lang/http_content_language_entry_title_inherit_2.xml": AS_WRITTEN,
    "wellformed/node_precedence/atom10_id.xml": AS_WRITTEN,
    "wellformed/rss/item_category_image.xml": "the title of an image in a category is not the item's",
    "wellformed/sanitize/entry_title_crazy.xml": "the text of a script is never shown",
}


class Read(NamedTuple):
    """A feed as both see it; `events` is None when the service says that it is no feed."""

    path: str
    events: list[Event] | None
    theirs: Any


class Shelf(FakeServer):
    """Serves the files below a folder, each with the headers that its first comment declares."""

    root: Path

    def routes(self) -> Mapping[str, Handler]:
        return {"/{path:.*}": self._file}

    async def _file(self, request: web.Request) -> web.Response:
        body = (self.root / request.match_info["path"]).read_bytes()
        return web.Response(body=body, headers=declared(body))


def declared(body: bytes) -> dict[str, str]:
    found = {name.decode().lower(): value.decode("latin-1") for name, value in HEADER.findall(body[:2000])}
    return {"content-type": "application/xml", **found}


async def read_all(root: Path) -> list[Read]:
    clock = HandClock()
    client, shelf = Client(clock), Shelf(clock)
    shelf.root = root
    host = Host(http=client, clock=clock, random=Random(1), allow_private=True)
    async with shelf.serve():
        paths = sorted(str(path.relative_to(root)) for path in root.rglob("*.xml"))
        reads = [await read(path, shelf, host) for path in paths]
    await client.close()
    return reads


async def read(path: str, shelf: Shelf, host: Host) -> Read:
    url, body = f"{shelf.url}/{path}", (shelf.root / path).read_bytes()
    headers = {**declared(body), "content-location": url}
    theirs = feedparser.parse(BytesIO(body), response_headers=headers)
    try:
        batch = await NewsFeed(Query(feed_url=url), host).poll(None, START)
    except HarkenError as error:
        assert isinstance(error, NeedsAttention), f"{path}: {error}"
        return Read(path, None, theirs)
    return Read(path, list(batch.events), theirs)


@pytest.fixture(scope="module")
def reads() -> list[Read]:
    return asyncio.run(read_all(corpus("feedparser") / "tests"))


def title(entry: Any) -> str:
    markup = entry.get("title_detail", {}).get("type") in ("text/html", "application/xhtml+xml")
    text = entry.get("title", "")
    return " ".join((html_to_line(text) if markup else text).split())


def agrees(read: Read) -> bool:
    """The same titles, and every id that feedparser knows; where it knows none, any will do."""
    events, entries = read.events or [], read.theirs.entries
    ids = {dict.get(entry, "id") or dict.get(entry, "link") for entry in entries} - {None, ""}
    titles = sorted(event.data["title"] for event in events) == sorted(map(title, entries))
    return titles and ids <= {event.subject for event in events}


def test_no_feed_makes_the_service_fail(reads: list[Read]):
    assert len(reads) == FEEDS


def test_a_feed_is_refused_only_where_feedparser_finds_none_either(reads: list[Read]):
    assert [read.path for read in reads if read.events is None and (read.theirs.entries or read.theirs.version)] == []


def test_broken_feeds_yield_as_many_entries_as_feedparser_finds(reads: list[Read]):
    broken = [read for read in reads if read.theirs.bozo and read.events is not None]
    assert len(broken) > 200
    assert [read.path for read in broken if len(read.events or []) != len(read.theirs.entries)] == []


def test_ids_and_titles_of_well_formed_feeds_are_those_of_feedparser(reads: list[Read]):
    sound = [read for read in reads if not read.theirs.bozo]
    assert len(sound) > 1900
    assert {read.path for read in sound if not agrees(read)} == set(DISAGREEMENTS)
