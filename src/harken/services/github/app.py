"""Signing in as a GitHub App: a private key instead of a token, and short-lived tokens made with it.

The app proves itself with a JWT, finds its installation by the repository, and asks for a token that may do no more
than issues and pull requests of that repository. Such a token is valid for an hour.
https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-json-web-token-jwt-for-a-github-app
https://docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from harken.clock import from_unix
from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply
from harken.kit.json_api import JsonApi
from harken.kit.values_from_payload import folded_text, instant, text_of
from harken.source import Host

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

__all__ = ["VERSION", "App", "InstallationTokens", "NotInstalled", "parse_private_key", "repository_in"]

VERSION = "2022-11-28"
# our clock may be ahead of GitHub's by so much
SKEW_SECONDS = 60
# GitHub allows 10 minutes, by its own clock
JWT_SECONDS = 540
TOKEN_SECONDS = 3600.0
# seconds before its end that a token is replaced
EARLY_SECONDS = 300.0
# a token that was just made may be unknown to some of GitHub's servers
FRESH_SECONDS = 60.0
FRESH_RETRY_SECONDS = 5.0
PERMISSIONS: Mapping[str, str] = {"issues": "write", "pull_requests": "write", "metadata": "read"}
"""What a token is asked for, as far as the app has it."""
CODE_PERMISSIONS: Mapping[str, str] = {"contents": "write", "metadata": "read"}
"""The same for a token that git clones and pushes with."""
_LEVELS = ("read", "write", "admin")
_REPOSITORY = re.compile(r"(?:^|/)(repos/[^/]+/[^/]+|repositories/[0-9]{1,18})(?:/|$)")
_SHARED = "github_app"
_FIXES = {
    404: "Check app_id and base_url: the app, or its installation, is not there",
    422: "Give the app Issues (read and write), Pull requests (read and write) and Metadata (read), and accept that",
}


class NotInstalled(NeedsAttention):
    """The app is not installed for a repository, or there is none of that name."""


def parse_private_key(pem: str) -> RSAPrivateKey:
    """Return the key. Raise ValueError for what is none; a line end may be written as backslash and n."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = pem.strip()
    text = text if "\n" in text else text.replace("\\n", "\n")
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise ValueError("this is not the private key of an app: the whole .pem file that GitHub gave you") from error
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("this is not the private key of an app: those of GitHub are RSA keys")
    return key


def repository_in(url: str) -> str:
    """The part of an address that names a repository, `repos/OWNER/NAME` or `repositories/ID`; empty without one."""
    found = _REPOSITORY.search(url.partition("?")[0])
    return found[1] if found else ""


