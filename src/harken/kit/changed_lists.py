"""Lists that are sorted by when their items were changed, one list after the other. Pure: each page decides the next.

A page begins where the last one ended in time, not at a number: whatever changes meanwhile moves to the end and pushes
nothing over the border of a page. The server's own link to the next page is followed only where a whole page has one
and the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from harken.errors import RetryLater
from harken.event import Event
from harken.http import Reply
from harken.source import Batch

__all__ = ["SETTLED", "Mark", "Page", "Place", "batch_at", "following", "fresh", "resume", "server_time", "unchanged"]

# how far a read overlaps the one before: the list and the histories come from copies that may be behind
LATE = timedelta(minutes=10)
SETTLED = timedelta(minutes=1)
# a list that is asked for again and again with its ETag should be short
SHORT = 30
MOVED = timedelta(hours=1)
MOST_PAGES = 5000


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was read of a list: everything that it showed by `at`, when the engine asked for `asked`.

    `etag` belongs to the list from `since` on. It is kept only if that was one short page on which nothing is fresh.
    """

    at: datetime
    asked: datetime
    since: datetime | None = None
    etag: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page that came `now`: when its items were changed, and what was said beside them."""

    times: Sequence[datetime | None]
    link: str | None
    etag: str
    now: datetime


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cursor. `of` names the query: a place within the list of another means nothing.

    While a read is under way: the list `name` is read, `begin` is from when on occurrences count, `start` is where this
    page begins in time, `link` the page after that, and `asked` what the engine asked for when the read began.
    """

    of: str = ""
    marks: dict[str, Mark] = {}
    name: str = ""
    asked: datetime | None = None
    begin: datetime | None = None
    start: datetime | None = None
    link: str = ""
    etag: str = ""
    began: datetime | None = None
    pages: int = 0


def resume(cursor: Any, of: str, since: datetime, names: Sequence[str]) -> Place:
    """Where the cursor stands, or the beginning of a new read."""
    try:
        place = msgspec.convert(cursor, Place)
    except msgspec.ValidationError:
        place = Place()  # nothing was read yet, or another version wrote it
    if place.name in names and place.of == of and place.begin and place.start and place.asked:
        return place
    marks = {name: mark for name in map(str.lower, names) if (mark := place.marks.get(name))}
    if place.of != of:
        marks = {name: Mark(at=mark.at, asked=mark.asked) for name, mark in marks.items()}
    # a read that was not finished is begun again no later than where it began
    return _at(Place(of=of, marks=marks, asked=min(since, place.asked or since)), names[0])


def following(place: Place, page: Page, names: Sequence[str]) -> Place:
    """Where the read goes on; a place without a name is its end."""
    assert place.start is not None
    began = place.began or page.now
    if page.link is None:
        return _next_list(place, _mark(place, page, began), names)
    if page.link == place.link or place.pages >= MOST_PAGES:
        raise RetryLater(f"the list of {place.name} does not end", fix="Check base_url")
    newest = max((at for at in page.times if at), default=place.start)
    further = newest > place.start
    return msgspec.structs.replace(
        place,
        start=newest if further else place.start,
        link="" if further else page.link,
        etag="",
        began=began,
        pages=place.pages + 1,
    )


def unchanged(place: Place, now: datetime, names: Sequence[str]) -> Place:
    """Where the read goes on when the server says that the list is the same."""
    mark = place.marks[place.name.lower()]
    # seldom, so that a quiet read has nothing to store
    if now - mark.at >= MOVED:
        mark = msgspec.structs.replace(mark, at=now)
    return _next_list(place, mark, names)


def fresh(events: Iterable[Event | None], place: Place, now: datetime) -> list[Event]:
    """Those that happened within this read, oldest first; what has no time counts as happening `now`."""
    shown = [event for event in events if event is not None]
    # what came to match earlier was shown by an earlier read, or lies before it all; it was only changed since
    within = [one for one in shown if one.occurred_at is None or not place.begin or one.occurred_at >= place.begin]
    return sorted(within, key=lambda event: event.occurred_at or now)


def batch_at(place: Place, events: Sequence[Event] = (), *, unchanged: bool = False) -> Batch:
    """The events, with the place as the cursor; there is more where it has a name."""
    return Batch(events=events, cursor=msgspec.to_builtins(place), more=bool(place.name), unchanged=unchanged)


def server_time(reply: Reply, now: datetime) -> datetime:
    """When the server answered, by its own clock if that is behind ours: a laptop's may be hours ahead."""
    try:
        told = parsedate_to_datetime(reply.headers.get("Date", ""))
    except ValueError:
        return now
    return min(now, told.astimezone(UTC) if told.tzinfo else told.replace(tzinfo=UTC))


def _at(place: Place, name: str) -> Place:
    """The beginning of the list of that name."""
    assert place.asked is not None
    mark, begin = place.marks.get(name.lower()), place.asked
    kept = None
    # the engine goes back when a trigger looks back: then nothing that was read counts
    if mark is not None and place.asked >= mark.asked:
        begin = max(place.asked, mark.at - LATE)
        kept = mark.since if mark.etag else None
    return Place(
        of=place.of,
        marks=place.marks,
        name=name,
        asked=place.asked,
        begin=begin,
        start=kept or begin,
        etag=mark.etag if mark and kept else "",
    )


def _next_list(place: Place, mark: Mark, names: Sequence[str]) -> Place:
    done = msgspec.structs.replace(place, marks={**place.marks, place.name.lower(): mark})
    rest = names[list(names).index(place.name) + 1 :]
    return _at(done, rest[0]) if rest else Place(of=done.of, marks=done.marks)


def _mark(place: Place, page: Page, began: datetime) -> Mark:
    assert place.asked is not None
    fresh = any(at is None or at > began - SETTLED for at in page.times)
    if place.pages or fresh or len(page.times) > SHORT:
        return Mark(at=began, asked=place.asked)
    return Mark(at=began, asked=place.asked, since=place.start, etag=page.etag)
