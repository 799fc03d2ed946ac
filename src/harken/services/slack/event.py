"""From a message to an event: whether a query wants it, and what templates see of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harken.event import Event
from harken.kit.values_from_payload import text_of
from harken.services.slack.api import Me, is_timestamp, to_datetime
from harken.services.slack.cursor import Channel
from harken.services.slack.query import Query
from harken.services.slack.text import mentioned_users, raw_text, to_plain_text

__all__ = ["MessageFilter", "MessageMapper", "is_from_bot", "permalink"]

Message = Mapping[str, Any]

_NOISE_STARTS = ("channel_", "group_", "bot_add", "bot_remove", "bot_enable", "bot_disable")
_NOISE = frozenset(
    {"tombstone", "message_deleted", "message_changed", "message_replied", "pinned_item", "unpinned_item"}
    | {"reminder_add", "sh_room_created", "huddle_thread", "app_conversation_join", "joiner_notification"}
    | {"ekm_access_denied", "assistant_app_thread", "document_mention"}
)


@dataclass(frozen=True, kw_only=True)
class MessageFilter:
    """Which messages a query selects. `people` are the ids of the users in `mentions`."""

    query: Query
    people: frozenset[str]
    me: Me

    def matches(self, message: Message) -> bool:
        """Whether the query selects it. Needs no user names, so only selected messages cost look-ups."""
        if is_noise(message) or self._is_own(message) or (self.query.exclude_bots and is_from_bot(message)):
            return False
        text = raw_text(message)
        return self._mentions(text) and self._has_keyword(text)

    def _mentions(self, text: str) -> bool:
        return not self.people or not self.people.isdisjoint(mentioned_users(text))

    def _has_keyword(self, text: str) -> bool:
        folded = to_plain_text(text, _no_name, _no_name).casefold()
        return not self.query.keywords or any(word.casefold() in folded for word in self.query.keywords)

    def _is_own(self, message: Message) -> bool:
        # a workflow that answers in the channel must not answer itself
        me = self.me
        return (bool(me.user_id) and message.get("user") == me.user_id) or (
            bool(me.bot_id) and message.get("bot_id") == me.bot_id
        )


@dataclass(frozen=True, kw_only=True)
class MessageMapper:
    """Maps messages of one channel to events. `names` and `channel_names` translate the ids of users and channels."""

    id: str
    channel: Channel
    me: Me
    names: Callable[[str], str]
    channel_names: Callable[[str], str]

    def user_ids(self, message: Message) -> list[str]:
        """The users whose names the event needs."""
        ids = [text_of(message, "user"), *mentioned_users(raw_text(message)), self.channel.user]
        return [id for id in ids if id]

    def event(self, message: Message) -> Event:
        """The event. Without a valid timestamp it has no time, and a hash of the message is its subject."""
        ts = message.get("ts")
        known = ts if is_timestamp(ts) else None
        subject = f"{self.id}:{known or _digest(message)}"
        return Event(
            subject=subject,
            type="slack.message",
            occurred_at=to_datetime(known) if known else None,
            data=self._data(subject, known or "", message),
        )

    def _data(self, subject: str, ts: str, message: Message) -> dict[str, Any]:
        raw = raw_text(message)
        parent = message.get("thread_ts")
        thread = parent if is_timestamp(parent) else ts
        return {
            "id": subject,
            "text": to_plain_text(raw, self.names, self.channel_names),
            "raw_text": raw,
            "ts": ts,
            "permalink": permalink(self.me.url, self.id, ts, thread) if ts else "",
            "channel": {"id": self.id, "name": self._channel_name()},
            "user": self._author(message),
            # if there is no thread yet, the message itself: replying to it opens one
            "thread_ts": thread,
            "is_thread_reply": bool(ts) and thread != ts,
            "mentions": [{"id": id, "name": self.names(id)} for id in mentioned_users(raw)],
            "is_bot": is_from_bot(message),
            "is_dm": bool(self.channel.kind),
        }

    def _channel_name(self) -> str:
        return f"@{self.names(self.channel.user)}" if self.channel.kind == "im" else self.channel.name

    def _author(self, message: Message) -> dict[str, str]:
        user = text_of(message, "user")
        if user:
            return {"id": user, "name": self.names(user)}
        name = text_of(message, "username") or text_of(message, "bot_profile.name") or ""
        return {"id": text_of(message, "bot_id") or "", "name": name}


def permalink(url: str, channel: str, ts: str, thread: str) -> str:
    """The address of a message; built here, because chat.getPermalink costs a call per message."""
    address = f"{url}/archives/{channel}/p{ts.replace('.', '')}"
    return address if thread == ts else f"{address}?thread_ts={thread}&cid={channel}"


def _no_name(id: str) -> str:
    return ""


def _digest(message: Message) -> str:
    return "sha256:" + hashlib.sha256(msgspec.json.encode(message, order="deterministic")).hexdigest()[:32]


def is_noise(message: Mapping[str, Any]) -> bool:
    """Joins, topics, deletions and the like, which nobody wrote. An unknown subtype counts as a message."""
    subtype = text_of(message, "subtype") or ""
    return message.get("hidden") is True or subtype in _NOISE or subtype.startswith(_NOISE_STARTS)


def is_from_bot(message: Mapping[str, Any]) -> bool:
    # Slackbot has no bot_id
    return bool(message.get("bot_id")) or message.get("subtype") == "bot_message" or message.get("user") == "USLACKBOT"
