"""Redis Streams on a real server."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio import Redis

from harken.errors import NeedsAttention, RetryLater
from harken.services.redis import RedisAccount, RedisStream, RedisStreamQuery, plugin
from harken.source import Batch, Call, Host
from harken.testing.stream import Broker, StreamContract
from tests.servers.redis import RedisServer


class RedisBroker(Broker):
    keeps_history = True

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def source(self) -> RedisStream:
        return self._source(self._server.url())

    def _source(self, url: str) -> RedisStream:
        return RedisStream(RedisStreamQuery(stream="orders"), RedisAccount(url=url))

    async def publish(self, bodies: Sequence[bytes]) -> None:
        async with Redis.from_url(self._server.url()) as client, client.pipeline(transaction=False) as pipeline:
            for body in bodies:
                pipeline.xadd("orders", {"data": body})
            await pipeline.execute()

    async def restart(self) -> bool:
        self._server.stop()
        self._server.start()
        return True

    async def trim(self) -> bool:
        async with Redis.from_url(self._server.url()) as client:
            await client.xtrim("orders", maxlen=0, approximate=False)
        return True

    async def recreate(self) -> bool:
        async with Redis.from_url(self._server.url()) as client:
            await client.delete("orders")
        return True

    async def freeze(self) -> bool:
        assert self._server._process is not None
        os.kill(self._server._process.pid, signal.SIGSTOP)
        return True

    async def thaw(self) -> None:
        assert self._server._process is not None
        os.kill(self._server._process.pid, signal.SIGCONT)

    async def away(self) -> bool:
        self._server.stop()
        return True

    def stranger(self) -> RedisStream:
        return self._source(f"redis://:wrong@127.0.0.1:{self._server.port}/0")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(appendonly="yes") as server:
        yield server


@pytest.fixture
async def broker(server: RedisServer) -> AsyncIterator[RedisBroker]:
    yield RedisBroker(server)


class TestRedisStreams(StreamContract):
    """On a Redis that keeps its data over a restart."""


async def test_what_waits_is_told_in_messages_and_how_old_it_is(broker: RedisBroker, server: RedisServer) -> None:
    await broker.publish([b'{"n": %d}' % number for number in range(5)])
    source = RedisStream(RedisStreamQuery(stream="orders", start="all", batch=2), RedisAccount(url=server.url()))
    async with aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        batches = [batch async for batch in first(stream, 3)]
    lags = [batch.lag for batch in batches]
    assert [lag.messages for lag in lags if lag] == [3, 1, 0]
    assert [lag.read_to for lag in lags if lag] == [batch.events[-1].occurred_at for batch in batches]


async def test_publish_adds_an_entry_with_the_key_of_the_step(server: RedisServer, host: Host) -> None:
    act = plugin.actions["publish"]
    given = act.params.model_validate({"stream": "parcels", "data": {"n": 1}, "max_length": 100})
    call = Call(params=given, account=RedisAccount(url=server.url()), host=host, idempotency_key="run-1/step")
    told = [await act.run(call) for _ in range(2)]
    async with Redis.from_url(server.url()) as client:
        entries: Any = await client.xrange("parcels")
    assert [id.decode() for id, _ in entries] == [one["id"] for one in told], "Redis refuses no repeat"
    assert [fields for _, fields in entries] == [{b"data": b'{"n":1}', b"key": b"run-1/step"}] * 2


async def test_publish_where_there_is_no_stream_or_no_server_is_said_in_words(server: RedisServer, host: Host) -> None:
    act = plugin.actions["publish"]
    given = act.params.model_validate({"stream": "word", "data": {}})
    async with Redis.from_url(server.url()) as client:
        await client.set("word", "is no stream")
    with pytest.raises(NeedsAttention, match="word"):
        await act.run(Call(params=given, account=RedisAccount(url=server.url()), host=host, idempotency_key="k"))
    away = RedisAccount(url="redis://127.0.0.1:1/0")
    with pytest.raises(RetryLater, match=r"127\.0\.0\.1:1"):
        await act.run(Call(params=given, account=away, host=host, idempotency_key="k"))


async def first(stream: AsyncIterator[Batch], count: int) -> AsyncIterator[Batch]:
    """So many batches with events."""
    while count:
        batch = await anext(stream)
        if batch.events:
            count -= 1
            yield batch
