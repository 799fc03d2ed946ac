"""How far Slack has been read, and which page comes next. Pure functions from one `Place` to the next.

History comes newest first, so the position of a channel moves only when the channel was read to its end.
A reply to an old message is visible only in that message's `latest_reply`. Each read therefore lists the messages
of the last day again (one page), and every few minutes those of the last week (ten pages): a *wide* read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from harken.kit import load_cursor
from harken.kit.values_from_payload import text_of
from harken.services.slack.api import earlier, is_timestamp, micros, newest, oldest

__all__ = [
    "OVERLAP",
    "Channel",
    "ListedChannel",
    "Listing",
    "PeopleSearch",
    "Place",
    "Reading",
    "after_page",
    "after_replies",
    "at_channel",
    "begin_channel",
    "current",
    "drop_channel",
    "history_floor",
    "listed_channels",
    "merge_channels",
    "newest_known",
    "parse",
    "restart_channel",
    "thread_floor",
]

OVERLAP = 120
"""Seconds by which two reads overlap, because Slack can return a message late."""
DAY, WEEK = 86_400, 7 * 86_400
WIDE_SECONDS = 300
"""Seconds between two wide reads of a channel."""
MOST_PAGES = 10


class Channel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a channel is read: `at` its history, `wide` the threads of the last week; `start` if not read yet."""

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
        """Whether the next read should be wide; never the first one."""
        return bool(self.at) and micros(now) - micros(self.wide or self.start) >= WIDE_SECONDS * 1_000_000


class ListedChannel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A channel as conversations.list returned it."""

    name: str
    kind: str = ""
    user: str = ""
    member: bool = True


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unfinished listing of the channels. `seen`: when its last page was read."""

    began: str
    seen: str
    page: str
    found: Mapping[str, ListedChannel] = {}


class PeopleSearch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unfinished search for the people in `mentions`: the ids found so far by name."""

    seen: str
    page: str
    found: Mapping[str, Sequence[str]] = {}


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unfinished read: the channel, the page of its history, and the threads to read before the next page."""

    since: str
    began: str
    channel: str = msgspec.field(default="", name="room")
    page: str = ""
    pages: int = 0
    top: str = ""
    wide: bool = False
    threads: Sequence[str] = ()
    thread_page: str = ""
    restarts: int = 0
    listed: bool = False


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole cursor. `of` is the fingerprint of the query; `listed` is when the channels were last listed."""

    of: str = ""
    listed: str = ""
    stale: bool = False
    channels: Mapping[str, Channel] = msgspec.field(default_factory=dict, name="rooms")
    people: Mapping[str, str] = {}
    listing: Listing | None = None
    naming: PeopleSearch | None = None
    reading: Reading | None = None


def parse(cursor: Any) -> Place:
    """The stored place, or a fresh one if this version cannot read the cursor."""
    place = load_cursor(cursor, Place)
    return place if place and all(map(is_timestamp, _stamps(place))) else Place()


def _stamps(place: Place) -> list[str]:
    """Every text in the place that must be a Slack timestamp."""
    channels, reading, listing, naming = place.channels.values(), place.reading, place.listing, place.naming
    needed = [*(channel.start for channel in channels), *([listing.began, listing.seen] if listing else [])]
    needed += [naming.seen] if naming else []
    needed += [reading.since, reading.began, *reading.threads] if reading else []
    optional = [place.listed, *(text for channel in channels for text in (channel.at, channel.wide))]
    return [*needed, *(text for text in [*optional, reading.top if reading else ""] if text)]


def listed_channels(rows: Iterable[Mapping[str, Any]]) -> dict[str, ListedChannel]:
    """The channels of one page of conversations.list, by id."""
    found: dict[str, ListedChannel] = {}
    for row in rows:
        kind = "im" if row.get("is_im") is True else "mpim" if row.get("is_mpim") is True else ""
        id = text_of(row, "id")
        if id:
            member = bool(kind) or row.get("is_member") is True
            user = text_of(row, "user") or ""
            found[id] = ListedChannel(name=text_of(row, "name") or "", kind=kind, user=user, member=member)
    return found


def merge_channels(place: Place, found: Mapping[str, ListedChannel], since: str) -> dict[str, Channel]:
    """The channels to read, each with its position. A new channel starts at the last listing that did not have it."""
    start = earlier(place.listed, OVERLAP) if place.listed else since
    return {
        id: msgspec.structs.replace(
            place.channels.get(id) or Channel(name="", start=start), name=one.name, kind=one.kind, user=one.user
        )
        for id, one in sorted(found.items())
    }


def begin_channel(place: Place, now: str, threads: bool) -> Place:
    """Before the first page of a channel: decide whether this read of it is wide."""
    reading, channel = current(place)
    if reading.pages:
        return place
    return msgspec.structs.replace(place, reading=msgspec.structs.replace(reading, wide=threads and channel.due(now)))


def after_page(place: Place, messages: Sequence[Mapping[str, Any]], following: str, top: str, threads: bool) -> Place:
    """The place after a page of history. `top`: the channel's new position once all its pages were read."""
    reading, channel = current(place)
    pages = reading.pages + 1
    deeper = following and (_has_more_new(messages, channel.floor) or (reading.wide and pages < MOST_PAGES))
    reading = msgspec.structs.replace(
        reading,
        top=reading.top or top,
        pages=pages,
        page=following if deeper else "",
        threads=_active_threads(messages, thread_floor(reading, channel)) if threads else (),
    )
    # without threads, replies count as read: switching include_threads on later must not bring old ones
    return _finish_channel(msgspec.structs.replace(place, reading=reading), wide=reading.wide or not threads)


