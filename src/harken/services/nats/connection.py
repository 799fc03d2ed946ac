"""A connection to a NATS server: addresses are checked, credentials are sent only to whom they are meant for."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.extras import how_to_install
from harken.kit import AccountModel
from harken.kit.sockets import allowed_addresses

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["ANSWER_SECONDS", "NatsAccount", "connected"]

CONNECT_SECONDS = 5
ANSWER_SECONDS = 5.0
"""How long a server that is there may take for an answer."""
CLOSE_SECONDS = 1.0
PORT = 4222


class NatsAccount(AccountModel):
    """The server, or several of one cluster separated by commas, with user and password or a token."""

    url: SecretStr = Field(
        description="nats://user:password@host:4222, or nats://token@host:4222; tls:// insists on TLS"
    )
    credentials: SecretStr = Field(SecretStr(""), description="the content of a .creds file (a JWT and its key)")
    ca_bundle: str = Field("", description="path of certificates to trust, in place of those of the system")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr) -> SecretStr:
        try:
            parts = [urlsplit(one.strip()) for one in url.get_secret_value().split(",")]
            good = all(part.scheme in ("nats", "tls") and part.hostname and part.port != 0 for part in parts)
        except ValueError:
            good = False
        if not good:
            raise ValueError("it is not nats://host:4222 or tls://host:4222")
        return url


@asynccontextmanager
async def connected(account: NatsAccount, what: str) -> AsyncIterator[Client]:
    """A connection that is closed at the end; its errors come out in words. `what` is read or written on it."""
    from nats.errors import Error

    servers = [urlsplit(url.strip()) for url in account.url.get_secret_value().split(",")]
    complaints: list[Exception] = []
    where = ", ".join(map(_address, servers))
    try:
        client = await _connect_to_one(account, servers, complaints)
        try:
            yield client
        finally:
            await _close(client)
    except (Error, OSError, ValueError, TimeoutError) as error:
        raise _in_words([*complaints, error], where, what) from error


async def _connect_to_one(account: NatsAccount, servers: list[SplitResult], complaints: list[Exception]) -> Client:
    from nats.errors import Error

    for last, server in reversed(list(enumerate(reversed(servers)))):
        try:
            return await _connect(account, server, complaints)
        except (Error, OSError, TimeoutError):
            if not last:
                raise
    raise AssertionError("there is at least one server")


async def _connect(account: NatsAccount, server: SplitResult, complaints: list[Exception]) -> Client:
    host, port = server.hostname or "", server.port or PORT
    # brokers are in private networks, so these are allowed; link-local and metadata addresses never are
    targets = await asyncio.to_thread(allowed_addresses, host, port, allow_private=True)
    client = _new_client()
    options = {"tls": _tls(account), "tls_hostname": host, **_sign_in(account, server, client)}

    async def complain(error: Exception) -> None:
        complaints.append(error)
        del complaints[:-5]

    try:
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            await client.connect(
                [_literal(str(target[0]), port) for target in targets],
                error_cb=complain,
                # its own way back would hide from us that it was away
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=10,
                name="harken",
                **options,
            )
    except BaseException:
        await _close(client)
        raise
    return client


def _new_client() -> Client:
    try:
        from nats.aio.client import Client
    except ImportError:
        raise NeedsAttention("the client for NATS is missing", fix=how_to_install("nats")) from None

    class TolerantClient(Client):
        """One that survives messages whose subject or headers are not text: anybody may have sent them."""

        async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
            try:
                return await super()._process_headers(headers)
            except (ValueError, IndexError):
                return None

        def _build_message(self, sid: int, subject: bytes, *rest: Any) -> Any:
            return super()._build_message(sid, bytes(subject).decode(errors="replace").encode(), *rest)

    return TolerantClient()


def _sign_in(account: NatsAccount, server: SplitResult, client: Client) -> dict[str, Any]:
    """What the client asks for when it signs in. A server that says it has no TLS gets nothing if TLS is wanted."""
    from nats.errors import SecureConnWantedError

    def secret(text: str | None) -> Any:
        def give() -> str:
            if server.scheme == "tls" and not client._server_info.get("tls_required"):
                raise SecureConnWantedError
            return unquote(text or "")

        return give

    if credentials := account.credentials.get_secret_value():
        jwt, seed = _parse_credentials(credentials)
        give_jwt = secret(jwt)
        return {"user_jwt_cb": lambda: bytearray(give_jwt().encode()), "signature_cb": lambda nonce: _sign(seed, nonce)}
    if server.password is not None:
        return {"user": secret(server.username), "password": secret(server.password)}
    # without a token too, so that an unencrypted connection is noticed
    return {"token": secret(server.username)} if server.username or server.scheme == "tls" else {}


def _parse_credentials(text: str) -> tuple[str, bytes]:
    """The JWT and the private key of a .creds file."""
    found = re.findall(r"-+BEGIN [^-\n]+-+\s+(\S+)\s+-+END [^-\n]+-+", text)
    problem = NeedsAttention("the credentials of NATS are not a .creds file", fix="Give its whole content")
    if len(found) < 2:
        raise problem
    try:
        # two bytes of type before the key, two of checksum after it
        decoded = base64.b32decode(found[1] + "=" * (-len(found[1]) % 8))
    except ValueError:
        raise problem from None
    if len(decoded) != 36:
        raise problem
    return found[0], decoded[2:34]


def _sign(seed: bytes, nonce: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return base64.b64encode(Ed25519PrivateKey.from_private_bytes(seed).sign(nonce.encode()))


def _tls(account: NatsAccount) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=account.ca_bundle or None)
    except OSError:
        raise NeedsAttention("ca_bundle of NATS cannot be read", fix="Check the path") from None


async def _close(client: Client) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()
    except (OSError, TimeoutError):
        return  # it does not answer any more: the socket ends with the client


def _in_words(errors: list[Exception], where: str, what: str) -> HarkenError:
    from nats import errors as nats
    from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

    error, texts = errors[-1], [str(one).lower() for one in errors]
    if any("authorization violation" in text or "authentication" in text for text in texts):
        return NeedsAttention(f"NATS at {where} refused the user or token", fix="Correct url: or credentials:")
    if any("permissions violation" in text for text in texts):
        fix = "Allow $JS.API.STREAM.INFO, $JS.API.CONSUMER.>, $JS.ACK.> and _INBOX.>, to publish its subject"
        return NeedsAttention(f"this user of NATS at {where} may not use {what}", fix=fix)
    if any(isinstance(one, nats.SecureConnWantedError) for one in errors):
        return NeedsAttention(f"NATS at {where} has no TLS", fix="Turn it on there, or write nats:// in url:")
    if any(isinstance(one, ssl.SSLError) for one in errors):
        return NeedsAttention(f"the certificate of NATS at {where} is not trusted", fix="Set ca_bundle:")
    if isinstance(error, ServiceUnavailableError):
        return RetryLater(f"JetStream of NATS at {where} is not available")
    if isinstance(error, NotFoundError):
        return NeedsAttention(f"NATS at {where} has no {what}", fix="Create it, or correct its name")
    if isinstance(error, APIError):
        reason = f"NATS at {where} refused {what}: {(error.description or 'no reason given')[:200]}"
        return RetryLater(reason) if (error.code or 0) >= 500 else NeedsAttention(reason, fix="Correct it")
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return NeedsAttention(f"NATS does not take {what}: {error}", fix="Correct the names in it")
    if isinstance(error, TimeoutError):
        return RetryLater(f"NATS at {where} did not answer", reason="timeout")
    if isinstance(error, (nats.ConnectionClosedError, nats.NoRespondersError)):
        return RetryLater(f"NATS at {where} closed the connection")
    return RetryLater(f"NATS at {where} cannot be reached")


def _address(server: SplitResult) -> str:
    """Host and port, without the password."""
    return f"{server.hostname}:{server.port or PORT}"


def _literal(address: str, port: int) -> str:
    return f"nats://[{address}]:{port}" if ":" in address else f"nats://{address}:{port}"
