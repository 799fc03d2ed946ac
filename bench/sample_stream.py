"""A stream with messages of about 400 bytes. Reading takes nothing away, so every round reads the same ones."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
from redis.asyncio import Redis

from bench.sample_event import sample

__all__ = ["PARTITIONS", "StreamFlow", "fill"]

PARTITIONS = 4
"""As many as the mock cluster gives to a topic."""
AT_ONCE = 1_000


class StreamFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Where the messages are, and how many; those of another stream only warm up."""

    system: Literal["redis", "kafka"]
    address: str
    messages: int
    warm: int
    batch: int
    stream: str = "orders"
    warm_stream: str = "warm"
    directory: str = ""


def fill(flow: StreamFlow) -> None:
    """Publish the messages of both streams."""
    publish = _to_redis if flow.system == "redis" else _to_kafka
    asyncio.run(publish(flow.address, flow.warm_stream, _bodies(flow.warm)))
    asyncio.run(publish(flow.address, flow.stream, _bodies(flow.messages)))


def _bodies(count: int) -> list[bytes]:
    return [msgspec.json.encode(sample(f"order-{number}", "x" * 200)) for number in range(count)]


async def _to_redis(address: str, stream: str, bodies: list[bytes]) -> None:
    async with Redis.from_url(address) as client:
        for start in range(0, len(bodies), AT_ONCE):
            async with client.pipeline(transaction=False) as pipeline:
                for body in bodies[start : start + AT_ONCE]:
                    pipeline.xadd(stream, {"data": body})
                await pipeline.execute()


async def _to_kafka(address: str, stream: str, bodies: list[bytes]) -> None:
    from aiokafka import AIOKafkaProducer

    # the mock cluster answers with one set of a partition at a time, a real one with up to a megabyte
    sets = {"linger_ms": 50, "max_batch_size": 500_000}
    async with AIOKafkaProducer(bootstrap_servers=address, acks="all", **sets) as producer:
        for number, body in enumerate(bodies):
            await producer.send(stream, body, partition=number % PARTITIONS)
