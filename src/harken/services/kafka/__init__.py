"""Kafka: a topic that is followed by offsets of our own, and messages that are published."""

from __future__ import annotations

from harken.services.kafka.account import KafkaAccount
from harken.services.kafka.publish import KafkaMessage, publish
from harken.services.kafka.stream import KafkaStream, KafkaStreamQuery
from harken.source import Act, Host, Plugin

__all__ = ["KafkaAccount", "KafkaStream", "KafkaStreamQuery", "plugin"]


def _stream(query: KafkaStreamQuery, account: KafkaAccount, host: Host) -> KafkaStream:
    return KafkaStream(query, account)


plugin = Plugin(
    kind="kafka",
    summary="Kafka topics, followed and published to",
    docs="reference/services/kafka.md",
    account=KafkaAccount,
    stream_query=KafkaStreamQuery,
    stream=_stream,
    actions={"publish": Act(params=KafkaMessage, run=publish)},
    identity="change",
    first="all",
    environment={"KAFKA_BROKERS": "brokers", "KAFKA_USERNAME": "username", "KAFKA_PASSWORD": "password"},
    extra=lambda query, account: "kafka",
)
