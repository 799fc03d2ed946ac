"""Discord: messages into a channel, through the channel's webhook or as a bot.

https://discord.com/developers/docs/resources/message#create-message, …/resources/webhook#execute-webhook
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, SecretStr, model_validator

from harken import __version__
from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit import AccountModel, configure_hint
from harken.kit.message_text import cut, message_mark, retry_seconds, title_and_text
from harken.kit.values_from_payload import text_of
from harken.source import Host, Message, Plugin

__all__ = ["Account", "DiscordDestination", "plugin", "whoami"]

LIMIT = 2000
NONCE_LENGTH = 25
CONFIGURE = configure_hint("discord")
_WEBHOOK = re.compile(r"https?://[^/?#]+(?:/[^/?#]+)*/webhooks/([0-9]{1,20})/([A-Za-z0-9_-]{10,200})/?")
_TOKEN = re.compile(r"[A-Za-z0-9_.-]{10,200}")
_ID = re.compile(r"[0-9]{1,20}")
_KNOWN_ERRORS = {
    10003: ("there is no such channel", "Check the id, and that the bot is on that server"),
    10015: ("the webhook was deleted", f"Make a new one in the channel's settings, then: {CONFIGURE}"),
    50001: ("the bot does not see the channel", "Invite it to the server, and let it view the channel"),
    50007: ("this person does not accept messages from the bot", "Write to a channel"),
    50013: ("the bot may not write there", "Give it the permission Send Messages in that channel"),
    50027: ("the webhook's address is not accepted", f"Copy it again from the channel's settings, then: {CONFIGURE}"),
}


class Account(AccountModel):
    """A channel's webhook, or a bot."""

    webhook_url: SecretStr | None = Field(None, description="address of a channel's webhook, which is a secret")
    token: SecretStr | None = Field(None, description="token of a bot, to write into any channel that it may")
    base_url: str = Field("https://discord.com/api/v10", description="address of the API")

    @model_validator(mode="after")
    def _has_one_credential(self) -> Account:
        if (self.webhook_url is None) == (self.token is None):
            raise ValueError(
                "give either webhook_url (DISCORD_WEBHOOK_URL) or the token of a bot (DISCORD_BOT_TOKEN), not both"
            )
        if self.webhook_url and not _WEBHOOK.fullmatch(self.webhook_url.get_secret_value().strip()):
            raise ValueError("webhook_url is not a webhook of Discord: https://discord.com/api/webhooks/ID/TOKEN")
        if self.token and not _TOKEN.fullmatch(self.token.get_secret_value().strip()):
            raise ValueError("token is not the token of a bot")
        return self


class DiscordDestination:
    """Writes into a channel. Mentions are disabled, because the text may come from outside.

    A bot's message has a nonce, so a repeat within minutes is shown once. Webhooks do not support that.
    """

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._url = account.base_url.rstrip("/")
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        content = {"content": cut(title_and_text(message), LIMIT), "allowed_mentions": {"parse": []}}
        if self._account.webhook_url is not None:
            params = {"wait": "true", **({"thread_id": _id(message.to, "a thread")} if message.to.strip() else {})}
            body = await self.call("POST", _webhook_path(self._account.webhook_url), content, params)
        else:
            nonce = {"nonce": message_mark(message, self._host)[:NONCE_LENGTH], "enforce_nonce": True}
            body = await self.call("POST", f"/channels/{_id(message.to, 'a channel')}/messages", {**content, **nonce})
        return {"channel": text_of(body, "channel_id") or "", "message_id": text_of(body, "id") or ""}

    async def call(
        self, method: str, path: str, json: Any = None, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        # Discord's gateway refuses clients without such a User-Agent
        headers = {"User-Agent": f"DiscordBot (Harken, {__version__})"}
        if self._account.token is not None:
            headers["Authorization"] = f"Bot {self._account.token.get_secret_value().strip()}"
        reply = await self._host.request(
            method, self._url + path, json=json, params=params, headers=headers, follow_redirects=False
        )
        body = _body(reply)
        if reply.status >= 300:
            raise _to_harken_error(reply, body)
        if not text_of(body, "id"):
            raise RetryLater(f"{reply.url.host} did not answer like Discord", fix="Check base_url if this persists")
        return body


def _body(reply: Reply) -> Mapping[str, Any]:
    try:
        body = reply.json()
    except RetryLater:
        # Discord's gateway answers in HTML
        return {}
    return body if isinstance(body, dict) else {}


def _to_harken_error(reply: Reply, body: Mapping[str, Any]) -> HarkenError:
    code = body["code"] if isinstance(body.get("code"), int) else 0
    message = f"Discord answered {reply.status}{f' ({code})' if code else ''} to a message"
    if reply.status == 429 and (after := retry_seconds(body.get("retry_after"))) is not None:
        return RetryLater(message, after=after, reason="rate_limited")
    if code in _KNOWN_ERRORS:
        why, fix = _KNOWN_ERRORS[code]
        return NeedsAttention(f"{message}: {why}", fix=fix)
    fix = f"Check the credential: {CONFIGURE}" if reply.status in (401, 403) else "Check the channel and what is sent"
    try:
        raise_for(reply, what="a message", fix=fix)
    except HarkenError as error:
        return error
    return NeedsAttention(message, fix=fix)


def _webhook_path(address: SecretStr) -> str:
    found = _WEBHOOK.fullmatch(address.get_secret_value().strip())
    assert found is not None
    return f"/webhooks/{found[1]}/{found[2]}"


def _id(to: str, what: str) -> str:
    if _ID.fullmatch(to.strip()):
        return to.strip()
    fix = f"Copy the id of {what}: in Discord, Settings, Advanced, Developer Mode, then its context menu"
    raise NeedsAttention(f"`to` is not the id of {what} in Discord", fix=fix)


def _destination(query: object, account: Account, host: Host) -> DiscordDestination:
    return DiscordDestination(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The bot, or the webhook and its channel."""
    channel = DiscordDestination(account, host)
    if account.webhook_url is None:
        body = await channel.call("GET", "/users/@me")
        return {"id": text_of(body, "id") or "", "name": text_of(body, "username") or ""}
    body = await channel.call("GET", _webhook_path(account.webhook_url))
    names = {"id": "id", "name": "name", "channel": "channel_id", "server": "guild_id"}
    return {name: text_of(body, path) or "" for name, path in names.items()}


plugin = Plugin(
    kind="discord",
    summary="Messages into a channel of Discord",
    docs="reference/services/discord.md",
    account=Account,
    destination=_destination,
    whoami=whoami,
    environment={
        "DISCORD_WEBHOOK_URL": "webhook_url",
        "DISCORD_BOT_TOKEN": "token",
        "DISCORD_BASE_URL": "base_url",
    },
)
