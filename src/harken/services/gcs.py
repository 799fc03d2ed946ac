"""Objects of a Google Cloud Storage bucket. https://cloud.google.com/storage/docs/json_api/v1/objects/list"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import Garbled, NeedsAttention
from harken.http import Reply, raise_for
from harken.kit import AccountModel, configure_hint, instant
from harken.kit.credential_field_validation import split_server_address
from harken.kit.google_default_credentials import DefaultCredentials, machine_token, read_credentials, token_of
from harken.kit.object_listing import VERSION_BYTES, BucketListing, BucketQuery, ListedObject, ListedPage
from harken.source import Host, Plugin

__all__ = ["GcsAccount", "GcsQuery", "Tokens", "list_page", "plugin"]

PAGE_KEYS = 1000
LARGEST = 16_000_000
SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
FIELDS = "nextPageToken,items(name,size,updated,generation)"
JWT_SECONDS = 3600
EARLY_SECONDS = 300


class ServiceAccountKey(msgspec.Struct, frozen=True):
    """What Harken needs of a key file."""

    client_email: str
    private_key: str
    token_uri: str = "https://oauth2.googleapis.com/token"


class GcsAccount(AccountModel):
    """How to sign in. Without a key and a token nothing is sent, which is enough for public buckets."""

    service_account_key: SecretStr = Field(
        SecretStr(""), description="the JSON of a service account's key; it needs the role Storage Object Viewer"
    )
    token: SecretStr = Field(SecretStr(""), description="an access token, in place of a key")
    credentials_file: str = Field("", description="a file with a key or other credentials of Google, in place of a key")
    metadata: bool = Field(False, description="take a token of the service account of this machine from Google")
    base_url: str = Field("https://storage.googleapis.com", description="address of the API")

    @field_validator("service_account_key")
    @classmethod
    def _is_key(cls, value: SecretStr) -> SecretStr:
        if text := value.get_secret_value():
            try:
                key = msgspec.json.decode(text, type=ServiceAccountKey)
                _load_key(key)
            except (msgspec.MsgspecError, ValueError, TypeError, UnicodeError):
                raise ValueError("this is not the JSON of a service account's key") from None
        return value

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        split_server_address(value, "the address of a server")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_one(self) -> GcsAccount:
        if self.service_account_key.get_secret_value() and self.token.get_secret_value():
            raise ValueError("give a key or a token, not both")
        return self


class GcsQuery(BucketQuery):
    """Which objects to look at."""


class _Token(msgspec.Struct, frozen=True):
    value: str
    until: float


class _Granted(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = 3600.0


class Tokens:
    """Access tokens of one account; a new one is made shortly before the old one ends."""

    def __init__(self, account: GcsAccount, host: Host) -> None:
        self._account, self._host = account, host
        self._making = asyncio.Lock()
        self._from_file: ServiceAccountKey | DefaultCredentials | None = None

    async def headers(self) -> dict[str, str]:
        """Return the headers that sign a request."""
        token = self._account.token.get_secret_value()
        text = self._account.service_account_key.get_secret_value()
        if text:
            token = await self._token(msgspec.json.decode(text, type=ServiceAccountKey))
        elif not token and self._account.credentials_file:
            token = await self._file_token()
        elif not token and self._account.metadata:
            token = (await machine_token(SCOPE, self._host)).value
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _file_token(self) -> str:
        """A token by the credentials in the file, which is read once."""
        if self._from_file is None:
            path = Path(self._host.directory, Path(self._account.credentials_file).expanduser())
            try:
                self._from_file = _read_file(await asyncio.to_thread(path.read_bytes))
            except OSError:
                fix = "Check credentials_file and who may read it"
                raise NeedsAttention(f"{path} cannot be read", fix=fix) from None
            except ValueError:
                raise NeedsAttention(f"{path} has no credentials of Google", fix="Check credentials_file") from None
        if isinstance(self._from_file, ServiceAccountKey):
            return await self._token(self._from_file)
        return (await token_of(self._from_file, SCOPE, self._host)).value

    async def _token(self, key: ServiceAccountKey) -> str:
        shared, name = self._host.shared, f"gcs {key.client_email}"
        async with self._making:
            known = shared.get(name)
            if not isinstance(known, _Token) or known.until < self._host.clock.time() + EARLY_SECONDS:
                known = shared[name] = await self._make(key)
            return known.value

    async def _make(self, key: ServiceAccountKey) -> _Token:
        now = self._host.clock.time()
        form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": _assertion(key, now)}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        reply = await self._host.request("POST", key.token_uri, headers=headers, data=urlencode(form).encode())
        fix = f"Check that the key is not deleted or disabled; a new one: {configure_hint('gcs')}"
        raise_for(reply, "the request for a token", fix=fix)
        try:
            granted = msgspec.json.decode(reply.body, type=_Granted)
        except msgspec.MsgspecError as error:
            raise Garbled("the answer to the request for a token has none", fix="Check token_uri") from error
        return _Token(granted.access_token, now + granted.expires_in)


def _read_file(document: bytes) -> ServiceAccountKey | DefaultCredentials:
    """The key of a service account, or other credentials. ValueError for what is none of them."""
    try:
        return read_credentials(document)
    except ValueError:
        key = msgspec.json.decode(document, type=ServiceAccountKey)
        _load_key(key)
        return key


def _load_key(key: ServiceAccountKey) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(key.private_key.encode(), password=None)


def _assertion(key: ServiceAccountKey, now: float) -> str:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    claims = {
        "iss": key.client_email,
        "scope": SCOPE,
        "aud": key.token_uri,
        "iat": int(now),
        "exp": int(now) + JWT_SECONDS,
    }
    signed = b".".join(_base64(msgspec.json.encode(part)) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    return b".".join((signed, _base64(_load_key(key).sign(signed, PKCS1v15(), SHA256())))).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class _Item(msgspec.Struct, frozen=True, gc=False):
    name: str
    updated: str
    size: str = "0"
    generation: str = "0"


class _Items(msgspec.Struct, frozen=True):
    items: list[_Item] = []
    nextPageToken: str = ""


async def list_page(
    query: GcsQuery, account: GcsAccount, tokens: Tokens, host: Host, token: str, *, keys: int = PAGE_KEYS
) -> ListedPage:
    """List the objects of a page, or the first ones."""
    params = {"fields": FIELDS, "maxResults": str(keys), "prefix": query.prefix}
    if token:
        params["pageToken"] = token
    reply = await host.request(
        "GET",
        f"{account.base_url}/storage/v1/b/{quote(query.bucket, safe='')}/o",
        params=params,
        headers=await tokens.headers(),
        max_bytes=LARGEST,
    )
    what = f"the list of {query.bucket}"
    raise_for(reply, what, fix=_advice(reply, account))
    try:
        listed = msgspec.json.decode(reply.body, type=_Items)
        return ListedPage([_object(item) for item in listed.items], listed.nextPageToken)
    except (msgspec.MsgspecError, ValueError) as error:
        name = urlsplit(account.base_url).hostname
        raise Garbled(f"the answer of {name} to {what} is not a list of objects", fix="Check base_url") from error


def _advice(reply: Reply, account: GcsAccount) -> str:
    if reply.status == 404:
        return "Check the name of the bucket"
    if reply.status == 401 and account.token.get_secret_value():
        return f"Access tokens end after an hour; use the key of a service account: {configure_hint('gcs')}"
    if reply.status in (401, 403):
        return "Give the account the role Storage Object Viewer for the bucket"
    return ""


def _object(item: _Item) -> ListedObject:
    updated = instant(item.updated)
    if updated is None:
        raise ValueError("an object without a time")
    generation = int(item.generation).to_bytes(VERSION_BYTES, "big")
    return ListedObject(item.name.encode("utf-8", "surrogatepass"), int(item.size), updated.timestamp(), generation)


def show_generation(version: bytes) -> dict[str, Any]:
    return {"generation": str(int.from_bytes(version, "big"))}


def _source(query: GcsQuery, account: GcsAccount, host: Host) -> BucketListing:
    tokens = Tokens(account, host)
    return BucketListing(
        query, host, lambda token: list_page(query, account, tokens, host, token), show_generation, kind="gcs"
    )


plugin = Plugin(
    kind="gcs",
    summary="Objects of a Google Cloud Storage bucket: created, changed, deleted",
    docs="reference/services/gcs.md",
    account=GcsAccount,
    query=GcsQuery,
    source=_source,
    identity="change",
    lookback_seconds=0.0,
    environment={
        "GCS_SERVICE_ACCOUNT_KEY": "service_account_key",
        "GCS_TOKEN": "token",
        "GOOGLE_APPLICATION_CREDENTIALS": "credentials_file",
    },
)
