"""What happened to an issue, for where the list does not tell since when it matches."""

from __future__ import annotations

from harken.kit.histories import Gone, History
from harken.services.github.api import Api
from harken.services.github.event import Issue

__all__ = ["read_history"]

MOST_PAGES = 30


async def read_history(api: Api, issue: Issue, repo: str) -> History:
    """Its events, oldest first; None when there are too many to read. Raises Gone."""
    reply = await api.ask(api.repo(repo, "issues", str(issue.number), "events"), [("per_page", 100)])
    if reply.status == 410:
        raise Gone
    found, whole = await api.rest(reply, MOST_PAGES)
    return [event for event in found if isinstance(event, dict)] if whole else None
