"""A stream with messages of about 400 bytes, published to each system in the way of its own client library.

Reading takes nothing away from a log, so every round reads the same messages; where an acknowledgement does, or where
the broker counts for its readers, each round has a stream of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import msgspec

from bench.sample_event import sample

__all__ = ["AWS", "PARTITIONS", "TITLES", "StreamFlow", "System", "bodies", "fill", "mqtt_client", "mqtt_connect"]

System = Literal["redis", "kafka", "nats", "rabbitmq", "sqs", "mqtt", "sse", "websocket", "pubsub"]
TITLES: dict[System, str] = {
    "redis": "Redis Streams",
    "kafka": "Kafka",
    "nats": "NATS JetStream",
    "rabbitmq": "RabbitMQ",
    "sqs": "SQS",
    "mqtt": "MQTT",
    "sse": "Server-sent events",
    "websocket": "WebSocket",
    "pubsub": "Pub/Sub",
}
PARTITIONS = 4
"""As many as the mock cluster gives to a topic."""
AT_ONCE = 1_000
AWS = {"access_key_id": "test", "secret_access_key": "test", "region": "eu-central-1"}


class StreamFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Where the messages are, and how many; those of another stream only warm up."""

    system: System
    address: str
    messages: int
    warm: int
    batch: int
    stream: str = "orders"
    warm_stream: str = "warm"
    directory: str = ""


def bodies(count: int) -> list[bytes]:
    return [msgspec.json.encode(sample(f"order-{number}", "x" * 200)) for number in range(count)]


Publish = Callable[[str, str, list[bytes]], Awaitable[None]]


def fill(flow: StreamFlow) -> None:
    """Publish the messages of both streams, to a broker that is not in a process of ours."""
    publish = _PUBLISH[flow.system]
    for stream, count in ((flow.warm_stream, flow.warm), (flow.stream, flow.messages)):
        asyncio.run(_run(publish, flow.address, stream, bodies(count)))


async def _run(publish: Publish, address: str, stream: str, messages: list[bytes]) -> None:
    await publish(address, stream, messages)


def _parts(messages: list[bytes], size: int) -> list[list[bytes]]:
    return [messages[start : start + size] for start in range(0, len(messages), size)]


async def _to_redis(address: str, stream: str, messages: list[bytes]) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(address) as client:
        for part in _parts(messages, AT_ONCE):
            async with client.pipeline(transaction=False) as pipeline:
                for body in part:
                    pipeline.xadd(stream, {"data": body})
                await pipeline.execute()


async def _to_kafka(address: str, stream: str, messages: list[bytes]) -> None:
    from aiokafka import AIOKafkaProducer

    # the mock cluster answers with one set of a partition at a time, a real one with up to a megabyte
    sets = {"linger_ms": 50, "max_batch_size": 500_000}
    async with AIOKafkaProducer(bootstrap_servers=address, acks="all", **sets) as producer:
        for number, body in enumerate(messages):
            await producer.send(stream, body, partition=number % PARTITIONS)


async def _to_nats(address: str, stream: str, messages: list[bytes]) -> None:
    import nats

    client = await nats.connect(address)
    js = client.jetstream(publish_async_max_pending=AT_ONCE)
    await js.add_stream(name=stream, subjects=[stream])
    for part in _parts(messages, AT_ONCE):
        await asyncio.gather(*[await js.publish_async(stream, body) for body in part])
    await client.close()


async def _to_rabbitmq(address: str, stream: str, messages: list[bytes]) -> None:
    from aio_pika import DeliveryMode, Message, connect

    async with await connect(address) as connection:
        channel = await connection.channel()
        # a durable queue with messages on the disk, as what matters is sent
        queue = await channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "classic"})
        persistent = partial(Message, delivery_mode=DeliveryMode.PERSISTENT)
        for number, part in enumerate(_parts(messages, AT_ONCE)):
            sent = [
                channel.default_exchange.publish(persistent(body, message_id=f"{number}-{at}"), queue.name)
                for at, body in enumerate(part)
            ]
            await asyncio.gather(*sent)


async def _to_sqs(address: str, stream: str, messages: list[bytes]) -> None:
    import boto3

    keys = {"aws_access_key_id": AWS["access_key_id"], "aws_secret_access_key": AWS["secret_access_key"]}
    client = boto3.client("sqs", endpoint_url=address, region_name=AWS["region"], **keys)
    url = client.create_queue(QueueName=stream)["QueueUrl"]
    for part in _parts(messages, 10):
        entries = [{"Id": str(number), "MessageBody": body.decode()} for number, body in enumerate(part)]
        client.send_message_batch(QueueUrl=url, Entries=entries)


async def _to_mqtt(address: str, stream: str, messages: list[bytes]) -> None:
    """The session of a reader, who is away while messages are published. Its client id is the name of the topic."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    kept.SessionExpiryInterval = 86_400
    reader, subscribed = mqtt_client(stream), threading.Event()
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.on_connect = lambda client, *_: client.subscribe(stream, qos=1)
    mqtt_connect(reader, address, clean_start=False, properties=kept)
    subscribed.wait(60)
    reader.disconnect()
    reader.loop_stop()
    sender = mqtt_client("")
    sender.max_queued_messages_set(0)
    sender.max_inflight_messages_set(AT_ONCE)
    mqtt_connect(sender, address)
    for sent in [sender.publish(stream, body, qos=1) for body in messages]:
        sent.wait_for_publish(60)
    sender.disconnect()
    sender.loop_stop()


def mqtt_client(client_id: str) -> Any:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    return Client(
        CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True
    )


def mqtt_connect(client: Any, address: str, **options: Any) -> None:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address)
    client.username_pw_set(parts.username, unquote(parts.password or ""))
    client.connect(parts.hostname, parts.port, **options)
    client.loop_start()


_PUBLISH: dict[System, Publish] = {
    "redis": _to_redis,
    "kafka": _to_kafka,
    "nats": _to_nats,
    "rabbitmq": _to_rabbitmq,
    "sqs": _to_sqs,
    "mqtt": _to_mqtt,
}
