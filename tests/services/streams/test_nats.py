"""NATS JetStream on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.event import Event
from harken.services.nats import NatsAccount, NatsQuery, NatsStream, plugin
from harken.source import Batch, Call, Host, Lag, Rejected
from harken.testing.stream import Broker, StreamContract
from tests.servers.nats import NatsServer
from tests.servers.nats_accounts import NatsAccounts

STREAM = "ORDERS"
CONSUMER = "harken-test"


@asynccontextmanager
async def signed_in(server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(f"127.0.0.1:{server.port}", user="harken", password=server.password)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def jetstream(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    async with signed_in(server) as client:
        yield client.jetstream(timeout=30)


class CountingStream(NatsStream):
    """Notes the highest number of deliveries that the server has counted for one message."""

    deliveries = 0

    def _event(self, message: Msg) -> Event | Rejected:
        CountingStream.deliveries = max(CountingStream.deliveries, message.metadata.num_delivered)
        return super()._event(message)


class NatsBroker(Broker):
    keeps_history = True

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        CountingStream.deliveries = 0

    def source(self, **query: Any) -> NatsStream:
        return self._source(self._server.password, stream=STREAM, **query)

    def _source(self, password: str, **query: Any) -> NatsStream:
        url = f"nats://harken:{quote(password, safe='')}@127.0.0.1:{self._server.port}"
        wanted = {"consumer": CONSUMER, **query}
        return CountingStream(NatsQuery(**wanted), NatsAccount(url=url), hold_seconds=2.0)

    async def create(self, **settings: Any) -> None:
        async with jetstream(self._server) as js:
            await js.add_stream(name=STREAM, subjects=["orders.>"], **settings)

    async def publish(self, bodies: Sequence[bytes], subject: str = "orders.new", **options: Any) -> None:
        async with jetstream(self._server) as js:
            for start in range(0, len(bodies), 200):
                sending = [js.publish(subject, body, timeout=60, **options) for body in bodies[start : start + 200]]
                await asyncio.gather(*sending)

    async def left(self) -> int:
        async with jetstream(self._server) as js:
            info = await js.consumer_info(STREAM, CONSUMER)
            return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def offered(self) -> int:
        """Another process asks for messages in the name of our consumer."""
        async with jetstream(self._server) as js:
            other = await js.pull_subscribe_bind(CONSUMER, STREAM)
            try:
                return len(await other.fetch(10, timeout=0.2))
            except TimeoutError:
                # on a busy machine nats-py raises asyncio's, of which its own is a kind
                return 0

    async def redelivered(self) -> int:
        return CountingStream.deliveries - 1

    async def restart(self) -> bool:
        self._server.stop()
        self._server.start()
        return True

    async def trim(self) -> bool:
        async with jetstream(self._server) as js:
            await js.purge_stream(STREAM)
        return True

    async def recreate(self) -> bool:
        async with jetstream(self._server) as js:
            await js.delete_stream(STREAM)
        await self.create()
        return True

    async def freeze(self) -> bool:
        self._server.freeze()
        return True

    async def thaw(self) -> None:
        self._server.thaw()

    async def away(self) -> bool:
        self._server.stop()
        return True

    def stranger(self) -> NatsStream:
        return self._source("wrong", stream=STREAM)

    def lost(self) -> NatsStream:
        return self._source(self._server.password, stream="NOBODY")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle stream says so more often than usual."""
    monkeypatch.setattr("harken.services.nats.pull.WAIT_SECONDS", 0.3)


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture
async def broker(server: NatsServer) -> AsyncIterator[NatsBroker]:
    broker = NatsBroker(server)
    await broker.create()
    yield broker


class TestNats(StreamContract):
    """On a stream in a file."""


async def read(source: NatsStream, count: int, cursor: Any = None) -> list[Batch]:
    """The batches up to so many messages, each of them acknowledged, and the one behind them."""
    batches: list[Batch] = []
    async with asyncio.timeout(200), aclosing(source.stream(cursor)) as stream:  # type: ignore[type-var]
        async for batch in stream:
            batches.append(batch)
            if sum(len(one.events) + len(one.rejected) for one in batches[:-1]) >= count:
                return batches
    raise AssertionError("the stream has ended")


