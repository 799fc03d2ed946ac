"""RabbitMQ on a real server: the contract on a quorum queue, which counts deliveries and gives up after twenty."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.abc import ChannelFrame
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention
from harken.event import Event
from harken.services.rabbitmq import RabbitAccount, RabbitQuery, RabbitStream, plugin
from harken.source import Call, Host, Rejected
from harken.testing.stream import Broker, StreamContract
from tests.servers.ports import free_port
from tests.servers.rabbitmq import RabbitServer

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("rabbitmq")

QUEUE, DEAD = "orders", "orders.dead"


@asynccontextmanager
async def channel_of(server: RabbitServer) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(server.url) as connection:
        yield await connection.channel()


class CountingStream(RabbitStream):
    """Notes the highest number of returns that the queue has counted for one message."""

    returns = 0

    def _event(self, name: str, message: AbstractIncomingMessage) -> Event | Rejected:
        count = int(str((message.headers or {}).get("x-delivery-count", 0)))
        CountingStream.returns = max(CountingStream.returns, count)
        return super()._event(name, message)


class RabbitBroker(Broker):
    def __init__(self, server: RabbitServer) -> None:
        self._server = server
        self._port = server.port
        CountingStream.returns = 0

    def source(self, **query: Any) -> RabbitStream:
        url = self._server.url.replace(f":{self._server.port}/", f":{self._port}/")
        return self._source(url, **{"queue": QUEUE, **query})

    def _source(self, url: str, **query: Any) -> RabbitStream:
        return CountingStream(RabbitQuery(**query), RabbitAccount(url=url), hold_seconds=2.0)

    async def create(self, kind: str = "quorum") -> None:
        async with channel_of(self._server) as channel:
            for name in (QUEUE, DEAD):
                await channel.queue_delete(name)
            await channel.declare_queue(DEAD, durable=True)
            dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
            limit = {"x-delivery-limit": 20} if kind == "quorum" else {}
            await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": kind, **limit, **dead})

    async def publish(
        self,
        bodies: Sequence[bytes],
        garble: tuple[bytes, bytes] = (b"", b""),
        exchange: str = "",
        routing_key: str = QUEUE,
        **properties: Any,
    ) -> None:
        """Without ids, unlike the client, which gives one to every message. `garble` replaces bytes on the wire."""
        async with channel_of(self._server) as channel:
            underlay: Any = await channel.get_underlay_channel()
            for body in bodies:
                header = ContentHeader(
                    body_size=len(body), properties=spec.Basic.Properties(delivery_mode=2, **properties)
                )
                parts = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
                frames: list[Any] = [
                    spec.Basic.Publish(exchange=exchange, routing_key=routing_key),
                    header,
                    *map(ContentBody, parts),
                ]
                frame = ChannelFrame.marshall(channel_number=underlay.number, frames=frames)
                payload = frame.payload.replace(*garble) if any(garble) else frame.payload
                await underlay.write_queue.put(dataclasses.replace(frame, payload=payload))
            # answered behind what was sent before
            await underlay.queue_declare(QUEUE, passive=True)

    async def left(self) -> int:
        query = "fun rabbit_fifo:query_messages_total/1"
        asked = f"{{ok, {{_, N}}, _}} = ra:local_query({{'%2F_{QUEUE}', node()}}, {query}), N."
        answer = await asyncio.to_thread(self._server.ask, asked)
        return int(answer.strip("{} \n").partition(",")[2])

    async def offered(self) -> int:
        async with channel_of(self._server) as channel:
            queue = await channel.declare_queue(QUEUE, passive=True)
            return queue.declaration_result.message_count or 0

    async def redelivered(self) -> int:
        return CountingStream.returns

    async def dead(self) -> int:
        async with channel_of(self._server) as channel:
            queue = await channel.declare_queue(DEAD, passive=True)
            return queue.declaration_result.message_count or 0

    async def restart(self) -> bool:
        await asyncio.to_thread(self._server.stop)
        await asyncio.to_thread(self._server.start)
        return True

    async def recreate(self) -> bool:
        await self.create()
        return True

    async def freeze(self) -> bool:
        self._server.freeze()
        return True

    async def thaw(self) -> None:
        self._server.thaw()

    async def away(self) -> bool:
        # where nobody listens: a new start of the server costs seconds
        self._port = free_port()
        return True

    def stranger(self) -> RabbitStream:
        return self._source(f"amqp://guest:wrong@127.0.0.1:{self._server.port}/", queue=QUEUE)

    def lost(self) -> RabbitStream:
        return self._source(self._server.url, queue="nobody")


@pytest.fixture(scope="module")
def one_server() -> Iterator[RabbitServer]:
    """Starting it takes some seconds: one for all tests, each with an empty queue."""
    with RabbitServer() as server:
        yield server


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle stream says so more often than usual."""
    monkeypatch.setattr("harken.services.rabbitmq.stream.WAIT_SECONDS", 0.3)


