"""Access tokens: asked for once, however many callers wait for one, and kept in memory only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import Any

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit.fields import text_of
from harken.services.google.account import CONFIGURE, GoogleAccount, OAuthClient
from harken.source import Host

__all__ = ["Tokens", "ask_for_token", "error_code", "token_answer"]

# a token that ends while its request is under way is answered with 401
EARLY_SECONDS = 60.0
_SHARED = "google"
_FIXES = {
    "invalid_grant": f"The consent was withdrawn, has expired or is another client's: give it again with {CONFIGURE}",
    "invalid_client": f"The client's id or secret is wrong, or the client was deleted: store it with {CONFIGURE}",
    "unauthorized_client": f"The refresh token is another client's: give the consent again with {CONFIGURE}",
    "invalid_scope": f"Google does not know the scope, or has withdrawn it: give the consent again with {CONFIGURE}",
    "admin_policy_enforced": "An administrator of the organization has to allow this client",
    "org_internal": "The client is for users of its own organization only: sign in as one of them",
}
_LATER = frozenset({"temporarily_unavailable", "internal_failure", "server_error"})
_LIMITED = frozenset({"rate_limit_exceeded", "slow_down"})


class Tokens:
    """The access token of one credential. Neither its text nor its repr is ever shown."""

    def __init__(self, account: GoogleAccount) -> None:
        self._account = account
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()
        self._asked = 0
        self._failure: HarkenError | None = None

    @classmethod
    def of(cls, account: GoogleAccount, host: Host) -> Tokens:
        """The one that all users of this credential share; a new consent makes a new one."""
        found = host.shared.get(_SHARED)
        if not isinstance(found, Tokens) or found._account != account:
            found = host.shared[_SHARED] = Tokens(account)
        return found

    async def get(self, host: Host, *, refused: str = "") -> str:
        """A token that should work. `refused` is one that did not, so another one is asked for."""
        if self._good(host, refused):
            return self._token
        asked = self._asked
        async with self._lock:
            if self._good(host, refused):
                return self._token
            if self._asked != asked and self._failure is not None:
                # somebody asked while we waited: what they were told holds for us too
                raise copy(self._failure)
            await self._refresh(host)
            return self._token

    def _good(self, host: Host, refused: str) -> bool:
        return bool(self._token) and self._token != refused and host.clock.time() < self._until

    async def _refresh(self, host: Host) -> None:
        try:
            answer = token_answer(await self._ask(host))
        except HarkenError as error:
            self._failure = error
            self._asked += 1
            raise
        seconds = answer.get("expires_in")
        self._token = answer["access_token"]
        self._until = host.clock.time() + (seconds if isinstance(seconds, int | float) else 3600.0) - EARLY_SECONDS
        self._failure = None
        self._asked += 1

    async def _ask(self, host: Host) -> Reply:
        token = self._account.refresh_token.get_secret_value()
        return await ask_for_token(self._account, host, grant_type="refresh_token", refresh_token=token)


async def ask_for_token(client: OAuthClient, host: Host, **grant: str) -> Reply:
    """Hand in a grant, in the name of the client; see `token_answer`."""
    return await host.http.request(
        "POST",
        client.token_url,
        data={
            **grant,
            "client_id": client.client_id,
            "client_secret": client.client_secret.get_secret_value(),
        },
        headers={"Accept": "application/json"},
        allow_private=host.allow_private,
        # neither the secret nor the token is for anyone else
        follow_redirects=False,
    )


def token_answer(reply: Reply) -> Mapping[str, Any]:
    """What the token endpoint gave, an access token at least, or the error that says what to do."""
    if 400 <= reply.status < 500 and reply.status not in (408, 425, 429):
        raise _refusal(reply)
    raise_for(reply)
    answer = reply.json()
    if not text_of(answer, "access_token"):
        raise RetryLater(f"{reply.url.host} answered without an access token", fix="Check base_url")
    return dict(answer)


def _refusal(reply: Reply) -> HarkenError:
    code = error_code(reply)
    known = code if code in _FIXES or code in _LATER or code in _LIMITED else ""
    message = f"{reply.url.host} answered {reply.status} to a request for a token" + (f" ({known})" if known else "")
    if code in _LATER:
        return RetryLater(message)
    if code in _LIMITED:
        return RetryLater(message, reason="rate_limited")
    return NeedsAttention(message, fix=_FIXES.get(code, f"Check the client, or store it again with {CONFIGURE}"))


def error_code(reply: Reply) -> str:
    """OAuth's word for what is wrong; empty when the answer has none."""
    try:
        return text_of(reply.json(), "error") or ""
    except RetryLater:
        return ""
