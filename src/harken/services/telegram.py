"""Telegram: messages from a bot (https://core.telegram.org/bots/api#sendmessage). The URL contains its token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit import AccountModel, configure_hint
from harken.kit.message_text import cut, retry_seconds, title_and_text
from harken.kit.values_from_payload import text_of
from harken.source import Host, Message, Plugin

__all__ = ["Account", "plugin", "whoami"]

LIMIT = 4096
CONFIGURE = configure_hint("telegram")
_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{10,100}")
_CHAT = re.compile(r"-?[0-9]{1,20}")
_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_UNKNOWN = ("chat not found", "user not found", "peer_id_invalid", "chat_id is empty")


class Account(AccountModel):
    """A bot of Telegram."""

    token: SecretStr = Field(description="token of the bot, from @BotFather (123456:ABC…)")
    base_url: str = Field("https://api.telegram.org", description="address of the Bot API, or of your own server of it")

    @field_validator("token")
    @classmethod
    def _is_bot_token(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value().strip()
        if not _TOKEN.fullmatch(text):
            raise ValueError("this is not the token of a bot. @BotFather gives one such as 123456:ABC…")
        return SecretStr(text)


class TelegramDestination:
    """Sends messages. Telegram has no idempotency key: a message whose answer was lost can appear twice."""

    def __init__(self, account: Account, host: Host) -> None:
        self._url = f"{account.base_url.rstrip('/')}/bot{account.token.get_secret_value()}"
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        chat = _chat(message.to)
        body = await self.call("sendMessage", {"chat_id": chat, "text": cut(title_and_text(message), LIMIT)})
        return {"chat": text_of(body, "result.chat.id") or chat, "message_id": text_of(body, "result.message_id") or ""}

    async def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of the Bot API; raises for its errors."""
        # a redirect would send the token, which is in the URL, to another server
        reply = await self._host.request("POST", f"{self._url}/{method}", json=params, follow_redirects=False)
        body = _expect_body(reply)
        if body.get("ok") is True:
            return body
        raise _to_harken_error(reply, body, method, str(params.get("chat_id", "")))


def _expect_body(reply: Reply) -> Mapping[str, Any]:
    try:
        body = reply.json()
    except RetryLater:
        # a gateway answered instead of Telegram
        raise_for(reply, what="Telegram's method", fix=f"Check base_url: {CONFIGURE}")
        raise
    if not isinstance(body, dict) or not isinstance(body.get("ok"), bool):
        raise RetryLater(f"{reply.url.host} did not answer like Telegram", fix="Check base_url if this persists")
    return body


def _to_harken_error(reply: Reply, body: Mapping[str, Any], method: str, chat: str) -> HarkenError:
    code = body["error_code"] if isinstance(body.get("error_code"), int) else reply.status
    message, why = f"Telegram answered {code} to {method}", (text_of(body, "description") or "").lower()
    given = body.get("parameters")
    parameters = given if isinstance(given, dict) else {}
    if code == 429:
        after = retry_seconds(parameters.get("retry_after"))
        return RetryLater(message, after=after, reason="rate_limited")
    if code >= 500:
        return RetryLater(message)
    if code in (401, 404):
        return NeedsAttention(f"{message}: the token is not accepted", fix=f"Ask @BotFather for it, then: {CONFIGURE}")
    if isinstance(parameters.get("migrate_to_chat_id"), int):
        new = parameters["migrate_to_chat_id"]
        return NeedsAttention(f"{message}: the group {chat} became a supergroup", fix=f'Write to: "{new}"')
    if code == 403:
        fix = "Let them open the bot and press Start, or add the bot to the group again"
        return NeedsAttention(f"{message}: the bot was blocked or removed by {chat}, or never spoken to", fix=fix)
    if any(words in why for words in _UNKNOWN):
        fix = "Check the id; the person must have written to the bot, and the bot be in the group or channel"
        return NeedsAttention(f"{message}: there is no chat {chat} that the bot knows", fix=fix)
    return NeedsAttention(f"{message} for {chat}", fix="Check what is sent, and that the bot may write there")


def _chat(to: str) -> str:
    chat = to.strip()
    if _CHAT.fullmatch(chat) or _NAME.fullmatch(chat):
        return chat
    fix = 'Write the id of a chat in quotes ("123456", a group\'s is negative) or the @name of a channel'
    raise NeedsAttention("`to` is not a chat of Telegram", fix=fix)


def _destination(query: object, account: Account, host: Host) -> TelegramDestination:
    return TelegramDestination(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The bot behind the token."""
    body = await TelegramDestination(account, host).call("getMe", {})
    names = {"id": "id", "name": "username", "title": "first_name", "may_join_groups": "can_join_groups"}
    return {name: text_of(body, f"result.{path}") or "" for name, path in names.items()}


plugin = Plugin(
    kind="telegram",
    summary="Messages from a bot in Telegram",
    docs="reference/services/telegram.md",
    account=Account,
    destination=_destination,
    whoami=whoami,
    environment={"TELEGRAM_BOT_TOKEN": "token", "TELEGRAM_BASE_URL": "base_url"},
)