class App:
    """An app of GitHub, as its own endpoints know it. `base_url` is that of the API."""

    def __init__(self, app_id: str, private_key: str, base_url: str) -> None:
        self._id = app_id
        self._key = parse_private_key(private_key)
        self._base_url = base_url

    async def describe(self, host: Host) -> dict[str, Any]:
        """The app itself: its slug, name and permissions."""
        api = self._api(host)
        return api.expect_object(await api.get("/app"), "the app")

    async def read_webhook(self, host: Host) -> dict[str, Any] | None:
        """The configuration of the app's webhook; None if it has none."""
        api = self._api(host)
        reply = await api.get("/app/hook/config")
        return None if reply.status == 404 else api.expect_object(reply, "the webhook of the app")

    async def make_code_token(self, host: Host, name: str) -> str:
        """A token for the code of a repository (`owner/name`), made anew each time, since git is used seldom."""
        answer, reply = await self.make_token(host, f"repos/{name}", CODE_PERMISSIONS)
        granted = answer.get("permissions")
        if not isinstance(granted, dict) or "contents" not in granted:
            message = f"the app may not read the code of {name}"
            raise NeedsAttention(message, fix="Give the app Contents (read and write), and accept that")
        return _token_in(answer, reply)

    async def make_token(
        self, host: Host, repository: str, wanted: Mapping[str, str] = PERMISSIONS
    ) -> tuple[dict[str, Any], Reply]:
        """Ask for a token of the installation that may see the repository, and for that repository alone."""
        api = self._api(host)
        found = await api.get(f"/{repository}/installation")
        if found.status == 404:
            name = repository.partition("/")[2]
            message = f"the app is not installed for {name}, or there is no such repository"
            raise NotInstalled(message, fix=f"Open the page of the app, choose Install App, and give it {name}")
        installation = api.expect_object(found, f"the installation for {repository}")
        # a repository that was renamed is known by its number after the redirect
        kind, _, name = (repository_in(found.url.path) or repository).partition("/")
        only = {"repository_ids": [int(name)]} if kind == "repositories" else {"repositories": [name.split("/")[1]]}
        body = {**only, "permissions": _narrow(installation.get("permissions"), wanted)}
        made = await api.send("POST", f"/app/installations/{text_of(installation, 'id')}/access_tokens", json=body)
        return api.expect_object(made, f"a token for {repository}"), made

    def _api(self, host: Host) -> JsonApi:
        headers = {
            "Authorization": f"Bearer {self._jwt(host.clock.time())}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": VERSION,
        }
        return JsonApi(host, base_url=self._base_url, headers=headers, fixes=_FIXES, refuse=_refuse(host))

    def _jwt(self, now: float) -> str:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        claims = {"iat": int(now) - SKEW_SECONDS, "exp": int(now) + JWT_SECONDS, "iss": self._id}
        signed = b".".join(_base64(msgspec.json.encode(part)) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
        return b".".join((signed, _base64(self._key.sign(signed, PKCS1v15(), SHA256())))).decode()


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    value: str
    made_at: float
    until: float


class InstallationTokens:
    """The tokens of one app, one for each repository, each made once for all who use the credential."""

    def __init__(self, app: App, credential: object) -> None:
        self.app = app
        self._credential = credential
        self._tokens: dict[str, _Token] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._failures: dict[str, tuple[int, HarkenError]] = {}
        self._last = ""

    @classmethod
    def of(cls, credential: object, host: Host, make_app: Callable[[], App]) -> InstallationTokens:
        """The tokens that all users of this credential share; another key or id gets others."""
        found = host.shared.get(_SHARED)
        if not isinstance(found, InstallationTokens) or found._credential != credential:
            found = host.shared[_SHARED] = InstallationTokens(make_app(), credential)
        return found

    async def get(self, host: Host, repository: str = "", *, refused: str = "") -> str:
        """A token for the repository; without one, for that which was used last: empty if there is none.

        `refused`: a token that GitHub did not accept, so it is replaced. Raise RetryLater if it was made just now.
        """
        repository = repository or self._last
        if not repository:
            return ""
        token = self._usable(host, repository, refused)
        if token is not None:
            return token.value
        attempt = self._failures.get(repository, (0, None))[0]
        async with self._locks.setdefault(repository, asyncio.Lock()):
            token = self._usable(host, repository, refused)
            if token is not None:
                return token.value
            attempts, failure = self._failures.get(repository, (0, None))
            if failure is not None and attempts != attempt:
                # another task tried while we waited for the lock: its failure is ours too
                raise copy(failure)
            return await self._make(host, repository, attempts)

    def _usable(self, host: Host, repository: str, refused: str) -> _Token | None:
        token, now = self._tokens.get(repository), host.clock.time()
        if token is None or now >= token.until:
            return None
        if token.value != refused:
            self._last = repository
            return token
        if 0 <= now - token.made_at < FRESH_SECONDS:
            message = "GitHub does not know a token yet that it has just made"
            raise RetryLater(message, after=FRESH_RETRY_SECONDS)
        return None

    async def _make(self, host: Host, repository: str, attempts: int) -> str:
        try:
            answer, reply = await self.app.make_token(host, repository)
            value = _token_in(answer, reply)
        except HarkenError as error:
            self._failures[repository] = (attempts + 1, error)
            raise
        self._failures.pop(repository, None)
        self._last = repository
        now = host.clock.time()
        until = now + _lifetime(answer, reply) - EARLY_SECONDS
        self._tokens[repository] = _Token(value=value, made_at=now, until=until)
        return value


def _token_in(answer: Mapping[str, Any], reply: Reply) -> str:
    value = text_of(answer, "token")
    if value is None:
        raise RetryLater(f"{reply.url.host} answered without a token", fix="Check base_url")
    return value


def _lifetime(answer: Mapping[str, Any], reply: Reply) -> float:
    """Seconds that the token is valid, by GitHub's own clock: ours may be wrong."""
    ends, sent = instant(answer.get("expires_at")), _sent_at(reply)
    seconds = (ends - sent).total_seconds() if ends and sent else TOKEN_SECONDS
    return seconds if 0 < seconds <= TOKEN_SECONDS else TOKEN_SECONDS


def _narrow(granted: Any, needed: Mapping[str, str]) -> dict[str, str]:
    """What we need of what the installation grants; to ask for more is refused."""
    levels = {name: folded_text(granted, name) for name in needed} if isinstance(granted, dict) else {}
    return {
        name: min(wanted, levels[name], key=_LEVELS.index)
        for name, wanted in needed.items()
        if levels.get(name) in _LEVELS
    }


def _refuse(host: Host) -> Callable[[Reply, str], None]:
    """Raises the errors of the app's own endpoints that say more than their status."""

    def refuse(reply: Reply, what: str) -> None:
        name = reply.url.host
        if reply.status == 401:
            raise NeedsAttention(f"{name} does not accept the app's key (401)", fix=_key_fix(reply, host))
        if reply.status == 403 and b"suspended" in reply.body[:2000].lower():
            fix = "Somebody suspended the app: allow it again in the settings of the organization or user"
            raise NeedsAttention(f"{name} answered 403 to a request for {what}: the app is suspended there", fix=fix)

    return refuse


def _key_fix(reply: Reply, host: Host) -> str:
    sent = _sent_at(reply)
    off = abs((from_unix(host.clock.time()) - sent).total_seconds()) if sent else 0.0
    if off > SKEW_SECONDS:
        return f"The clock of this machine is {off:,.0f} seconds off GitHub's: set it"
    return "Check app_id, and private_key, which has to be a key that the page of the app lists"


def _sent_at(reply: Reply) -> datetime | None:
    return instant(reply.headers.get("Date", ""))


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
