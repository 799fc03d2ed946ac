"""ntfy: notifications on phones and desktops, by ntfy.sh or a server of your own (https://docs.ntfy.sh/publish).

Messages are published as JSON: in headers, titles would be limited to ASCII, and line ends could inject headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import raise_for
from harken.kit import AccountModel, basic_auth, configure_hint
from harken.kit.message_text import cut, message_mark, one_line, title_and_text, utf8_length
from harken.kit.values_from_payload import text_of
from harken.source import Host, Message, Plugin

__all__ = ["Account", "plugin", "whoami"]

LIMIT = 4096
"""Bytes. A longer text becomes an attachment, which few people open."""
TITLE = 250
CONFIGURE = configure_hint("ntfy")
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LEVELS = {"min": 1, "low": 2, "default": 3, "high": 4, "max": 5, "urgent": 5}


def _priority_number(value: Any) -> Any:
    return _LEVELS.get(value.strip().lower(), value) if isinstance(value, str) else value


Priority = Annotated[int, BeforeValidator(_priority_number), Field(ge=1, le=5)]


class Account(AccountModel):
    """A server of ntfy, and a credential. Topics of ntfy.sh that are not reserved need none."""

    base_url: str = Field("https://ntfy.sh", description="address of the server")
    topic: str = Field("", description="where messages without `to` go")
    priority: Priority = Field(3, description="1 to 5, or min, low, default, high, max")
    token: SecretStr | None = Field(None, description="access token (tk_…)")
    username: str = Field("", description="instead of a token")
    password: SecretStr | None = Field(None, description="of the user")

    @model_validator(mode="after")
    def _has_one_credential(self) -> Account:
        if self.token is not None and (self.username or self.password):
            raise ValueError("give a token, or username and password, not both")
        if bool(self.username) != (self.password is not None):
            raise ValueError("username and password belong together")
        return self


class NtfyDestination:
    """Publishes notifications. A repeat replaces the first one, on servers since version 2.16."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._url = account.base_url.rstrip("/")
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        sent: dict[str, Any] = {
            "topic": self._topic(message.to),
            **_title_and_message(message),
            "priority": self._priority(message.data),
            "sequence_id": message_mark(message, self._host),
        }
        body = await self.call("POST", "/", sent)
        if not text_of(body, "id"):
            server = urlsplit(self._url).hostname
            raise RetryLater(f"{server} did not answer like an ntfy server", fix="Check base_url if this persists")
        return {"id": text_of(body, "id") or "", "topic": sent["topic"]}

    async def call(self, method: str, path: str, json: Any = None) -> Any:
        reply = await self._host.request(
            method, self._url + path, json=json, headers=_auth_headers(self._account), follow_redirects=False
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
        level = _priority_number(data.get("priority", self._account.priority))
        if isinstance(level, int) and not isinstance(level, bool) and 1 <= level <= 5:
            return level
        raise NeedsAttention(
            "data.priority is not a priority of ntfy", fix="Write 1 to 5, or min, low, default, high, max"
        )


def _title_and_message(message: Message) -> dict[str, str]:
    title = cut(one_line(message.title), TITLE)
    if not message.text.strip() or not title:
        return {"message": cut(title_and_text(message), LIMIT, utf8_length)}
    return {"title": title, "message": cut(title_and_text(replace(message, title="")), LIMIT, utf8_length)}


def _auth_headers(account: Account) -> dict[str, str]:
    if account.token is not None:
        return {"Authorization": f"Bearer {account.token.get_secret_value().strip()}"}
    if account.password is None:
        return {}
    return {"Authorization": basic_auth(account.username, account.password.get_secret_value())}


def _destination(query: object, account: Account, host: Host) -> NtfyDestination:
    return NtfyDestination(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user of the credential; `*` without one."""
    body = await NtfyDestination(account, host).call("GET", "/v1/account")
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
