"""Requests to Google's APIs in the name of one account, and what their refusals mean.

https://developers.google.com/workspace/calendar/api/guides/errors
https://developers.google.com/workspace/gmail/api/guides/handle-errors
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.http import Reply, raise_for
from harken.kit.account_fields import check_word, split_server_address
from harken.kit.fields import text_of
from harken.language.paths import lookup
from harken.rate_limit import asked_wait
from harken.source import Host

__all__ = [
    "ACCESS",
    "CALENDAR",
    "CONFIGURE",
    "DEVICE_ACCESS",
    "GMAIL",
    "GMAIL_READONLY",
    "USUAL",
    "GoogleAccount",
    "GoogleClient",
    "OAuthClient",
    "Tokens",
    "ask_for_token",
    "error_code",
    "reasons",
    "scopes_of",
    "token_answer",
    "told",
]


CONFIGURE = "harken integrations google configure"


class OAuthClient(BaseModel):
    """Who asks for consent, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    client_id: str = Field(description="id of an OAuth client of the type Desktop app, in your Google Cloud project")
    client_secret: SecretStr = Field(description="secret of this client")
    base_url: str = Field("", description="address of something that stands in for Google (optional)")

    @field_validator("client_id")
    @classmethod
    def _client(cls, value: str) -> str:
        return check_word(value, "an OAuth client's id, such as 1234-abcd.apps.googleusercontent.com")

    @field_validator("client_secret")
    @classmethod
    def _secret(cls, value: SecretStr) -> SecretStr:
        return _hidden_word(value)

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            split_server_address(value, "an address, such as http://127.0.0.1:8085")
        return value.rstrip("/")

    def address(self, home: str, path: str) -> str:
        """The address of a path at Google's host `home`, or at what stands in for all of them."""
        return f"{self.base_url or f'https://{home}'}{path}"

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

    refresh_token: SecretStr = Field(description="what the user's consent gave; configure has it given in a browser")

    @field_validator("refresh_token")
    @classmethod
    def _token(cls, value: SecretStr) -> SecretStr:
        return _hidden_word(value)


def _hidden_word(value: SecretStr) -> SecretStr:
    return SecretStr(check_word(value.get_secret_value(), "a secret of Google, which is one word without spaces"))


GMAIL = "https://www.googleapis.com/auth/gmail.modify"

GMAIL_READONLY = "https://www.googleapis.com/auth/gmail.readonly"

CALENDAR = "https://www.googleapis.com/auth/calendar.readonly"

ACCESS = {"gmail": GMAIL, "gmail-readonly": GMAIL_READONLY, "calendar": CALENDAR}

USUAL = ("gmail", "calendar")

# Google's device flow knows few scopes, and none of Gmail's
DEVICE_ACCESS = frozenset({"calendar"})

_WHO = ("openid", "email")


def scopes_of(access: Iterable[str]) -> tuple[str, ...]:
    """The scopes for these words, and those that tell who the user is."""
    wanted = list(access)
    strange = [word for word in wanted if word not in ACCESS]
    if strange or not wanted:
        raise Refused(f"Google has no access {', '.join(strange) or 'to nothing'}", fix=f"Use: {', '.join(ACCESS)}")
    return (*_WHO, *dict.fromkeys(ACCESS[word] for word in wanted))


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

_TOKEN_LIMITED = frozenset({"rate_limit_exceeded", "slow_down"})


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
        raise _token_refusal(reply)
    raise_for(reply)
    answer = reply.json()
    if not text_of(answer, "access_token"):
        raise RetryLater(f"{reply.url.host} answered without an access token", fix="Check base_url")
    return dict(answer)


def _token_refusal(reply: Reply) -> HarkenError:
    code = error_code(reply)
    known = code if code in _FIXES or code in _LATER or code in _TOKEN_LIMITED else ""
    message = f"{reply.url.host} answered {reply.status} to a request for a token" + (f" ({known})" if known else "")
    if code in _LATER:
        return RetryLater(message)
    if code in _TOKEN_LIMITED:
        return RetryLater(message, reason="rate_limited")
    return NeedsAttention(message, fix=_FIXES.get(code, f"Check the client, or store it again with {CONFIGURE}"))


def error_code(reply: Reply) -> str:
    """OAuth's word for what is wrong; empty when the answer has none."""
    try:
        return text_of(reply.json(), "error") or ""
    except RetryLater:
        return ""


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
