"""The client as one credential sees it: every call waits for its turn, and every answer teaches the budget."""

from __future__ import annotations

from typing import Any

from yarl import URL

from harken.http.client import Client, Quota
from harken.http.replies import Reply

__all__ = ["Metered"]

PATIENCE = 5.0
"""A call that would wait longer gives up its place and comes back later, so that a read does not hang."""


class Metered:
    def __init__(self, client: Client, budget: Quota, who: str) -> None:
        self._client = client
        self._budget = budget
        self._who = who

    async def request(self, method: str, url: str | URL, **options: Any) -> Reply:
        """As `Client.request`, paid from the budget."""
        return await self._client.request(method, url, budget=self._budget, who=self._who, patience=PATIENCE, **options)
