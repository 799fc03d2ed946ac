"""Application default credentials of Google: a user's, those of a workload outside Google, and those of its machines.

The forms of the file: https://cloud.google.com/docs/authentication/application-default-credentials; a service account's
key, which is another form of it, is read by those who use one. Each is exchanged for an access token:
https://cloud.google.com/iam/docs/workload-identity-federation, https://cloud.google.com/compute/docs/access/authenticate-workloads
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from harken.errors import Garbled, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.http.cloud_metadata_client import ask_metadata
from harken.language.dotted_paths import lookup
from harken.source import Host

__all__ = ["DefaultCredentials", "GoogleToken", "machine_project", "machine_token", "read_credentials", "token_of"]

EARLY_SECONDS = 300.0
"""So long before its end a token is replaced."""
CLOUD = "https://www.googleapis.com/auth/cloud-platform"
FLAVOR = {"Metadata-Flavor": "Google"}
ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default/token"
PROJECT = "/computeMetadata/v1/project/project-id"
LONGEST_TOKEN = 20_000
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_WORD = re.compile(r"[\x21-\x7e]{1,20000}")
_PROJECT_ID = re.compile(r"[a-z][a-z0-9:.-]{3,80}")


class AuthorizedUser(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="authorized_user"):
    """What `gcloud auth application-default login` writes."""

    client_id: str
    client_secret: str
    refresh_token: str
    token_uri: str = "https://oauth2.googleapis.com/token"

    def __repr__(self) -> str:
        return "<AuthorizedUser>"


class TokenFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json"] = "text"
    subject_token_field_name: str = ""


class TokenSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file that has the workload's own token. Addresses and programs, the other forms, are not used."""

    file: str
    format: TokenFormat = TokenFormat()


class ExternalAccount(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="external_account"):
    """A workload that another provider vouches for, perhaps in the name of a service account."""

    audience: str
    subject_token_type: str
    token_url: str
    credential_source: TokenSource
    service_account_impersonation_url: str = ""


DefaultCredentials = AuthorizedUser | ExternalAccount


_decode = msgspec.json.Decoder(DefaultCredentials).decode


class GoogleToken(msgspec.Struct, frozen=True, kw_only=True):
    """An access token that can be used until then, in seconds since 1970."""

    value: str
    until: float

    def __repr__(self) -> str:
        return "<GoogleToken>"