def events(batches: Sequence[Batch]) -> list[Event]:
    return [event for batch in batches for event in batch.events]


def publication(server: NatsServer, host: Host, key: str = "run-1", **params: Any) -> Call:
    account = NatsAccount(url=f"nats://harken:{quote(server.password, safe='')}@127.0.0.1:{server.port}")
    given = plugin.actions["publish"].params.model_validate(params)
    return Call(params=given, account=account, host=host, idempotency_key=key)


async def test_a_first_read_begins_with_what_is_new_or_with_all(broker: NatsBroker) -> None:
    await broker.publish([b'{"n": 1}'])
    first = await read(broker.source(consumer="new"), 0)
    await broker.publish([b'{"n": 2}'])
    assert [event.data["n"] for event in events(await read(broker.source(consumer="new"), 1, first[-1].cursor))] == [2]
    assert [event.data["n"] for event in events(await read(broker.source(start="all", consumer="all"), 2))] == [1, 2]


async def test_what_waits_is_as_old_as_what_was_read_last_at_most(broker: NatsBroker) -> None:
    await broker.publish([b'{"n": %d}' % number for number in range(5)])
    batches = await read(broker.source(start="all", batch=2), 5)
    behind = [batch for batch in batches if batch.events]
    assert [batch.lag and batch.lag.messages for batch in behind] == [3, 1, 0]
    assert [batch.lag and batch.lag.read_to for batch in behind] == [batch.events[-1].occurred_at for batch in behind]
    first, last = behind[0].lag, behind[-1].lag
    assert first is not None and first.read_to is not None and last is not None
    later = first.read_to + timedelta(seconds=90)
    assert (first.at(later), last.at(later)) == (Lag(messages=3, seconds=90.0), Lag(messages=0, seconds=0.0))
    assert batches[-1].lag == Lag(messages=0, seconds=0.0), "nothing came"


async def test_an_event_is_about_the_subject_and_can_show_the_headers(broker: NatsBroker) -> None:
    await broker.publish([b"{}"], subject="orders.42", headers={"Traceparent": "00-ab", "Status": "404"})
    [event] = events(await read(broker.source(start="all", metadata=True), 1))
    assert event.subject == "orders.42"
    assert event.key.startswith("ORDERS@1-")
    assert event.data["_message"] == {
        "subject": "orders.42",
        "sequence": 1,
        "headers": {"Traceparent": "00-ab", "Status": "404"},
    }


async def test_only_messages_of_the_subject_are_read_and_others_are_no_gap(broker: NatsBroker) -> None:
    await broker.publish([b'{"n": 1}'], subject="orders.new")
    await broker.publish([b'{"n": 2}'] * 3, subject="orders.old")
    batches = await read(broker.source(start="all", subject="orders.new"), 1)
    assert [event.data["n"] for event in events(batches)] == [1]
    assert batches[-1].cursor["seq"] == 4
    await broker.trim()
    [again] = await read(broker.source(subject="orders.new"), 0, batches[-1].cursor)
    assert again.gap is None


async def test_a_work_queue_is_emptied(server: NatsServer) -> None:
    broker = NatsBroker(server)
    await broker.create(retention=RetentionPolicy.WORK_QUEUE)
    await broker.publish([b"{}"] * 5)
    batches = await read(broker.source(start="all"), 5)
    async with jetstream(server) as js:
        assert (await js.stream_info(STREAM)).state.messages == 0
    [again] = await read(broker.source(), 0, batches[-1].cursor)
    assert again.gap is None


