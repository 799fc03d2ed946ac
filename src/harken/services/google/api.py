"""Requests to Google's APIs in the name of one account, and what their refusals mean.

https://developers.google.com/workspace/calendar/api/guides/errors
https://developers.google.com/workspace/gmail/api/guides/handle-errors
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit.fields import text_of
from harken.language.paths import lookup
from harken.rate_limit import asked_wait
from harken.services.google.account import CONFIGURE, GoogleAccount
from harken.services.google.tokens import Tokens
from harken.source import Host

__all__ = ["GoogleClient", "reasons", "told"]

Params = Mapping[str, str | int] | Sequence[tuple[str, str | int]] | None

_LIMITED = frozenset(
    {
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "quotaExceeded",
        "dailyLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_EXHAUSTED",
    }
)
_SCOPELESS = frozenset({"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficient_scope"})
_DISABLED = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
_SCOPES = re.compile(r'scope="([^"]*)"')
_WORD = re.compile(r"[\w.:/-]{1,100}")


class GoogleClient:
    """Pays with its own host, and shares the access token with everyone who uses the same account."""

    def __init__(self, tokens: Tokens, host: Host) -> None:
        self._tokens = tokens
        self._host = host

    @classmethod
    def of(cls, account: GoogleAccount, host: Host) -> GoogleClient:
        return cls(Tokens.of(account, host), host)

    async def request(
        self, method: str, url: str, *, params: Params = None, json: Any = None, scope: str = ""
    ) -> Reply:
        """A success, or a refusal that depends on what was asked (400, 404, 409, 410, 412): see `told`.

        All others are raised: RetryLater, or NeedsAttention when the credential will not do. `scope` is the one that
        the request needs, for the message.
        """
        token = await self._tokens.get(self._host)
        reply = await self._send(method, url, token, params, json)
        if reply.status == 401:
            token = await self._tokens.get(self._host, refused=token)
            reply = await self._send(method, url, token, params, json)
        refusal = _refusal(reply, scope)
        if refusal is not None:
            raise refusal
        if reply.status in (408, 425, 429) or reply.status >= 500:
            raise_for(reply)
        return reply

    async def get(self, url: str, *, params: Params = None, scope: str = "") -> dict[str, Any]:
        """GET, and return the answer's object; anything else is raised."""
        return told(await self.request("GET", url, params=params, scope=scope))

    async def _send(self, method: str, url: str, token: str, params: Params, json: Any) -> Reply:
        return await self._host.http.request(
            method,
            url,
            params=params,
            json=json,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            allow_private=self._host.allow_private,
        )


def told(reply: Reply, fix: str = "") -> dict[str, Any]:
    """The object in an answer, or the error that says what to do about it."""
    raise_for(reply, fix=fix)
    document = reply.json()
    if not isinstance(document, dict):
        raise RetryLater(f"{reply.url.host} answered with something that is no object", fix="Check base_url")
    return document


def reasons(reply: Reply) -> frozenset[str]:
    """Every word by which Google's error object says why; empty when the answer has none."""
    try:
        document = reply.json()
    except RetryLater:
        return frozenset()
    listed = [entry for path in ("error.errors", "error.details") for entry in _list(lookup(document, path))]
    words = [text_of(entry, "reason") for entry in listed] + [text_of(document, "error.status")]
    return frozenset(word for word in words if word and _WORD.fullmatch(word))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _refusal(reply: Reply, scope: str) -> HarkenError | None:
    """What a 401 or 403 means; None for every other answer."""
    if reply.status == 401:
        message = f"{reply.url.host} does not take an access token that it has just given"
        return NeedsAttention(message, fix=f"Give the consent again with {CONFIGURE}")
    if reply.status != 403:
        return None
    why = reasons(reply)
    message = f"{reply.url.host} answered 403 to {reply.method}" + (f" ({', '.join(sorted(why))})" if why else "")
    if why & _LIMITED:
        return RetryLater(message, after=asked_wait(403, reply.headers, reply.at), reason="rate_limited")
    if why & _DISABLED:
        return NeedsAttention(message, fix="Enable this API in the Google Cloud project of the client")
    if why & _SCOPELESS:
        needed = scope or _scopes_asked(reply) or "another scope"
        return NeedsAttention(message, fix=f"The consent does not cover {needed}: give it again with {CONFIGURE}")
    return NeedsAttention(message, fix="Check that the user may see and do this")


def _scopes_asked(reply: Reply) -> str:
    found = _SCOPES.search(reply.headers.get("WWW-Authenticate", ""))
    return " or ".join(word for word in found[1].split() if _WORD.fullmatch(word)) if found else ""
