"""WebSockets of a real server, with and without a way to go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr, ValidationError

from harken.clock import SystemClock
from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.http import Client, Metered
from harken.outgoing_rate_limit import RateLimit
from harken.services.websocket import WebSocketQuery, WebSocketStream
from harken.source import Batch, Host
from harken.testing.stream import Broker, StreamContract
from tests.servers.websocket import TOKEN, SocketServer

RESUME = {"field": "n", "param": "since"}


class SocketBroker(Broker):
    """A bare WebSocket: what is sent while nobody is connected is gone."""

    resumes = False
    path = "/live"
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, server: SocketServer) -> None:
        self._server = server
        self.clients: list[Client] = []

    def source(self) -> WebSocketStream:
        return self.of(self.path, **self.settings)

    def of(self, path: str, *, token: str = TOKEN, **query: Any) -> WebSocketStream:
        # a client of its own: a process that is forked off cannot use the connections of another
        client = Client(SystemClock())
        self.clients.append(client)
        host = Host(http=client, clock=SystemClock(), random=Random(1), allow_private=True)
        headers: Any = {"Authorization": token}
        return WebSocketStream(
            WebSocketQuery(url=self._server.url(path), headers=headers, **{"heartbeat": 0.5, **query}), host
        )

    async def publish(self, bodies: Sequence[bytes]) -> None:
        self._server.publish(bodies)

    async def restart(self) -> bool:
        await self._server.stop()
        await self._server.start()
        return True

    async def freeze(self) -> bool:
        self._server.freeze()
        return True

    async def thaw(self) -> None:
        self._server.thaw()

    async def away(self) -> bool:
        await self._server.stop()
        return True

    def stranger(self) -> WebSocketStream:
        return self.of("/live", token="Bearer wrong")

    def lost(self) -> WebSocketStream:
        return self.of("/no/such/socket")


class ResumingBroker(SocketBroker):
    """A server that goes on after a position which its messages carry, and never deletes any."""

    keeps_history = True
    resumes = True
    path = "/log"
    settings: ClassVar[dict[str, Any]] = {"resume": RESUME}


@pytest.fixture
async def server() -> AsyncIterator[SocketServer]:
    async with SocketServer() as server:
        yield server


async def _closed_after(broker: SocketBroker) -> AsyncIterator[SocketBroker]:
    yield broker
    for client in broker.clients:
        await client.close()


@pytest.fixture
async def broker(server: SocketServer) -> AsyncIterator[SocketBroker]:
    async for broker in _closed_after(SocketBroker(server)):
        yield broker


class TestWebSocket(StreamContract):
    """Without a way to go on: the tests of what was sent meanwhile are skipped, as nobody keeps it."""


class TestResumingWebSocket(StreamContract):
    @pytest.fixture
    async def broker(self, server: SocketServer) -> AsyncIterator[SocketBroker]:
        async for broker in _closed_after(ResumingBroker(server)):
            yield broker


async def read(source: WebSocketStream, until: Callable[[list[Batch]], bool], cursor: Any = None) -> list[Batch]:
    """The batches that came until then."""
    found: list[Batch] = []
    async with asyncio.timeout(200), aclosing(source.stream(cursor)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found.append(batch)
            if until(found):
                return found
    raise AssertionError("the stream ended")


def events(batches: list[Batch]) -> list[Any]:
    return [event for batch in batches for event in batch.events]


async def test_each_connection_is_a_gap_but_the_first(broker: SocketBroker) -> None:
    [first] = await read(broker.source(), bool)
    assert first.gap is None
    [second] = await read(broker.source(), bool, first.cursor)
    [third] = await read(broker.source(), bool, second.cursor)
    assert second.gap
    assert third.gap
    assert second.gap.key != third.gap.key


async def test_with_a_position_there_is_no_gap_and_without_one_yet_there_is(
    server: SocketServer, broker: SocketBroker
) -> None:
    [quiet] = await read(broker.of("/log", resume=RESUME), bool)
    [again] = await read(broker.of("/log", resume=RESUME), bool, quiet.cursor)
    assert again.gap
    server.publish([b'{"n": 1}', b'{"n": 2}'])
    found = await read(broker.of("/log", resume=RESUME), lambda found: len(events(found)) == 2, again.cursor)
    assert [event.key for event in events(found)] == [f"127.0.0.1:{server.port}/log@{n}" for n in (1, 2)]
    server.publish([b'{"n": 3}'])
    found = await read(broker.of("/log", resume=RESUME), lambda found: bool(events(found)), found[-1].cursor)
    assert [event.data["n"] for event in events(found)] == [3]
    assert not any(batch.gap for batch in found)


async def test_subscriptions_are_sent_and_can_carry_the_position(server: SocketServer, broker: SocketBroker) -> None:
    server.publish([b'{"n": 1}', b'{"n": 2}'])
    settings: dict[str, Any] = {
        "subscribe": ["hello", {"op": "subscribe"}],
        "resume": {"field": "n", "subscribe": [{"op": "go on", "since": "{position}", "text": "after {position}"}]},
    }
    await read(broker.of("/live", **settings), lambda found: len(server.said) == 2)
    assert server.said == ["hello", '{"op":"subscribe"}']
    found = await read(broker.of("/live", **settings), lambda found: bool(events(found)), {"last": 1})
    assert server.said[2:] == ['{"op":"go on","since":1,"text":"after 1"}']
    assert [event.data["n"] for event in events(found)] == [2]


async def test_a_quiet_server_is_heard_by_its_pongs(server: SocketServer, broker: SocketBroker) -> None:
    found = await read(broker.of("/live", heartbeat=0.1), lambda found: len(found) == 4)
    assert server.pings >= 3
    assert not events(found)


@pytest.mark.parametrize(
    ("code", "settings", "error", "words"),
    [
        (1000, {}, RetryLater, "code 1000"),
        (1008, {}, NeedsAttention, "refuses us"),
        (1009, {}, RetryLater, "code 1009"),
        (1009, {"resume": RESUME}, NeedsAttention, "too large"),
        (4001, {}, RetryLater, "code 4001"),
    ],
)
async def test_a_server_that_closes_is_said_in_words(
    server: SocketServer, broker: SocketBroker, code: int, settings: Any, error: type[HarkenError], words: str
) -> None:
    server.code = code
    with pytest.raises(error, match=words):
        await read(broker.of("/close", **settings), lambda found: False)


async def test_a_message_beyond_every_limit_ends_the_connection(server: SocketServer, broker: SocketBroker) -> None:
    source = broker.of("/log", resume=RESUME, max_bytes=1_000)
    server.publish([b"x" * 5_000_000])
    with pytest.raises(NeedsAttention, match="too large"):
        await read(source, lambda found: False)


async def test_a_redirect_is_not_followed(broker: SocketBroker) -> None:
    with pytest.raises(NeedsAttention, match="redirects the WebSocket handshake"):
        await read(broker.of("/moved"), bool)


async def test_the_client_of_a_credential_opens_it_too(server: SocketServer) -> None:
    clock = SystemClock()
    client = Client(clock)

    async def keep() -> None:
        raise AssertionError("nothing blocks further calls")

    metered = Metered(client, RateLimit(clock), "f", keep)
    host = Host(http=metered, clock=clock, random=Random(1), allow_private=True)
    query = WebSocketQuery(url=server.url("/live"), headers={"Authorization": SecretStr(TOKEN)})
    assert len(await read(WebSocketStream(query, host), bool)) == 1
    await client.close()


async def test_a_private_address_is_refused(server: SocketServer) -> None:
    client = Client(SystemClock())
    host = Host(http=client, clock=SystemClock(), random=Random(1))
    with pytest.raises(Refused, match="private"):
        await read(WebSocketStream(WebSocketQuery(url=server.url("/live")), host), bool)
    await client.close()


@pytest.mark.parametrize(
    "query",
    [
        {"url": "ftp://host/"},
        {"url": "wss://"},
        {"url": "wss://host", "resume": {"field": "n"}},
        {"url": "wss://host", "resume": {"param": "since"}},
    ],
)
def test_a_query_that_cannot_work_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WebSocketQuery(**query)