async def test_a_message_is_acknowledged_when_the_next_batch_is_asked_for(
    broker: NatsBroker, server: NatsServer
) -> None:
    await broker.publish([b"{}"] * 3)
    async with jetstream(server) as js, aclosing(broker.source(start="all").stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert len((await anext(stream)).events) == 3
        assert (await js.consumer_info(STREAM, CONSUMER)).num_ack_pending == 3
        await anext(stream)
        assert (await js.consumer_info(STREAM, CONSUMER)).num_ack_pending == 0


async def test_a_consumer_that_was_deleted_goes_on_behind_our_position(broker: NatsBroker, server: NatsServer) -> None:
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    before = await read(broker.source(start="all"), 2)
    async with jetstream(server) as js:
        await js.delete_consumer(STREAM, CONSUMER)
    await broker.publish([b'{"n": 3}'])
    assert [event.data["n"] for event in events(await read(broker.source(), 1, before[-1].cursor))] == [3]


async def test_what_somebody_else_acknowledged_is_read_all_the_same(broker: NatsBroker) -> None:
    await broker.publish([b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])
    first = await read(broker.source(start="all", batch=1), 1)
    await read(broker.source(), 2, first[-2].cursor)
    # as from a store that was restored from a backup
    again = await read(broker.source(), 2, first[-2].cursor)
    assert [event.data["n"] for event in events(again)] == [2, 3]
    assert again[0].gap is None


async def test_messages_in_other_hands_come_first_where_a_consumer_cannot_be_set_back(
    broker: NatsBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harken.services.nats.stream.RESETS", (99, 0))
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    async with aclosing(broker.source(start="all").stream(None)) as stream:  # type: ignore[type-var]
        opened = await anext(stream)
        assert len((await anext(stream)).events) == 2
    await broker.publish([b'{"n": 3}'])
    batches = await read(broker.source(), 3, opened.cursor)
    assert [event.data["n"] for event in events(batches)] == [1, 2, 3]


async def test_a_push_consumer_is_left_alone(broker: NatsBroker, server: NatsServer) -> None:
    async with jetstream(server) as js:
        await js.add_consumer(STREAM, durable_name=CONSUMER, deliver_subject="somewhere")
    with pytest.raises(NeedsAttention, match="does not pull"):
        await read(broker.source(), 0)


async def test_messages_whose_subject_or_headers_are_no_text_stop_nobody(
    broker: NatsBroker, server: NatsServer
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    sign_in = f'CONNECT {{"user": "harken", "pass": "{server.password}", "headers": true, "verbose": false}}\r\n'
    writer.write(sign_in.encode())
    for headers in (b"NATS/1.0 \xff\xfe\xfd\r\n\r\n", b"NATS/1.0\r\n\xff: \xfe\r\n\r\n", b"NATS/1.0\r\n\x00\r\n\r\n"):
        writer.write(b"HPUB orders.new %d %d\r\n%s{}\r\n" % (len(headers), len(headers) + 2, headers))
    writer.write(b"PUB orders.\xff\xfe 2\r\n{}\r\nPING\r\n")
    while not (await asyncio.wait_for(reader.readline(), 200)).startswith(b"PONG"):
        pass
    writer.close()
    await broker.publish([b'{"n": 7}'])
    found = events(await read(broker.source(start="all", metadata=True), 5))
    assert len(found) == 5
    assert found[-1].data["n"] == 7
    assert found[-2].subject == "orders.\ufffd\ufffd"


@pytest.mark.parametrize(
    "query", [{"stream": "A.B"}, {"stream": "A\nB"}, {"stream": "A", "consumer": "a b"}, {"stream": ""}]
)
def test_names_that_nats_does_not_take_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        NatsQuery(**query)


@pytest.mark.parametrize(
    "url", ["http://broker", "nats://", "nats://broker:99999", "broker", "nats://a,ftp://secret@b"]
)
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        NatsAccount(url=url)
    assert "secret" not in str(caught.value)


async def test_the_second_server_is_used_when_the_first_is_away(broker: NatsBroker, server: NatsServer) -> None:
    given = f"nats://harken:{quote(server.password, safe='')}@127.0.0.1"
    account = NatsAccount(url=f"{given}:1, {given}:{server.port}")
    assert len(await read(NatsStream(NatsQuery(stream=STREAM), account), 0)) == 1


async def test_publish_says_where_the_message_is_and_a_repeat_is_none(
    broker: NatsBroker, server: NatsServer, host: Host
) -> None:
    publish = plugin.actions["publish"].run
    call = publication(server, host, subject="orders.new", data={"n": 1}, headers={"X-Kind": "order"})
    assert await publish(call) == {"stream": STREAM, "sequence": 1, "duplicate": False}
    assert await publish(call) == {"stream": STREAM, "sequence": 1, "duplicate": True}
    [event] = events(await read(broker.source(start="all", metadata=True), 1))
    assert event.data["_message"]["headers"] == {"X-Kind": "order", "Nats-Msg-Id": "run-1"}


async def test_publish_to_a_subject_that_nobody_keeps_is_an_error(
    broker: NatsBroker, server: NatsServer, host: Host
) -> None:
    with pytest.raises(RetryLater, match="no stream of NATS keeps the subject lost"):
        await plugin.actions["publish"].run(publication(server, host, subject="lost.new", data=1))
    with pytest.raises(NeedsAttention, match="larger than"):
        await plugin.actions["publish"].run(publication(server, host, subject="orders.new", data="x" * 3_000_000))


async def problem(url: str, **account: Any) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await read(NatsStream(NatsQuery(stream=STREAM), NatsAccount(url=url, **account)), 0)
    assert "secret" not in str(caught.value)
    return caught.value


async def test_tls_is_insisted_on(server: NatsServer) -> None:
    error = await problem(f"tls://harken:secret@127.0.0.1:{server.port}")
    assert "has no TLS" in error.message
    error = await problem(f"tls://127.0.0.1:{server.port}")
    assert "has no TLS" in error.message


async def test_tls_with_a_certificate_that_is_trusted_and_a_token() -> None:
    server = NatsServer("authorization { token: secret }")
    certificate, key = server.directory.certificate()
    server.settings += f'\ntls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    with server:
        url = f"tls://secret@127.0.0.1:{server.port}"
        assert "certificate" in (await problem(url)).message
        error = await problem(url, ca_bundle=str(certificate))
        assert error.message == f"NATS at 127.0.0.1:{server.port} has no stream {STREAM}"


async def test_credentials_of_an_account_are_a_jwt_and_its_key() -> None:
    accounts = NatsAccounts()
    with NatsServer(accounts.settings()) as server:
        url = f"nats://127.0.0.1:{server.port}"
        assert "has no stream" in (await problem(url, credentials=accounts.credentials())).message
        stranger = NatsAccounts().credentials()
        assert "refused the user" in (await problem(url, credentials=stranger)).message
        assert "not a .creds file" in (await problem(url, credentials="secret")).message


async def test_a_user_who_may_not_read_the_stream_is_told_so() -> None:
    rights = 'permissions: { publish: { deny: ["$JS.API.CONSUMER.>"] } }'
    with NatsServer(f"authorization {{ users: [{{ user: ana, password: pw, {rights} }}] }}") as server:
        client = await nats.connect(f"127.0.0.1:{server.port}", user="ana", password="pw")
        await client.jetstream().add_stream(name=STREAM, subjects=["orders.>"])
        await client.close()
        error = await problem(f"nats://ana:pw@127.0.0.1:{server.port}")
        assert isinstance(error, NeedsAttention)
        assert "may not use stream ORDERS" in error.message


async def test_a_stream_that_forgets_and_a_consumer_of_others_stay_where_they_are(
    broker: NatsBroker, server: NatsServer
) -> None:
    began = datetime.now(UTC)
    await broker.publish([b'{"n": 1}'])
    async with jetstream(server) as js:
        await js.add_consumer(STREAM, durable_name=CONSUMER, ack_policy="explicit")
        with pytest.raises(Refused, match="not made by Harken"):
            await broker.source().locate(began, None)
        await js.delete_stream(STREAM)
        await broker.create(retention=RetentionPolicy.WORK_QUEUE)
        with pytest.raises(Refused, match="forgets what its consumers have acknowledged"):
            await broker.source().locate(began, None)


async def test_of_a_subject_only_its_messages_count_when_a_time_is_located(
    broker: NatsBroker, server: NatsServer
) -> None:
    began = datetime.now(UTC)
    await broker.publish([b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])
    await broker.publish([b'{"n": 4}'] * 5, subject="orders.other")
    batches = await read(broker.source(start="all", subject="orders.new", batch=2), 2)
    place = await broker.source(subject="orders.new").locate(began, batches[-2].cursor)
    assert (place.messages, place.oldest) == (3, True)
    again = await read(broker.source(subject="orders.new"), 3, place.cursor)
    assert [event.data["n"] for event in events(again)] == [1, 2, 3]
    async with jetstream(server) as js:
        assert [one.name for one in await js.consumers_info(STREAM)] == [CONSUMER]
