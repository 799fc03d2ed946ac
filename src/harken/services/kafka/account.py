"""How Kafka is reached: its brokers, TLS and SASL, and what went wrong in words."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, Misconfigured, NeedsAttention, RetryLater
from harken.extras import how_to_install
from harken.kit import AccountModel
from harken.task_cancellation import cancel_and_wait

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = ["TOPIC_NAME", "KafkaAccount", "close", "in_words", "load_driver", "settings", "why_unreachable"]

TOPIC_NAME = r"^[a-zA-Z0-9._-]{1,249}\z"
"""What Kafka allows as the name of a topic."""

ANSWER_SECONDS = 10.0
"""How long a broker may take to answer one request."""
CLOSE_SECONDS = 0.7
"""A connection that is not closed by then, because the broker is frozen, is dropped."""


class KafkaAccount(AccountModel):
    """The brokers to ask first; they name the others."""

    brokers: str = Field(min_length=1, description="host:9092, several with commas between them")
    username: str = Field("", description="user for SASL; empty without it")
    password: SecretStr = Field(SecretStr(""), description="password for SASL")
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field("PLAIN", description="how the user signs in")
    tls: bool | None = Field(None, description="encrypted; by default when there is a username or a certificate")
    ca_bundle: str = Field("", description="certificates to trust, if your own authority signs the brokers'")
    certificate: str = Field("", description="file of our certificate, for brokers that ask for one")
    certificate_key: str = Field("", description="file of its key, unless it is in the same file")

    @field_validator("brokers")
    @classmethod
    def _are_addresses(cls, value: str) -> str:
        for address in value.split(","):
            parts = urlsplit(f"//{address.strip()}")
            # the port is read to see whether it is one
            if not parts.hostname or parts.username or parts.path or parts.port == 0:
                raise ValueError("brokers is host:port, several with commas between them")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.username) != bool(self.password.get_secret_value()):
            raise ValueError("username and password belong together: write both or none")
        if self.certificate_key and not self.certificate:
            raise ValueError("certificate_key needs certificate")
        if self.tls is False and self.certificate:
            raise ValueError("a certificate is of no use with tls: false")
        return self

    @property
    def encrypted(self) -> bool:
        return bool(self.username or self.certificate) if self.tls is None else self.tls


def load_driver() -> None:
    """Import the client library, or say how to install it."""
    try:
        import aiokafka  # noqa: F401
    except ImportError:
        raise NeedsAttention("the driver for Kafka is missing", fix=how_to_install("kafka")) from None
    # it logs each of its tries, ten a second while a broker is away; our errors say it once
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def settings(account: KafkaAccount) -> dict[str, Any]:
    """The arguments of every client of aiokafka."""
    protocol = ("SASL_" if account.username else "") + ("SSL" if account.encrypted else "PLAINTEXT")
    return {
        "bootstrap_servers": account.brokers,
        "client_id": "harken",
        "request_timeout_ms": int(ANSWER_SECONDS * 1_000),
        "security_protocol": protocol,
        "ssl_context": _tls(account) if account.encrypted else None,
        "sasl_mechanism": account.sasl,
        "sasl_plain_username": account.username or None,
        "sasl_plain_password": account.password.get_secret_value() or None,
    }


def _tls(account: KafkaAccount) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=account.ca_bundle or None)
        if account.certificate:
            context.load_cert_chain(account.certificate, account.certificate_key or None)
    except (OSError, ValueError):
        fix = "Check the paths in ca_bundle, certificate and certificate_key"
        raise Misconfigured("the certificates of this Kafka account cannot be read", fix=fix) from None
    return context


async def why_unreachable(account: KafkaAccount) -> Exception:
    """Connect once more, as the client only logs why none of the brokers could be asked."""
    from aiokafka.conn import collect_hosts, create_conn
    from aiokafka.errors import KafkaConnectionError, KafkaError

    options = settings(account)
    last: Exception = KafkaConnectionError()
    for host, port, _ in collect_hosts(options.pop("bootstrap_servers")):
        try:
            connection = await create_conn(host, port, **options)
        except (KafkaError, OSError, TimeoutError) as error:
            last = error
        else:
            connection.close()
    return last


async def close(stop: Callable[[], Coroutine[Any, Any, None]], client: AIOKafkaClient) -> None:
    """Close a consumer or producer within a second or two, whether or not the broker answers.

    Each is closed in a task of its own: when a request of aiokafka is cancelled at a bad moment, it passes the
    cancellation on to whoever closes it, and leaves its connections open.
    """
    for closing in (stop, client.close):
        task = asyncio.ensure_future(closing())
        try:
            await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        finally:
            await cancel_and_wait([task])
        if not task.cancelled():
            # its connection is gone either way; reading the error keeps asyncio from reporting it
            task.exception()


def in_words(error: Exception, account: KafkaAccount, topic: str) -> HarkenError:
    """What a person reads, without anything that the broker or the library wrote."""
    from aiokafka import errors

    where = f"Kafka at {account.brokers}"
    match error:
        case HarkenError():
            return error
        case errors.SaslAuthenticationFailed() | errors.IllegalSaslStateError():
            return NeedsAttention(f"{where} refused the user or password", fix="Correct username: and password:")
        case errors.UnsupportedSaslMechanismError():
            return NeedsAttention(
                f"{where} does not let users sign in with {account.sasl}", fix="Name another in sasl:"
            )
        case errors.TopicAuthorizationFailedError() | errors.ClusterAuthorizationFailedError():
            fix = "Grant Describe, and Read or Write, on the topic"
            return NeedsAttention(f"this user of {where} may not use the topic {topic}", fix=fix)
        case errors.UnknownTopicOrPartitionError() | errors.InvalidTopicError():
            return NeedsAttention(f"{where} has no topic {topic}", fix="Create it, or correct topic:")
        case errors.UnsupportedCodecError():
            fix = how_to_install("kafka")
            return NeedsAttention(f"messages of {topic} are compressed in a way that this process cannot read", fix=fix)
        case errors.RecordTooLargeError() | errors.MessageSizeTooLargeError():
            return NeedsAttention(f"a message of {topic} is larger than {where} allows", fix="Send a smaller one")
        case errors.CorruptRecordException():
            return RetryLater(f"a message of {topic} arrived damaged from {where}")
        case ssl.SSLCertVerificationError():
            fix = "If your own authority signed it, set ca_bundle to that authority's certificates"
            return NeedsAttention(f"the certificate of {where} is not trusted ({error.verify_message})", fix=fix)
        case ssl.SSLError():
            return NeedsAttention(f"{where} does not speak TLS with us", fix="Correct tls: and the port in brokers:")
        case errors.KafkaTimeoutError() | errors.RequestTimedOutError() | TimeoutError():
            return RetryLater(f"{where} did not answer", reason="timeout")
        case errors.KafkaConnectionError() | ConnectionResetError():
            return RetryLater(f"{where} closed the connection; if it always does, check tls: and the port in brokers:")
        case errors.NodeNotReadyError() | OSError():
            return RetryLater(f"{where} cannot be reached")
        case errors.IncompatibleBrokerVersion() | NotImplementedError():
            return NeedsAttention(f"{where} is too old for this client", fix="Kafka 0.11 or newer is needed")
        case _:
            return RetryLater(f"{where} answered with an error ({type(error).__name__})")
