"""RabbitMQ: queues are consumed, and exchanges published to."""

from __future__ import annotations

from harken.services.rabbitmq.connection import RabbitAccount
from harken.services.rabbitmq.publish import Publication, publish
from harken.services.rabbitmq.stream import RabbitQuery, RabbitStream
from harken.source import Act, Host, Plugin

__all__ = ["RabbitAccount", "RabbitQuery", "RabbitStream", "plugin"]


def _stream(query: RabbitQuery, account: RabbitAccount, host: Host) -> RabbitStream:
    return RabbitStream(query, account)


plugin = Plugin(
    kind="rabbitmq",
    summary="RabbitMQ queues, followed and published to",
    docs="reference/services/rabbitmq.md",
    account=RabbitAccount,
    stream_query=RabbitQuery,
    stream=_stream,
    actions={"publish": Act(params=Publication, run=publish)},
    identity="change",
    first="all",
    environment={"RABBITMQ_URL": "url"},
    extra=lambda query, account: "rabbitmq",
)
