"""A stateful listing over HTTP, paged in every usual way, with the faults and lies that real ones have.

One set of items is served at `/all` (one page), `/pages`, `/offsets`, `/cursors`, `/links` (Link header), `/next` (URL
in the body) and `/feed.xml` (RSS). An item shows itself once the clock has reached its `visible_at`, so some are late.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from email.utils import format_datetime
from html import escape
from typing import Any, Literal

import msgspec
from aiohttp import web

from harken.clock import Clock

__all__ = ["Answer", "Item", "Listing", "Seen"]

Lie = Literal["", "same_page", "loop", "always_more", "endless"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    state: str
    created_at: datetime
    updated_at: datetime
    visible_at: datetime


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is said instead of the listing. `hang`: nothing at all."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    hang: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    status: int


class Listing:
    """`answers` are given before the listing is; `after[n]` runs when the n-th request is answered (the first is 1)."""

    def __init__(self, clock: Clock, *, newest_first: bool = False, cap: int = 100, etags: bool = True) -> None:
        self._clock = clock
        self._items: dict[str, Item] = {}
        self.newest_first = newest_first
        self.cap = cap
        self.etags = etags
        self.lie: Lie = ""
        self.answers: list[Answer] = []
        self.after: dict[int, Callable[[], object]] = {}
        self.seen: list[Seen] = []
        self.url = ""

    def add(self, id: str, *, title: str = "", state: str = "open", age: float = 0.0, late: float = 0.0) -> Item:
        """Add an item that was created `age` seconds ago and shows itself in `late` seconds."""
        now = self._clock.time()
        created, visible = (datetime.fromtimestamp(at, self._clock.now().tzinfo) for at in (now - age, now + late))
        item = Item(id=id, title=title or id, state=state, created_at=created, updated_at=created, visible_at=visible)
        self._items[id] = item
        return item

    def change(self, id: str, state: str) -> None:
        self._items[id] = msgspec.structs.replace(self._items[id], state=state, updated_at=self._clock.now())

    def delete(self, *ids: str) -> None:
        for id in ids:
            del self._items[id]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve on a free loopback port until the block ends; yields the address, without a slash at its end."""
        app = web.Application(middlewares=[self._watch])
        views = {"pages": self._pages, "offsets": self._offsets, "cursors": self._cursors, "links": self._links}
        views |= {"next": self._next, "all": self._all, "feed.xml": self._feed}
        app.add_routes([web.route("*", f"/{name}", view) for name, view in views.items()])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            await runner.cleanup()

    def visible(self) -> list[Item]:
        """What the listing shows now, in its order; ties stay in the order in which they were added."""
        now = self._clock.now()
        shown = [item for item in self._items.values() if item.visible_at <= now]
        return sorted(shown, key=lambda item: item.created_at, reverse=self.newest_first)

    @web.middleware
    async def _watch(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        body = await request.read()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None and answer.hang:
            await asyncio.Event().wait()
        if answer is not None:
            reply: web.Response = web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        else:
            reply = self._unless_known(request, await handler(request))
        said = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(
            Seen(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=said,
                body=body,
                status=reply.status,
            )
        )
        self.after.pop(len(self.seen), lambda: None)()
        return reply

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
            now = self._clock.now()
            new = [f"made-up-{start + number}" for number in range(min(size, self.cap))]
            made = [Item(id=id, title=id, state="open", created_at=now, updated_at=now, visible_at=now) for id in new]
            return made, True
        return items[start:end], end < len(items) or self.lie in ("always_more", "loop")

    async def _all(self, request: web.Request) -> web.Response:
        return _json({"items": self.visible()})

    async def _pages(self, request: web.Request) -> web.Response:
        page, size = _number(request, "page", 1), min(_number(request, "size", self.cap), self.cap)
        items, more = self._cut((page - 1) * size, size)
        return _json({"items": items, "more": more})

    async def _offsets(self, request: web.Request) -> web.Response:
        items, more = self._cut(_number(request, "offset", 0), _number(request, "limit", self.cap))
        return _json({"items": items, "more": more})

    async def _cursors(self, request: web.Request) -> web.Response:
        items, token = self._after_token(request)
        return _json({"items": items, "paging": {"next": token}})

    async def _links(self, request: web.Request) -> web.Response:
        items, token = self._after_token(request)
        link = {"Link": f'<{self.url}/links?cursor={token}>; rel="next"'} if token is not None else {}
        return _json(items, link)

    async def _next(self, request: web.Request) -> web.Response:
        items, token = self._after_token(request)
        return _json({"items": items, "next": None if token is None else f"/next?cursor={token}"})

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


def _json(value: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, content_type="application/json", headers=headers)
