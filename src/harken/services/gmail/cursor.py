"""How far a mailbox has been read. A search only lists ids, and fetching a mail costs more, so fetched ids are kept.

Every read searches the day before the last one again: mail may be listed late, and a label may be added later than
the mail. The engine's memory of a feed is longer than a day, so the overlap never delivers anything twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

__all__ = [
    "MOST",
    "Place",
    "Reading",
    "add_listed",
    "begin",
    "finish",
    "ids_to_fetch",
    "mark_fetched",
    "restart_listing",
    "shorten_overlap",
]

OVERLAP = 86_400
"""Seconds before the last read that are searched again. The engine's memory of a feed must not be shorter."""
SHORTEST = 600
"""The overlap in seconds is never shorter than this, however much mail comes."""
MOST = 500
"""Ids that a cursor keeps; if a day brings more mail, the overlap becomes shorter."""
MOST_RESTARTS = 3


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unfinished read of the mail after `after`. `page` is None once all ids are listed."""

    began: int
    after: int
    page: str | None = ""
    restarts: int = 0
    listed: list[str] = []


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`floor`: older mail is never read. `seen`: ids that were fetched already, newest first. `dense`: where the
    overlap begins if a day brings too much mail.
    """

    of: str = ""
    floor: int = 0
    read_at: int = 0
    dense: int = 0
    since: int = 0
    seen: list[str] = []
    reading: Reading | None = None


def begin(place: Place, of: str, now: datetime, since: datetime, reach: float) -> Place:
    """The place with an unfinished read: the interrupted one, or a new one."""
    moment, start = int(now.timestamp()), int(since.timestamp())
    if place.of != of:
        # another query: its mails were not fetched yet, but the time that was read stays read
        place = msgspec.structs.replace(place, of=of, seen=[], dense=0, reading=None)
    if place.reading is not None:
        return place
    first = moment - int(reach)
    floor = place.floor or min(first, start)
    after = max(floor, place.dense, place.read_at - OVERLAP) if place.read_at else floor
    if place.since and start < place.since:
        # a trigger's backfill moved `since` back
        floor, after = min(floor, start), min(after, start)
    reading = Reading(began=moment, after=after)
    return msgspec.structs.replace(place, floor=floor, since=start, reading=reading)


def add_listed(place: Place, reading: Reading, ids: Sequence[str], following: str) -> Place:
    """The place after one page of ids, newest first."""
    every = list(dict.fromkeys((*reading.listed, *ids)))
    advanced = msgspec.structs.replace(reading, listed=every, page=following or None)
    return msgspec.structs.replace(place, reading=advanced)


def restart_listing(place: Place, reading: Reading) -> Place | None:
    """List from the first page again; None if that was done too often."""
    if reading.restarts >= MOST_RESTARTS:
        return None
    again = msgspec.structs.replace(reading, page="", restarts=reading.restarts + 1)
    return msgspec.structs.replace(place, reading=again)


def ids_to_fetch(place: Place, reading: Reading, most: int) -> list[str]:
    """The ids to fetch now, oldest first."""
    known = set(place.seen)
    return [id for id in reversed(reading.listed) if id not in known][:most]


def mark_fetched(place: Place, ids: Sequence[str]) -> Place:
    return msgspec.structs.replace(place, seen=[*place.seen, *ids])


def finish(place: Place, reading: Reading) -> Place:
    """After the last mail: keep only ids that the search still lists."""
    return msgspec.structs.replace(place, read_at=reading.began, seen=reading.listed, reading=None)


def shorten_overlap(place: Place, half_received_at: datetime) -> Place:
    """If a day brings more ids than the cursor keeps, search again only the newer half of them."""
    dense = min(int(half_received_at.timestamp()), place.read_at - SHORTEST)
    return msgspec.structs.replace(place, dense=dense, seen=place.seen[: MOST // 2])
