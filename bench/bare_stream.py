"""The limit of the stream flow: the bare client library reads the same batches, bare group commit writes their rows.

The next batch is asked for when the last one is on the disk, as Harken does; runs are settled meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.bare_commit import Group, Settling, page_statements
from bench.engine import answer
from bench.sample_pages import Used, reached
from bench.sample_stream import PARTITIONS, StreamFlow
from harken.backends.run_states import DONE
from harken.backends.sqlite.connection import connect, migrate
from harken.event import Event

__all__ = ["bare"]

Named = list[tuple[str, bytes]]


async def bare(asked: StreamFlow) -> Used:
    """Read a short stream to warm up, and then the one that counts, each into a file of its own."""
    await _read(asked, asked.warm_stream, asked.warm)
    return await _read(asked, asked.stream, asked.messages)


async def _read(asked: StreamFlow, stream: str, count: int) -> Used:
    connection = connect(Path(asked.directory) / f"{stream}.db")
    migrate(connection)
    group = Group(connection)
    settling = Settling(group)
    batches = _from_redis(asked, stream) if asked.system == "redis" else _from_kafka(asked, stream)
    began, used = time.perf_counter(), time.process_time()
    async with aclosing(batches):
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


async def _from_redis(asked: StreamFlow, stream: str) -> AsyncGenerator[Named, None]:
    from redis.asyncio import Redis

    async with Redis.from_url(asked.address) as client:
        last: Any = "0-0"
        while True:
            found: Any = await client.xread({stream: last}, count=asked.batch)
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            last = entries[-1][0]
            yield [(f"{stream}@{id.decode()}", fields[b"data"]) for id, fields in entries]


async def _from_kafka(asked: StreamFlow, stream: str) -> AsyncGenerator[Named, None]:
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


if __name__ == "__main__":
    answer(StreamFlow, bare)
