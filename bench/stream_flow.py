"""One round of the stream flow: from a broker's messages to settled runs that did nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

from pydantic import SecretStr

from bench.engine import answer, definitions, engine
from bench.sample_pages import Used, reached
from bench.sample_stream import AWS, StreamFlow, System
from harken.clock import SystemClock
from harken.feed import Feed
from harken.http import Client
from harken.source import Batch, Cursor, Host, StreamSource

__all__ = ["flow"]


class Clocked:
    """The source, and when it was opened: what comes before, such as the lease, is not measured."""

    def __init__(self, source: StreamSource) -> None:
        self.silence_seconds = source.silence_seconds
        self._source = source
        self.began = self.used = 0.0

    def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        self.began, self.used = time.perf_counter(), time.process_time()
        return self._source.stream(cursor)


async def flow(asked: StreamFlow) -> Used:
    """Follow a short stream to warm up, and then the one that counts, each into a store of its own."""
    await _follow(asked, asked.warm_stream, asked.warm)
    return await _follow(asked, asked.stream, asked.messages)


async def _follow(asked: StreamFlow, stream: str, count: int) -> Used:
    feed = Feed(
        name=stream, kind=asked.system, integration="bench", way="stream", identity="change", first="all", lookback=0.0
    )
    client = Client(SystemClock())
    host = Host(http=client, clock=SystemClock(), random=Random(7), allow_private=True, feed=stream)
    source = Clocked(_SOURCES[asked.system](asked, stream, host))
    async with engine(Path(asked.directory) / f"{stream}.db", lambda _: source) as running:
        await running.intake.start(definitions([feed]))
        await reached(lambda: running.worker.done, count)
        used = Used(seconds=time.perf_counter() - source.began, cpu=time.process_time() - source.used)
    await client.close()
    return used


def _redis(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.redis import RedisAccount, RedisStream, RedisStreamQuery

    query = RedisStreamQuery(stream=stream, start="all", batch=asked.batch)
    return RedisStream(query, RedisAccount(url=SecretStr(asked.address)))


def _kafka(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.kafka import KafkaAccount, KafkaStream, KafkaStreamQuery

    topic = KafkaStreamQuery(topic=stream, start="all", batch=asked.batch)
    return KafkaStream(topic, KafkaAccount(brokers=asked.address))


def _nats(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.nats import NatsAccount, NatsQuery, NatsStream

    query = NatsQuery(stream=stream, start="all", batch=asked.batch)
    return NatsStream(query, NatsAccount(url=SecretStr(asked.address)), stream)


def _rabbitmq(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.rabbitmq import RabbitAccount, RabbitQuery, RabbitStream

    return RabbitStream(RabbitQuery(queue=stream, batch=asked.batch), RabbitAccount(url=SecretStr(asked.address)))


def _sqs(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.aws.api import AwsAccount
    from harken.services.aws.sqs import SqsQuery, SqsStream

    account = AwsAccount.model_validate({**AWS, "endpoint": asked.address})
    return SqsStream(SqsQuery(queue=stream, batch=asked.batch), account, host)


def _mqtt(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.mqtt import MqttAccount, MqttQuery, MqttStream

    query = MqttQuery(topics=[stream], client_id=stream, batch=asked.batch)
    return MqttStream(query, MqttAccount(url=SecretStr(asked.address)), host)


def _sse(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.sse import EventStream, SseQuery

    return EventStream(SseQuery(url=f"{asked.address}/sse/{stream}", batch=asked.batch), host)


def _websocket(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.websocket import WebSocketQuery, WebSocketStream

    return WebSocketStream(WebSocketQuery(url=f"{asked.address}/ws/{stream}", batch=asked.batch), host)


def _pubsub(asked: StreamFlow, stream: str, host: Host) -> Any:
    from harken.services.pubsub import PubSubAccount, PubSubQuery, PubSubStream

    account = PubSubAccount(endpoint=asked.address, project="harken-test")
    return PubSubStream(PubSubQuery(subscription=stream, batch=asked.batch), account, host)


_SOURCES: dict[System, Callable[[StreamFlow, str, Host], Any]] = {
    "redis": _redis,
    "kafka": _kafka,
    "nats": _nats,
    "rabbitmq": _rabbitmq,
    "sqs": _sqs,
    "mqtt": _mqtt,
    "sse": _sse,
    "websocket": _websocket,
    "pubsub": _pubsub,
}


if __name__ == "__main__":
    answer(StreamFlow, flow)
