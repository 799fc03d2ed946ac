"""Server-sent events of a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

from harken.clock import SystemClock
from harken.errors import Deferred, Garbled, NeedsAttention, Refused, RetryLater
from harken.http import Client, Metered
from harken.outgoing_rate_limit import RateLimit
from harken.services.sse import EventStream, SseQuery
from harken.source import Batch, Host
from harken.testing.stream import Broker, StreamContract
from tests.servers.event_stream import TOKEN, EventServer

Make = Callable[..., EventStream]


class PatientClock(SystemClock):
    """Does not sleep, and remembers for how long it was to."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class SseBroker(Broker):
    keeps_history = True

    def __init__(self, server: EventServer) -> None:
        self._server = server
        self.clients: list[Client] = []

    def source(self) -> EventStream:
        return self.of("/events")

    def of(self, path: str, *, clock: SystemClock | None = None, token: str = TOKEN, **query: Any) -> EventStream:
        # a client of its own: a process that is forked off cannot use the connections of another
        client = Client(SystemClock())
        self.clients.append(client)
        host = Host(http=client, clock=clock or SystemClock(), random=Random(1), allow_private=True)
        headers: Any = {"Authorization": token}
        return EventStream(SseQuery(url=self._server.url(path), headers=headers, **query), host)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        self._server.publish(bodies)

    async def restart(self) -> bool:
        await self._server.stop()
        await self._server.start()
        return True

    async def trim(self) -> bool:
        self._server.trim()
        return True

    async def recreate(self) -> bool:
        self._server.recreate()
        return True

    async def freeze(self) -> bool:
        self._server.freeze()
        return True

    async def thaw(self) -> None:
        self._server.thaw()

    async def away(self) -> bool:
        await self._server.stop()
        return True

    def stranger(self) -> EventStream:
        return self.of("/events", token="Bearer wrong")

    def lost(self) -> EventStream:
        return self.of("/no/such/stream")


@pytest.fixture
async def server() -> AsyncIterator[EventServer]:
    async with EventServer() as server:
        yield server


@pytest.fixture
async def broker(server: EventServer) -> AsyncIterator[SseBroker]:
    broker = SseBroker(server)
    yield broker
    for client in broker.clients:
        await client.close()


class TestServerSentEvents(StreamContract):
    """On a server that numbers its events, and says 410 when it does not have what follows ours."""


async def read(source: EventStream, until: Callable[[list[Batch]], bool], cursor: Any = None) -> list[Batch]:
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


async def test_the_name_of_an_event_is_its_type_and_metadata_has_it(server: EventServer, broker: SseBroker) -> None:
    server.script = b'event: order.paid\nid: 7\ndata: {"n": 1}\n\ndata: {"n": 2}\n\n'
    found = events(await read(broker.of("/events", metadata=True), lambda found: len(events(found)) == 2))
    assert [event.type for event in found] == ["order.paid", "sse.message"]
    assert found[0].key == f"127.0.0.1:{server.port}/events@7"
    assert found[0].data["_message"] == {"event": "order.paid", "id": "7"}


async def test_events_without_an_id_are_never_taken_for_repeats(server: EventServer, broker: SseBroker) -> None:
    server.script = b'id: 7\ndata: {"n": 1}\n\ndata: {"n": 2}\n\ndata: {"n": 2}\n\n'
    source = broker.of("/events", clock=PatientClock())
    found = events(await read(source, lambda found: len(events(found)) == 6))
    keys = [event.key for event in found]
    assert keys[0] == keys[3], "the server names it, so it is a repeat"
    assert len({*keys}) == 5


async def test_a_connection_without_an_id_to_go_on_from_is_a_gap(server: EventServer, broker: SseBroker) -> None:
    server.script = b'data: {"n": 1}\n\n'
    source = broker.of("/events", clock=PatientClock())
    found = await read(source, lambda found: len(events(found)) == 3)
    gaps = [batch.gap for batch in found if batch.gap]
    assert [gap.messages for gap in gaps] == [None, None]
    assert len({gap.key for gap in gaps}) == 2
    assert found[0].gap is None
    assert server.last_ids == [None, None, None]


