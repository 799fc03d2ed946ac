"""One cycle of reading a tracker, as a cursor that can be stored after each page. All functions are pure.

Each location is read list by list: what changed, what has a trigger label, what is pending; in a sweep also what has
another of our labels. What has to be looked at alone comes last. A location that cannot be read does not keep the
others from being read, and goes on next time at the page that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from harken.tickets.settings import TrackerSettings

__all__ = [
    "OVERLAP",
    "SWEEP_EVERY",
    "List",
    "LocationTrouble",
    "Place",
    "TicketCursor",
    "after_failure",
    "after_page",
    "begin",
    "is_due",
    "queue",
    "trigger_labels",
]

OVERLAP = timedelta(minutes=10)
"""How far a read of changes overlaps the one before: searches lag, and clocks differ."""

SWEEP_EVERY = timedelta(minutes=15)

List = Literal["changed", "labelled", "pending", "active", "over"]


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of a location that is to be read. `start` is from when on changes are listed, in a read that `began`."""

    location: str
    list: List = "changed"
    page: str | None = None
    start: datetime
    began: datetime


class LocationTrouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a location could not be read when it was tried last, and since when; `code` is that of the error."""

    message: str
    since: datetime
    code: str = ""


class TicketCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`marks` say up to when the changes of each location were read, `swept_at` when the last sweep began.

    `resume` are pages that could not be read, `trouble` the locations that the last cycle could not read to the end.
    The other fields are set during a cycle: `place` is the page to read, `waiting` the locations after it, `look` the
    tickets to look at alone, `failed` the locations with their errors.
    """

    marks: dict[str, datetime] = {}
    swept_at: datetime | None = None
    resume: dict[str, Place] = {}
    trouble: dict[str, LocationTrouble] = {}
    began: datetime | None = None
    sweep: bool = False
    gathered: bool = False
    place: Place | None = None
    waiting: tuple[str, ...] = ()
    look: tuple[tuple[str, str], ...] = ()
    failed: dict[str, str] = {}

    @property
    def reading(self) -> bool:
        return self.began is not None


def trigger_labels(settings: TrackerSettings, location: str) -> list[str]:
    """The labels that start a pipeline in this location; none where the label map is empty."""
    found: dict[str, str] = {}
    for project in settings.projects:
        if project.location.casefold() == location.casefold():
            for label in project.routes.by_label:
                found.setdefault(label.casefold(), label)
    return list(found.values())


def is_due(cursor: TicketCursor, now: datetime) -> bool:
    """Whether the next cycle is a sweep. A time in the future was noted before the clock was set back."""
    return cursor.swept_at is None or not timedelta(0) <= now - cursor.swept_at < SWEEP_EVERY


def begin(
    cursor: TicketCursor, settings: TrackerSettings, *, since: datetime, now: datetime, sweep: bool
) -> TicketCursor:
    """Begin a cycle. `since` is from when on changes count where nothing was read yet."""
    started = TicketCursor(
        marks={name: mark for name, mark in cursor.marks.items() if name in settings.locations},
        resume={name: place for name, place in cursor.resume.items() if name in settings.locations},
        swept_at=now if sweep else cursor.swept_at,
        trouble=cursor.trouble,
        began=now,
        sweep=sweep,
        waiting=settings.locations,
    )
    return _next_location(started, since)


def after_page(cursor: TicketCursor, settings: TrackerSettings, following: str | None, since: datetime) -> TicketCursor:
    """Go on behind the page of the cursor; `following` is the next page of the same list."""
    place = cursor.place
    assert place is not None
    if following is not None:
        return replace(cursor, place=replace(place, page=following))
    if place.list == "changed":
        cursor = replace(cursor, marks={**cursor.marks, place.location: place.began})
    lists = _lists(settings, place.location, cursor.sweep)
    left = lists[lists.index(place.list) + 1 :] if place.list in lists else ()
    if left:
        return replace(cursor, place=replace(place, list=left[0], page=None))
    return _next_location(cursor, since)


def after_failure(cursor: TicketCursor, since: datetime, error: str) -> TicketCursor:
    """Leave the location whose page could not be read. A page that fails twice is not tried a third time."""
    place = cursor.place
    assert place is not None
    resume = dict(cursor.resume)
    if resume.pop(place.location, None) != place and place.page is not None:
        resume[place.location] = place
    failed = {**cursor.failed, place.location: error}
    return _next_location(replace(cursor, resume=resume, failed=failed), since, keep=True)


def queue(cursor: TicketCursor, tickets: Iterable[tuple[str, str]]) -> TicketCursor:
    """Add tickets, by location and id, that have to be looked at alone."""
    return replace(cursor, look=tuple(dict.fromkeys([*cursor.look, *tickets])))


def _next_location(cursor: TicketCursor, since: datetime, *, keep: bool = False) -> TicketCursor:
    resume = cursor.resume
    if cursor.place is not None and not keep:
        resume = {name: place for name, place in resume.items() if name != cursor.place.location}
    if not cursor.waiting:
        return replace(cursor, place=None, resume=resume)
    location, began = cursor.waiting[0], cursor.began
    assert began is not None
    mark = cursor.marks.get(location)
    # a mark in the future was made before the clock was set back
    start = since if mark is None else min(mark, began) - OVERLAP
    place = resume.get(location) or Place(location=location, start=start, began=began)
    return replace(cursor, place=place, waiting=cursor.waiting[1:], resume=resume)


def _lists(settings: TrackerSettings, location: str, sweep: bool) -> Sequence[List]:
    labelled: tuple[List, ...] = ("labelled",) if trigger_labels(settings, location) else ()
    return ("changed", *labelled, "pending", *(("active", "over") if sweep else ()))
