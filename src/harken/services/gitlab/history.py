"""What happened to an issue, asked for where the list does not tell since when it matches, and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from harken.services.gitlab.api import Api
from harken.services.gitlab.issue import Issue
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

    async def of(self, issue: Issue, project: str, kinds: Sequence[str], now: datetime) -> Sequence[Any] | None:
        """Its events of these kinds; None when there are too many to read. Raises Gone."""
        known = self._known.get(issue.id)
        if known is not None and known[0] == issue.updated_at:
            return known[1]
        events = await self._read(issue, project, kinds)
        if issue.updated_at is not None and issue.updated_at <= now - SETTLED:
            while len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[issue.id] = (issue.updated_at, events)
        return events

    async def _read(self, issue: Issue, project: str, kinds: Sequence[str]) -> Sequence[Any] | None:
        events: list[Any] = []
        for kind in kinds:
            only: list[tuple[str, str | int]] = [("activity_filter", "only_activity")] if kind == "notes" else []
            address = self._api.project(project, "issues", str(issue.iid), kind)
            reply = await self._api.ask(address, [("per_page", 100), *only])
            if reply.status == 404:
                await self._tell_gone(issue, project)
            found, whole = await self._api.rest(reply, MOST_PAGES)
            if not whole:
                return None
            events += [event for event in found if isinstance(event, dict)]
        return events

    async def _tell_gone(self, issue: Issue, project: str) -> None:
        """404 may mean that the issue was deleted, or that the token may not read this."""
        reply = await self._api.ask(self._api.project(project, "issues", str(issue.iid)))
        if reply.status == 404:
            raise Gone
