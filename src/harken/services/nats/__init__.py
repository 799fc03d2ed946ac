"""NATS JetStream: streams are followed by a durable consumer, and published to."""

from __future__ import annotations

from harken.services.nats.connection import NatsAccount
from harken.services.nats.publish import Publication, publish
from harken.services.nats.stream import NatsQuery, NatsStream
from harken.source import Act, Host, Plugin

__all__ = ["NatsAccount", "NatsQuery", "NatsStream", "plugin"]


def _stream(query: NatsQuery, account: NatsAccount, host: Host) -> NatsStream:
    return NatsStream(query, account, host.feed)


plugin = Plugin(
    kind="nats",
    summary="NATS JetStream, followed and published to",
    docs="reference/services/nats.md",
    account=NatsAccount,
    stream_query=NatsQuery,
    stream=_stream,
    actions={"publish": Act(params=Publication, run=publish)},
    identity="change",
    first="all",
    environment={"NATS_URL": "url"},
    extra=lambda query, account: "nats",
)