@pytest.fixture
def server(one_server: RabbitServer) -> RabbitServer:
    if not one_server.running:
        one_server.start()
    return one_server


@pytest.fixture
async def broker(server: RabbitServer) -> AsyncIterator[RabbitBroker]:
    broker = RabbitBroker(server)
    await broker.create()
    yield broker


class TestRabbit(StreamContract):
    """On a quorum queue."""


async def read(
    source: RabbitStream, count: int, cursor: Any = None, *, acknowledge: bool = True
) -> tuple[list[Event], Any]:
    """So many events and the cursor behind them. The last batch is only acknowledged if the stream goes on."""
    found: list[Event] = []
    async with asyncio.timeout(200), aclosing(source.stream(cursor)) as stream:  # type: ignore[type-var]
        async for batch in stream:
            found.extend(batch.events)
            cursor = batch.cursor
            if len(found) >= count and (not acknowledge or not batch.events):
                return found, cursor
    raise AssertionError("the stream has ended")


def publication(server: RabbitServer, host: Host, **params: Any) -> Call:
    given = plugin.actions["publish"].params.model_validate(params)
    return Call(params=given, account=RabbitAccount(url=server.url), host=host, idempotency_key="run-1")


async def test_messages_without_an_id_keep_their_name_when_they_come_again(broker: RabbitBroker) -> None:
    await broker.publish([b'{"n": 1}', b'{"n": 1}', b'{"n": 2}'])
    first, cursor = await read(broker.source(), 3, acknowledge=False)
    assert len({event.key for event in first}) == 3
    again, cursor = await read(broker.source(), 3, cursor, acknowledge=False)
    assert [event.key for event in again] == [event.key for event in first]
    # after that they are acknowledged, and another message with the same content is another one
    await read(broker.source(), 3, cursor)
    await broker.publish([b'{"n": 1}'])
    [other], _ = await read(broker.source(), 1, cursor)
    assert other.key not in {event.key for event in first}