async def test_an_id_is_a_position_even_without_data_and_can_be_taken_back(
    server: EventServer, broker: SseBroker
) -> None:
    server.script = b"id: 7\n\n"
    clock = PatientClock()
    found = await read(broker.of("/events", clock=clock), lambda found: len(server.last_ids) == 2)
    assert found[-1].cursor == {"id": "7"}
    assert not any(batch.gap for batch in found)
    server.script = b"id\n\n"
    found = await read(broker.of("/events", clock=clock), lambda found: len(server.last_ids) == 4, {"id": "7"})
    assert server.last_ids == [None, "7", "7", None]
    assert found[-1].gap


@pytest.mark.parametrize(
    ("said", "seconds"), [(b"", 3.0), (b"retry: 1500\n", 1.5), (b"retry: 0\n", 0.2), (b"retry: 99999999999\n", 30.0)]
)
async def test_retry_is_honoured_within_limits(
    server: EventServer, broker: SseBroker, said: bytes, seconds: float
) -> None:
    server.script, clock = said + b"id: 1\n\n", PatientClock()
    await read(broker.of("/events", clock=clock), lambda found: len(clock.slept) == 1)
    assert clock.slept == [seconds]


async def test_204_means_that_nothing_more_comes(server: EventServer, broker: SseBroker) -> None:
    server.status, server.script = 204, b""
    with pytest.raises(NeedsAttention, match="nothing more will come"):
        await read(broker.source(), bool)


async def test_a_page_is_no_event_stream(server: EventServer, broker: SseBroker) -> None:
    server.content_type, server.script = "text/html", b"<html>"
    with pytest.raises(Garbled, match="event stream"):
        await read(broker.source(), bool)


async def test_an_error_of_the_server_is_tried_again(server: EventServer, broker: SseBroker) -> None:
    server.status, server.script = 503, b""
    with pytest.raises(RetryLater, match="503"):
        await read(broker.source(), bool)


async def test_an_endless_id_is_refused(server: EventServer, broker: SseBroker) -> None:
    server.script = b"id: " + b"x" * 5_000 + b"\ndata: {}\n\n"
    with pytest.raises(NeedsAttention, match="1,000 characters"):
        await read(broker.source(), lambda found: len(found) > 2)


async def test_the_position_goes_with_a_redirect_and_the_token_does_not(server: EventServer, broker: SseBroker) -> None:
    server.publish([b'{"n": 1}', b'{"n": 2}'])
    found = events(await read(broker.of("/moved", token="Bearer of another"), lambda f: bool(events(f)), {"id": "1-1"}))
    assert [event.data["n"] for event in found] == [2]
    assert server.last_ids == ["1-1"]


async def test_ids_of_a_server_that_began_again_are_not_those_of_before(server: EventServer, broker: SseBroker) -> None:
    server.publish([b'{"n": 1}', b'{"n": 2}'])
    before = await read(broker.source(), lambda found: len(events(found)) == 2)
    server.recreate(told=False)
    server.publish([b'{"n": 3}'])
    after = await read(broker.source(), lambda found: len(events(found)) == 1, before[-1].cursor)
    assert after[0].gap
    assert not {event.key for event in events(before)} & {event.key for event in events(after)}
    again = await read(broker.source(), bool, after[-1].cursor)
    assert again[0].gap is None


async def test_a_connection_counts_against_the_rate_limit_of_its_credential(server: EventServer) -> None:
    clock, server.script = SystemClock(), b"id: 1\ndata: {}\n\n"
    client, limit, kept = Client(clock), RateLimit(clock), []

    async def keep() -> None:
        kept.append(limit.blocked_until)

    host = Host(http=Metered(client, limit, "f", keep), clock=clock, random=Random(1), allow_private=True)
    source = EventStream(SseQuery(url=server.url()), host)
    assert len(events(await read(source, lambda found: bool(events(found))))) == 1
    assert not kept
    server.status, server.headers = 429, {"Retry-After": "60"}
    with pytest.raises(RetryLater, match="429"):
        await read(source, bool)
    assert len(kept) == 1
    with pytest.raises(Deferred):
        await read(source, bool)
    assert len(server.last_ids) == 2, "no call was made"
    await client.close()


async def test_a_private_address_is_refused(server: EventServer) -> None:
    client = Client(SystemClock())
    host = Host(http=client, clock=SystemClock(), random=Random(1))
    with pytest.raises(Refused, match="private"):
        await read(EventStream(SseQuery(url=server.url()), host), bool)
    await client.close()
