"""What a search leaves out: Cloud shows the last 40 changes and 20 comments of an issue, however many there are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from harken.kit.fields import instant, text_of
from harken.services.jira.api import Site
from harken.services.jira.event import History, Occurrence, history_of
from harken.services.jira.text import mentions, text_in

__all__ = ["history_since", "mentions_since"]

PAGE = 100
MOST_PAGES = 20


async def history_since(site: Site, issue: Mapping[str, Any], since: datetime) -> History | None:
    """The changes of the issue, back to its creation or to before `since`; None when Jira shows none."""
    shown = history_of(issue.get("changelog"))
    if shown is None or shown.reaches(since):
        return shown
    id = text_of(issue, "id")
    if not await site.cloud():
        whole = await site.ask("GET", f"/issue/{id}", params={"fields": "created", "expand": "changelog"})
        return history_of(whole.get("changelog")) if isinstance(whole, Mapping) else shown
    # oldest first, so it is read from its end
    changes: list[Any] = []
    end = _count(issue.get("changelog"))
    for _ in range(MOST_PAGES):
        start = max(0, end - PAGE)
        page = await site.ask("GET", f"/issue/{id}/changelog", params={"startAt": start, "maxResults": end - start})
        values = page.get("values") if isinstance(page, Mapping) else None
        changes += values if isinstance(values, list) else []
        found = history_of({"histories": changes}, total=len(changes) + start)
        if found is None or found.reaches(since):
            return found
        end = start
    return found


async def mentions_since(
    site: Site, issue: Mapping[str, Any], ids: frozenset[str], since: datetime
) -> list[Occurrence]:
    """The comments that mention one of the users, as far as they were written since then."""
    fields = issue.get("fields")
    block = fields.get("comment") if isinstance(fields, Mapping) else None
    shown = _comments(block)
    if _count(block) > len(shown):
        shown = await _newest_comments(site, text_of(issue, "id") or "", since)
    return [_mention(comment) for comment in shown if mentions(comment.get("body"), ids)]


async def _newest_comments(site: Site, id: str, since: datetime) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for number in range(MOST_PAGES):
        params: dict[str, str | int] = {"orderBy": "-created", "startAt": number * PAGE, "maxResults": PAGE}
        page = _comments(await site.ask("GET", f"/issue/{id}/comment", params=params))
        found += page
        oldest = instant(page[-1].get("created")) if page else None
        if len(page) < PAGE or (oldest is not None and oldest < since):
            break
    return found


def _mention(comment: Mapping[str, Any]) -> Occurrence:
    at, id = instant(comment.get("created")), text_of(comment, "id")
    about = {
        "id": id,
        "text": text_in(comment.get("body")),
        "author": text_of(comment, "author.displayName"),
        "created": at.isoformat() if at else None,
    }
    return Occurrence(at=at, type="jira.mention", name=f"c{id}", more={"comment": about})


def _comments(block: Any) -> list[Mapping[str, Any]]:
    listed = block.get("comments") if isinstance(block, Mapping) else None
    return [comment for comment in listed if isinstance(comment, Mapping)] if isinstance(listed, list) else []


def _count(block: Any) -> int:
    total = block.get("total") if isinstance(block, Mapping) else None
    return total if isinstance(total, int) and not isinstance(total, bool) else 0
