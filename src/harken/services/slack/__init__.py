"""Slack: what is said in the channels of a bot, read with its token (https://docs.slack.dev/reference/methods).

One call of Slack's API per page: channels by conversations.list, messages by conversations.history, replies by
conversations.replies. How the reading moves is in `place`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator

from harken.errors import RetryLater
from harken.event import Event, Span
from harken.services.slack import cursor as places
from harken.services.slack.actions import PostParams, destination, post
from harken.services.slack.api import GONE, Account, Answer, Slack, is_stamp, micros, moment, oldest, stamp
from harken.services.slack.check import check, whoami
from harken.services.slack.cursor import Place, Reading
from harken.services.slack.directory import FORGOTTEN, Directory, Names, label, turned, wanted_name
from harken.services.slack.event import Eye, Telling
from harken.source import Act, Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Conversations", "Query", "plugin"]

PAGE = 200
MOST_RESTARTS = 3
_NOBODY = frozenset({"here", "channel", "everyone"})


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[
    list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]], BeforeValidator(_listed)
]


class Query(BaseModel):
    """Several values of one field mean any of them; different fields must all fit."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mentions: Texts = Field(default_factory=list, description="people who are mentioned: @name or a member id")
    channels: Texts = Field(default_factory=list, description="names or ids; without it, every channel of the bot")
    include_threads: bool = Field(True, description="also replies in threads, old ones included")
    include_dms: bool = Field(False, description="also direct messages with the bot")
    exclude_bots: bool = Field(True, description="leave out what bots and apps post")
    keywords: Texts = Field(default_factory=list, description="words of which the text has one, in upper or lower case")

    @field_validator("mentions")
    @classmethod
    def _people(cls, value: list[str]) -> list[str]:
        for written in value:
            if wanted_name(written) in _NOBODY:
                raise ValueError(f"{written} is nobody in particular. Write the name or the id of a person")
            if not wanted_name(written):
                raise ValueError("a mention needs a name after the @")
        return value

    def fingerprint(self) -> str:
        """Changes when other channels are asked for."""
        asked = msgspec.json.encode([sorted(self.channels), self.include_dms])
        return hashlib.blake2b(asked, digest_size=8).hexdigest()


class Conversations:
    """Reads one page a call: of the channels, of a channel's history, or of a thread."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._clock = host.clock
        self._slack = Slack(account, host)
        self._names = Names(self._slack, host.clock)
        self._directory = Directory(query, self._slack, host.clock)
        self._of = query.fingerprint()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        await self._slack.who()
        place = self._resume(cursor, since)
        if self._directory.lacks_people(place):
            return _batch(await self._directory.search(place))
        if self._directory.lacks_channels(place):
            return _batch(await self._directory.list(place))
        reading, _ = places.here(place)
        return await (self._replies(place) if reading.threads else self._history(place))

    def _resume(self, cursor: Cursor, since: datetime) -> Place:
        place, now = places.parsed(cursor), self._now()
        if place.of != self._of:
            place = msgspec.structs.replace(place, of=self._of, stale=True, listing=None, reading=None)
        # `since` moves with every event, so what it was when the read began is kept
        reading = place.reading or Reading(since=oldest(stamp(since), now), began=now)
        if reading.room not in place.rooms:
            reading = places.fresh_at(reading, min(place.rooms, default=""))
        return msgspec.structs.replace(place, reading=reading)

    def _now(self) -> str:
        return stamp(self._clock.now())

    async def _history(self, place: Place) -> Batch:
        threads, now = self._query.include_threads, self._now()
        place = places.opened(place, now, threads)
        reading, room = places.here(place)
        answer = await self._ask(
            "conversations.history", place, places.lower_end(reading, room, threads, now), reading.page
        )
        if answer.error:
            return self._without(place, answer)
        messages = answer.rows("messages")
        top = places.top_of(room, messages, answer.server_time, now)
        following = places.after_page(place, messages, turned(answer, reading.page), top, threads)
        return await self._told(place, messages, room.floor, following)

    async def _replies(self, place: Place) -> Batch:
        reading, room = places.here(place)
        parent, floor = reading.threads[0], places.thread_floor(reading, room)
        answer = await self._ask("conversations.replies", place, floor, reading.thread_page, ts=parent)
        if answer.error == "thread_not_found":
            return _batch(places.after_replies(place, ""))  # deleted since
        if answer.error:
            return self._without(place, answer)
        # every page begins with the parent, which the history has shown
        messages = [one for one in answer.rows("messages") if one.get("ts") != parent]
        following = places.after_replies(place, turned(answer, reading.thread_page))
        return await self._told(place, messages, floor, following)

    async def _ask(self, method: str, place: Place, lower: str, page: str, **more: str) -> Answer:
        reading, room = places.here(place)
        # without `latest` Slack would begin at the other end; a day covers clocks that differ
        latest = stamp(self._clock.now() + timedelta(days=1))
        params: dict[str, str | int] = {"channel": reading.room, "oldest": lower, "latest": latest, "inclusive": "true"}
        params |= {"limit": PAGE, **more, **({"cursor": page} if page else {})}
        # a channel that was named has to be there; another one the bot may have left
        allow = {"thread_not_found", *(() if self._query.channels else GONE), *(FORGOTTEN if page else ())}
        return await self._slack.call(method, params, about=label(room, reading.room), allow=allow)

    def _without(self, place: Place, answer: Answer) -> Batch:
        reading, room = places.here(place)
        if answer.error not in FORGOTTEN:
            return _batch(places.without(place, reading.room))
        if reading.restarts >= MOST_RESTARTS:
            raise RetryLater(f"Slack forgets where a reading of {label(room, reading.room)} was, again and again")
        return _batch(places.again(place))

    async def _told(self, place: Place, messages: Sequence[Mapping[str, Any]], floor: str, following: Place) -> Batch:
        """The batch of a page; the same page again, when there were more names to look up than it had time for."""
        reading, room = places.here(place)
        me = await self._slack.who()
        eye = Eye(query=self._query, people=self._directory.people(place), me=me)
        telling = Telling(id=reading.room, room=room, me=me, names=self._names, rooms=_room_names(place))
        wanted = [one for one in reversed(messages) if _is_new(one, floor) and eye.wants(one)]
        if not await self._names.look_up([id for one in wanted for id in telling.people_of(one)]):
            return _batch(place)
        events = [telling.event(one) for one in wanted]
        return _batch(following, events, None if following.reading else _covered(reading))


def _batch(place: Place, events: Sequence[Event] = (), covered: Span | None = None) -> Batch:
    return Batch(events=events, cursor=msgspec.to_builtins(place), more=place.reading is not None, covered=covered)


def _covered(reading: Reading) -> Span:
    return Span(moment(reading.since), moment(reading.began))


def _is_new(message: Mapping[str, Any], floor: str) -> bool:
    ts = message.get("ts")
    return not is_stamp(ts) or micros(ts) >= micros(floor)


def _room_names(place: Place) -> Callable[[str], str]:
    return lambda id: place.rooms[id].name if id in place.rooms else ""


plugin = Plugin(
    kind="slack",
    summary="Messages and mentions in Slack",
    docs="reference/services/slack.md",
    account=Account,
    query=Query,
    source=Conversations,
    actions={"post": Act(params=PostParams, run=post)},
    destination=destination,
    whoami=whoami,
    check=check,
    lookback_seconds=float(places.OVERLAP),
    delivery=lambda query, integration: Delivery(template="{channel.name}, {user.name}: {text}\n{permalink}"),
    environment={"SLACK_BOT_TOKEN": "token"},
)
