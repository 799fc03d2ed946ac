"""Where a message is by its name, compared with our position: for `harken explain`, and asking nobody."""

from __future__ import annotations

from typing import Any

import pytest

from harken.services.kafka.account import KafkaAccount
from harken.services.kafka.stream import KafkaStream, KafkaStreamQuery
from harken.services.nats.connection import NatsAccount
from harken.services.nats.stream import NatsQuery, NatsStream
from harken.source import PositionedSource

CREATED = "2026-11-17T18:00:00Z"
CREATED_MS = 1_794_938_400_000
TOPIC = {"topic": "id1", "generation": 0, "offsets": {"0": 40, "1": 7}}
STREAM = {"created": CREATED, "seq": 40}


def kafka(**settings: Any) -> KafkaStream:
    return KafkaStream(KafkaStreamQuery(topic="orders", **settings), KafkaAccount(brokers="127.0.0.1:9092"))


def nats(**settings: Any) -> NatsStream:
    return NatsStream(NatsQuery(stream="orders", **settings), NatsAccount(url="nats://127.0.0.1:4222"))


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("orders~id1/0@40", "ahead"),
        ("orders~id1/0@39", "behind"),
        ("orders~id1/1@7", "ahead"),
        ("orders~id1/2@0", "unknown"),
        ("orders~id2/0@39", "unknown"),
        ("orders/0@39", "unknown"),
        ("other~id1/0@39", "unknown"),
        ("orders~id1/0@" + "9" * 400, "unknown"),
        ("", "unknown"),
    ],
)
def test_a_message_of_kafka(key: str, place: str) -> None:
    assert isinstance(kafka(), PositionedSource)
    assert kafka().place_of(key, TOPIC) == place


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (f"orders@41-{CREATED_MS + 5}", "ahead"),
        (f"orders@40-{CREATED_MS + 5}", "behind"),
        (f"orders@40-{CREATED_MS - 5}", "unknown"),
        (f"other@40-{CREATED_MS + 5}", "unknown"),
        ("orders@40", "unknown"),
        ("@-", "unknown"),
    ],
)
def test_a_message_of_nats(key: str, place: str) -> None:
    assert isinstance(nats(), PositionedSource)
    assert nats().place_of(key, STREAM) == place


def test_before_the_first_read_and_with_names_of_their_own_nothing_is_known() -> None:
    assert kafka().place_of("orders~id1/0@39", None) == "unknown"
    assert kafka(id_field="id").place_of("orders~id1/0@39", TOPIC) == "unknown"
    assert nats().place_of(f"orders@40-{CREATED_MS + 5}", None) == "unknown"
    assert nats(id_field="id").place_of(f"orders@40-{CREATED_MS + 5}", STREAM) == "unknown"
