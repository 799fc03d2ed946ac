"""ntfy: notifications on phones and desktops, by ntfy.sh or a server of your own (https://docs.ntfy.sh/publish).

Messages are published as JSON: headers cannot hold a title of any script, nor a line end that is somebody's trick.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import raise_for
from harken.kit import AccountModel, configure_hint
from harken.kit.fields import text_of
from harken.kit.messages import cut, message_mark, one_line, title_and_text, utf8_length
from harken.source import Host, Message, Plugin

__all__ = ["Account", "Topic", "plugin", "whoami"]

LIMIT = 4096
"""Bytes. The server makes a file of what is longer, which few people open."""
TITLE = 250
CONFIGURE = configure_hint("ntfy")
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LEVELS = {"min": 1, "low": 2, "default": 3, "high": 4, "max": 5, "urgent": 5}


def _level(value: Any) -> Any:
    return _LEVELS.get(value.strip().lower(), value) if isinstance(value, str) else value


Priority = Annotated[int, BeforeValidator(_level), Field(ge=1, le=5)]


class Account(AccountModel):
    """A server of ntfy, and who we are there. Nothing is needed to write to a topic of ntfy.sh that is not reserved."""

    base_url: str = Field("https://ntfy.sh", description="address of the server")
    topic: str = Field("", description="where messages without `to` go")
    priority: Priority = Field(3, description="1 to 5, or min, low, default, high, max")
    token: SecretStr | None = Field(None, description="access token (tk_…)")
    username: str = Field("", description="instead of a token")
    password: SecretStr | None = Field(None, description="of the user")

    @model_validator(mode="after")
    def _one_way_to_sign_in(self) -> Account:
        if self.token is not None and (self.username or self.password):
            raise ValueError("give a token, or username and password, not both")
        if bool(self.username) != (self.password is not None):
            raise ValueError("username and password belong together")
        return self


class Topic:
    """Publishes notifications. A repeat replaces the first one, on servers from 2.16 on."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._url = account.base_url.rstrip("/")
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        sent: dict[str, Any] = {
            "topic": self._topic(message.to),
            **_words(message),
            "priority": self._priority(message.data),
            "sequence_id": message_mark(message, self._host),
        }
        body = await self.call("POST", "/", sent)
        if not text_of(body, "id"):
            raise RetryLater("the answer is not one of ntfy's", fix="Check base_url if this stays")
        return {"id": text_of(body, "id") or "", "topic": sent["topic"]}

    async def call(self, method: str, path: str, json: Any = None) -> Any:
        url, private = self._url + path, self._host.allow_private
        reply = await self._host.request(
            method, url, json=json, headers=_signed_in(self._account), allow_private=private, follow_redirects=False
        )
        fix = f"Check the credential and that it may write to the topic: {CONFIGURE}"
        raise_for(reply, what="a message", fix=fix if reply.status in (401, 403) else "Check base_url and the topic")
        return reply.json()

    def _topic(self, to: str) -> str:
        topic = to.strip() or self._account.topic
        if not _TOPIC.fullmatch(topic):
            fix = "Write its name in `to`: letters, digits, _ and -, at most 64"
            raise NeedsAttention("`to` is not a topic of ntfy" if topic else "there is no topic", fix=fix)
        return topic

    def _priority(self, data: Mapping[str, Any]) -> int:
        level = _level(data.get("priority", self._account.priority))
        if isinstance(level, int) and not isinstance(level, bool) and 1 <= level <= 5:
            return level
        raise NeedsAttention("data.priority is not one of ntfy's", fix="Write 1 to 5, or min, low, default, high, max")


def _words(message: Message) -> dict[str, str]:
    title = cut(one_line(message.title), TITLE)
    if not message.text.strip() or not title:
        return {"message": cut(title_and_text(message), LIMIT, utf8_length)}
    return {"title": title, "message": cut(title_and_text(replace(message, title="")), LIMIT, utf8_length)}


def _signed_in(account: Account) -> dict[str, str]:
    if account.token is not None:
        return {"Authorization": f"Bearer {account.token.get_secret_value().strip()}"}
    if account.password is None:
        return {}
    pair = f"{account.username}:{account.password.get_secret_value()}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _destination(query: object, account: Account, host: Host) -> Topic:
    return Topic(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user behind the credential; `*` is anybody."""
    body = await Topic(account, host).call("GET", "/v1/account")
    return {name: text_of(body, path) or "" for name, path in {"name": "username", "role": "role"}.items()}


plugin = Plugin(
    kind="ntfy",
    summary="Notifications by ntfy",
    docs="reference/services/ntfy.md",
    account=Account,
    destination=_destination,
    whoami=whoami,
    environment={
        "NTFY_TOKEN": "token",
        "NTFY_BASE_URL": "base_url",
        "NTFY_TOPIC": "topic",
        "NTFY_USERNAME": "username",
        "NTFY_PASSWORD": "password",
    },
)
