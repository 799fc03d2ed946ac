"""The client of one caller: every call waits for the rate limit of its credential, and every response updates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from yarl import URL

from harken.http.client import Client
from harken.http.replies import Reply
from harken.http.service_clock import ServiceClock
from harken.outgoing_rate_limit import RateLimit

__all__ = ["Metered"]

PATIENCE = 5.0
"""Seconds. A call that would wait longer raises RetryLater, so that a read does not hang."""


class Metered:
    """`keep` stores the rate limit. It is awaited before a response that blocks further calls is returned.

    `service_clock` is what the responses say about the clock of the service.
    """

    def __init__(self, client: Client, rate_limit: RateLimit, who: str, keep: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._rate_limit = rate_limit
        self._who = who
        self._keep = keep
        self.service_clock = ServiceClock()

    async def request(self, method: str, url: str | URL, **options: Any) -> Reply:
        """As `Client.request`, within the rate limit."""
        limit, known = self._rate_limit, self._rate_limit.revision
        sent = self._client.clock.time()
        reply = await self._client.request(method, url, rate_limit=limit, who=self._who, patience=PATIENCE, **options)
        self.service_clock.learn(reply.headers, sent, reply.at)
        if limit.revision != known and limit.blocked_until is not None:
            await self._keep()
        return reply

    async def open_stream(self, url: str | URL, **options: Any) -> aiohttp.ClientResponse:
        """As `Client.open_stream`, within the rate limit."""
        limit, known = self._rate_limit, self._rate_limit.revision
        await limit.take(self._who, patience=PATIENCE)
        response = await self._client.open_stream(url, **options)
        limit.learn(response.headers, response.status)
        if limit.revision != known and limit.blocked_until is not None:
            await self._keep()
        return response

    async def open_websocket(self, url: str | URL, **options: Any) -> aiohttp.ClientWebSocketResponse:
        """As `Client.open_websocket`, within the rate limit."""
        await self._rate_limit.take(self._who, patience=PATIENCE)
        return await self._client.open_websocket(url, **options)
