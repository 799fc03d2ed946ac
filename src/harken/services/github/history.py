"""What happened to an issue, asked for where the list does not tell since when it matches, and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from harken.services.github.api import Api
from harken.services.github.issue import Issue
from harken.services.updates import SETTLED

__all__ = ["Gone", "Histories"]

MOST_PAGES = 30
KEPT = 5000


class Gone(Exception):
    """The issue was deleted after it was listed."""


class Histories:
    """The histories of issues. One that may still be behind the list is not remembered."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, tuple[datetime, Sequence[Any] | None]] = {}

    async def of(self, issue: Issue, repo: str, now: datetime) -> Sequence[Any] | None:
        """Its events, oldest first; None when there are too many to read. Raises Gone."""
        known = self._known.get(issue.id)
        if known is not None and known[0] == issue.updated_at:
            return known[1]
        events = await self._read(issue, repo)
        if issue.updated_at is not None and issue.updated_at <= now - SETTLED:
            self._keep(issue.id, issue.updated_at, events)
        return events

    async def _read(self, issue: Issue, repo: str) -> Sequence[Any] | None:
        reply = await self._api.ask(self._api.repo(repo, "issues", str(issue.number), "events"), [("per_page", 100)])
        if reply.status == 410:
            raise Gone
        found, whole = await self._api.rest(reply, MOST_PAGES)
        return [event for event in found if isinstance(event, dict)] if whole else None

    def _keep(self, id: str, updated_at: datetime, events: Sequence[Any] | None) -> None:
        while len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        self._known[id] = (updated_at, events)
