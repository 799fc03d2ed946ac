"""Where a reading of Slack stands: the cursor, and how it moves. History comes newest first, so the position of a
channel moves only when the channel was read to its end.

A reply to an old message shows itself only in that message's `latest_reply`. Each read therefore looks again at
messages of the last day (one page), and every few minutes at those of the last week (ten pages).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from harken.kit.fields import text_of
from harken.services.slack.api import earlier, is_stamp, micros, newest, oldest

__all__ = [
    "OVERLAP",
    "Found",
    "Listing",
    "Naming",
    "Place",
    "Reading",
    "Room",
    "after_page",
    "after_replies",
    "again",
    "found_in",
    "fresh_at",
    "here",
    "lower_end",
    "opened",
    "parsed",
    "rooms_of",
    "thread_floor",
    "top_of",
    "without",
]

OVERLAP = 120
"""Seconds that a read goes back behind the last one, for messages that Slack shows late."""
RECENT, WEEK = 86_400, 7 * 86_400
EVERY = 300
"""Seconds between looks at the threads of a week."""
MOST_PAGES = 10


class Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A channel. `at`: read up to here; `wide`: its older threads, up to here; `start`: where its first read begins."""

    name: str
    start: str
    at: str = ""
    wide: str = ""
    kind: str = ""
    user: str = ""

    @property
    def floor(self) -> str:
        return earlier(self.at, OVERLAP) if self.at else self.start

    def due(self, now: str) -> bool:
        """Whether it is time for the older threads; never at the first read."""
        return bool(self.at) and micros(now) - micros(self.wide or self.start) >= EVERY * 1_000_000


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A channel as it was listed."""

    name: str
    kind: str = ""
    user: str = ""
    member: bool = True


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A listing of channels that is under way. `seen`: when it last came further."""

    began: str
    seen: str
    page: str
    found: Mapping[str, Found] = {}


