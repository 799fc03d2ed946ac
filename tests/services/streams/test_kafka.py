"""Kafka on the mock cluster of librdkafka, which is another implementation of the protocol than our client's."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndTimestamp
from pydantic import SecretStr

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.services.kafka import KafkaAccount, KafkaStream, KafkaStreamQuery, plugin
from harken.services.kafka.account import ANSWER_SECONDS
from harken.services.kafka.stream import CHECK_SECONDS
from harken.services.kafka.topic_metadata import describe
from harken.source import Batch, Call, Lag
from harken.task_cancellation import cancel_and_wait
from harken.testing.stream import Broker, StreamContract
from harken.testing.stream.stream_follower_process import WAIT_SECONDS
from tests.servers.directory import ServerDirectory
from tests.servers.kafka import KafkaServer

TOPIC = "orders"


@asynccontextmanager
async def producing(server: KafkaServer, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=server.address, acks="all", max_request_size=5_000_000, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(server: KafkaServer, bodies: Sequence[bytes | None], partition: int = 0, **fields: Any) -> None:
    async with producing(server) as producer:
        await asyncio.gather(*[await producer.send(TOPIC, body, partition=partition, **fields) for body in bodies])


async def create_topic(server: KafkaServer) -> None:
    """The mock makes a topic when a producer asks for it."""
    async with producing(server) as producer:
        await producer.partitions_for(TOPIC)


def stream(server: KafkaServer, topic: str = TOPIC, **query: Any) -> KafkaStream:
    return KafkaStream(KafkaStreamQuery(topic=topic, **query), KafkaAccount(brokers=server.address))


class KafkaBroker(Broker):
    """The mock cannot delete messages alone (`trim`; see below), and has lost all after a restart (`restart`)."""

    keeps_history = True

    def __init__(self, server: KafkaServer) -> None:
        self._server = server

    def source(self) -> KafkaStream:
        return stream(self._server)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        await send(self._server, bodies)

    async def recreate(self) -> bool:
        """Another cluster, whose topic has the same name and another id."""
        self._server.stop()
        self._server.start()
        await create_topic(self._server)
        return True

    async def freeze(self) -> bool:
        self._server.freeze()
        return True

    async def thaw(self) -> None:
        self._server.thaw()

    async def away(self) -> bool:
        self._server.stop()
        return True

    def lost(self) -> KafkaStream:
        return stream(self._server, "no-such-topic")


@pytest.fixture
def server() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server


@pytest.fixture
async def broker(server: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KafkaBroker]:
    await create_topic(server)
    # the mock answers every time with the end, so what it has is looked through instead
    monkeypatch.setattr(AIOKafkaConsumer, "offsets_for_times", _offsets_for_times)
    yield KafkaBroker(server)


async def _offsets_for_times(
    asked: AIOKafkaConsumer[Any, Any], times: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
    found: dict[TopicPartition, OffsetAndTimestamp | None] = dict.fromkeys(times)
    asked.assign(list(times))
    await asked.seek_to_beginning()
    while records := await asked.getmany(timeout_ms=500):
        for partition, some in records.items():
            later = [record for record in some if record.timestamp >= times[partition]]
            if later and found[partition] is None:
                found[partition] = OffsetAndTimestamp(later[0].offset, later[0].timestamp)
    return found


class TestKafka(StreamContract):
    """On one broker."""


async def first_events(source: KafkaStream, count: int, cursor: Any = None) -> tuple[list[Batch], list[Event]]:
    """Follow until so many messages came."""
    batches: list[Batch] = []
    async with asyncio.timeout(WAIT_SECONDS), aclosing(cast(Any, source.stream(cursor))) as stream:
        async for batch in stream:
            batches.append(batch)
            if sum(len(each.events) + len(each.rejected) for each in batches) >= count:
                break
    return batches, [event for batch in batches for event in batch.events]


async def test_every_partition_is_read_in_its_order(broker: KafkaBroker, server: KafkaServer) -> None:
    async with producing(server) as producer:
        for number in range(200):
            await producer.send(TOPIC, b'{"n": %d}' % number, key=b"customer-%d" % (number % 7))
    _, events = await first_events(stream(server, start="all", batch=30), 200)
    assert sorted(event.data["n"] for event in events) == list(range(200))
    by_customer: dict[str, list[int]] = {}
    for event in events:
        by_customer.setdefault(event.subject, []).append(event.data["n"])
    assert sorted(by_customer) == [f"customer-{number}" for number in range(7)]
    assert all(numbers == sorted(numbers) for numbers in by_customer.values())
    assert len({event.key.partition("/")[2].partition("@")[0] for event in events}) > 1


async def test_an_event_has_key_time_headers_and_place(broker: KafkaBroker, server: KafkaServer) -> None:
    headers = [("trace", b"abc"), ("raw", b"\xff\x00"), ("empty", None)]
    await send(server, [b'{"n": 1}'], 2, key=b"\xffkey", timestamp_ms=1_700_000_000_000, headers=headers)
    batches, [event] = await first_events(stream(server, start="all", metadata=True), 1)
    assert event.subject == "base64:/2tleQ=="
    assert event.key.startswith("orders~") and event.key.endswith("/2@0")
    assert event.occurred_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert event.type == "kafka.message"
    place = {"topic": "orders", "partition": 2, "offset": 0}
    assert event.data["_message"] == {**place, "headers": {"trace": "abc", "raw": "base64:/wA=", "empty": None}}
    assert batches[-1].lag == Lag(messages=0, seconds=0.0)


async def test_a_tombstone_is_null(broker: KafkaBroker, server: KafkaServer) -> None:
    await send(server, [None], key=b"customer-1")
    _, [event] = await first_events(stream(server, start="all"), 1)
    assert (event.subject, event.data) == ("customer-1", {"value": None})


async def test_a_header_bomb_is_rejected(broker: KafkaBroker, server: KafkaServer) -> None:
    await send(server, [b"{}"], headers=[("x", b"y" * 100_000)])
    batches, _ = await first_events(stream(server, start="all", metadata=True), 1)
    assert [letter.reason for letter in batches[-1].rejected] == ["its headers are larger than 65,536 bytes"]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_messages_are_read(broker: KafkaBroker, server: KafkaServer, compression: str) -> None:
    async with producing(server, compression_type=compression) as producer:
        await producer.send_and_wait(TOPIC, b'{"n": 5}')
    _, [event] = await first_events(stream(server, start="all"), 1)
    assert event.data == {"n": 5}


async def test_a_first_read_begins_with_what_is_new(broker: KafkaBroker, server: KafkaServer) -> None:
    await send(server, [b'{"n": 1}'])
    async with aclosing(cast(Any, stream(server).stream(None))) as batches:
        first = await anext(batches)
        await send(server, [b'{"n": 2}'], 3)
    assert first.events == () and first.gap is None
    _, [event] = await first_events(stream(server), 1, first.cursor)
    assert event.data == {"n": 2}


async def test_messages_that_the_broker_deleted_unread_are_counted(broker: KafkaBroker, server: KafkaServer) -> None:
    await send(server, [b'{"n": 1}', b'{"n": 2}'])
    batches, _ = await first_events(stream(server, start="all"), 2)
    await send(server, [b"{}"] * 5)
    # the mock keeps 5 MB of a partition: the five and some of these are deleted
    for _ in range(8):
        await send(server, [b"x" * 900_000])
    async with aclosing(cast(Any, stream(server).stream(batches[-1].cursor))) as opened:
        begun = await anext(opened)
    assert begun.gap.messages == begun.cursor["offsets"]["0"] - 2 >= 5
    assert "of orders (partition 0) were deleted before they were read" in begun.gap.reason
    async with aclosing(cast(Any, stream(server).stream(begun.cursor))) as opened:
        assert (await anext(opened)).gap is None


async def test_messages_deleted_while_we_are_connected_are_a_gap(broker: KafkaBroker, server: KafkaServer) -> None:
    async with aclosing(cast(Any, stream(server).stream(None))) as batches:
        await anext(batches)
        for _ in range(14):
            await send(server, [b"x" * 900_000])
        lost = read = 0
        async with asyncio.timeout(WAIT_SECONDS):
            while lost + read < 14:
                batch = await anext(batches)
                lost, read = lost + (batch.gap.messages if batch.gap else 0), read + len(batch.rejected)
    assert (lost > 0, lost + read) == (True, 14)


async def test_closing_is_quick_while_the_broker_is_frozen(broker: KafkaBroker, server: KafkaServer) -> None:
    batches = cast(Any, stream(server).stream(None))
    await anext(batches)
    server.freeze()
    try:
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(CHECK_SECONDS + 0.5)
        began = time.monotonic()
        await cancel_and_wait([waiting])
        await batches.aclose()
        # who waits for its answers waits that long
        assert time.monotonic() - began < ANSWER_SECONDS
    finally:
        server.thaw()


async def publish_step(account: KafkaAccount, **params: Any) -> Any:
    act = plugin.actions["publish"]
    host: Any = None
    return await act.run(
        Call(params=act.params.model_validate(params), account=account, host=host, idempotency_key="run-7/ship")
    )


async def test_publish_sends_key_headers_and_the_idempotency_key(broker: KafkaBroker, server: KafkaServer) -> None:
    sent = {"topic": TOPIC, "data": {"n": 9}, "key": "customer-1", "headers": {"trace": "abc"}}
    answer = await publish_step(KafkaAccount(brokers=server.address), **sent)
    _, [event] = await first_events(stream(server, start="all", metadata=True), 1)
    assert event.subject == "customer-1"
    assert event.data["n"] == 9
    assert event.data["_message"]["headers"] == {"trace": "abc", "idempotency-key": "run-7/ship"}
    assert answer == {"topic": TOPIC, "partition": event.data["_message"]["partition"], "offset": 0}


async def test_publish_says_that_kafka_is_away(server: KafkaServer) -> None:
    address = server.address
    server.stop()
    with pytest.raises(RetryLater, match=f"Kafka at {address} cannot be reached"):
        await publish_step(KafkaAccount(brokers=address), topic=TOPIC, data=1)


@asynccontextmanager
async def refusing(tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A broker that knows nobody: it answers as much of the protocol as is needed to sign in."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                if size > 1_000_000:
                    # not a request of the protocol, as a broker sees TLS on its plain port
                    break
                request = await reader.readexactly(size)
                api, _, correlation = struct.unpack(">hhi", request[:8])
                body = struct.pack(">i", correlation) + ANSWERS[api]
                writer.write(struct.pack(">i", len(body)) + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


ANSWERS = {
    # versions of: produce, metadata, SASL handshake, versions, SASL authenticate
    18: struct.pack(">hi" + "hhh" * 5, 0, 5, 0, 0, 7, 3, 0, 5, 17, 0, 1, 18, 0, 0, 36, 0, 0),
    17: struct.pack(">hih5s", 0, 1, 5, b"PLAIN"),
    36: struct.pack(">hh6si", 58, 6, b"no: pw", 0),
}


async def test_a_refused_password_is_said_in_words_without_it() -> None:
    async with refusing() as address:
        account = KafkaAccount(brokers=address, username="me", password=SecretStr("s3cret"), tls=False)
        with pytest.raises(NeedsAttention, match="refused the user or password") as caught:
            await first_events(KafkaStream(KafkaStreamQuery(topic=TOPIC), account), 1)
        with pytest.raises(NeedsAttention, match="does not let users sign in with SCRAM-SHA-256"):
            other = account.model_copy(update={"sasl": "SCRAM-SHA-256"})
            await first_events(KafkaStream(KafkaStreamQuery(topic=TOPIC), other), 1)
        with pytest.raises(RetryLater, match="closed the connection; if it always does, check tls"):
            other = account.model_copy(update={"tls": True})
            await first_events(KafkaStream(KafkaStreamQuery(topic=TOPIC), other), 1)
    assert "s3cret" not in f"{caught.value} {caught.value.fix} {account!r}"


async def test_the_certificate_of_a_broker_must_be_trusted() -> None:
    directory = ServerDirectory("kafka")
    try:
        certificate, key = directory.certificate()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        async with refusing(tls) as address:
            account = KafkaAccount(brokers=address, username="me", password=SecretStr("s3cret"))
            with pytest.raises(NeedsAttention, match=r"the certificate of Kafka at .* is not trusted"):
                await first_events(KafkaStream(KafkaStreamQuery(topic=TOPIC), account), 1)
            trusting = account.model_copy(update={"ca_bundle": str(certificate)})
            with pytest.raises(NeedsAttention, match="refused the user or password"):
                await first_events(KafkaStream(KafkaStreamQuery(topic=TOPIC), trusting), 1)
    finally:
        directory.remove()


@pytest.mark.parametrize("newest, has_id", [(13, True), (5, False), (4, False)])
async def test_brokers_of_any_age_describe_a_topic(
    broker: KafkaBroker, server: KafkaServer, newest: int, has_id: bool
) -> None:
    async with producing(server) as producer:
        client = producer.client
        await client.ready(client.get_random_node())
        for connection in client._conns.values():
            connection._versions[3] = (0, newest)
        topic = await describe(client, TOPIC)
        assert (bool(topic.id), topic.partitions) == (has_id, frozenset(range(4)))
        with pytest.raises(UnknownTopicOrPartitionError):
            await describe(client, "no-such-topic")
