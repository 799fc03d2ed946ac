"""From a message to an event: whether a query wants it, and what templates see of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from harken.event import Event
from harken.kit.fields import text_of
from harken.services.slack.api import Me
from harken.services.slack.cursor import Room
from harken.services.slack.text import is_bots, is_noise, mentioned, readable, written_text
from harken.services.slack.timestamps import is_stamp, moment

if TYPE_CHECKING:
    from harken.services.slack import Query

__all__ = ["Eye", "Telling", "permalink"]

Message = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Eye:
    """What of all messages is wanted. `people` are the ids of those whose mentions count."""

    query: Query
    people: frozenset[str]
    me: Me

    def wants(self, message: Message) -> bool:
        """Whether to tell of it. Decided without names, so that only what is told of costs look-ups."""
        if is_noise(message) or self._is_mine(message) or (self.query.exclude_bots and is_bots(message)):
            return False
        text = written_text(message)
        return self._mentions(text) and self._has_keyword(text)

    def _mentions(self, text: str) -> bool:
        return not self.people or not self.people.isdisjoint(mentioned(text))

    def _has_keyword(self, text: str) -> bool:
        folded = readable(text, _nobody, _nobody).casefold()
        return not self.query.keywords or any(word.casefold() in folded for word in self.query.keywords)

    def _is_mine(self, message: Message) -> bool:
        # whoever answers must not answer itself
        me = self.me
        return (bool(me.user_id) and message.get("user") == me.user_id) or (
            bool(me.bot_id) and message.get("bot_id") == me.bot_id
        )


@dataclass(frozen=True, kw_only=True)
class Telling:
    """Makes events of the messages of one channel. `names` knows people, `rooms` the names of channels."""

    id: str
    room: Room
    me: Me
    names: Callable[[str], str]
    rooms: Callable[[str], str]

    def people_of(self, message: Message) -> list[str]:
        """The ids of those whose names are needed to tell of it."""
        ids = [text_of(message, "user"), *mentioned(written_text(message)), self.room.user]
        return [id for id in ids if id]

    def event(self, message: Message) -> Event:
        """The event. A message whose timestamp is broken has no time and is named by its content."""
        ts = message.get("ts")
        known = ts if is_stamp(ts) else None
        subject = f"{self.id}:{known or _digest(message)}"
        return Event(
            subject=subject,
            type="slack.message",
            occurred_at=moment(known) if known else None,
            data=self._data(subject, known or "", message),
        )

    def _data(self, subject: str, ts: str, message: Message) -> dict[str, Any]:
        raw = written_text(message)
        parent = message.get("thread_ts")
        thread = parent if is_stamp(parent) else ts
        return {
            "id": subject,
            "text": readable(raw, self.names, self.rooms),
            "raw_text": raw,
            "ts": ts,
            "permalink": permalink(self.me.url, self.id, ts, thread) if ts else "",
            "channel": {"id": self.id, "name": self._room_name()},
            "user": self._author(message),
            # the message itself, where there is no thread yet: an answer to it opens one
            "thread_ts": thread,
            "is_thread_reply": bool(ts) and thread != ts,
            "mentions": [{"id": id, "name": self.names(id)} for id in mentioned(raw)],
            "is_bot": is_bots(message),
            "is_dm": bool(self.room.kind),
        }

    def _room_name(self) -> str:
        return f"@{self.names(self.room.user)}" if self.room.kind == "im" else self.room.name

    def _author(self, message: Message) -> dict[str, str]:
        user = text_of(message, "user")
        if user:
            return {"id": user, "name": self.names(user)}
        name = text_of(message, "username") or text_of(message, "bot_profile.name") or ""
        return {"id": text_of(message, "bot_id") or "", "name": name}


def permalink(url: str, channel: str, ts: str, thread: str) -> str:
    """The address of a message; made here, since asking for it costs a call each."""
    address = f"{url}/archives/{channel}/p{ts.replace('.', '')}"
    return address if thread == ts else f"{address}?thread_ts={thread}&cid={channel}"


def _nobody(id: str) -> str:
    return ""


def _digest(message: Message) -> str:
    return "sha256:" + hashlib.sha256(msgspec.json.encode(message, order="deterministic")).hexdigest()[:32]
