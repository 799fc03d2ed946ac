"""The client as one credential sees it: every call waits for its turn, and every answer teaches the budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from yarl import URL

from harken.http.client import Client
from harken.http.replies import Reply
from harken.rate_limit import RateLimit

__all__ = ["Metered"]

PATIENCE = 5.0
"""A call that would wait longer gives up its place and comes back later, so that a read does not hang."""


class Metered:
    """`keep` stores what must outlive us; it is awaited before anyone hears of an answer that closes the door."""

    def __init__(self, client: Client, budget: RateLimit, who: str, keep: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._budget = budget
        self._who = who
        self._keep = keep

    async def request(self, method: str, url: str | URL, **options: Any) -> Reply:
        """As `Client.request`, paid from the budget."""
        budget, known = self._budget, self._budget.revision
        reply = await self._client.request(method, url, budget=budget, who=self._who, patience=PATIENCE, **options)
        if budget.revision != known and budget.blocked_until is not None:
            await self._keep()
        return reply
