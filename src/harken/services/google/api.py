"""A Google account, requests to Google's APIs with its access token, and what their errors mean.

https://developers.google.com/workspace/calendar/api/guides/errors
https://developers.google.com/workspace/gmail/api/guides/handle-errors
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from pydantic import Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.http import Reply, raise_for
from harken.kit import AccountModel, configure_hint
from harken.kit.credential_field_validation import check_word, split_server_address
from harken.kit.values_from_payload import text_of
from harken.language.dotted_paths import lookup
from harken.outgoing_rate_limit import requested_wait
from harken.source import Host

__all__ = [
    "ACCESS",
    "CALENDAR",
    "DEFAULT_ACCESS",
    "DEVICE_ACCESS",
    "GMAIL",
    "GMAIL_READONLY",
    "GoogleAccount",
    "GoogleClient",
    "OAuthClient",
    "error_code",
    "expect_object",
    "expect_token",
    "request_token",
    "scopes_of",
]

CONFIGURE = configure_hint("google")
GMAIL = "https://www.googleapis.com/auth/gmail.modify"
GMAIL_READONLY = "https://www.googleapis.com/auth/gmail.readonly"
CALENDAR = "https://www.googleapis.com/auth/calendar.readonly"
ACCESS = {"gmail": GMAIL, "gmail-readonly": GMAIL_READONLY, "calendar": CALENDAR}
DEFAULT_ACCESS = ("gmail", "calendar")
# Google's device flow allows few scopes, and none of Gmail's
DEVICE_ACCESS = frozenset({"calendar"})
_IDENTITY_SCOPES = ("openid", "email")

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
_MISSING_SCOPE = frozenset({"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficient_scope"})
_DISABLED = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
_SCOPES = re.compile(r'scope="([^"]*)"')
_WORD = re.compile(r"[\w.:/-]{1,100}")

# seconds before its end that a token is replaced: one that expires during a request is answered with 401
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
_TEMPORARY = frozenset({"temporarily_unavailable", "internal_failure", "server_error"})
_TOKEN_LIMITED = frozenset({"rate_limit_exceeded", "slow_down"})


class OAuthClient(AccountModel):
    """The OAuth client that requests the user's consent."""

    client_id: str = Field(description="id of an OAuth client of the type Desktop app, in your Google Cloud project")
    client_secret: SecretStr = Field(description="secret of this client")
    base_url: str = Field("", description="address of a server to use instead of Google's (optional)")

    @field_validator("client_id")
    @classmethod
    def _client(cls, value: str) -> str:
        return check_word(value, "an OAuth client's id, such as 1234-abcd.apps.googleusercontent.com")

    @field_validator("client_secret")
    @classmethod
    def _secret(cls, value: SecretStr) -> SecretStr:
        return _secret_word(value)

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            split_server_address(value, "an address, such as http://127.0.0.1:8085")
        return value.rstrip("/")

    def address(self, host: str, path: str) -> str:
        """The address of a path at one of Google's hosts, or at base_url, which replaces all of them."""
        return f"{self.base_url or f'https://{host}'}{path}"

    @property
    def token_url(self) -> str:
        return self.address("oauth2.googleapis.com", "/token")

    @property
    def consent_url(self) -> str:
        return self.address("accounts.google.com", "/o/oauth2/v2/auth")

    @property
    def device_url(self) -> str:
        return self.address("oauth2.googleapis.com", "/device/code")

    @property
    def gmail_url(self) -> str:
        return self.address("gmail.googleapis.com", "/gmail/v1")

    @property
    def calendar_url(self) -> str:
        return self.address("www.googleapis.com", "/calendar/v3")


class GoogleAccount(OAuthClient):
    """An OAuth client and the refresh token that one user's consent gave it."""

    refresh_token: SecretStr = Field(description="result of the user's consent; configure obtains it in a browser")

    @field_validator("refresh_token")
    @classmethod
    def _token(cls, value: SecretStr) -> SecretStr:
        return _secret_word(value)


def _secret_word(value: SecretStr) -> SecretStr:
    return SecretStr(check_word(value.get_secret_value(), "a secret of Google, which is one word without spaces"))


class GoogleClient:
    """Requests in the name of one account. All clients of an account share one access token."""

    def __init__(self, tokens: TokenCache, host: Host) -> None:
        self._tokens = tokens
        self._host = host

    @classmethod
    def of(cls, account: GoogleAccount, host: Host) -> GoogleClient:
        return cls(TokenCache.of(account, host), host)

    async def request(
        self, method: str, url: str, *, params: Params = None, json: Any = None, scope: str = ""
    ) -> Reply:
        """The reply, if it is a success or depends on the request (400, 404, 409, 410, 412): see `expect_object`.

        Other statuses raise RetryLater, or NeedsAttention if the credential is not accepted. `scope` is what the
        request needs, for the message.
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
        """GET, and return the object in the reply; anything else raises."""
        return expect_object(await self.request("GET", url, params=params, scope=scope))

    async def _send(self, method: str, url: str, token: str, params: Params, json: Any) -> Reply:
        return await self._host.request(
            method,
            url,
            params=params,
            json=json,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
        )


def expect_object(reply: Reply, fix: str = "") -> dict[str, Any]:
    """The JSON object in a reply; any other reply raises."""
    raise_for(reply, fix=fix)
    document = reply.json()
    if not isinstance(document, dict):
        raise RetryLater(f"{reply.url.host} did not answer with a JSON object", fix="Check base_url")
    return document


def error_reasons(reply: Reply) -> frozenset[str]:
    """The reasons in Google's error object; empty if there are none."""
    try:
        document = reply.json()
    except RetryLater:
        return frozenset()
    entries = [entry for path in ("error.errors", "error.details") for entry in _list(lookup(document, path))]
    words = [text_of(entry, "reason") for entry in entries] + [text_of(document, "error.status")]
    return frozenset(word for word in words if word and _WORD.fullmatch(word))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _refusal(reply: Reply, scope: str) -> HarkenError | None:
    """The error that a 401 or 403 means; None for every other status."""
    if reply.status == 401:
        message = f"{reply.url.host} refused an access token that it has just issued"
        return NeedsAttention(message, fix=f"Give the consent again with {CONFIGURE}")
    if reply.status != 403:
        return None
    why = error_reasons(reply)
    message = f"{reply.url.host} answered 403 to {reply.method}" + (f" ({', '.join(sorted(why))})" if why else "")
    if why & _LIMITED:
        return RetryLater(message, after=requested_wait(403, reply.headers, reply.at), reason="rate_limited")
    if why & _DISABLED:
        return NeedsAttention(message, fix="Enable this API in the Google Cloud project of the client")
    if why & _MISSING_SCOPE:
        needed = scope or _required_scopes(reply) or "another scope"
        return NeedsAttention(message, fix=f"The consent does not cover {needed}: give it again with {CONFIGURE}")
    return NeedsAttention(message, fix="Check that the user may see and do this")


