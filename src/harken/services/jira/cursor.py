"""The position in a read of Jira's search: a page token on Cloud, an offset on Server, and where the next read begins.

Offsets drift: an issue that is edited moves to the end of the list, and those behind it move up over the border of a
page. So pages overlap, and a page that shows nothing of the one before it sends the read back to its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.errors import RetryLater
from harken.kit.cursor_codec import load_cursor
from harken.source import Cursor

__all__ = ["SearchCursor", "end", "has_slipped", "next_page", "restart", "resume"]

# issues that two pages of Server's search have in common
PAGE_OVERLAP = 5
MAX_RESTARTS = 3
# how far a read overlaps the one before it when `since` lies further back, because nothing happened for long
READ_OVERLAP = timedelta(minutes=15)


class SearchCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`of` is the fingerprint of the query: a token or an offset of another query means nothing.

    `mark`: everything that Jira showed until then was read. `asked`: from when on the engine wanted the last read.
    `since` is set while a read is under way.
    """

    of: str = ""
    mark: datetime | None = None
    asked: datetime | None = None
    since: datetime | None = None
    began: datetime | None = None
    token: str = ""
    start: int = 0
    edge: list[str] = []
    restarts: int = 0
    partial: bool = False


def resume(cursor: Cursor, of: str, since: datetime) -> SearchCursor:
    """Return the stored position, or the beginning of a new read. An edited query begins where the old one did."""
    stored = load_cursor(cursor, SearchCursor) or SearchCursor()
    if stored.since is not None and stored.of == of:
        return stored
    if stored.mark is None or (stored.asked is not None and since < stored.asked):
        # nothing was read yet, or the engine wants more of the past than the last time
        begin = since
    else:
        begin = max(since, stored.mark - READ_OVERLAP)
    return SearchCursor(of=of, mark=stored.mark, asked=since, since=stored.since or begin)


def next_page(
    cursor: SearchCursor, answer: Mapping[str, Any], ids: Sequence[str], *, cloud: bool, server: str
) -> SearchCursor | None:
    """Return the position of the next page; None when this was the last one."""
    if cloud:
        token = answer.get("nextPageToken")
        if not isinstance(token, str) or not token:
            return None
        if token == cursor.token:
            raise RetryLater(f"{server} gave the same page of its search twice")
        return msgspec.structs.replace(cursor, token=token)
    total = answer.get("total")
    if not ids or (isinstance(total, int) and cursor.start + len(ids) >= total):
        return None
    overlap = min(PAGE_OVERLAP, len(ids) // 2)
    edge = list(ids[-overlap:]) if overlap else []
    return msgspec.structs.replace(cursor, start=cursor.start + len(ids) - overlap, edge=edge)


def has_slipped(cursor: SearchCursor, ids: Sequence[str]) -> bool:
    """Whether issues may have moved over the border between the page before and this one."""
    return bool(cursor.edge) and not set(cursor.edge) & set(ids)


def restart(cursor: SearchCursor) -> SearchCursor | None:
    """Return the beginning of the same read; None when it was restarted often enough."""
    if cursor.restarts >= MAX_RESTARTS:
        return None
    return msgspec.structs.replace(cursor, token="", start=0, edge=[], restarts=cursor.restarts + 1)


def end(cursor: SearchCursor) -> SearchCursor:
    return SearchCursor(of=cursor.of, mark=cursor.began or cursor.mark, asked=cursor.asked)
