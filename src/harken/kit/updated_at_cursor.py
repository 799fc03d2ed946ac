"""The cursor of a source that reads lists sorted by last change, one list after the other. Used by `kit.tracker`.

A page begins where the last one ended in time, not at a page number: an item that changes meanwhile moves to the end of
the list and pushes no other over the border of a page. The server's own link to the next page is followed only where
every item of a page has the same time. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from harken.errors import RetryLater
from harken.event import Event
from harken.kit.cursor_codec import dump_cursor, load_cursor
from harken.source import Batch, Cursor

__all__ = ["SETTLED", "ListCursor", "ListMark", "Page", "advance", "batch_at", "events_in_read", "resume", "skip"]

T = TypeVar("T")

# how far a read overlaps the one before: lists and histories may come from replicas that lag behind
OVERLAP = timedelta(minutes=10)
# an item that changed within this time may change again without a new timestamp
SETTLED = timedelta(minutes=1)
# a list that is requested again and again with its ETag should be short
LONGEST_CONDITIONAL = 30
MARK_INTERVAL = timedelta(hours=1)
MAX_PAGES = 5000


class ListMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a list was read: all that it showed at the time `at`, in a read that the engine wanted from `asked` on.

    `etag` belongs to the list from `since` on. It is kept only if that was one short page of settled items.
    """

    at: datetime
    asked: datetime
    since: datetime | None = None
    etag: str = ""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list, received at `now`.

    `items` are those that match; `times` has the last change of every item, also of those that do not match. `link`
    leads to the next page. `unchanged`: the server answered 304.
    """

    now: datetime
    items: Sequence[T] = ()
    times: Sequence[datetime | None] = ()
    link: str | None = None
    etag: str = ""
    unchanged: bool = False


class ListCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`of` is the fingerprint of the query, `marks` says how far each list was read.

    The other fields are set during a read: `name` is the list being read, `begin` the time from which occurrences
    count, `start` the time at which the current page begins, `link` the URL of the page if `start` does not tell it,
    and `asked` the `since` of the engine when the read began.
    """

    of: str = ""
    marks: dict[str, ListMark] = {}
    name: str = ""
    asked: datetime | None = None
    begin: datetime | None = None
    start: datetime | None = None
    link: str = ""
    etag: str = ""
    began: datetime | None = None
    pages: int = 0


def resume(cursor: Cursor, of: str, since: datetime, names: Sequence[str]) -> ListCursor:
    """Return the page that the cursor points to, or the first page of a new read."""
    stored = load_cursor(cursor, ListCursor) or ListCursor()
    if stored.name in names and stored.of == of and stored.begin and stored.start and stored.asked:
        return stored
    marks = {name: mark for name in map(str.lower, names) if (mark := stored.marks.get(name))}
    if stored.of != of:
        # the ETag belongs to the other query
        marks = {name: ListMark(at=mark.at, asked=mark.asked) for name, mark in marks.items()}
    # an unfinished read starts again where it began
    return _start_list(ListCursor(of=of, marks=marks, asked=min(since, stored.asked or since)), names[0])


def advance(cursor: ListCursor, page: Page[T], names: Sequence[str]) -> ListCursor:
    """Return where the read continues after this page. A cursor without a name is the end of the read."""
    assert cursor.start is not None
    began = cursor.began or page.now
    if page.link is None:
        return _next_list(cursor, _mark(cursor, page, began), names)
    if page.link == cursor.link or cursor.pages >= MAX_PAGES:
        raise RetryLater(f"the list of {cursor.name} does not end", fix="Check base_url")
    newest = max((at for at in page.times if at), default=cursor.start)
    further = newest > cursor.start
    return msgspec.structs.replace(
        cursor,
        start=newest if further else cursor.start,
        link="" if further else page.link,
        etag="",
        began=began,
        pages=cursor.pages + 1,
    )


def skip(cursor: ListCursor, now: datetime, names: Sequence[str]) -> ListCursor:
    """Return where the read continues when the server says that the current list has not changed."""
    mark = cursor.marks[cursor.name.lower()]
    # the mark moves seldom, so that a read without events has nothing to store
    if now - mark.at >= MARK_INTERVAL:
        mark = msgspec.structs.replace(mark, at=now)
    return _next_list(cursor, mark, names)


def events_in_read(events: Iterable[Event | None], cursor: ListCursor, now: datetime) -> list[Event]:
    """Return the events that occurred within this read, oldest first. One without a time counts as occurring `now`."""
    # what occurred earlier was returned by an earlier read, or lies before the first; the item only changed again
    within = [
        event
        for event in events
        if event and (event.occurred_at is None or not cursor.begin or event.occurred_at >= cursor.begin)
    ]
    return sorted(within, key=lambda event: event.occurred_at or now)


def batch_at(cursor: ListCursor, events: Sequence[Event] = (), *, unchanged: bool = False) -> Batch:
    """Return the events as a batch. There is more to read while the cursor names a list."""
    return Batch(events=events, cursor=dump_cursor(cursor), more=bool(cursor.name), unchanged=unchanged)


def _start_list(cursor: ListCursor, name: str) -> ListCursor:
    assert cursor.asked is not None
    mark, begin = cursor.marks.get(name.lower()), cursor.asked
    etag_since = None
    # when the engine wants more of the past than before (a trigger that looks back), the mark does not count
    if mark is not None and cursor.asked >= mark.asked:
        begin = max(cursor.asked, mark.at - OVERLAP)
        etag_since = mark.since if mark.etag else None
    return ListCursor(
        of=cursor.of,
        marks=cursor.marks,
        name=name,
        asked=cursor.asked,
        begin=begin,
        start=etag_since or begin,
        etag=mark.etag if mark and etag_since else "",
    )


def _next_list(cursor: ListCursor, mark: ListMark, names: Sequence[str]) -> ListCursor:
    done = msgspec.structs.replace(cursor, marks={**cursor.marks, cursor.name.lower(): mark})
    left = names[list(names).index(cursor.name) + 1 :]
    return _start_list(done, left[0]) if left else ListCursor(of=done.of, marks=done.marks)


def _mark(cursor: ListCursor, page: Page[T], began: datetime) -> ListMark:
    assert cursor.asked is not None
    unsettled = any(at is None or at > began - SETTLED for at in page.times)
    if cursor.pages or unsettled or len(page.times) > LONGEST_CONDITIONAL:
        return ListMark(at=began, asked=cursor.asked)
    return ListMark(at=began, asked=cursor.asked, since=cursor.start, etag=page.etag)
