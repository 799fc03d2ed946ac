"""Slack: messages in the channels of a bot, read with its token (https://docs.slack.dev/reference/methods).

Each poll makes one paged call: channels by conversations.list, messages by conversations.history, replies by
conversations.replies. `cursor` decides which page comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.errors import RetryLater
from harken.event import Event, Span
from harken.kit import dump_cursor
from harken.kit.webhook_receiver import ReceiverQuery
from harken.services.slack.actions import PostParams, destination, post
from harken.services.slack.api import (
    NOT_IN_CHANNEL,
    Account,
    Answer,
    Slack,
    is_timestamp,
    micros,
    oldest,
    to_datetime,
    to_timestamp,
)
from harken.services.slack.check import check, whoami
from harken.services.slack.cursor import (
    OVERLAP,
    Place,
    Reading,
    after_page,
    after_replies,
    at_channel,
    begin_channel,
    current,
    drop_channel,
    history_floor,
    newest_known,
    parse,
    restart_channel,
    thread_floor,
)
from harken.services.slack.directory import (
    LOST_CURSOR,
    Directory,
    Names,
    channel_label,
    following_page,
)
from harken.services.slack.event import MessageFilter, MessageMapper
from harken.services.slack.query import Query
from harken.services.slack.receiver import receiver, sample
from harken.source import Act, Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Conversations", "Query", "plugin"]

PAGE = 200
MOST_RESTARTS = 3


class Conversations:
    """Reads one page per call: of the list of channels, of a channel's history, or of a thread."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._clock = host.clock
        self._slack = Slack(account, host)
        self._names = Names(self._slack, host.clock)
        self._directory = Directory(query, self._slack, host.clock)
        self._of = query.fingerprint()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        await self._slack.me()
        place = self._resume(cursor, since)
        if self._directory.needs_people(place):
            return _batch(await self._directory.search_people(place))
        if self._directory.needs_channels(place):
            return _batch(await self._directory.list_channels(place))
        reading, _ = current(place)
        return await (self._replies(place) if reading.threads else self._history(place))

    def _resume(self, cursor: Cursor, since: datetime) -> Place:
        place, now = parse(cursor), self._now()
        if place.of != self._of:
            place = msgspec.structs.replace(place, of=self._of, stale=True, listing=None, reading=None)
        # the engine's `since` advances with every event: keep its value from the beginning of this read
        reading = place.reading or Reading(since=oldest(to_timestamp(since), now), began=now)
        if reading.channel not in place.channels:
            reading = at_channel(reading, min(place.channels, default=""))
        return msgspec.structs.replace(place, reading=reading)

    def _now(self) -> str:
        return to_timestamp(self._clock.now())

    async def _history(self, place: Place) -> Batch:
        threads, now = self._query.include_threads, self._now()
        place = begin_channel(place, now, threads)
        reading, channel = current(place)
        answer = await self._fetch(
            "conversations.history", place, history_floor(reading, channel, threads, now), reading.page
        )
        if answer.error:
            return self._recover(place, answer)
        messages = answer.rows("messages")
        top = newest_known(channel, messages, answer.server_time, now)
        following = after_page(place, messages, following_page(answer, reading.page), top, threads)
        return await self._to_batch(place, messages, channel.floor, following)

    async def _replies(self, place: Place) -> Batch:
        reading, channel = current(place)
        parent, floor = reading.threads[0], thread_floor(reading, channel)
        answer = await self._fetch("conversations.replies", place, floor, reading.thread_page, ts=parent)
        if answer.error == "thread_not_found":
            return _batch(after_replies(place, ""))  # the thread was deleted meanwhile
        if answer.error:
            return self._recover(place, answer)
        # every page repeats the parent message, which the history has returned already
        messages = [one for one in answer.rows("messages") if one.get("ts") != parent]
        following = after_replies(place, following_page(answer, reading.thread_page))
        return await self._to_batch(place, messages, floor, following)

    async def _fetch(self, method: str, place: Place, lower: str, page: str, **more: str) -> Answer:
        reading, channel = current(place)
        # without `latest` Slack returns the oldest messages first; one day ahead allows for clocks that differ
        latest = to_timestamp(self._clock.now() + timedelta(days=1))
        params: dict[str, str | int] = {
            "channel": reading.channel,
            "oldest": lower,
            "latest": latest,
            "inclusive": "true",
        }
        params |= {"limit": PAGE, **more, **({"cursor": page} if page else {})}
        # a channel that the query names must exist; the bot may have left any other
        allow = {"thread_not_found", *(() if self._query.channels else NOT_IN_CHANNEL), *(LOST_CURSOR if page else ())}
        return await self._slack.call(method, params, about=channel_label(channel, reading.channel), allow=allow)

    def _recover(self, place: Place, answer: Answer) -> Batch:
        reading, channel = current(place)
        if answer.error not in LOST_CURSOR:
            return _batch(drop_channel(place, reading.channel))
        if reading.restarts >= MOST_RESTARTS:
            name = channel_label(channel, reading.channel)
            raise RetryLater(f"Slack refused its own page cursor for {name} {MOST_RESTARTS + 1} times in a row")
        return _batch(restart_channel(place))

    async def _to_batch(
        self, place: Place, messages: Sequence[Mapping[str, Any]], floor: str, following: Place
    ) -> Batch:
        """The batch of a page. If more user names are unknown than one poll may look up, the page is read again."""
        reading, channel = current(place)
        me = await self._slack.me()
        selection = MessageFilter(query=self._query, people=self._directory.people(place), me=me)
        mapper = MessageMapper(
            id=reading.channel, channel=channel, me=me, names=self._names, channel_names=_channel_names(place)
        )
        wanted = [one for one in reversed(messages) if _is_new(one, floor) and selection.matches(one)]
        if not await self._names.look_up([id for one in wanted for id in mapper.user_ids(one)]):
            return _batch(place)
        events = [mapper.event(one) for one in wanted]
        return _batch(following, events, None if following.reading else _covered(reading))


def _batch(place: Place, events: Sequence[Event] = (), covered: Span | None = None) -> Batch:
    return Batch(events=events, cursor=dump_cursor(place), more=place.reading is not None, covered=covered)


def _covered(reading: Reading) -> Span:
    return Span(to_datetime(reading.since), to_datetime(reading.began))


def _is_new(message: Mapping[str, Any], floor: str) -> bool:
    ts = message.get("ts")
    return not is_timestamp(ts) or micros(ts) >= micros(floor)


def _channel_names(place: Place) -> Callable[[str], str]:
    return lambda id: place.channels[id].name if id in place.channels else ""


plugin = Plugin(
    kind="slack",
    summary="Messages and mentions in Slack",
    docs="reference/services/slack.md",
    account=Account,
    webhook_query=ReceiverQuery,
    webhook=receiver,
    webhook_sample=sample,
    query=Query,
    source=Conversations,
    actions={"post": Act(params=PostParams, run=post)},
    destination=destination,
    whoami=whoami,
    check=check,
    lookback_seconds=float(OVERLAP),
    delivery=lambda query, integration: Delivery(template="{channel.name}, {user.name}: {text}\n{permalink}"),
    environment={"SLACK_BOT_TOKEN": "token"},
)
