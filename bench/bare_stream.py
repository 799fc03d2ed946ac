"""The limit of the stream flow: the bare client library reads the same batches, bare group commit writes their rows.

The next batch is asked for, and the last one acknowledged, when that is on the disk, as Harken does; runs are settled
meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.bare_commit import Group, Settling, page_statements
from bench.engine import answer
from bench.sample_pages import Used, reached
from bench.sample_stream import AWS, PARTITIONS, StreamFlow, System, mqtt_client, mqtt_connect
from harken.backends.run_states_ids_and_reasons import DONE
from harken.backends.sqlite.connection import connect, migrate
from harken.event import Event

__all__ = ["bare"]

Named = list[tuple[str, bytes]]
Batches = AsyncGenerator[Named, None]
IN_FLIGHT = 1_000


async def bare(asked: StreamFlow) -> Used:
    """Read a short stream to warm up, and then the one that counts, each into a file of its own."""
    await _read(asked, asked.warm_stream, asked.warm)
    return await _read(asked, asked.stream, asked.messages)


async def _read(asked: StreamFlow, stream: str, count: int) -> Used:
    connection = connect(Path(asked.directory) / f"{stream}.db")
    migrate(connection)
    group = Group(connection)
    settling = Settling(group)
    began, used = time.perf_counter(), time.process_time()
    async with aclosing(_READ[asked.system](asked, stream)) as batches:
        written = 0
        while written < count:
            page = [_event(name, body) for name, body in await anext(batches)]
            writes, ends = page_statements(1, page, list(range(written + 1, written + len(page) + 1)), last=True)
            await group.submit(writes)
            settling.add(ends)
            written += len(page)
        await reached(lambda: settling.done, count)
        result = Used(seconds=time.perf_counter() - began, cpu=time.process_time() - used)
    group.stop()
    settled = connection.execute("SELECT count(*) FROM runs WHERE state=?", (DONE,)).fetchone()
    connection.close()
    if settled != (count,):
        raise RuntimeError(f"the statements have changed: {settled} of {count} runs are settled")
    return result


def _event(name: str, body: bytes) -> Event:
    return Event(subject=name, key=name, type="bench.item", data={}, raw=body, occurred_at=datetime.now(UTC))


async def _from_redis(asked: StreamFlow, stream: str) -> Batches:
    from redis.asyncio import Redis

    async with Redis.from_url(asked.address) as client:
        last: Any = "0-0"
        while True:
            found: Any = await client.xread({stream: last}, count=asked.batch)
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            last = entries[-1][0]
            yield [(f"{stream}@{id.decode()}", fields[b"data"]) for id, fields in entries]


async def _from_kafka(asked: StreamFlow, stream: str) -> Batches:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=asked.address, enable_auto_commit=False, isolation_level="read_committed"
    )
    async with consumer:
        partitions = [TopicPartition(stream, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        while True:
            found = await consumer.getmany(timeout_ms=1_000, max_records=asked.batch)
            if found:
                yield [(f"{stream}/{each.partition}@{each.offset}", each.value) for of in found.values() for each in of]


async def _from_nats(asked: StreamFlow, stream: str) -> Batches:
    import nats
    from nats.js.api import ConsumerConfig

    client = await nats.connect(asked.address)
    config = ConsumerConfig(max_ack_pending=IN_FLIGHT)
    pulled = await client.jetstream().pull_subscribe(stream, durable="bare", config=config)
    try:
        while True:
            messages = await pulled.fetch(asked.batch)
            yield [(f"{stream}@{one.metadata.sequence.stream}", one.data) for one in messages]
            for one in messages[:-1]:
                await one.ack()
            # `ack` does not wait; the answer to the last one is that to all
            await messages[-1].ack_sync()
    finally:
        await client.close()


async def _from_rabbitmq(asked: StreamFlow, stream: str) -> Batches:
    import aio_pika

    async with await aio_pika.connect(asked.address) as connection:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=IN_FLIGHT)
        queue = await channel.declare_queue(stream, passive=True)
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(arrived.put)
        while True:
            messages = await _take(arrived, asked.batch)
            yield [(f"{stream}@{one.message_id}", one.body) for one in messages]
            await messages[-1].ack(multiple=True)


async def _from_sqs(asked: StreamFlow, stream: str) -> Batches:
    """Amazon's client waits in threads. A request gets ten messages at most, so there are several at once."""
    import boto3

    keys = {"aws_access_key_id": AWS["access_key_id"], "aws_secret_access_key": AWS["secret_access_key"]}
    client = boto3.client("sqs", endpoint_url=asked.address, region_name=AWS["region"], **keys)
    url = client.get_queue_url(QueueName=stream)["QueueUrl"]

    def receive() -> list[Any]:
        return list(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", []))

    def delete(messages: list[Any]) -> None:
        entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(messages)]
        client.delete_message_batch(QueueUrl=url, Entries=entries)

    while True:
        found = await asyncio.gather(*(asyncio.to_thread(receive) for _ in range(max(1, asked.batch // 10))))
        received = [messages for messages in found if messages]
        if received:
            yield [(f"{stream}@{one['MessageId']}", one["Body"].encode()) for part in received for one in part]
            await asyncio.gather(*(asyncio.to_thread(delete, part) for part in received))


async def _from_mqtt(asked: StreamFlow, stream: str) -> Batches:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    arrived: asyncio.Queue[Any] = asyncio.Queue()
    loop, client = asyncio.get_running_loop(), mqtt_client(stream)
    client.on_message = lambda client, data, message: loop.call_soon_threadsafe(arrived.put_nowait, message)
    kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    kept.SessionExpiryInterval, kept.ReceiveMaximum = 86_400, IN_FLIGHT
    mqtt_connect(client, asked.address, clean_start=False, properties=kept)
    count = 0
    try:
        while True:
            messages = await _take(arrived, asked.batch)
            yield [(f"{one.topic}@{count + at}", one.payload) for at, one in enumerate(messages)]
            count += len(messages)
            for one in messages:
                client.ack(one.mid, one.qos)
    finally:
        client.disconnect()
        client.loop_stop()


async def _from_sse(asked: StreamFlow, stream: str) -> Batches:
    from aiohttp import ClientSession

    async with ClientSession() as session, session.get(f"{asked.address}/sse/{stream}") as response:
        rest, found = b"", []
        async for chunk in response.content.iter_any():
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                id, _, data = event.partition(b"\n")
                found.append((f"{stream}@{id[4:].decode()}", data[6:]))
            for first in range(0, len(found), asked.batch):
                yield found[first : first + asked.batch]
            found = []


async def _from_websocket(asked: StreamFlow, stream: str) -> Batches:
    from aiohttp import ClientSession

    arrived: asyncio.Queue[Any] = asyncio.Queue(IN_FLIGHT)
    async with ClientSession() as session, session.ws_connect(f"{asked.address}/ws/{stream}") as socket:

        async def receive() -> None:
            async for message in socket:
                await arrived.put(message.data)

        receiving = asyncio.create_task(receive())
        count = 0
        try:
            while True:
                messages = await _take(arrived, asked.batch)
                yield [(f"{stream}@{count + at}", text.encode()) for at, text in enumerate(messages)]
                count += len(messages)
        finally:
            receiving.cancel()


async def _from_pubsub(asked: StreamFlow, stream: str) -> Batches:
    """Google's own library speaks gRPC, which no server here does: the same requests with a bare HTTP client."""
    from aiohttp import ClientSession

    path = f"{asked.address}/v1/projects/harken-test/subscriptions/{stream}"
    async with ClientSession() as session:

        async def send(verb: str, body: dict[str, Any]) -> Any:
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{path}:{verb}", data=msgspec.json.encode(body), headers=headers) as reply:
                return msgspec.json.decode(await reply.read())

        while True:
            found = (await send("pull", {"maxMessages": asked.batch}))["receivedMessages"]
            messages = [one["message"] for one in found]
            yield [(f"{stream}@{one['messageId']}", b64decode(one["data"])) for one in messages]
            await send("acknowledge", {"ackIds": [one["ackId"] for one in found]})


async def _take(arrived: asyncio.Queue[Any], most: int) -> list[Any]:
    """What has come, at least one thing."""
    found = [await arrived.get()]
    while len(found) < most and not arrived.empty():
        found.append(arrived.get_nowait())
    return found


_READ: dict[System, Callable[[StreamFlow, str], Batches]] = {
    "redis": _from_redis,
    "kafka": _from_kafka,
    "nats": _from_nats,
    "rabbitmq": _from_rabbitmq,
    "sqs": _from_sqs,
    "mqtt": _from_mqtt,
    "sse": _from_sse,
    "websocket": _from_websocket,
    "pubsub": _from_pubsub,
}


if __name__ == "__main__":
    answer(StreamFlow, bare)
