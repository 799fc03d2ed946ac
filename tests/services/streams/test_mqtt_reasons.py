"""What a broker's reason codes mean to a person. Mosquitto's own lists of rights never refuse a subscription."""

from __future__ import annotations

import socket
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from harken.errors import HarkenError, NeedsAttention, NoConnection, RetryLater
from harken.services.mqtt.connection import Connection, Ended, Server

SERVER = Server.at("mqtts://user:s3cret@broker.example")


def answering(reason: int) -> Connection:
    """A connection whose broker answers every subscription with this code."""
    connection = Connection(SERVER, allow_private=False)
    reasons = [SimpleNamespace(value=reason)]

    def subscribe(topics: Any) -> None:
        connection._on_reasons(None, None, 1, reasons, None)

    connection._client = SimpleNamespace(subscribe=subscribe)
    return connection


async def test_a_granted_subscription_is_no_error() -> None:
    await answering(1).subscribe(["orders/#"], retained=True)


@pytest.mark.parametrize(("reason", "error"), [(135, NeedsAttention), (143, NeedsAttention), (151, RetryLater)])
async def test_a_refused_subscription_names_the_topic(reason: int, error: type[HarkenError]) -> None:
    with pytest.raises(error, match="orders/#"):
        await answering(reason).subscribe(["orders/#"], retained=True)


@pytest.mark.parametrize(
    ("reason", "error", "words"),
    [
        (134, NeedsAttention, "user or password"),
        (135, NeedsAttention, "user or password"),
        (132, NeedsAttention, "MQTT 5"),
        (133, NeedsAttention, "client id"),
        (137, RetryLater, "does not take us now"),
    ],
)
async def test_a_refused_connection_says_why(reason: int, error: type[HarkenError], words: str) -> None:
    refused = Connection(SERVER, allow_private=False)._refusal(reason)
    assert isinstance(refused, error)
    assert words in refused.message
    assert "s3cret" not in str(refused)


@pytest.mark.parametrize(
    ("ended", "error", "words"),
    [
        (Ended(None), RetryLater, "closed the connection"),
        (Ended(None, 142), RetryLater, "uses our client id"),
        (Ended(TimeoutError()), RetryLater, "did not answer"),
        (Ended(ConnectionRefusedError(111, "refused")), NoConnection, "cannot be reached"),
        (Ended(socket.gaierror(socket.EAI_AGAIN, "again")), NoConnection, "cannot be reached"),
        (Ended(ssl.SSLError("wrong version")), RetryLater, "TLS"),
        (Ended(KeyError("s3cret")), RetryLater, "KeyError"),
    ],
)
async def test_a_connection_that_ended_says_why(ended: Ended, error: type[HarkenError], words: str) -> None:
    said = Connection(SERVER, allow_private=False).in_words(ended)
    assert isinstance(said, error)
    assert words in said.message
    assert "broker.example:8883" in said.message
    assert "s3cret" not in str(said)