def _required_scopes(reply: Reply) -> str:
    found = _SCOPES.search(reply.headers.get("WWW-Authenticate", ""))
    return " or ".join(word for word in found[1].split() if _WORD.fullmatch(word)) if found else ""


class TokenCache:
    """The access token of one credential, refreshed when needed. It is never shown, not even by repr."""

    def __init__(self, account: GoogleAccount) -> None:
        self._account = account
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._failure: HarkenError | None = None

    @classmethod
    def of(cls, account: GoogleAccount, host: Host) -> TokenCache:
        """The cache that all users of this credential share; a new consent gets a new cache."""
        found = host.shared.get(_SHARED)
        if not isinstance(found, TokenCache) or found._account != account:
            found = host.shared[_SHARED] = TokenCache(account)
        return found

    async def get(self, host: Host, *, refused: str = "") -> str:
        """A token that should work. `refused`: a token that Google did not accept, so it is replaced."""
        if self._is_usable(host, refused):
            return self._token
        attempts = self._attempts
        async with self._lock:
            if self._is_usable(host, refused):
                return self._token
            if self._attempts != attempts and self._failure is not None:
                # another task tried while we waited for the lock: its failure is ours too
                raise copy(self._failure)
            await self._refresh(host)
            return self._token

    def _is_usable(self, host: Host, refused: str) -> bool:
        return bool(self._token) and self._token != refused and host.clock.time() < self._until

    async def _refresh(self, host: Host) -> None:
        try:
            answer = expect_token(await self._request(host))
        except HarkenError as error:
            self._failure = error
            self._attempts += 1
            raise
        seconds = answer.get("expires_in")
        self._token = answer["access_token"]
        self._until = host.clock.time() + (seconds if isinstance(seconds, int | float) else 3600.0) - EARLY_SECONDS
        self._failure = None
        self._attempts += 1

    async def _request(self, host: Host) -> Reply:
        token = self._account.refresh_token.get_secret_value()
        return await request_token(self._account, host, grant_type="refresh_token", refresh_token=token)


async def request_token(client: OAuthClient, host: Host, **grant: str) -> Reply:
    """Exchange a grant for a token; pass the reply to `expect_token`."""
    return await host.request(
        "POST",
        client.token_url,
        data={
            **grant,
            "client_id": client.client_id,
            "client_secret": client.client_secret.get_secret_value(),
        },
        headers={"Accept": "application/json"},
        # a redirect would send the secret and the token to another server
        follow_redirects=False,
    )


def expect_token(reply: Reply) -> Mapping[str, Any]:
    """The token endpoint's answer, with an access token; otherwise raises an error that says what to do."""
    if 400 <= reply.status < 500 and reply.status not in (408, 425, 429):
        raise _token_refusal(reply)
    raise_for(reply)
    answer = reply.json()
    if not text_of(answer, "access_token"):
        raise RetryLater(f"{reply.url.host} answered without an access token", fix="Check base_url")
    return dict(answer)


def _token_refusal(reply: Reply) -> HarkenError:
    code = error_code(reply)
    known = code if code in _FIXES or code in _TEMPORARY or code in _TOKEN_LIMITED else ""
    message = f"{reply.url.host} answered {reply.status} to a request for a token" + (f" ({known})" if known else "")
    if code in _TEMPORARY:
        return RetryLater(message)
    if code in _TOKEN_LIMITED:
        return RetryLater(message, reason="rate_limited")
    return NeedsAttention(message, fix=_FIXES.get(code, f"Check the client, or store it again with {CONFIGURE}"))


def error_code(reply: Reply) -> str:
    """The OAuth error code; empty if the answer has none."""
    try:
        return text_of(reply.json(), "error") or ""
    except RetryLater:
        return ""


def scopes_of(access: Iterable[str]) -> tuple[str, ...]:
    """The scopes for these words, and those that identify the user."""
    wanted = list(access)
    unknown = [word for word in wanted if word not in ACCESS]
    if unknown or not wanted:
        message = f"Google has no access called {', '.join(unknown)}" if unknown else "no access was requested"
        raise Refused(message, fix=f"Use: {', '.join(ACCESS)}")
    return (*_IDENTITY_SCOPES, *dict.fromkeys(ACCESS[word] for word in wanted))
