"""How far a folder has been read: by uid while its numbers hold, and by time when they were given out anew."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harken.services.imap.api import Opened
from harken.source import Cursor

__all__ = ["Place", "begun", "fitted", "parsed"]

OVERLAP = 86_400
"""Seconds before the last read that are read again when uids are worth nothing. The engine remembers for longer."""


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything up to the uid `last` was read. `after`: only what came later counts; 0: the uid alone decides.

    `floor` is how far the first read looked back, `read_at` when the last whole read began, `began` that of this one.
    """

    folder: str = ""
    validity: int = 0
    last: int = 0
    after: int = 0
    floor: int = 0
    read_at: int = 0
    began: int = 0
    since: int = 0


def parsed(cursor: Cursor) -> Place:
    """The place that a cursor says; the beginning when it says none."""
    try:
        return msgspec.convert(cursor, Place)
    except msgspec.ValidationError:
        return Place()


def begun(place: Place, folder: str, now: datetime, since: datetime, reach: float) -> Place:
    """The place for this read, or for the next page of one under way."""
    moment, asked = int(now.timestamp()), int(since.timestamp())
    floor = place.floor or min(moment - int(reach), asked)
    if place.folder != folder:
        place = msgspec.structs.replace(_anew(place, floor), folder=folder, validity=0)
    if place.since and asked < place.since:
        place, floor = msgspec.structs.replace(place, last=0, after=asked), min(floor, asked)  # somebody looks back
    return msgspec.structs.replace(place, floor=floor, began=place.began or moment, since=asked)


def fitted(place: Place, opened: Opened) -> Place:
    """The place in the folder as it is now."""
    if place.validity == opened.validity:
        return place
    return msgspec.structs.replace(_anew(place, place.floor), validity=opened.validity)


def _anew(place: Place, floor: int) -> Place:
    after = max(floor, place.read_at - OVERLAP) if place.read_at else floor
    return msgspec.structs.replace(place, last=0, after=min(after, place.after) if place.after else after)
