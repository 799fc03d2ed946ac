"""Google Pub/Sub on a server that speaks its REST interface: Google's emulator cannot be had from the registries."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from structlog.testing import capture_logs

from harken.clock import SystemClock
from harken.errors import NeedsAttention
from harken.http import Client
from harken.services.pubsub import PubSubAccount, PubSubQuery, PubSubStream, plugin
from harken.source import Batch, Call, Host, Lag
from harken.testing.fakes.pubsub import EMAIL, PROJECT, PubSubServer, make_key
from harken.testing.stream import Broker, StreamContract
from tests.servers.ports import free_port


class PubSubBroker(Broker):
    """A subscription with ordering and a dead-letter policy. Its deadline is shorter than Google allows."""

    def __init__(self) -> None:
        self.server = PubSubServer(SystemClock())
        self._port = free_port()
        self._serving = AsyncExitStack()
        self._clients: list[Client] = []
        self._subscribe()

    def _subscribe(self) -> None:
        self.subscription = self.server.subscribe("orders-reader", "orders", deadline=2, ordered=True, max_attempts=5)

    async def start(self) -> None:
        await self._serving.enter_async_context(self.server.serve(self._port))

    async def close(self) -> None:
        await self._serving.aclose()
        for client in self._clients:
            await client.close()

    def host(self) -> Host:
        clock = SystemClock()
        client = Client(clock)
        self._clients.append(client)
        return Host(http=client, clock=clock, random=Random(1), allow_private=True)

    def account(self, **changed: Any) -> PubSubAccount:
        return PubSubAccount.model_validate({"key": make_key(), "endpoint": f"127.0.0.1:{self._port}", **changed})

    def source(self, **query: Any) -> PubSubStream:
        asked = PubSubQuery.model_validate({"subscription": "orders-reader", "wait_seconds": 1, **query})
        source = PubSubStream(asked, self.account(), self.host())
        source.hold_seconds = 2.0
        return source

    async def publish(self, bodies: Sequence[bytes], **more: Any) -> None:
        self.server.publish("orders", [{"data": b64encode(body).decode(), **more} for body in bodies])

    async def left(self) -> int:
        return len(self.subscription.waiting)

    async def offered(self) -> int:
        await asyncio.sleep(0.05)
        return sum(one.until <= SystemClock().time() for one in self.subscription.waiting)

    async def redelivered(self) -> int:
        return self.subscription.most_attempts - 1

    async def dead(self) -> int:
        return len(self.subscription.dead)

    async def restart(self) -> bool:
        await self._serving.aclose()
        await self.start()
        return True

    async def recreate(self) -> bool:
        self._subscribe()
        return True

    async def freeze(self) -> bool:
        self.server.freeze()
        return True

    async def thaw(self) -> None:
        self.server.thaw()

    async def away(self) -> bool:
        await self._serving.aclose()
        return True

    def stranger(self) -> PubSubStream:
        key = make_key(generate_private_key(public_exponent=65_537, key_size=2_048))
        return PubSubStream(PubSubQuery(subscription="orders-reader"), self.account(key=key), self.host())

    def lost(self) -> PubSubStream:
        return self.source(subscription="nobody-made-this")


@pytest.fixture
async def broker() -> AsyncIterator[PubSubBroker]:
    broker = PubSubBroker()
    await broker.start()
    yield broker
    broker.server.thaw()
    await broker.close()


class TestPubSub(StreamContract):
    """A subscription that is pulled over REST."""


async def read(source: PubSubStream, wanted: int, *, acknowledge: bool = True) -> list[Batch]:
    """Batches with so many messages. The last one is acknowledged too, unless the connection ends before that."""
    batches: list[Batch] = []
    async with asyncio.timeout(200), aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        async for batch in stream:
            batches.append(batch)
            if sum(len(one.events) + len(one.rejected) for one in batches) >= wanted:
                break
        if acknowledge:
            await anext(stream)
    return batches


def numbers_in(batches: Sequence[Batch]) -> list[int]:
    return [event.data["n"] for batch in batches for event in batch.events]


async def test_what_is_said_about_a_message(broker: PubSubBroker) -> None:
    await broker.publish([b'{"n": 1}'], attributes={"tenant": "acme"}, orderingKey="customer-7")
    [event] = [event for batch in await read(broker.source(metadata=True), 1) for event in batch.events]
    about = event.data["_message"]
    assert (event.key, event.subject) == (f"orders-reader@{about['id']}", "customer-7")
    assert event.occurred_at is not None
    assert about == {
        "id": about["id"],
        "ordering_key": "customer-7",
        "deliveries": 1,
        "attributes": {"tenant": "acme"},
    }


async def test_a_key_that_was_not_acknowledged_blocks_no_other_and_comes_again_in_its_order(
    broker: PubSubBroker,
) -> None:
    await broker.publish([b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'], orderingKey="a")
    assert numbers_in(await read(broker.source(batch=2), 2, acknowledge=False)) == [1, 2]
    await broker.publish([b'{"n": 9}'], orderingKey="b")
    assert numbers_in(await read(broker.source(), 4)) == [9, 1, 2, 3]
    assert await broker.left() == 0


async def test_what_is_held_gets_a_new_deadline_and_a_hold_that_fails_leaves_the_commit_alone(
    broker: PubSubBroker,
) -> None:
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    source = broker.source()
    async with asyncio.timeout(200), aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert len((await anext(stream)).events) == 2
        before = [one.until for one in broker.subscription.waiting]
        await source.hold()
        assert all(one.until > end for one, end in zip(broker.subscription.waiting, before, strict=True))
        await broker.away()
        with capture_logs() as logs:
            await source.hold()
    assert [line["event"] for line in logs] == ["pubsub.hold_failed"]


async def test_the_lag_is_the_age_of_the_oldest_that_was_just_received(broker: PubSubBroker) -> None:
    await broker.publish([b'{"n": 1}'])
    # longer than the clock's smallest step
    await asyncio.sleep(0.01)
    await broker.publish([b'{"n": 2}'])
    batches = await read(broker.source(), 2)
    sent = [event.occurred_at for batch in batches for event in batch.events]
    lags = [batch.lag for batch in batches if batch.events]
    assert lags[0] is not None and lags[0].read_to is not None
    assert lags[0].read_to == sent[0] == min(at for at in sent if at)
    assert lags[0].at(lags[0].read_to + timedelta(seconds=90)) == Lag(seconds=90.0)
    async with asyncio.timeout(200), aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert (await anext(stream)).lag == Lag(seconds=0.0), "nothing was there"


async def test_data_that_is_not_base64_is_rejected(broker: PubSubBroker) -> None:
    broker.server.publish("orders", [{"data": "!!"}])
    [letter] = [one for batch in await read(broker.source(), 1) for one in batch.rejected]
    assert "base64" in letter.reason
    assert await broker.left() == 0


async def test_an_account_that_may_only_consume_is_enough(broker: PubSubBroker) -> None:
    broker.server.readable = False
    await broker.publish([b'{"n": 1}'])
    source = broker.source()
    assert numbers_in(await read(source, 1)) == [1]
    assert source.hold_seconds == 10.0


async def test_what_exactly_once_delivery_refuses_is_let_go(broker: PubSubBroker) -> None:
    broker.subscription.exactly_once = True
    await broker.publish([b'{"n": 1}', b'{"n": 2}'])
    async with asyncio.timeout(200), aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert len((await anext(stream)).events) == 2
        # the first was delivered to somebody else meanwhile
        broker.subscription.waiting[0].attempts += 1
        await anext(stream)
    assert [one.message["data"] for one in broker.subscription.waiting] == [b64encode(b'{"n": 1}').decode()]


async def test_a_subscription_that_was_not_read_for_longer_than_it_keeps_messages_is_a_gap(
    broker: PubSubBroker,
) -> None:
    async with aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
        cursor = (await anext(stream)).cursor
    async with aclosing(broker.source().stream(cursor)) as stream:  # type: ignore[type-var]
        assert (await anext(stream)).gap is None
    long_ago = {"hour": cursor["hour"] - 9 * 24}
    async with aclosing(broker.source().stream(long_ago)) as stream:  # type: ignore[type-var]
        gap = (await anext(stream)).gap
    assert gap is not None and "keeps messages for 7d" in gap.reason


async def publish(broker: PubSubBroker, **params: Any) -> Any:
    act = plugin.actions["publish"]
    call = Call(
        params=act.params.model_validate(params), account=broker.account(), host=broker.host(), idempotency_key="run-1"
    )
    return await act.run(call)


async def test_publish_sends_the_key_of_the_step_with_a_message(broker: PubSubBroker) -> None:
    sent = await publish(broker, topic="orders", data={"n": 1}, ordering_key="a", attributes={"tenant": "acme"})
    [event] = [event for batch in await read(broker.source(metadata=True), 1) for event in batch.events]
    assert (event.key, event.subject) == (f"orders-reader@{sent['id']}", "a")
    assert sent["topic"] == f"projects/{PROJECT}/topics/orders"
    assert event.data["_message"]["attributes"] == {"idempotency-key": "run-1", "tenant": "acme"}


async def test_publish_to_a_topic_that_is_not_there_or_of_another_project_says_so(broker: PubSubBroker) -> None:
    with pytest.raises(NeedsAttention, match="404 for nobody"):
        await publish(broker, topic="nobody-made-this", data={})
    with pytest.raises(NeedsAttention, match="403 for orders"):
        await publish(broker, topic="projects/another/topics/orders", data={})


async def test_the_token_is_the_one_that_google_describes(broker: PubSubBroker, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(make_key())
    account = broker.account(key=None, key_file=str(tmp_path / "key.json"))
    source = PubSubStream(PubSubQuery(subscription="orders-reader"), account, broker.host())
    async with aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
    token = broker.server.seen[-1].headers["authorization"].removeprefix("Bearer ")
    key: Any = load_pem_private_key(json.loads(make_key())["private_key"].encode(), None)
    claims = jwt.decode(token, key.public_key(), algorithms=["RS256"], audience="https://pubsub.googleapis.com/")
    assert (claims["iss"], claims["sub"]) == (EMAIL, EMAIL)
    assert jwt.get_unverified_header(token)["kid"] == "k1"


@pytest.mark.parametrize("key", ["{", "[]", '{"client_email": "a@b", "private_key": "no key of mine"}'])
def test_a_key_that_is_none_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ValueError, match="not the JSON key of a service account") as caught:
        PubSubAccount.model_validate({"key": key})
    assert "no key of mine" not in str(caught.value)


def test_an_account_needs_a_key_or_an_emulator() -> None:
    with pytest.raises(ValueError, match="key or key_file"):
        PubSubAccount.model_validate({"project": "acme-prod"})
    assert PubSubAccount(endpoint="localhost:8085").endpoint == "http://localhost:8085"


@pytest.mark.parametrize("name", ["", "ab", "../up", "a b c", "orders\n", "projects/x/topics/orders", "orders:pull"])
def test_a_name_that_no_subscription_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="subscription"):
        PubSubQuery(subscription=name)
