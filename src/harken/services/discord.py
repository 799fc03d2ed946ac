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
from harken.kit.fields import text_of
from harken.kit.messages import cut, message_mark, retry_seconds, title_and_text
from harken.source import Host, Message, Plugin

__all__ = ["Account", "Channel", "plugin", "whoami"]

LIMIT = 2000
NONCE = 25
CONFIGURE = configure_hint("discord")
_HOOK = re.compile(r"https?://[^/?#]+(?:/[^/?#]+)*/webhooks/([0-9]{1,20})/([A-Za-z0-9_-]{10,200})/?")
_TOKEN = re.compile(r"[A-Za-z0-9_.-]{10,200}")
_ID = re.compile(r"[0-9]{1,20}")
_WHY = {
    10003: ("there is no such channel", "Check the id, and that the bot is on that server"),
    10015: ("the webhook was deleted", f"Make a new one in the channel's settings, then: {CONFIGURE}"),
    50001: ("the bot does not see the channel", "Invite it to the server, and let it view the channel"),
    50007: ("this person takes no messages from the bot", "Write to a channel"),
    50013: ("the bot may not write there", "Give it the permission Send Messages in that channel"),
    50027: ("the webhook's address is not accepted", f"Copy it again from the channel's settings, then: {CONFIGURE}"),
}


class Account(AccountModel):
    """A channel's webhook, or a bot."""

    webhook_url: SecretStr | None = Field(None, description="address of a channel's webhook, which is a secret")
    token: SecretStr | None = Field(None, description="token of a bot, to write into any channel that it may")
    base_url: str = Field("https://discord.com/api/v10", description="address of the API")

    @model_validator(mode="after")
    def _one_of_both(self) -> Account:
        if (self.webhook_url is None) == (self.token is None):
            raise ValueError(
                "give either webhook_url (DISCORD_WEBHOOK_URL) or the token of a bot (DISCORD_BOT_TOKEN), not both"
            )
        if self.webhook_url and not _HOOK.fullmatch(self.webhook_url.get_secret_value().strip()):
            raise ValueError("webhook_url is no webhook of Discord: https://discord.com/api/webhooks/ID/TOKEN")
        if self.token and not _TOKEN.fullmatch(self.token.get_secret_value().strip()):
            raise ValueError("token is no token of a bot")
        return self


class Channel:
    """Writes into a channel; nobody is called by a mention, since the text may be a stranger's.

    A bot's message has a nonce, so a repeat within minutes shows once. A webhook takes none.
    """

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._url = account.base_url.rstrip("/")
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        said = {"content": cut(title_and_text(message), LIMIT), "allowed_mentions": {"parse": []}}
        if self._account.webhook_url is not None:
            params = {"wait": "true", **({"thread_id": _id(message.to, "a thread")} if message.to.strip() else {})}
            body = await self.call("POST", _hook_path(self._account.webhook_url), said, params)
        else:
            nonce = {"nonce": message_mark(message, self._host)[:NONCE], "enforce_nonce": True}
            body = await self.call("POST", f"/channels/{_id(message.to, 'a channel')}/messages", {**said, **nonce})
        return {"channel": text_of(body, "channel_id") or "", "message_id": text_of(body, "id") or ""}

    async def call(
        self, method: str, path: str, json: Any = None, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        # Discord's gateway turns away clients that do not introduce themselves like this
        headers = {"User-Agent": f"DiscordBot (Harken, {__version__})"}
        if self._account.token is not None:
            headers["Authorization"] = f"Bot {self._account.token.get_secret_value().strip()}"
        url, private = self._url + path, self._host.allow_private
        reply = await self._host.request(
            method, url, json=json, params=params, headers=headers, allow_private=private, follow_redirects=False
        )
        body = _body(reply)
        if reply.status >= 300:
            raise _problem(reply, body)
        if not text_of(body, "id"):
            raise RetryLater("the answer is not one of Discord's", fix="Check base_url if this stays")
        return body


def _body(reply: Reply) -> Mapping[str, Any]:
    try:
        body = reply.json()
    except RetryLater:
        # the gateway before Discord answers in HTML
        return {}
    return body if isinstance(body, dict) else {}


def _problem(reply: Reply, body: Mapping[str, Any]) -> HarkenError:
    code = body["code"] if isinstance(body.get("code"), int) else 0
    said = f"Discord answered {reply.status}{f' ({code})' if code else ''} to a message"
    if reply.status == 429 and (after := retry_seconds(body.get("retry_after"))) is not None:
        return RetryLater(said, after=after, reason="rate_limited")
    if code in _WHY:
        why, fix = _WHY[code]
        return NeedsAttention(f"{said}: {why}", fix=fix)
    fix = f"Check the credential: {CONFIGURE}" if reply.status in (401, 403) else "Check the channel and what is sent"
    try:
        raise_for(reply, what="a message", fix=fix)
    except HarkenError as error:
        return error
    return NeedsAttention(said, fix=fix)


def _hook_path(address: SecretStr) -> str:
    found = _HOOK.fullmatch(address.get_secret_value().strip())
    assert found is not None
    return f"/webhooks/{found[1]}/{found[2]}"


def _id(to: str, what: str) -> str:
    if _ID.fullmatch(to.strip()):
        return to.strip()
    fix = f"Copy the id of {what}: in Discord, Settings, Advanced, Developer Mode, then its context menu"
    raise NeedsAttention(f"`to` is not the id of {what} in Discord", fix=fix)


def _destination(query: object, account: Account, host: Host) -> Channel:
    return Channel(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The bot, or the webhook and its channel."""
    channel = Channel(account, host)
    if account.webhook_url is None:
        body = await channel.call("GET", "/users/@me")
        return {"id": text_of(body, "id") or "", "name": text_of(body, "username") or ""}
    body = await channel.call("GET", _hook_path(account.webhook_url))
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