class Naming(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A search for the people that a query mentions."""

    seen: str
    page: str
    found: Mapping[str, Sequence[str]] = {}


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A read that is under way: the channel, the page of it, and the threads to look into before the next page."""

    since: str
    began: str
    room: str = ""
    page: str = ""
    pages: int = 0
    top: str = ""
    wide: bool = False
    threads: Sequence[str] = ()
    thread_page: str = ""
    restarts: int = 0
    listed: bool = False


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole cursor. `of` names the channels that the query asks for; `listed` is when they were last looked up."""

    of: str = ""
    listed: str = ""
    stale: bool = False
    rooms: Mapping[str, Room] = {}
    people: Mapping[str, str] = {}
    listing: Listing | None = None
    naming: Naming | None = None
    reading: Reading | None = None


def parsed(cursor: Any) -> Place:
    """The place, or a fresh one for a cursor that this version cannot read."""
    try:
        place = msgspec.convert(cursor, Place)
    except msgspec.ValidationError:
        return Place()
    return place if all(map(is_stamp, _stamps(place))) else Place()


def _stamps(place: Place) -> list[str]:
    """Every timestamp of the place that must be one."""
    rooms, reading, listing, naming = place.rooms.values(), place.reading, place.listing, place.naming
    needed = [*(room.start for room in rooms), *([listing.began, listing.seen] if listing else [])]
    needed += [naming.seen] if naming else []
    needed += [reading.since, reading.began, *reading.threads] if reading else []
    optional = [place.listed, *(text for room in rooms for text in (room.at, room.wide))]
    return [*needed, *(text for text in [*optional, reading.top if reading else ""] if text)]


def found_in(rows: Iterable[Mapping[str, Any]]) -> dict[str, Found]:
    """The channels of one page of conversations.list, by id."""
    found: dict[str, Found] = {}
    for row in rows:
        kind = "im" if row.get("is_im") is True else "mpim" if row.get("is_mpim") is True else ""
        id = text_of(row, "id")
        if id:
            member = bool(kind) or row.get("is_member") is True
            user = text_of(row, "user") or ""
            found[id] = Found(name=text_of(row, "name") or "", kind=kind, user=user, member=member)
    return found


def rooms_of(place: Place, found: Mapping[str, Found], since: str) -> dict[str, Room]:
    """The channels to read, each where it stands. One that is new begins at the last listing that did not show it."""
    start = earlier(place.listed, OVERLAP) if place.listed else since
    return {
        id: msgspec.structs.replace(
            place.rooms.get(id) or Room(name="", start=start), name=one.name, kind=one.kind, user=one.user
        )
        for id, one in sorted(found.items())
    }


def opened(place: Place, now: str, threads: bool) -> Place:
    """The place with what is decided when the read of a channel begins: whether it is a wide one."""
    reading, room = here(place)
    if reading.pages:
        return place
    return msgspec.structs.replace(place, reading=msgspec.structs.replace(reading, wide=threads and room.due(now)))


def after_page(place: Place, messages: Sequence[Mapping[str, Any]], following: str, top: str, threads: bool) -> Place:
    """Where to go on after a page of a channel's history. `top` is where its first page says that the channel is."""
    reading, room = here(place)
    pages = reading.pages + 1
    deeper = following and (_above(messages, room.floor) or (reading.wide and pages < MOST_PAGES))
    reading = msgspec.structs.replace(
        reading,
        top=reading.top or top,
        pages=pages,
        page=following if deeper else "",
        threads=_active(messages, thread_floor(reading, room)) if threads else (),
    )
    # replies that nobody wanted are passed, and do not come up when somebody wants replies later
    return _settled(msgspec.structs.replace(place, reading=reading), wide=reading.wide or not threads)


def after_replies(place: Place, following: str) -> Place:
    """Where to go on after a page of the first of the waiting threads."""
    reading, _ = here(place)
    rest = reading.threads if following else reading.threads[1:]
    reading = msgspec.structs.replace(reading, threads=rest, thread_page=following)
    return _settled(msgspec.structs.replace(place, reading=reading), wide=reading.wide)


def without(place: Place, id: str) -> Place:
    """The read goes on without this channel."""
    rooms = {name: room for name, room in place.rooms.items() if name != id}
    return _next_room(msgspec.structs.replace(place, rooms=rooms, stale=True))


def again(place: Place) -> Place:
    """The read of this channel from its first page, after Slack forgot the place of a later one."""
    reading, _ = here(place)
    fresh = fresh_at(reading, reading.room)
    return msgspec.structs.replace(place, reading=msgspec.structs.replace(fresh, restarts=reading.restarts + 1))


def fresh_at(reading: Reading, room: str) -> Reading:
    """The same read, at the beginning of this channel."""
    return Reading(since=reading.since, began=reading.began, listed=reading.listed, room=room)


def thread_floor(reading: Reading, room: Room) -> str:
    """From where on replies are new."""
    return earlier(room.wide or room.start, OVERLAP) if reading.wide else room.floor


def lower_end(reading: Reading, room: Room, threads: bool, now: str) -> str:
    """How far back the history is asked for."""
    return oldest(room.floor, earlier(now, WEEK if reading.wide else RECENT)) if threads else room.floor


def top_of(room: Room, messages: Iterable[Mapping[str, Any]], answered: str | None, now: str) -> str:
    """Up to where the channel is known when this read of it ends: by Slack's clock, not ahead of ours, never back."""
    shown = [text for one in messages for text in (one.get("ts"), one.get("latest_reply")) if is_stamp(text)]
    seen = [*shown, *([answered] if answered else [])]
    return newest(room.at or room.start, oldest(newest(*seen), now)) if seen else room.at or room.start


def here(place: Place) -> tuple[Reading, Room]:
    assert place.reading is not None
    return place.reading, place.rooms[place.reading.room]


def _settled(place: Place, *, wide: bool) -> Place:
    """Move the channel's position once all its pages and threads were read."""
    reading, room = here(place)
    if reading.threads or reading.page:
        return place
    moved = msgspec.structs.replace(room, at=reading.top, wide=reading.top if wide else room.wide or room.start)
    return _next_room(msgspec.structs.replace(place, rooms={**place.rooms, reading.room: moved}))


def _next_room(place: Place) -> Place:
    assert place.reading is not None
    was = place.reading
    following = min((id for id in place.rooms if id > was.room), default=None)
    reading = fresh_at(was, following) if following else None
    return msgspec.structs.replace(place, reading=reading)


def _above(messages: Iterable[Mapping[str, Any]], floor: str) -> bool:
    """Whether the page ends above the floor, so that more of what is new lies below it."""
    stamps = [text for one in messages if is_stamp(text := one.get("ts"))]
    return not stamps or micros(oldest(*stamps)) >= micros(floor)


def _active(messages: Iterable[Mapping[str, Any]], floor: str) -> list[str]:
    """The threads with replies after the floor."""
    threads: list[str] = []
    for one in messages:
        ts, latest = one.get("ts"), one.get("latest_reply")
        if is_stamp(ts) and one.get("thread_ts") == ts and one.get("reply_count"):
            # a thread that does not say when it was last answered is looked into
            threads += [ts] if not is_stamp(latest) or micros(latest) >= micros(floor) else []
    return threads
