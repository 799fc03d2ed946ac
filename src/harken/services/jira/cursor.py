"""The place within a read of Jira's search: a page token on Cloud, an offset on Server, and where the next read begins.

Offsets drift: an issue that is edited moves to the end, and those behind it move up, over the border of a page. So
pages overlap, and a page that shows nothing of the one before it sends the read back to its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.errors import RetryLater
from harken.source import Cursor

__all__ = ["Place", "ended", "place_at", "restarted", "slipped", "turned"]

OVERLAP = 5
MOST_RESTARTS = 3
# how far a read overlaps the one before it, where nothing has happened for so long that `since` lies further back
LATE = timedelta(minutes=15)


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`since` is set while a read is under way. `mark`: everything that Jira showed by then was read.

    `of` names the query, because a token or an offset of one is nothing to another. `asked`: from where on the last
    read was wanted.
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


def place_at(cursor: Cursor, of: str, since: datetime) -> Place:
    """Where the cursor stands, or the beginning of a new read. Another query begins where the old one did."""
    try:
        place = msgspec.convert(cursor, Place)
    except msgspec.ValidationError:
        place = Place()
    if place.since is not None and place.of == of:
        return place
    if place.mark is None or (place.asked is not None and since < place.asked):
        # nothing was read yet, or more is wanted than the last time
        begin = since
    else:
        begin = max(since, place.mark - LATE)
    return Place(of=of, mark=place.mark, asked=since, since=place.since or begin)


def turned(place: Place, answer: Mapping[str, Any], ids: Sequence[str], cloud: bool, whose: str) -> Place | None:
    """The next page; None when this was the last one."""
    if cloud:
        token = answer.get("nextPageToken")
        if not isinstance(token, str) or not token:
            return None
        if token == place.token:
            raise RetryLater(f"{whose} gave the same page of its search twice")
        return msgspec.structs.replace(place, token=token)
    total = answer.get("total")
    if not ids or (isinstance(total, int) and place.start + len(ids) >= total):
        return None
    overlap = min(OVERLAP, len(ids) // 2)
    edge = list(ids[-overlap:]) if overlap else []
    return msgspec.structs.replace(place, start=place.start + len(ids) - overlap, edge=edge)


def slipped(place: Place, ids: Sequence[str]) -> bool:
    """Whether issues may have moved over the border between the page before and this one."""
    return bool(place.edge) and not set(place.edge) & set(ids)


def restarted(place: Place) -> Place | None:
    """The beginning of the same read; None when it was begun often enough."""
    if place.restarts >= MOST_RESTARTS:
        return None
    return msgspec.structs.replace(place, token="", start=0, edge=[], restarts=place.restarts + 1)


def ended(place: Place) -> Place:
    return Place(of=place.of, mark=place.began or place.mark, asked=place.asked)
