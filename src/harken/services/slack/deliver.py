"""Slack as a destination: a message into a channel, or to a member, outside of any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.errors import NeedsAttention
from harken.kit.messages import cut, headed, mark_of
from harken.services.slack.actions import PostParams, post
from harken.services.slack.api import Account
from harken.source import Call, Host, Message

__all__ = ["Notices", "destination"]

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
        text = cut(headed(message), LIMIT).translate(_ENTITIES)
        key = message.idempotency_key or mark_of(message, self._host)
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
