"""slack.post: say something, and once only as far as Slack allows.

chat.postMessage documents no key against repeats. Each message therefore carries a mark in its metadata, which is
documented, and before posting the newest messages are searched for it. The same mark goes along as `client_msg_id`:
Slack's error codes speak of it, its list of arguments does not, so nothing relies on it.
https://docs.slack.dev/reference/methods/chat.postMessage
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harken.errors import NeedsAttention
from harken.kit.fields import text_of
from harken.kit.messages import cut, message_mark, title_and_text
from harken.services.slack.api import GONE, Account, Answer, Slack, is_stamp, stamp
from harken.services.slack.check import channels_of
from harken.services.slack.directory import absent, meant
from harken.services.slack.event import defused, permalink
from harken.source import Call, Host, Message

__all__ = ["Notices", "PostParams", "destination", "post"]


MARK = "harken_post"

LOOK_BACK = timedelta(days=1)

LOOK_PAGES = 3

NAMES_SECONDS = 600.0

_NAMES: WeakKeyDictionary[Account, dict[str, tuple[str, float]]] = WeakKeyDictionary()

_MARKS = UUID("6f0a1c8e-3f5b-5d6e-9b1e-5a1c7d0e2b44")

_IDS = ("C", "G", "D", "U", "W")

_GONE_AGAIN = frozenset({"duplicate_message_not_found", "duplicate_channel_not_found"})

# no history may be read there: then the message is posted without a look
_UNSEEN = frozenset({*GONE, "missing_scope", "thread_not_found", "invalid_cursor"})


class PostParams(BaseModel):
    """What to say, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    channel: str = Field(min_length=1, description="name or id; a member id for a direct message")
    text: str = Field("", description="the message; with blocks, what notifications show")
    thread_ts: str | None = Field(None, description="the thread to answer in: an event's thread_ts")
    reply_broadcast: bool = Field(False, description="show a reply in the channel, too")
    blocks: list[dict[str, Any]] | None = Field(None, description="Block Kit, instead of plain text")
    notify_all: bool = Field(False, description="let <!here>, <!channel> and group marks call people together")

    @field_validator("thread_ts")
    @classmethod
    def _stamp(cls, value: str | None) -> str | None:
        if value and not is_stamp(value):
            raise ValueError('this is no timestamp of a message. Write text such as "1700000000.000100"')
        return value or None

    @model_validator(mode="after")
    def _says_something(self) -> PostParams:
        if not self.text.strip() and not self.blocks:
            raise ValueError("there is nothing to say: give text or blocks")
        return self


async def post(call: Call) -> Mapping[str, Any]:
    """Post, unless an earlier try did. Returns channel, ts, thread_ts, permalink and whether it was there already."""
    slack, params = Slack(call.account, call.host), call.params
    me = await slack.who()
    channel = await _channel_id(slack, params.channel, call)
    mark = str(uuid5(_MARKS, call.idempotency_key))
    ts = await _posted(slack, channel, params.thread_ts, mark, call.host.clock.now())
    repeated = ts is not None
    if ts is None:
        answer = await slack.call(
            "chat.postMessage", json=_message(params, channel, mark), about=params.channel, allow=_GONE_AGAIN
        )
        # it was posted once, and deleted by somebody
        repeated = bool(answer.error)
        ts = text_of(answer.body, "ts") or ""
        channel = text_of(answer.body, "channel") or channel
    thread = params.thread_ts or ts
    link = permalink(me.url, channel, ts, thread) if ts else ""
    return {"channel": channel, "ts": ts, "thread_ts": thread, "permalink": link, "repeated": repeated}


def _message(params: PostParams, channel: str, mark: str) -> dict[str, Any]:
    said = {"text": params.text, **({"blocks": params.blocks} if params.blocks else {})}
    return {
        "channel": channel,
        **(said if params.notify_all else defused(said)),
        **({"thread_ts": params.thread_ts, "reply_broadcast": params.reply_broadcast} if params.thread_ts else {}),
        "metadata": {"event_type": MARK, "event_payload": {"mark": mark}},
        "client_msg_id": mark,
    }


async def _channel_id(slack: Slack, written: str, call: Call) -> str:
    if written.startswith(_IDS) and written.isupper() and written.isalnum():
        return written
    # listing channels is allowed 20 times a minute, posting far more often
    known, now = _NAMES.setdefault(call.account, {}), call.host.clock.monotonic()
    if written not in known or known[written][1] <= now:
        known[written] = (await _looked_up(slack, written), now + NAMES_SECONDS)
    return known[written][0]


async def _looked_up(slack: Slack, written: str) -> str:
    found = await channels_of(slack)
    if absent(found, [written]):
        bot = (await slack.who()).name
        raise NeedsAttention(
            f"there is no channel {written} that the bot can see", fix=f"Check its name, or: /invite @{bot}"
        )
    return meant(found, written)[0]


async def _posted(slack: Slack, channel: str, thread: str | None, mark: str, now: datetime) -> str | None:
    """The timestamp of the message with this mark, among the newest of the channel or thread."""
    page = ""
    for _ in range(LOOK_PAGES):
        answer = await _look(slack, channel, thread, now, page)
        if answer.error:
            return None
        for message in answer.rows("messages"):
            if text_of(message, "metadata.event_payload.mark") == mark:
                return text_of(message, "ts")
        page = answer.next_page
        if not page:
            return None
    return None


async def _look(slack: Slack, channel: str, thread: str | None, now: datetime, page: str) -> Answer:
    # without `latest` the search would begin at the wrong end
    ends = {"oldest": stamp(now - LOOK_BACK), "latest": stamp(now + LOOK_BACK), "inclusive": "true"}
    params: dict[str, str | int] = {"channel": channel, **ends, "limit": 200, "include_all_metadata": "true"}
    params |= {**({"ts": thread} if thread else {}), **({"cursor": page} if page else {})}
    method = "conversations.replies" if thread else "conversations.history"
    return await slack.call(method, params, allow=_UNSEEN)


LIMIT = 4000

"""What Slack advises; a longer text may come in pieces."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Notices:
    """Says it as `slack.post` does, and as plain text: a stranger's words make no mark, mention or disguised link."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        channel = message.to.strip()
        if not channel:
            raise NeedsAttention("`to` names no channel of Slack", fix="Write #name or an id; a member id for a person")
        text = cut(title_and_text(message), LIMIT).translate(_ENTITIES)
        key = message.idempotency_key or message_mark(message, self._host)
        said: Mapping[str, Any] = await post(
            Call(
                params=PostParams(channel=channel, text=text),
                account=self._account,
                host=self._host,
                idempotency_key=key,
            )
        )
        return {name: said[name] for name in ("channel", "ts", "permalink", "repeated")}


def destination(query: object, account: Account, host: Host) -> Notices:
    return Notices(account, host)
