"""One page of Jira's search, which Cloud and Server have at different addresses, with different ways to page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harken.errors import Garbled, RetryLater
from harken.http import Reply
from harken.kit.values_from_payload import text_of
from harken.services.jira.api import Api
from harken.services.jira.cursor import SearchCursor

__all__ = ["listed_issues", "search"]

PAGE_SIZE = 50


async def search(
    api: Api,
    jql: str,
    position: SearchCursor,
    fields: Sequence[str],
    *,
    changelog: bool = False,
    reconcile: Sequence[str] = (),
) -> Reply:
    """Ask for one page. `reconcile`: ids of up to 50 issues that Cloud is to show as they are, not as indexed."""
    asked: dict[str, Any] = {"jql": jql, "maxResults": PAGE_SIZE, **({"expand": "changelog"} if changelog else {})}
    if not await api.is_cloud():
        params = {**asked, "startAt": position.start, "fields": ",".join(fields)}
        return await api.ask("GET", "/search", params=params)
    token = {"nextPageToken": position.token} if position.token else {}
    fresh = {"reconcileIssues": [int(id) for id in reconcile]} if reconcile else {}
    return await api.ask("POST", "/search/jql", json={**asked, **token, **fresh, "fields": list(fields)})


def listed_issues(answer: Any, server: str) -> list[Mapping[str, Any]]:
    """Return the issues of a page, each with an id, or raise: no list is not an empty list."""
    issues = answer.get("issues") if isinstance(answer, Mapping) else None
    if not isinstance(issues, list):
        raise RetryLater(f"{server} answered a search without a list of issues")
    for number, issue in enumerate(issues, 1):
        if not isinstance(issue, Mapping) or not text_of(issue, "id"):
            raise Garbled(f"issue {number} of {server} has no id", fix="Check base_url")
    return issues
