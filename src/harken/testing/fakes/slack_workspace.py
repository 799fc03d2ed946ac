"""What is in a fake Slack workspace, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Channel", "Message", "Said", "between", "is_broadcast", "listed"]

_ENDS = (("oldest", "0.000000"), ("latest", "99999999999.999999"))


class Said(Exception):
    """`ok: false`, with a code."""

    def __init__(self, code: str, **more: str) -> None:
        super().__init__(code)
        self.body = {"ok": False, "error": code, **more}


@dataclass
class Message:
    micros: int
    visible_at: float
    fields: dict[str, Any]
    thread: str = ""

    @property
    def ts(self) -> str:
        return f"{self.micros // 1_000_000}.{self.micros % 1_000_000:06d}"

    def shown(self, replies: Sequence[Message], left_out: Iterable[str]) -> dict[str, Any]:
        """The message as the API shows it; a parent tells of its replies, a reply of its parent."""
        kept = {name: value for name, value in self.fields.items() if name not in left_out}
        about: dict[str, Any] = {}
        if replies:
            latest = max(replies, key=lambda one: one.micros).ts
            about = {"thread_ts": self.ts, "reply_count": len(replies), "latest_reply": latest}
        elif self.thread:
            about = {"thread_ts": self.thread, "parent_user_id": "U1"}
        return {"type": "message", "ts": self.ts, **kept, **about}


@dataclass
class Channel:
    id: str
    name: str
    kind: str
    member: bool
    user: str = ""
    archived: bool = False
    messages: dict[str, Message] = field(default_factory=dict)


def is_broadcast(message: Message) -> bool:
    return message.fields.get("subtype") == "thread_broadcast"


def listed(channel: Channel) -> dict[str, Any]:
    if channel.kind == "im":
        return {"id": channel.id, "is_im": True, "user": channel.user}
    shown = {"id": channel.id, "name": channel.name, "is_channel": True, "is_member": channel.member}
    return {**shown, "is_mpim": channel.kind == "mpim", "is_private": channel.kind != "public_channel"}


def between(messages: Iterable[Message], params: Mapping[str, Any]) -> list[Message]:
    low, high = (int(params.get(name, default).replace(".", "")) for name, default in _ENDS)
    edge = 0 if params.get("inclusive") == "true" else 1
    return [one for one in messages if low + edge <= one.micros <= high - edge]
