"""A service account of Google Cloud, requests to Pub/Sub in its name, and what their errors mean.

The account signs a token for Pub/Sub itself, so there is no token to fetch:
https://developers.google.com/identity/protocols/oauth2/service-account#jwt-auth
Other credentials of Google are exchanged for one (kit/google_default_credentials.py).
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit import AccountModel, text_of
from harken.kit.credential_field_validation import split_server_address
from harken.kit.google_default_credentials import (
    DefaultCredentials,
    machine_project,
    machine_token,
    read_credentials,
    token_of,
)
from harken.source import Host

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

__all__ = ["AUDIENCE", "PubSub", "PubSubAccount"]

AUDIENCE = "https://pubsub.googleapis.com/"
SCOPE = "https://www.googleapis.com/auth/pubsub"
TOKEN_SECONDS = 3_600
EARLY_SECONDS = 300
"""So long before its end a token is replaced."""
SKEW_SECONDS = 30
"""Our clock may be ahead of Google's by so much."""
ANSWER_SECONDS = 15.0
_PROJECT = r"^([a-z][a-z0-9:.-]{3,80})?$"
_NO_KEY = "this is not the JSON key of a service account"


class ServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What a key file of a service account has, as far as it is used."""

    client_email: str
    private_key: str
    private_key_id: str = ""
    project_id: str = ""

    def __repr__(self) -> str:
        return f"<ServiceAccount {self.client_email}>"


class PubSubAccount(AccountModel):
    """The key of a service account, or other credentials of Google, as text or as a file. An emulator needs none."""

    key: SecretStr | None = Field(None, description="the JSON key of a service account, or other credentials")
    key_file: str = Field("", description="a file with the JSON key, in place of key")
    metadata: bool = Field(False, description="take a token of the service account of this machine from Google")
    project: str = Field("", pattern=_PROJECT, description="the project; else that of the service account")
    endpoint: str = Field("", description="address of an emulator to use instead of Google (optional)")

    @field_validator("key")
    @classmethod
    def _key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value():
            return None
        _read_any(value.get_secret_value().encode())
        return value

    @field_validator("endpoint")
    @classmethod
    def _address(cls, value: str) -> str:
        # as PUBSUB_EMULATOR_HOST has it: host and port
        address = value if not value or "://" in value else f"http://{value}"
        if address:
            split_server_address(address, "an address, such as http://127.0.0.1:8085")
        return address.rstrip("/")

    @model_validator(mode="after")
    def _signs_in(self) -> PubSubAccount:
        if not (self.key or self.key_file or self.metadata or self.endpoint):
            raise ValueError(
                "pubsub needs key or key_file, or GOOGLE_APPLICATION_CREDENTIALS in the environment, or metadata: true"
            )
        return self

    @property
    def signs(self) -> bool:
        """Whether requests carry a token."""
        return bool(self.key or self.key_file or self.metadata)


def read_service_account(document: bytes) -> ServiceAccount:
    """The account in a key file. Raise ValueError for what is none, without a word of its content."""
    try:
        found = msgspec.json.decode(document, type=ServiceAccount)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(_NO_KEY) from None
    _private_key(found)
    return found


def _read_any(document: bytes) -> ServiceAccount | DefaultCredentials:
    """The key of a service account, or other credentials. ValueError for what is none of them."""
    try:
        return read_credentials(document)
    except ValueError:
        return read_service_account(document)


def _private_key(account: ServiceAccount) -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(account.private_key.encode(), password=None)
    except (ValueError, TypeError):
        raise ValueError(_NO_KEY) from None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError(_NO_KEY)
    return key


class PubSub:
    """Requests to Pub/Sub in the name of one account."""

    def __init__(self, account: PubSubAccount, host: Host) -> None:
        self._account = account
        self._host = host
        self._base_url = account.endpoint or AUDIENCE.rstrip("/")
        self._credentials: ServiceAccount | DefaultCredentials | None = None
        self._token, self._until = "", 0.0

    async def path(self, kind: str, name: str) -> str:
        """The full name of a subscription or topic: `projects/PROJECT/subscriptions/NAME`."""
        if "/" in name:
            return name
        project = self._account.project
        if not project and (self._account.key or self._account.key_file):
            credentials = await self._known_credentials()
            project = credentials.project_id if isinstance(credentials, ServiceAccount) else ""
        elif not project and self._account.metadata:
            project = await machine_project()
        if not project:
            raise NeedsAttention("the project of Pub/Sub is not known", fix="Write project: in the integration")
        return f"projects/{project}/{kind}/{name}"

    async def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, wait: float = 0.0
    ) -> Reply:
        """Send one request and return the reply whatever its status. `wait`: so long the server may take on purpose."""
        sent = {"Accept": "application/json", **(headers or {})}
        if self._account.signs:
            sent["Authorization"] = f"Bearer {await self._bearer()}"
        return await self._host.request(
            method,
            f"{self._base_url}/v1/{quote(path, safe='/:')}",
            json=body,
            headers=sent,
            timeout=wait + ANSWER_SECONDS,
            # a redirect would take the token to another server
            follow_redirects=False,
        )

    def expect(self, reply: Reply, about: str) -> dict[str, Any]:
        """The object in the reply; anything else raises. `about` is the subscription or topic, for messages."""
        if reply.status >= 300:
            raise refusal(reply, about)
        document = reply.json() if reply.body else {}
        if not isinstance(document, dict):
            raise RetryLater(f"{reply.url.host} did not answer like Pub/Sub", fix="Check endpoint")
        return document

    async def _bearer(self) -> str:
        account, now = self._account, self._host.clock.time()
        if account.metadata and not account.key and not account.key_file:
            return (await machine_token(SCOPE, self._host)).value
        credentials = await self._known_credentials()
        if not isinstance(credentials, ServiceAccount):
            return (await token_of(credentials, SCOPE, self._host)).value
        if not self._token or now >= self._until:
            self._token = _self_signed(credentials, now)
            self._until = now + TOKEN_SECONDS - EARLY_SECONDS
        return self._token

    async def _known_credentials(self) -> ServiceAccount | DefaultCredentials:
        if self._credentials is None:
            self._credentials = await self._read_key()
        return self._credentials

    async def _read_key(self) -> ServiceAccount | DefaultCredentials:
        if self._account.key:
            return _read_any(self._account.key.get_secret_value().encode())
        path = Path(self._host.directory, Path(self._account.key_file).expanduser())
        try:
            return _read_any(await asyncio.to_thread(path.read_bytes))
        except OSError:
            raise NeedsAttention(f"{path} cannot be read", fix="Check key_file and who may read it") from None
        except ValueError:
            raise NeedsAttention(f"{path} is not the JSON key of a service account", fix="Check key_file") from None


def _self_signed(account: ServiceAccount, now: float) -> str:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    header = {"alg": "RS256", "typ": "JWT", "kid": account.private_key_id}
    begin = int(now) - SKEW_SECONDS
    claims = {
        "iss": account.client_email,
        "sub": account.client_email,
        "aud": AUDIENCE,
        "iat": begin,
        "exp": begin + TOKEN_SECONDS,
    }
    signed = b".".join(_base64(msgspec.json.encode(part)) for part in (header, claims))
    return b".".join((signed, _base64(_private_key(account).sign(signed, PKCS1v15(), SHA256())))).decode()


def _base64(value: bytes) -> bytes:
    return urlsafe_b64encode(value).rstrip(b"=")


def refusal(reply: Reply, about: str) -> HarkenError:
    """What an error means. Google's own text is not repeated."""
    what = f"Pub/Sub answered {reply.status} for {about}"
    if reply.status == 401:
        return NeedsAttention(what, fix="Check the key of the service account, and that this machine's clock is right")
    if reply.status == 403:
        return NeedsAttention(
            what, fix="Give the service account Pub/Sub Subscriber or Publisher, and enable the Pub/Sub API"
        )
    if reply.status == 404:
        return NeedsAttention(what, fix=f"Check the name {about} and the project")
    if reply.status == 400:
        state = _status(reply)
        return NeedsAttention(f"{what} ({state})" if state else what, fix="Check that it is a pull subscription")
    try:
        raise_for(reply, about)
    except HarkenError as error:
        return error
    return RetryLater(f"{what}, which is a redirect", fix="Check endpoint")


def _status(reply: Reply) -> str:
    try:
        state = text_of(reply.json(), "error.status") or ""
    except RetryLater:
        return ""
    return state if state.isascii() and state.replace("_", "").isalpha() and len(state) < 60 else ""
