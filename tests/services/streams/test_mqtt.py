"""MQTT 5 on a real Mosquitto."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from random import Random
from typing import Any

import paho.mqtt.publish
import pytest
from paho.mqtt.enums import MQTTProtocolVersion
from pydantic import ValidationError

from harken.clock import SystemClock
from harken.errors import NeedsAttention, Refused
from harken.http import Client
from harken.services.mqtt import MqttAccount, MqttQuery, MqttStream, Publication, plugin
from harken.source import Batch, Call, Host
from harken.testing.stream import Broker, StreamContract
from tests.servers.mosquitto import Mosquitto


def host(*, private: bool = True) -> Host:
    clock = SystemClock()
    return Host(http=Client(clock), clock=clock, random=Random(1), allow_private=private, feed="orders")


class MqttBroker(Broker):
    """A session is a queue of its own: what was acknowledged is gone."""

    def __init__(self, server: Mosquitto) -> None:
        self.server = server

    def source(self) -> MqttStream:
        return self.of()

    def of(self, url: str = "", ca_bundle: str = "", **query: Any) -> MqttStream:
        account = MqttAccount(url=url or self.server.url(), ca_bundle=ca_bundle)
        return MqttStream(MqttQuery(**{"topics": ["orders/#"], **query}), account, host())

    async def publish(self, bodies: Sequence[bytes]) -> None:
        await self.send([("orders/new", body) for body in bodies])

    async def send(self, messages: Sequence[tuple[str, bytes]], *, qos: int = 1, retain: bool = False) -> None:
        def send() -> None:
            paho.mqtt.publish.multiple(
                [(topic, body, qos, retain) for topic, body in messages],
                hostname="127.0.0.1",
                port=self.server.port,
                auth={"username": self.server.user, "password": self.server.password},
                protocol=MQTTProtocolVersion.MQTTv5,
            )

        await asyncio.to_thread(send)

    async def restart(self) -> bool:
        self.server.stop()
        self.server.start()
        return True

    async def freeze(self) -> bool:
        self.server.freeze()
        return True

    async def thaw(self) -> None:
        self.server.thaw()

    async def away(self) -> bool:
        self.server.stop()
        return True

    def stranger(self) -> MqttStream:
        return self.of(self.server.url("wrong"))


@pytest.fixture
def server() -> Iterator[Mosquitto]:
    with Mosquitto() as server:
        yield server


@pytest.fixture
async def broker(server: Mosquitto) -> AsyncIterator[MqttBroker]:
    yield MqttBroker(server)


class TestMqtt(StreamContract):
    """On a Mosquitto that keeps its sessions over a restart."""


async def read(source: MqttStream, until: Callable[[list[Batch]], bool], cursor: Any = None) -> list[Batch]:
    """The batches that came until then. The last one is not acknowledged."""
    found: list[Batch] = []
    async with asyncio.timeout(200), aclosing(source.stream(cursor)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found.append(batch)
            if until(found):
                return found
    raise AssertionError("the stream ended")


def events(batches: list[Batch]) -> list[Any]:
    return [event for batch in batches for event in batch.events]


def numbers(batches: list[Batch]) -> list[int]:
    return [event.data["n"] for event in events(batches)]


def has(count: int) -> Callable[[list[Batch]], bool]:
    return lambda found: len(events(found)) >= count


def rests(batches: list[Batch]) -> bool:
    """The broker has nothing more, and has all acknowledgements."""
    last = batches[-1]
    return len(batches) > 1 and not last.events and not last.cursor["unconfirmed"]


async def test_what_is_not_stored_is_not_acknowledged(broker: MqttBroker) -> None:
    [begin] = await read(broker.source(), bool)
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    assert numbers(await read(broker.source(), has(2), begin.cursor)) == [1, 2]
    assert numbers(await read(broker.source(), has(2), begin.cursor)) == [1, 2], "the batch was never asked beyond"


async def test_what_is_stored_and_not_acknowledged_is_known_when_it_comes_again(broker: MqttBroker) -> None:
    [begin] = await read(broker.source(), bool)
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    stored = await read(broker.source(), has(2), begin.cursor)
    await broker.publish([b'{"n": 3}'])
    after = await read(broker.source(), rests, stored[-1].cursor)
    assert numbers(after) == [3]
    nothing = await read(broker.source(), rests, begin.cursor)
    assert numbers(nothing) == [], "all are acknowledged"


async def test_two_equal_messages_are_two_events(broker: MqttBroker) -> None:
    [begin] = await read(broker.source(), bool)
    await broker.publish([b'{"n": 1}', b'{"n": 1}'])
    found = await read(broker.source(), rests, begin.cursor)
    await broker.publish([b'{"n": 1}'])
    found += await read(broker.source(), has(1), found[-1].cursor)
    assert numbers(found) == [1, 1, 1]
    assert len({event.key for event in events(found)}) == 3


async def test_no_more_than_max_in_flight_are_taken(broker: MqttBroker) -> None:
    source = broker.of(max_in_flight=5)
    [begin] = await read(source, bool)
    await broker.publish([b'{"n": %d}' % number for number in range(20)])
    found = await read(source, rests, begin.cursor)
    assert numbers(found) == list(range(20))
    assert max(len(batch.events) for batch in found) <= 5


async def test_a_session_that_the_broker_lost_is_a_gap(broker: MqttBroker) -> None:
    await broker.publish([b'{"n": 0}'])
    [begin] = await read(broker.source(), bool)
    assert begin.gap is None
    broker.server.stop()
    broker.server.forget()
    broker.server.start()
    [after] = await read(broker.source(), bool, begin.cursor)
    assert after.gap
    assert "lost our session" in after.gap.reason
    assert after.cursor["session"] != begin.cursor["session"]
    [again] = await read(broker.source(), bool, after.cursor)
    assert again.gap is None


async def test_metadata_says_where_it_comes_from_and_what_was_retained(broker: MqttBroker) -> None:
    await broker.send([("orders/eu/7", b'{"n": 1}')], retain=True)
    source = broker.of(metadata=True)
    [old] = events(await read(source, has(1)))
    assert old.data["_message"]["retained"] is True
    assert old.subject == old.data["_message"]["topic"] == "orders/eu/7"
    assert old.key.startswith("orders/eu/7@")
    assert old.type == "mqtt.message"


async def test_retained_messages_can_be_left_out(broker: MqttBroker) -> None:
    await broker.send([("orders/eu/7", b'{"n": 1}')], retain=True)
    assert numbers(await read(broker.of(retained=False), rests)) == []


async def test_messages_of_qos_0_come_while_we_are_connected(broker: MqttBroker) -> None:
    found: list[Batch] = []
    async with asyncio.timeout(200), aclosing(broker.source().stream(None)) as batches:  # type: ignore[type-var]
        found.append(await anext(batches))
        await broker.send([("orders/new", b'{"n": %d}' % number) for number in range(50)], qos=0)
        while len(events(found)) < 50:
            found.append(await anext(batches))
    assert numbers(found) == list(range(50))
    assert not found[-1].cursor["unconfirmed"]


async def test_a_topic_that_is_named_no_more_is_left(broker: MqttBroker) -> None:
    [begin] = await read(broker.of(topics=["orders/#", "bills/#"]), bool)
    [changed] = await read(broker.of(topics=["orders/#"]), bool, begin.cursor)
    await broker.send([("bills/1", b'{"n": 1}'), ("orders/1", b'{"n": 2}')])
    assert numbers(await read(broker.of(topics=["orders/#"]), rests, changed.cursor)) == [2]


async def test_a_topic_of_4_kb_becomes_a_dead_letter(broker: MqttBroker) -> None:
    [begin] = await read(broker.source(), bool)
    await broker.send([("orders/../" + "ü" * 2_000, b'{"n": 1}'), ("orders/🚀", b'{"n": 2}')])
    found = await read(broker.source(), has(1), begin.cursor)
    assert [event.subject for event in events(found)] == ["orders/🚀"]
    assert ["longer than 1,000" in one.reason for batch in found for one in batch.rejected] == [True]


async def test_tls_needs_a_certificate_that_is_trusted(broker: MqttBroker) -> None:
    with pytest.raises(NeedsAttention, match="certificate"):
        await read(broker.of(broker.server.tls_url()), bool)
    assert await read(broker.of(broker.server.tls_url(), ca_bundle=str(broker.server.certificate)), bool)


async def test_a_private_address_is_refused(broker: MqttBroker) -> None:
    account = MqttAccount(url=broker.server.url())
    with pytest.raises(Refused, match="private"):
        await read(MqttStream(MqttQuery(topics=["a"]), account, host(private=False)), bool)


async def publish(broker: MqttBroker, **params: Any) -> Any:
    account = MqttAccount(url=broker.server.url())
    call = Call(params=Publication(**params), account=account, host=host(), idempotency_key="run-7:step-1")
    return await plugin.actions["publish"].run(call)


async def test_publish_sends_the_idempotency_key_as_correlation_data(broker: MqttBroker) -> None:
    assert await publish(broker, topic="orders/x", data={"n": 0}) == {"topic": "orders/x", "subscribers": False}
    source = broker.of(metadata=True)
    [begin] = await read(source, bool)
    assert await publish(broker, topic="orders/x", data={"n": 5}) == {"topic": "orders/x", "subscribers": True}
    [event] = events(await read(source, has(1), begin.cursor))
    assert event.data["n"] == 5
    assert event.data["_message"]["correlation"] == "run-7:step-1"
    assert event.data["_message"]["content_type"] == "application/json"
    assert event.data["_message"]["retained"] is False


async def test_publishing_where_it_is_not_allowed_is_said_in_words(broker: MqttBroker) -> None:
    with pytest.raises(NeedsAttention, match="forbidden/x"):
        await publish(broker, topic="forbidden/x", data={})


@pytest.mark.parametrize("topic", ["", "$share/group/orders", "a#", "a/#/b", "a+/b", "a\0b", "x" * 65_536])
def test_what_is_no_topic_filter_is_refused(topic: str) -> None:
    with pytest.raises(ValidationError):
        MqttQuery(topics=[topic])


@pytest.mark.parametrize("topic", ["", "a/#", "a/+/b"])
def test_a_message_goes_to_one_topic(topic: str) -> None:
    with pytest.raises(ValidationError):
        Publication(topic=topic, data=1)


@pytest.mark.parametrize("url", ["http://host", "mqtt://", "mqtt://host/path", "mqtt://host?x=1", "mqtt://host:99999"])
def test_what_is_no_address_of_a_broker_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MqttAccount(url=url.replace("//", "//user:s3cret@"))
    assert "s3cret" not in str(caught.value)
