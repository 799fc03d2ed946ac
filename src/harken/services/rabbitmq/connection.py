"""A connection to a RabbitMQ server. It is never mended behind our back: a broken one is closed, and a new one made."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr, field_validator
from yarl import URL

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.extras import how_to_install
from harken.kit import AccountModel
from harken.kit.sockets import allowed_addresses
from harken.services.rabbitmq.frame_repair import MendedFrames

if TYPE_CHECKING:
    from aio_pika import Connection

__all__ = ["ANSWER_SECONDS", "RabbitAccount", "abort", "connected"]

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 10.0
"""How long a server that is there may take for an answer."""
CLOSE_SECONDS = 1.0
HEARTBEAT_SECONDS = 10
"""After twice this time of silence the server takes back what a frozen process of ours has in hand."""
PORTS = {"amqp": 5672, "amqps": 5671}


class RabbitAccount(AccountModel):
    """The server, as amqp:// or amqps:// with user, password and virtual host."""

    url: SecretStr = Field(description="amqp://user:password@host:5672/vhost; amqps:// for TLS")
    ca_bundle: str = Field("", description="path of certificates to trust, in place of those of the system")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr) -> SecretStr:
        try:
            parsed = URL(url.get_secret_value())
            good = parsed.scheme in PORTS and bool(parsed.host) and parsed.port != 0
        except ValueError:
            good = False
        if not good:
            raise ValueError("it is not amqp://host:5672/vhost or amqps://host:5671/vhost")
        return url


@asynccontextmanager
async def connected(account: RabbitAccount, what: str) -> AsyncIterator[Connection]:
    """A connection that is closed at the end; its errors come out in words. `what` is read or written on it."""
    try:
        import aio_pika
    except ImportError:
        raise NeedsAttention("the client for RabbitMQ is missing", fix=how_to_install("rabbitmq")) from None
    from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

    url = URL(account.url.get_secret_value())
    connection = aio_pika.Connection(url.with_query(heartbeat=str(HEARTBEAT_SECONDS), name="harken"))
    connection.kwargs["transport_factory"] = _dialler(account)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect()
        yield connection
    except (AMQPError, ChannelInvalidStateError, OSError, TimeoutError) as error:
        raise _in_words(error, _address(url), what) from error
    finally:
        await _close(connection)


def abort(connection: Connection) -> None:
    """Close the socket at once; the server takes back what is not acknowledged."""
    writer = connection.kwargs["transport_factory"].writer
    if writer is not None:
        writer.transport.abort()


def _dialler(account: RabbitAccount) -> Any:
    """What opens the sockets of the client, to checked addresses only."""
    from aiormq.connection import TransportFactory

    class GuardedDialler(TransportFactory):
        writer: asyncio.StreamWriter | None = None

        async def create(self, url: URL, **_: Any) -> tuple[Any, asyncio.StreamWriter]:
            host, port = url.host or "", url.port or PORTS[url.scheme]
            # brokers are in private networks, so these are allowed; link-local and metadata addresses never are
            targets = await asyncio.to_thread(allowed_addresses, host, port, allow_private=True)
            tls: dict[str, Any] = {}
            if url.scheme == "amqps":
                tls = {"ssl": _tls(account), "server_hostname": host}
            problem: OSError = OSError("no address")
            for target in targets:
                try:
                    reader, self.writer = await asyncio.open_connection(str(target[0]), port, **tls)
                    return MendedFrames(reader), self.writer
                except OSError as error:
                    problem = error
            raise problem

    return GuardedDialler()


def _tls(account: RabbitAccount) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=account.ca_bundle or None)
    except OSError:
        raise NeedsAttention("ca_bundle of RabbitMQ cannot be read", fix="Check the path") from None


async def _close(connection: Connection) -> None:
    from aio_pika.exceptions import AMQPError

    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.close()
    except (AMQPError, OSError, TimeoutError):
        pass  # it is broken or frozen: the socket is closed below
    finally:
        abort(connection)


def _in_words(error: Exception, where: str, what: str) -> HarkenError:
    from aio_pika import exceptions as pika
    from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource

    said = " ".join(str(part) for part in error.args)[:200]
    if isinstance(error, (pika.AuthenticationError, pika.ProbableAuthenticationError)):
        return NeedsAttention(f"RabbitMQ at {where} refused the user or password", fix="Correct url:")
    if isinstance(error, pika.ChannelNotFoundEntity):
        return NeedsAttention(f"RabbitMQ at {where} has no {what}", fix="Create it, or correct its name")
    if isinstance(error, ChannelAccessRefused):
        return NeedsAttention(f"this user of RabbitMQ at {where} may not use {what}", fix="Grant read or write on it")
    if isinstance(error, ChannelLockedResource):
        return RetryLater(f"{what} of RabbitMQ at {where} is used by another program alone")
    # the client does not pass on why the server closed the connection in place of opening the virtual host
    if "530" in said or (isinstance(error, pika.InvalidFrameError) and "Connection.OpenOk" in said):
        return NeedsAttention(f"RabbitMQ at {where} has no such virtual host for this user", fix="Correct url:")
    if isinstance(error, ssl.SSLError):
        return NeedsAttention(f"the certificate of RabbitMQ at {where} is not trusted", fix="Set ca_bundle:")
    if isinstance(error, TimeoutError):
        return RetryLater(f"RabbitMQ at {where} did not answer", reason="timeout")
    if isinstance(error, pika.AMQPChannelError):
        return RetryLater(f"RabbitMQ at {where} ended the use of {what}: {said}")
    if isinstance(error, (pika.ConnectionClosed, pika.ChannelInvalidStateError)):
        return RetryLater(f"RabbitMQ at {where} closed the connection")
    return RetryLater(f"RabbitMQ at {where} cannot be reached")


def _address(url: URL) -> str:
    """Host and port, without the password."""
    return f"{url.host}:{url.port or PORTS[url.scheme]}"