class _Granted(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = 3_600.0


class _Impersonated(msgspec.Struct, frozen=True, rename="camel"):
    access_token: str
    expire_time: datetime


def read_credentials(document: bytes) -> DefaultCredentials:
    """The credentials in a file. ValueError for anything else, without a word of its content."""
    try:
        found: DefaultCredentials = _decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = "this is none of Google's credentials that are used: of a user, or of a workload with a token file"
        raise ValueError(message) from None
    return found


async def token_of(credentials: DefaultCredentials, scope: str, host: Host) -> GoogleToken:
    """A token for this scope. All users of the credential share it until it ends."""
    return await _shared(f"google {scope}", host, lambda: _make(credentials, scope, host))


async def machine_token(scope: str, host: Host) -> GoogleToken:
    """A token of the service account of this machine, container or pod at Google."""
    return await _shared(f"google machine {scope}", host, lambda: _ask_machine(scope, host))


async def machine_project() -> str:
    """The project of this machine."""
    found = (await _metadata(PROJECT, "its project")).decode("ascii", "replace").strip()
    if not _PROJECT_ID.fullmatch(found):
        raise _not_google("its project")
    return found


async def _shared(name: str, host: Host, make: Any) -> GoogleToken:
    async with host.shared.setdefault("google_token_lock", asyncio.Lock()):
        found = host.shared.get(name)
        if not isinstance(found, GoogleToken) or host.clock.time() >= found.until:
            found = host.shared[name] = await make()
        return found


async def _ask_machine(scope: str, host: Host) -> GoogleToken:
    body = await _metadata(f"{ACCOUNT}?scopes={quote(scope, safe='')}", "a token")
    try:
        granted = msgspec.json.decode(body, type=_Granted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _not_google("a token") from None
    if not _WORD.fullmatch(granted.access_token):
        raise _not_google("a token")
    return _lasting(granted.access_token, granted.expires_in, host)


async def _metadata(path: str, what: str) -> bytes:
    reply = await ask_metadata("instance", path, headers=FLAVOR)
    # whoever else answers at this address does not say that
    if reply.headers.get("Metadata-Flavor") != "Google":
        raise _not_google(what)
    if reply.status == 200:
        return reply.body
    message = f"the metadata server answered {reply.status} when it was asked for {what}"
    if reply.status in (403, 404):
        raise NeedsAttention(message, fix="Give this machine a service account, with this scope")
    raise RetryLater(message)


def _not_google(what: str) -> RetryLater:
    return RetryLater(f"the metadata server did not answer like Google's when it was asked for {what}")


async def _make(credentials: DefaultCredentials, scope: str, host: Host) -> GoogleToken:
    if isinstance(credentials, AuthorizedUser):
        return await _refresh(credentials, host)
    return await _exchange(credentials, scope, host)


async def _refresh(user: AuthorizedUser, host: Host) -> GoogleToken:
    form = {
        "grant_type": "refresh_token",
        "client_id": user.client_id,
        "client_secret": user.client_secret,
        "refresh_token": user.refresh_token,
    }
    fix = "Sign in again: gcloud auth application-default login"
    granted = _granted(await _post(user.token_uri, form, host), fix)
    return _lasting(granted.access_token, granted.expires_in, host)


async def _exchange(account: ExternalAccount, scope: str, host: Host) -> GoogleToken:
    impersonates = bool(account.service_account_impersonation_url)
    form = {
        "grant_type": _EXCHANGE,
        "audience": account.audience,
        "scope": CLOUD if impersonates else scope,
        "requested_token_type": _ACCESS_TOKEN,
        "subject_token_type": account.subject_token_type,
        "subject_token": await _subject_token(account.credential_source, host),
    }
    fix = "Let the workload identity pool accept the token of credential_source, and see that it is kept up to date"
    granted = _granted(await _post(account.token_url, form, host), fix)
    if not impersonates:
        return _lasting(granted.access_token, granted.expires_in, host)
    return await _impersonate(account.service_account_impersonation_url, granted.access_token, scope, host)


async def _impersonate(url: str, token: str, scope: str, host: Host) -> GoogleToken:
    _check_address(url, host)
    headers = {"Authorization": f"Bearer {token}"}
    reply = await host.request("POST", url, json={"scope": [scope]}, headers=headers, follow_redirects=False)
    fix = "Give the workload the role Workload Identity User on the service account"
    _expect(reply, "the token of a service account", fix)
    try:
        found = msgspec.json.decode(reply.body, type=_Impersonated)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Garbled(
            f"{reply.url.host} gave no token of a service account", fix="Check the credentials file"
        ) from None
    return _lasting(found.access_token, found.expire_time.timestamp() - host.clock.time(), host)


async def _subject_token(source: TokenSource, host: Host) -> str:
    path = Path(host.directory, Path(source.file).expanduser())
    fix = "Check credential_source in the credentials file, and who may read it"
    try:
        text = (await asyncio.to_thread(path.read_bytes)).decode("utf-8", "replace").strip()
    except OSError as error:
        raise NeedsAttention(f"{path} cannot be read: {error.strerror}", fix=fix) from None
    if source.format.type == "json":
        try:
            found = lookup(msgspec.json.decode(text), source.format.subject_token_field_name)
        except (msgspec.DecodeError, RecursionError):
            found = None
        text = found if isinstance(found, str) else ""
    if not text or len(text) > LONGEST_TOKEN:
        raise NeedsAttention(f"{path} has no token", fix=fix)
    return text


async def _post(url: str, form: dict[str, str], host: Host) -> Reply:
    _check_address(url, host)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    # what is sent is for this server alone
    return await host.request("POST", url, data=urlencode(form).encode(), headers=headers, follow_redirects=False)


def _check_address(url: str, host: Host) -> None:
    """A file of credentials that somebody else wrote must not send ours to a server of theirs."""
    try:
        target = URL(url)
    except ValueError:
        target = URL()
    name = target.host or ""
    google = target.scheme == "https" and (name == "googleapis.com" or name.endswith(".googleapis.com"))
    if not google and not host.allow_private:
        message = "the credentials file names a server for tokens that is not Google's"
        raise NeedsAttention(message, fix="Download it anew; a proxy of your own needs allow_private_networks: true")


def _granted(reply: Reply, fix: str) -> _Granted:
    _expect(reply, "the request for a token", fix)
    try:
        return msgspec.json.decode(reply.body, type=_Granted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Garbled(f"{reply.url.host} gave no token", fix="Check the credentials file") from None


def _expect(reply: Reply, what: str, fix: str) -> None:
    if 300 <= reply.status < 400:
        raise RetryLater(f"{reply.url.host} answered {what} with a redirect, which is not followed", fix=fix)
    if reply.status == 400:
        # so Google answers what is over or withdrawn
        raise NeedsAttention(f"{reply.url.host} answered 400 to {what}", fix=fix)
    raise_for(reply, what, fix=fix)


def _lasting(token: str, seconds: float, host: Host) -> GoogleToken:
    return GoogleToken(value=token, until=host.clock.time() + max(seconds - EARLY_SECONDS, min(seconds, 30.0)))
