"""The demo's simulated company over HTTP: an incident API with pages and rate limits, a news feed, a pager."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import format_datetime
from html import escape

import msgspec
from aiohttp import ClientSession, ClientTimeout, web

from harken.demo.simulated_company import Article, Deploy, World

__all__ = ["IncidentService", "announce"]

PAGE = 50
# a few requests get a 429, as they would from a real service
LIMIT_EVERY = 9
NEWS_SHOWN = 40


class IncidentService:
    """Serves the world on loopback. `pages` counts accepted messages by what they are about and by idempotency key."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._requests = 0
        self.rate_limited = 0
        self.reads = 0
        self.pages: dict[str, set[str]] = {}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve on a free loopback port until the block ends; yields the address."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/incidents", self._incidents),
                web.get("/news.xml", self._news),
                web.post("/pages", self._page),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _incidents(self, request: web.Request) -> web.Response:
        self._requests += 1
        if self._requests % LIMIT_EVERY == 0:
            self.rate_limited += 1
            return web.json_response({"error": "too many requests"}, status=429, headers={"Retry-After": "1"})
        offset = max(0, int(request.query.get("offset", "0")))
        limit = min(PAGE, max(1, int(request.query.get("limit", "25"))))
        incidents, more = self._world.page(offset, limit)
        self.reads += 1
        body = {"incidents": incidents, "offset": offset, "limit": limit, "more": more}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _news(self, request: web.Request) -> web.Response:
        etag = f'"{len(self._world.articles)}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        body = _rss(self._world.articles[-NEWS_SHOWN:])
        return web.Response(text=body, content_type="application/rss+xml", headers={"ETag": etag})

    async def _page(self, request: web.Request) -> web.Response:
        message = await request.json()
        about = str(message.get("text", "")).split(" ", 1)[0]
        key = request.headers.get("Idempotency-Key", "")
        self.pages.setdefault(about, set()).add(key)
        return web.json_response({"ok": True})


async def announce(session: ClientSession, url: str, secret: str, deploy: Deploy) -> bool:
    """Post a signed webhook about a deploy; tell whether it was accepted."""
    body = json.dumps({"id": deploy.id, "service": deploy.service, "at": deploy.at.isoformat()}).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Signature-256": f"sha256={signature}"}
    async with session.post(url, data=body, headers=headers, timeout=ClientTimeout(total=5)) as answer:
        return 200 <= answer.status < 300


def _rss(articles: list[Article]) -> str:
    items = "".join(
        f"<item><guid isPermaLink='false'>{article.id}</guid><title>{escape(article.title)}</title>"
        f"<pubDate>{format_datetime(article.published)}</pubDate></item>"
        for article in reversed(articles)
    )
    return (
        "<?xml version='1.0' encoding='utf-8'?><rss version='2.0'><channel><title>Company news</title>"
        f"<link>http://127.0.0.1/news</link><description>What happens here</description>{items}</channel></rss>"
    )
