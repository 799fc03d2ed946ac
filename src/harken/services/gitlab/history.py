"""What happened to an issue, for where the list does not tell since when it matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harken.kit.histories import Gone, History
from harken.kit.issues import Issue
from harken.services.gitlab.api import Api

__all__ = ["read_history"]

MOST_PAGES = 30


async def read_history(api: Api, issue: Issue, project: str, kinds: Sequence[str]) -> History:
    """Its events of these kinds; None when there are too many to read. Raises Gone."""
    events: list[Any] = []
    for kind in kinds:
        only: list[tuple[str, str | int]] = [("activity_filter", "only_activity")] if kind == "notes" else []
        address = api.project(project, "issues", str(issue.number), kind)
        reply = await api.ask(address, [("per_page", 100), *only])
        if reply.status == 404:
            await _tell_gone(api, issue, project)
        found, whole = await api.rest(reply, MOST_PAGES)
        if not whole:
            return None
        events += [event for event in found if isinstance(event, dict)]
    return events


async def _tell_gone(api: Api, issue: Issue, project: str) -> None:
    """404 may mean that the issue was deleted, or that the token may not read this."""
    reply = await api.ask(api.project(project, "issues", str(issue.number)))
    if reply.status == 404:
        raise Gone
