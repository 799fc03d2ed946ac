"""A stateful listing over HTTP, paged in every usual way, with the faults that real ones have.

One set of items is served at `/all` (one page), `/pages`, `/offsets`, `/cursors`, `/links` (Link header), `/next` (URL
in the body) and `/feed.xml` (RSS). An item is listed once the clock has reached its `visible_at`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from html import escape
from typing import Literal

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import Answer, FakeServer, Handler, Seen, json_reply

__all__ = ["Answer", "Item", "Listing", "Seen"]

Lie = Literal["", "same_page", "loop", "always_more", "endless"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    state: str
    created_at: datetime
    updated_at: datetime
    visible_at: datetime


class Listing(FakeServer):
    """Items by id. `lie` says how its paging misleads."""

    def __init__(self, clock: Clock, *, newest_first: bool = False, cap: int = 100, etags: bool = True) -> None:
        super().__init__(clock)
        self._items: dict[str, Item] = {}
        self.newest_first = newest_first
        self.cap = cap
        self.etags = etags
        self.lie: Lie = ""

    def add(self, id: str, *, title: str = "", state: str = "open", age: float = 0.0, late: float = 0.0) -> Item:
        """Add an item that was created `age` seconds ago and is listed in `late` seconds."""
        now = self.clock.time()
        created, visible = (datetime.fromtimestamp(at, self.clock.now().tzinfo) for at in (now - age, now + late))
        item = Item(id=id, title=title or id, state=state, created_at=created, updated_at=created, visible_at=visible)
        self._items[id] = item
        return item

    def change(self, id: str, state: str) -> None:
        self._items[id] = msgspec.structs.replace(self._items[id], state=state, updated_at=self.clock.now())

    def delete(self, *ids: str) -> None:
        for id in ids:
            del self._items[id]

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/all": self._all,
            "/pages": self._pages,
            "/offsets": self._offsets,
            "/cursors": self._cursors,
            "/links": self._links,
            "/next": self._next,
            "/feed.xml": self._feed,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        return self._unless_known(request, await view(request))

    def visible(self) -> list[Item]:
        """The items that are listed now, in order; ties stay in the order in which they were added."""
        now = self.clock.now()
        shown = [item for item in self._items.values() if item.visible_at <= now]
        return sorted(shown, key=lambda item: item.created_at, reverse=self.newest_first)

    def _unless_known(self, request: web.Request, reply: web.Response) -> web.Response:
        if not self.etags or not isinstance(reply.body, bytes):
            return reply
        etag = f'"{hashlib.sha256(reply.body).hexdigest()[:16]}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        reply.headers["ETag"] = etag
        return reply

    def _cut(self, start: int, size: int) -> tuple[list[Item], bool]:
        if self.lie == "same_page":
            start = 0
        items, end = self.visible(), start + min(size, self.cap)
        if self.lie == "endless":
            now = self.clock.now()
            new = [f"made-up-{start + number}" for number in range(min(size, self.cap))]
            made = [Item(id=id, title=id, state="open", created_at=now, updated_at=now, visible_at=now) for id in new]
            return made, True
        return items[start:end], end < len(items) or self.lie in ("always_more", "loop")

    async def _all(self, request: web.Request) -> web.Response:
        return json_reply({"items": self.visible()})

    async def _pages(self, request: web.Request) -> web.Response:
        page, size = _number(request, "page", 1), min(_number(request, "size", self.cap), self.cap)
        items, more = self._cut((page - 1) * size, size)
        return json_reply({"items": items, "more": more})

    async def _offsets(self, request: web.Request) -> web.Response:
        items, more = self._cut(_number(request, "offset", 0), _number(request, "limit", self.cap))
        return json_reply({"items": items, "more": more})

    async def _cursors(self, request: web.Request) -> web.Response:
        items, token = self._after_token(request)
        return json_reply({"items": items, "paging": {"next": token}})

    async def _links(self, request: web.Request) -> web.Response:
        items, token = self._after_token(request)
        link = {"Link": f'<{self.url}/links?cursor={token}>; rel="next"'} if token is not None else {}
        return json_reply(items, headers=link)

    async def _next(self, request: web.Request) -> web.Response:
        items, token = self._after_token(request)
        return json_reply({"items": items, "next": None if token is None else f"/next?cursor={token}"})

    def _after_token(self, request: web.Request) -> tuple[list[Item], str | None]:
        start = _number(request, "cursor", 0)
        items, more = self._cut(start, self.cap)
        following = start if self.lie == "loop" else start + self.cap
        return items, str(following) if more else None

    async def _feed(self, request: web.Request) -> web.Response:
        entries = "".join(
            f"<item><guid isPermaLink='false'>{escape(item.id)}</guid><title>{escape(item.title)}</title>"
            f"<link>/{escape(item.id)}</link><pubDate>{format_datetime(item.created_at)}</pubDate></item>"
            for item in self.visible()
        )
        text = f"<?xml version='1.0'?><rss version='2.0'><channel><title>Items</title>{entries}</channel></rss>"
        return web.Response(body=text.encode(), content_type="application/rss+xml")


def _number(request: web.Request, name: str, default: int) -> int:
    return int(request.query.get(name, default))