@pytest.mark.parametrize("sent", [0, 5])
async def test_names_that_never_come_again_are_forgotten(
    broker: RabbitBroker, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    monkeypatch.setattr("harken.services.rabbitmq.stream.RETURN_SECONDS", 0.0)
    await broker.publish([b"{}"] * sent)
    source = broker.source(max_in_flight=1, batch=1)
    async with asyncio.timeout(200), aclosing(source.stream({"unacknowledged": ["gone.1.1"]})) as stream:  # type: ignore[type-var]
        cursors = [(await anext(stream)).cursor["unacknowledged"] for _ in range(2 + sent)]
    assert "gone.1.1" in cursors[0]
    assert "gone.1.1" not in cursors[-1]


async def test_a_message_that_was_not_committed_is_not_taken_for_one_that_was(broker: RabbitBroker) -> None:
    await broker.publish([b'{"n": 1}'] * 3)
    [first], cursor = await read(broker.source(batch=1), 1, acknowledge=False)
    again, _ = await read(broker.source(), 3, cursor)
    assert first.key == again[0].key
    assert len({event.key for event in again}) == 3


async def test_an_event_is_named_by_the_message_id_and_can_show_the_headers(
    broker: RabbitBroker, server: RabbitServer
) -> None:
    sent = aio_pika.Message(b"{}", message_id="m-1", headers={"a": 1, "c": ["x"]}, type="order")
    async with channel_of(server) as channel:
        await channel.default_exchange.publish(sent, QUEUE)
    [event], cursor = await read(broker.source(metadata=True), 1, acknowledge=False)
    assert (event.key, event.subject) == ("orders@m-1", "orders@m-1")
    about = event.data["_message"]
    assert (about["routing_key"], about["type"], about["headers"]["a"]) == (QUEUE, "order", 1)
    assert cursor == {"unacknowledged": []}


async def test_names_that_are_no_text_or_too_long_stop_nobody(broker: RabbitBroker, server: RabbitServer) -> None:
    await broker.publish([b'{"n": 1}'], (b"NAME", b"\xff\xfe\xfd\xfc"), message_id="NAME")
    await broker.publish([b'{"n": 1}'], (b"NAME", b"\xff\xfe\xfd\xfc"), headers={"NAME": "NAME"}, message_type="NAME")
    await broker.publish([b'{"n": 2}'], message_id="x" * 255)
    async with channel_of(server) as channel:
        exchange = await channel.declare_exchange("all", aio_pika.ExchangeType.FANOUT)
        await (await channel.get_queue(QUEUE)).bind(exchange)
    await broker.publish([b'{"n": 2}'], (b"NAME", b"\xff\xfe\xfd\xfc"), exchange="all", routing_key="NAME")
    await broker.publish([b'{"n": 3}'], headers={"bomb": "x" * 100_000})
    await broker.publish([b'{"n": 4}'], message_id="a\nb\x00c")
    found, _ = await read(broker.source(metadata=True), 5)
    assert [event.data["n"] for event in found] == [1, 1, 2, 2, 4]
    assert found[3].data["_message"]["routing_key"] == "????"


async def test_a_classic_queue_is_followed_too(server: RabbitServer) -> None:
    broker = RabbitBroker(server)
    await broker.create("classic")
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    found, cursor = await read(broker.source(max_in_flight=1), 2)
    assert [event.data["n"] for event in found] == [1, 2]
    await broker.publish([b'{"n": 3}'])
    assert [event.data["n"] for event in (await read(broker.source(), 1, cursor))[0]] == [3]


async def test_a_queue_that_is_deleted_meanwhile_is_said_in_words(broker: RabbitBroker, server: RabbitServer) -> None:
    async def follow() -> None:
        async with aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
            await anext(stream)
            async with channel_of(server) as channel:
                await channel.queue_delete(QUEUE)
            async for _ in stream:
                pass

    with pytest.raises(NeedsAttention, match="has no queue orders"):
        await asyncio.wait_for(follow(), 200)


async def test_messages_of_a_process_that_no_longer_holds_them_go_back_to_the_queue(broker: RabbitBroker) -> None:
    await broker.publish([b'{"n": 1}'])
    async with aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
        batches = [await anext(stream), await anext(stream)]
        assert len(batches[1].events) == 1
        # nobody calls hold, as after the end of the lease
        found, _ = await read(broker.source(), 1, batches[1].cursor)
        assert [event.key for event in found] == [event.key for event in batches[1].events]
        with pytest.raises(HarkenError, match="closed the connection"):
            await anext(stream)


async def test_publish_is_confirmed_persistent_and_named_by_the_idempotency_key(
    broker: RabbitBroker, server: RabbitServer, host: Host
) -> None:
    call = publication(server, host, routing_key=QUEUE, data={"n": 1}, headers={"kind": "order"})
    answer = await plugin.actions["publish"].run(call)
    assert answer == {"exchange": "", "routing_key": QUEUE, "message_id": "run-1"}
    async with channel_of(server) as channel:
        sent = await (await channel.get_queue(QUEUE)).get()
        assert sent is not None
        assert (sent.body, sent.message_id, sent.delivery_mode) == (b'{"n":1}', "run-1", 2)
        assert sent.headers["kind"] == "order"


async def test_publish_that_reaches_nobody_is_an_error(broker: RabbitBroker, server: RabbitServer, host: Host) -> None:
    publish = plugin.actions["publish"].run
    with pytest.raises(NeedsAttention, match="no queue of RabbitMQ gets a message"):
        await publish(publication(server, host, routing_key="nobody", data=1))
    with pytest.raises(NeedsAttention, match="no queue of RabbitMQ gets a message"):
        await publish(publication(server, host, exchange="amq.topic", routing_key="a.b", data=1))
    with pytest.raises(NeedsAttention, match="has no exchange nowhere"):
        await publish(publication(server, host, exchange="nowhere", routing_key="a.b", data=1))


async def test_tls_with_a_certificate_that_is_trusted(broker: RabbitBroker, server: RabbitServer) -> None:
    url = f"amqps://guest:{server.password}@127.0.0.1:{server.tls_port}/"
    with pytest.raises(NeedsAttention, match="certificate of RabbitMQ"):
        await read(RabbitStream(RabbitQuery(queue=QUEUE), RabbitAccount(url=url)), 0)
    await broker.publish([b'{"n": 1}'])
    account = RabbitAccount(url=url, ca_bundle=str(server.certificate))
    [event], _ = await read(RabbitStream(RabbitQuery(queue=QUEUE), account), 1)
    assert event.data == {"n": 1}


async def test_a_virtual_host_that_does_not_exist_is_said_in_words(broker: RabbitBroker, server: RabbitServer) -> None:
    with pytest.raises(NeedsAttention, match="virtual host") as caught:
        await read(broker._source(f"{server.url}nowhere", queue=QUEUE), 0)
    assert "guest" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://broker", "amqp://", "amqp://broker:99999", "broker", "amqp://u:secret@"])
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RabbitAccount(url=url)
    assert "secret" not in str(caught.value)
