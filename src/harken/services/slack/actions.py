"""The action slack.post and the destination. Both try not to post a message twice.

chat.postMessage documents no idempotency key. Each message therefore carries a mark in its metadata, which is
documented, and before posting the newest messages are searched for it. The same mark is sent as `client_msg_id`:
Slack's error codes mention it, its list of arguments does not, so nothing relies on it.
https://docs.slack.dev/reference/methods/chat.postMessage
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5
from weakref import WeakKeyDictionary

from pydantic import Field, field_validator, model_validator

from harken.errors import NeedsAttention
from harken.kit import ParamsModel
from harken.kit.message_text import cut, message_mark, title_and_text
from harken.kit.values_from_payload import text_of
from harken.services.slack.api import NOT_IN_CHANNEL, Account, Answer, Slack, is_timestamp, to_timestamp
from harken.services.slack.check import channels_of
from harken.services.slack.directory import find_channel, missing_channels
from harken.services.slack.event import permalink
from harken.services.slack.text import defuse
from harken.source import Call, Host, Message

__all__ = ["PostParams", "SlackDestination", "destination", "post"]

LIMIT = 4000
"""Characters that Slack recommends; it may split a longer text."""
MARK = "harken_post"
SEARCH_BACK = timedelta(days=1)
SEARCH_PAGES = 3
NAMES_SECONDS = 600.0
_NAMES: WeakKeyDictionary[Account, dict[str, tuple[str, float]]] = WeakKeyDictionary()
_MARKS = UUID("6f0a1c8e-3f5b-5d6e-9b1e-5a1c7d0e2b44")
_IDS = ("C", "G", "D", "U", "W")
_DELETED = frozenset({"duplicate_message_not_found", "duplicate_channel_not_found"})
# the history cannot be read: the message is posted without searching for an earlier try
_UNREADABLE = frozenset({*NOT_IN_CHANNEL, "missing_scope", "thread_not_found", "invalid_cursor"})
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class PostParams(ParamsModel):
    """The message, and the channel or thread to post it in."""

    channel: str = Field(min_length=1, description="name or id; a member id for a direct message")
    text: str = Field("", description="the message; with blocks, what notifications show")
    thread_ts: str | None = Field(None, description="the thread to answer in: an event's thread_ts")
    reply_broadcast: bool = Field(False, description="show a reply in the channel, too")
    blocks: list[dict[str, Any]] | None = Field(None, description="Block Kit, instead of plain text")
    notify_all: bool = Field(False, description="let <!here>, <!channel> and group marks call people together")

    @field_validator("thread_ts")
    @classmethod
    def _is_stamp(cls, value: str | None) -> str | None:
        if value and not is_timestamp(value):
            raise ValueError('this is not the timestamp of a message. Write text such as "1700000000.000100"')
        return value or None

    @model_validator(mode="after")
    def _not_empty(self) -> PostParams:
        if not self.text.strip() and not self.blocks:
            raise ValueError("the message is empty: give text or blocks")
        return self


async def post(call: Call) -> Mapping[str, Any]:
    """Post, unless an earlier try did. Returns channel, ts, thread_ts, permalink and whether it was a repeat."""
    slack, params = Slack(call.account, call.host), call.params
    me = await slack.me()
    channel = await _channel_id(slack, params.channel, call)
    mark = str(uuid5(_MARKS, call.idempotency_key))
    ts = await _find_posted(slack, channel, params.thread_ts, mark, call.host.clock.now())
    repeated = ts is not None
    if ts is None:
        answer = await slack.call(
            "chat.postMessage", json=_message(params, channel, mark), about=params.channel, allow=_DELETED
        )
        # the allowed errors mean: it was posted before, and then deleted
        repeated = bool(answer.error)
        ts = text_of(answer.body, "ts") or ""
        channel = text_of(answer.body, "channel") or channel
    thread = params.thread_ts or ts
    link = permalink(me.url, channel, ts, thread) if ts else ""
    return {"channel": channel, "ts": ts, "thread_ts": thread, "permalink": link, "repeated": repeated}


def _message(params: PostParams, channel: str, mark: str) -> dict[str, Any]:
    content = {"text": params.text, **({"blocks": params.blocks} if params.blocks else {})}
    return {
        "channel": channel,
        **(content if params.notify_all else defuse(content)),
        **({"thread_ts": params.thread_ts, "reply_broadcast": params.reply_broadcast} if params.thread_ts else {}),
        "metadata": {"event_type": MARK, "event_payload": {"mark": mark}},
        "client_msg_id": mark,
    }


async def _channel_id(slack: Slack, written: str, call: Call) -> str:
    if written.startswith(_IDS) and written.isupper() and written.isalnum():
        return written
    # cached: channels may be listed 20 times a minute, messages posted far more often
    known, now = _NAMES.setdefault(call.account, {}), call.host.clock.monotonic()
    if written not in known or known[written][1] <= now:
        known[written] = (await _find_channel_id(slack, written), now + NAMES_SECONDS)
    return known[written][0]


async def _find_channel_id(slack: Slack, written: str) -> str:
    found = await channels_of(slack)
    if missing_channels(found, [written]):
        bot = (await slack.me()).name
        raise NeedsAttention(
            f"there is no channel {written} that the bot can see", fix=f"Check its name, or: /invite @{bot}"
        )
    return find_channel(found, written)[0]


async def _find_posted(slack: Slack, channel: str, thread: str | None, mark: str, now: datetime) -> str | None:
    """The timestamp of the message with this mark, among the newest of the channel or thread."""
    page = ""
    for _ in range(SEARCH_PAGES):
        answer = await _recent_page(slack, channel, thread, now, page)
        if answer.error:
            return None
        for message in answer.rows("messages"):
            if text_of(message, "metadata.event_payload.mark") == mark:
                return text_of(message, "ts")
        page = answer.next_page
        if not page:
            return None
    return None


async def _recent_page(slack: Slack, channel: str, thread: str | None, now: datetime, page: str) -> Answer:
    # without `latest` Slack returns the oldest messages first
    ends = {"oldest": to_timestamp(now - SEARCH_BACK), "latest": to_timestamp(now + SEARCH_BACK), "inclusive": "true"}
    params: dict[str, str | int] = {"channel": channel, **ends, "limit": 200, "include_all_metadata": "true"}
    params |= {**({"ts": thread} if thread else {}), **({"cursor": page} if page else {})}
    method = "conversations.replies" if thread else "conversations.history"
    return await slack.call(method, params, allow=_UNREADABLE)


class SlackDestination:
    """Posts like `slack.post`, but as plain text: markup, mentions and links in an event's text have no effect."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        channel = message.to.strip()
        if not channel:
            raise NeedsAttention("`to` names no channel", fix="Write #name or an id; a member id for a person")
        text = cut(title_and_text(message), LIMIT).translate(_ENTITIES)
        key = message.idempotency_key or message_mark(message, self._host)
        posted: Mapping[str, Any] = await post(
            Call(
                params=PostParams(channel=channel, text=text),
                account=self._account,
                host=self._host,
                idempotency_key=key,
            )
        )
        return {name: posted[name] for name in ("channel", "ts", "permalink", "repeated")}


def destination(query: object, account: Account, host: Host) -> SlackDestination:
    return SlackDestination(account, host)
