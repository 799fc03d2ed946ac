"""How far a mailbox has been read. A search only lists ids, and getting a mail costs more, so what was got is noted.

Every read searches the day before the last one again: mail may be listed late, and a label may come later than the
mail. The engine remembers for longer than that what it was shown, so looking back never delivers anything twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from harken.source import Cursor

__all__ = ["MOST", "Place", "Reading", "begun", "crowded", "finished", "got", "listed", "parsed", "relisted", "waiting"]

OVERLAP = 86_400
"""Seconds before the last read that are searched again. The engine's memory of a feed must be no shorter."""
SHORTEST = 600
"""So much is searched again even where mail comes in masses."""
MOST = 500
"""Ids that are noted; where a day brings more, less than a day is searched again."""
AGAIN = 3


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A read under way: it searches what came after `after`. `page` is None once all of it is listed."""

    began: int
    after: int
    page: str | None = ""
    restarts: int = 0
    listed: list[str] = []


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Between reads. `floor`: older mail is none of ours; `seen`: the ids that need not be got again, newest first."""

    of: str = ""
    floor: int = 0
    read_at: int = 0
    dense: int = 0
    since: int = 0
    seen: list[str] = []
    reading: Reading | None = None


def parsed(cursor: Cursor) -> Place:
    """The place that a cursor says; the beginning when it says none."""
    try:
        return msgspec.convert(cursor, Place)
    except msgspec.ValidationError:
        return Place()


def begun(place: Place, of: str, now: datetime, since: datetime, reach: float) -> Place:
    """The place with a read under way: the one that was interrupted, or a new one."""
    moment, asked = int(now.timestamp()), int(since.timestamp())
    if place.of != of:
        # another query: what it lists was not got yet, but the time that was read stays read
        place = msgspec.structs.replace(place, of=of, seen=[], dense=0, reading=None)
    if place.reading is not None:
        return place
    first = moment - int(reach)
    floor = place.floor or min(first, asked)
    after = max(floor, place.dense, place.read_at - OVERLAP) if place.read_at else floor
    if place.since and asked < place.since:
        floor, after = min(floor, asked), min(after, asked)  # somebody looks back
    reading = Reading(began=moment, after=after)
    return msgspec.structs.replace(place, floor=floor, since=asked, reading=reading)


def listed(place: Place, reading: Reading, ids: Sequence[str], following: str) -> Place:
    """After one page of ids, newest first."""
    every = list(dict.fromkeys((*reading.listed, *ids)))
    turned = msgspec.structs.replace(reading, listed=every, page=following or None)
    return msgspec.structs.replace(place, reading=turned)


def relisted(place: Place, reading: Reading) -> Place | None:
    """Listing from the first page again; None when that was done too often."""
    if reading.restarts >= AGAIN:
        return None
    again = msgspec.structs.replace(reading, page="", restarts=reading.restarts + 1)
    return msgspec.structs.replace(place, reading=again)


def waiting(place: Place, reading: Reading, most: int) -> list[str]:
    """The ids that are to be got now, oldest first."""
    known = set(place.seen)
    return [id for id in reversed(reading.listed) if id not in known][:most]


def got(place: Place, ids: Sequence[str]) -> Place:
    return msgspec.structs.replace(place, seen=[*place.seen, *ids])


def finished(place: Place, reading: Reading) -> Place:
    """After the last mail: what is listed no longer need not be noted."""
    return msgspec.structs.replace(place, read_at=reading.began, seen=reading.listed, reading=None)


def crowded(place: Place, half_came_at: datetime) -> Place:
    """Where a day brings more than can be noted: search no further back than the newer half of it."""
    dense = min(int(half_came_at.timestamp()), place.read_at - SHORTEST)
    return msgspec.structs.replace(place, dense=dense, seen=place.seen[: MOST // 2])
