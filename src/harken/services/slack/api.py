"""Calls of Slack's Web API (https://docs.slack.dev/apis/web-api): errors come with status 200 and `ok: false`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard

from pydantic import Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit import AccountModel, configure_hint
from harken.kit.values_from_payload import instant, text_of
from harken.source import Host

__all__ = [
    "CONFIGURE",
    "NOT_IN_CHANNEL",
    "Account",
    "Answer",
    "Me",
    "Slack",
    "earlier",
    "is_timestamp",
    "micros",
    "newest",
    "oldest",
    "to_datetime",
    "to_timestamp",
]

CONFIGURE = configure_hint("slack")
NOT_IN_CHANNEL = frozenset({"channel_not_found", "not_in_channel"})
_CREDENTIAL = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type"}
    | {"org_login_required", "ekm_access_denied", "team_access_not_granted", "no_permission", "access_denied"}
)
_LATER = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"})
_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_REFUSED = frozenset(
    {"msg_too_long", "no_text", "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "is_archived"}
    | {"cannot_reply_to_message", "too_many_attachments", "as_user_not_supported", "invalid_arguments"}
)
_CODE = re.compile(r"[a-z0-9_]{1,80}")
_SCOPES = re.compile(r"[a-z0-9_.:, -]{1,200}")
_OTHER_TOKENS = {
    "xoxp-": "a user token (xoxp-) acts as a person and reads all that they can read",
    "xoxa-": "a legacy workspace token (xoxa-) has no bot behind it",
    "xapp-": "an app-level token (xapp-) opens sockets, and cannot read channels",
    "xoxe": "a rotating token (xoxe) expires within hours; switch token rotation off for this app",
    "xoxs-": "a browser's session token (xoxs-) acts as a person",
    "xoxc-": "a browser's session token (xoxc-) acts as a person",
}
_STAMP = re.compile(r"[0-9]{1,11}\.[0-9]{6}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Account(AccountModel):
    """A Slack app's bot in one workspace."""

    token: SecretStr = Field(description="Bot User OAuth Token (xoxb-…), from OAuth & Permissions of your Slack app")
    base_url: str = Field("https://slack.com/api", description="address of the Web API")

    @field_validator("token")
    @classmethod
    def _is_bot_token(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value().strip()
        if text.startswith("xoxb-") and text.isascii() and text.isprintable() and " " not in text:
            return SecretStr(text)
        known = [why for start, why in _OTHER_TOKENS.items() if text.startswith(start)]
        why = known[0] if known else "this is no Slack bot token"
        raise ValueError(f"{why}. Use the Bot User OAuth Token, which begins with xoxb-")


@dataclass(frozen=True, kw_only=True)
class Me:
    """The bot that the token belongs to, and its workspace."""

    user_id: str
    bot_id: str
    name: str
    team: str
    team_id: str
    url: str
    scopes: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reply to a method. `error` is set only if the caller allowed that code."""

    body: Mapping[str, Any]
    reply: Reply
    method: str
    error: str = ""

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The objects of a list; RetryLater if there is no list, which does not mean an empty one."""
        rows = self.body.get(name)
        if not isinstance(rows, list):
            raise RetryLater(f"Slack answered {self.method} without a list of {name}")
        return [row if isinstance(row, dict) else {} for row in rows]

    @property
    def next_page(self) -> str:
        return text_of(self.body, "response_metadata.next_cursor") or ""

    @property
    def server_time(self) -> str | None:
        """When this was answered, by Slack's clock."""
        date = instant(self.reply.headers.get("Date"))
        return to_timestamp(date) if date else None


class Slack:
    """Calls methods of the Web API as one bot."""

    def __init__(self, account: Account, host: Host) -> None:
        self._url = account.base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {account.token.get_secret_value()}"}
        self._host = host
        self._me: Me | None = None

    async def call(
        self,
        method: str,
        params: Mapping[str, str | int] | None = None,
        *,
        json: Mapping[str, Any] | None = None,
        about: str = "",
        allow: Collection[str] = (),
    ) -> Answer:
        """Call a method, by POST if there is `json`. Raise what an error code means, unless it is one of `allow`."""
        reply = await self._host.request(
            "GET" if json is None else "POST",
            f"{self._url}/{method}",
            params=params,
            json=json,
            headers=self._headers,
        )
        raise_for(reply, fix=f"Check the token and base_url: {CONFIGURE}")
        body = reply.json()
        if not isinstance(body, dict) or not isinstance(body.get("ok"), bool):
            fix = "Check base_url if this persists"
            raise RetryLater(f"{reply.url.host} did not answer {method} like Slack's Web API", fix=fix)
        if body["ok"]:
            return Answer(body=body, reply=reply, method=method)
        code = _code(body)
        if code not in allow:
            raise self._problem(code, body, reply, method, about)
        return Answer(body=body, reply=reply, method=method, error=code)

    async def me(self) -> Me:
        """The bot behind the token; requested once."""
        if self._me is None:
            self._me = _me(await self.call("auth.test"))
        return self._me

    def _problem(self, code: str, body: Mapping[str, Any], reply: Reply, method: str, about: str) -> HarkenError:
        message = f"Slack answered {code} to {method}"
        if code in _LIMITED:
            after = _seconds(reply.headers.get("Retry-After"))
            return RetryLater(message, after=after, reason="rate_limited")
        if code in _LATER:
            return RetryLater(message)
        if code in _CREDENTIAL:
            fix = f"Install the app again and store its Bot User OAuth Token: {CONFIGURE}"
            return NeedsAttention(f"{message}: the token is not accepted", fix=fix)
        if code == "missing_scope":
            needed = _plain_scopes(body)
            fix = f"Add {needed} under OAuth & Permissions, install the app again, then: {CONFIGURE}"
            return NeedsAttention(f"{message}: the token lacks the scope {needed}", fix=fix)
        if code in NOT_IN_CHANNEL:
            name = self._me.name if self._me else "your bot"
            fix = f"Check the name, and invite the bot there: /invite @{name}"
            return NeedsAttention(f"{message}: the bot is not in {about or 'the channel'}, or there is none", fix=fix)
        if code in _REFUSED or code.startswith(("restricted_action", "invalid_")):
            return NeedsAttention(f"{message}{f' for {about}' if about else ''}", fix="Correct what is asked for")
        return RetryLater(message)


def _code(body: Mapping[str, Any]) -> str:
    code = body.get("error")
    # the code becomes part of error messages, so accept nothing but a code
    return code if isinstance(code, str) and _CODE.fullmatch(code) else "an error without a code"


def _plain_scopes(body: Mapping[str, Any]) -> str:
    needed = body.get("needed")
    return needed if isinstance(needed, str) and _SCOPES.fullmatch(needed) else "that this call needs"


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() else None


def _me(answer: Answer) -> Me:
    body = answer.body
    return Me(
        user_id=text_of(body, "user_id") or "",
        bot_id=text_of(body, "bot_id") or "",
        name=text_of(body, "user") or "your bot",
        team=text_of(body, "team") or "",
        team_id=text_of(body, "team_id") or "",
        url=(text_of(body, "url") or "https://slack.com/").rstrip("/"),
        scopes=answer.reply.headers.get("X-OAuth-Scopes", ""),
    )


def is_timestamp(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _STAMP.fullmatch(value) is not None


def micros(text: str) -> int:
    """Microseconds since 1970; timestamps are compared by them."""
    return int(text.replace(".", ""))


def to_datetime(text: str) -> datetime:
    return _EPOCH + timedelta(microseconds=micros(text))


def to_timestamp(instant: datetime) -> str:
    """The Slack timestamp of an instant, exact to the microsecond."""
    return _from_micros((instant - _EPOCH) // timedelta(microseconds=1))


def earlier(text: str, seconds: int) -> str:
    return _from_micros(micros(text) - seconds * 1_000_000)


def newest(*texts: str) -> str:
    return max(texts, key=micros)


def oldest(*texts: str) -> str:
    return min(texts, key=micros)


def _from_micros(count: int) -> str:
    seconds, rest = divmod(max(count, 0), 1_000_000)
    return f"{seconds}.{rest:06d}"