def after_replies(place: Place, following: str) -> Place:
    """The place after a page of the first waiting thread."""
    reading, _ = current(place)
    rest = reading.threads if following else reading.threads[1:]
    reading = msgspec.structs.replace(reading, threads=rest, thread_page=following)
    return _finish_channel(msgspec.structs.replace(place, reading=reading), wide=reading.wide)


def drop_channel(place: Place, id: str) -> Place:
    """Go on without this channel, and list the channels again."""
    channels = {name: channel for name, channel in place.channels.items() if name != id}
    return _next_channel(msgspec.structs.replace(place, channels=channels, stale=True))


def restart_channel(place: Place) -> Place:
    """Read the current channel again from its first page, because Slack no longer accepts the page cursor."""
    reading, _ = current(place)
    fresh = at_channel(reading, reading.channel)
    return msgspec.structs.replace(place, reading=msgspec.structs.replace(fresh, restarts=reading.restarts + 1))


def at_channel(reading: Reading, channel: str) -> Reading:
    """The same read, before the first page of this channel."""
    return Reading(since=reading.since, began=reading.began, listed=reading.listed, channel=channel)


def thread_floor(reading: Reading, channel: Channel) -> str:
    """Replies from this timestamp on are new."""
    return earlier(channel.wide or channel.start, OVERLAP) if reading.wide else channel.floor


def history_floor(reading: Reading, channel: Channel, threads: bool, now: str) -> str:
    """The `oldest` to ask conversations.history for."""
    return oldest(channel.floor, earlier(now, WEEK if reading.wide else DAY)) if threads else channel.floor


def newest_known(channel: Channel, messages: Iterable[Mapping[str, Any]], answered: str | None, now: str) -> str:
    """The channel's position after this read: by Slack's clock, but never ahead of ours and never back."""
    shown = [text for one in messages for text in (one.get("ts"), one.get("latest_reply")) if is_timestamp(text)]
    seen = [*shown, *([answered] if answered else [])]
    return newest(channel.at or channel.start, oldest(newest(*seen), now)) if seen else channel.at or channel.start


def current(place: Place) -> tuple[Reading, Channel]:
    assert place.reading is not None
    return place.reading, place.channels[place.reading.channel]


def _finish_channel(place: Place, *, wide: bool) -> Place:
    """Move the channel's position once all its pages and threads were read."""
    reading, channel = current(place)
    if reading.threads or reading.page:
        return place
    moved = msgspec.structs.replace(
        channel, at=reading.top, wide=reading.top if wide else channel.wide or channel.start
    )
    return _next_channel(msgspec.structs.replace(place, channels={**place.channels, reading.channel: moved}))


def _next_channel(place: Place) -> Place:
    assert place.reading is not None
    was = place.reading
    following = min((id for id in place.channels if id > was.channel), default=None)
    reading = at_channel(was, following) if following else None
    return msgspec.structs.replace(place, reading=reading)


def _has_more_new(messages: Iterable[Mapping[str, Any]], floor: str) -> bool:
    """Whether the oldest message of the page is still new, so that the next page has new ones too."""
    stamps = [text for one in messages if is_timestamp(text := one.get("ts"))]
    return not stamps or micros(oldest(*stamps)) >= micros(floor)


def _active_threads(messages: Iterable[Mapping[str, Any]], floor: str) -> list[str]:
    """The parents of threads with replies after the floor."""
    threads: list[str] = []
    for one in messages:
        ts, latest = one.get("ts"), one.get("latest_reply")
        if is_timestamp(ts) and one.get("thread_ts") == ts and one.get("reply_count"):
            # without `latest_reply` the thread has to be read
            threads += [ts] if not is_timestamp(latest) or micros(latest) >= micros(floor) else []
    return threads
