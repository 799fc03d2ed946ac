"""How far a folder has been read: by uid, and by time after the server numbered its mails anew (UIDVALIDITY)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harken.services.imap.api import FolderState

__all__ = ["Place", "begin_read", "match_folder"]

OVERLAP = 86_400
"""Seconds before the last read that are read again if uids cannot be used. The engine's memory is longer."""


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All mails up to the uid `last` were read. `after`: only mails that arrived later count; 0: the uid alone decides.

    `floor` is where the first read began, `read_at` when the last complete read began, `began` when this one did.
    """

    folder: str = ""
    validity: int = 0
    last: int = 0
    after: int = 0
    floor: int = 0
    read_at: int = 0
    began: int = 0
    since: int = 0


def begin_read(place: Place, folder: str, now: datetime, since: datetime, reach: float) -> Place:
    """The place of a new read, or of the next page of an unfinished one."""
    moment, start = int(now.timestamp()), int(since.timestamp())
    floor = place.floor or min(moment - int(reach), start)
    if place.folder != folder:
        place = msgspec.structs.replace(_reread_by_time(place, floor), folder=folder, validity=0)
    if place.since and start < place.since:
        # a trigger's backfill moved `since` back
        place, floor = msgspec.structs.replace(place, last=0, after=start), min(floor, start)
    return msgspec.structs.replace(place, floor=floor, began=place.began or moment, since=start)


def match_folder(place: Place, folder: FolderState) -> Place:
    """The place; read by time again if the folder's UIDVALIDITY has changed."""
    if place.validity == folder.validity:
        return place
    return msgspec.structs.replace(_reread_by_time(place, place.floor), validity=folder.validity)


def _reread_by_time(place: Place, floor: int) -> Place:
    after = max(floor, place.read_at - OVERLAP) if place.read_at else floor
    return msgspec.structs.replace(place, last=0, after=min(after, place.after) if place.after else after)
