"""One round of the stream flow: from a broker's messages to settled runs that did nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import SecretStr

from bench.engine import answer, definitions, engine
from bench.sample_pages import Used, reached
from bench.sample_stream import StreamFlow
from harken.feed import Feed
from harken.source import Batch, Cursor, StreamSource

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
    source = Clocked(_source(asked, stream))
    async with engine(Path(asked.directory) / f"{stream}.db", lambda _: source) as running:
        await running.intake.start(definitions([feed]))
        await reached(lambda: running.worker.done, count)
        return Used(seconds=time.perf_counter() - source.began, cpu=time.process_time() - source.used)


def _source(asked: StreamFlow, stream: str) -> StreamSource:
    if asked.system == "redis":
        from harken.services.redis import RedisAccount, RedisStream, RedisStreamQuery

        query = RedisStreamQuery(stream=stream, start="all", batch=asked.batch)
        return RedisStream(query, RedisAccount(url=SecretStr(asked.address)))
    from harken.services.kafka import KafkaAccount, KafkaStream, KafkaStreamQuery

    topic = KafkaStreamQuery(topic=stream, start="all", batch=asked.batch)
    return KafkaStream(topic, KafkaAccount(brokers=asked.address))


if __name__ == "__main__":
    answer(StreamFlow, flow)
