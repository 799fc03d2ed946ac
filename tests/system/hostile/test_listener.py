"""Strangers who connect and do not ask, ask without end, or ask for everything at once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest
import structlog.testing
import uvloop

from harken.app.http_protocol import MAX_HEAD, Connections
from harken.app.inbound_connection_limits import Limits
from harken.app.server import Listener, bind

PATIENCE = 120.0
NEVER = 600.0
SOON = 0.2
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on the event loop that a real process has."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        uvloop.run(test(**given))

    return run


class Peer:
    """A connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def deliver(self, data: bytes) -> None:
        """Send this, and let the other side read it before the next."""
        self._writer.write(data)
        await self._writer.drain()
        for _ in range(5):
            await asyncio.sleep(0)

    async def send_until_refused(self, piece: bytes, most: int) -> int:
        """Send the piece again and again; how many bytes were sent until the other side did not want more."""
        sent = 0
        while sent < most and not self._reader.at_eof() and not self._reader._buffer:  # type: ignore[attr-defined]
            try:
                self._writer.write(piece)
                await self._writer.drain()
            except ConnectionError:
                break
            sent += len(piece)
            await asyncio.sleep(0)
        return sent

    async def answer(self) -> tuple[int, bytes]:
        """The status and body of the next answer; status 0 when the connection was closed instead."""
        async with asyncio.timeout(PATIENCE):
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
                return int(head.split()[1]), await self._reader.readexactly(length)
            except (ConnectionError, asyncio.IncompleteReadError):
                return 0, b""

    async def answers(self, count: int) -> list[bytes]:
        return [(await self.answer())[1] for _ in range(count)]

    async def statuses(self) -> list[int]:
        """Those of all answers until the connection is closed."""
        found = []
        while status := (await self.answer())[0]:
            found.append(status)
        return found

    async def is_closed(self) -> bool:
        """Whether the other side closes it without a word."""
        return await self.answer() == (0, b"")

    def close(self) -> None:
        self._writer.close()


class Site:
    """A listener whose application reads each request and answers with its length; `hold` lets it wait before."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.answering = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.port = 0
        self._stack = AsyncExitStack()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, scope["path"] != "/unread"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
        self.answering += 1
        await self.hold.wait()
        body = b"x" * 50_000_000 if scope["path"] == "/long" else b"%d" % size
        head = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def peer(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self._stack.callback(peer.close)
        return peer

    async def peers(self, *sent: bytes) -> list[Peer]:
        """Connections that came one after the other, each with what it has sent."""
        found = []
        for data in sent:
            before = len(self.connections.table)
            peer = await self.peer()
            peer.send(data)
            found.append(peer)
            await until(lambda before=before: len(self.connections.table) > before or self.refused)  # type: ignore[misc]
        return found

    @property
    def refused(self) -> dict[str, int]:
        return self.connections.refused.counts()

    async def close(self) -> None:
        self.hold.set()
        await self._stack.aclose()


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not check():  # noqa: ASYNC110 - the listener has no event to wait for
            await asyncio.sleep(0.002)


@asynccontextmanager
async def listening(*, of_api: bool = False, **limits: Any) -> AsyncIterator[Site]:
    """A listener that counts loopback as any other address, and whose deadlines are far away unless given."""
    far: dict[str, Any] = {"head_seconds": NEVER, "body_seconds": NEVER, "idle_seconds": NEVER, "proxies": ()}
    site = Site(Connections(Limits(**far | limits)))
    listener = Listener(site, bind("127.0.0.1", 0), site.connections, of_api=of_api)
    site.port = listener.port
    await listener.start()
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
    try:
        yield site
    finally:
        await site.close()
        await listener.stop()
    assert faults == []


@on_uvloop
async def test_a_head_has_at_most_64_kb() -> None:
    start, end = b"GET / HTTP/1.1\r\nHost: h\r\nX: ", b"\r\n\r\n"
    longest = start + b"x" * (MAX_HEAD - len(start + end)) + end
    async with listening() as site:
        peer = await site.peer()
        for head in (longest, longest, GET):
            peer.send(head)
            assert await peer.answer() == (200, b"0")
        peer.send(longest.replace(end, b"x" + end))
        status, body = await peer.answer()
        assert (status, b"65536" in body) == (431, True)
        assert await peer.is_closed()
        assert site.refused == {"head_too_large": 1}


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /", b"x" * 9_999),
        (b"GET / HTTP/1.1\r\nX: ", b"x" * 9_999),
        (b"GET / HTTP/1.1\r\nX", b"x" * 9_999),
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n" * 999),
        (b"", b"\r\n" * 999),
        (CHUNKED + b"1\r\nx\r\n0\r\nX: ", b"x" * 9_999),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"X: y\r\n" * 999),
        (CHUNKED + b"1;", b"x" * 9_999),
    ],
    ids=["path", "value", "name", "headers", "empty-lines", "trailer", "trailers", "chunk-extension"],
)
@on_uvloop
async def test_what_never_ends_is_refused_after_64_kb(start: bytes, piece: bytes) -> None:
    async with listening() as site:
        peer = await site.peer()
        peer.send(start)
        # what the other side does not take any more is in the buffers of both
        assert await peer.send_until_refused(piece, 50_000_000) < 20_000_000
        await until(lambda: site.refused)
        assert site.refused == {"head_too_large": 1}
        peer.close()
        await until(lambda: len(site.connections.table) == 0)


@on_uvloop
async def test_whoever_sends_too_much_of_a_head_still_reads_why() -> None:
    async with listening() as site:
        peer = await site.peer()
        peer.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 500_000)
        assert (await peer.answer())[0] == 431


@on_uvloop
async def test_whoever_goes_on_after_a_refusal_is_cut_off() -> None:
    async with listening(linger_seconds=NEVER) as site:
        peer = await site.peer()
        peer.send(b"nonsense\r\n\r\n")
        assert (await peer.answer())[0] == 400
        assert len(site.connections.table) == 1
        peer.send(b"x" * 3_000_000)
        await until(lambda: len(site.connections.table) == 0)


@pytest.mark.parametrize(
    ("sent", "statuses", "reason"),
    [
        (b"", [], "head_timeout"),
        (b"GET / HT", [408], "head_timeout"),
        (b"\r\n\r\n", [408], "head_timeout"),
        (GET + b"GET / HT", [200, 408], "head_timeout"),
        (POST + b"Content-Length: 9\r\n\r\n", [408], "body_timeout"),
        (POST + b"Content-Length: 9\r\n\r\n12345", [408], "body_timeout"),
        (CHUNKED + b"5\r\n12345\r\n", [408], "body_timeout"),
        (GET + CHUNKED + b"5\r\n12", [200, 408], "body_timeout"),
    ],
    ids=["nothing", "line", "empty-lines", "second-line", "no-body", "part", "chunk", "second-chunk"],
)
@on_uvloop
async def test_head_and_body_have_deadlines(sent: bytes, statuses: list[int], reason: str) -> None:
    async with listening(head_seconds=SOON, body_seconds=SOON) as site:
        peer = await site.peer()
        peer.send(sent)
        assert await peer.statuses() == statuses
        assert site.refused == {reason: 1}


@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"", b"\r\n"), (b"GET / HTTP/1.1\r\n", b"X: y\r\n"), (CHUNKED, b"1\r\nx\r\n")],
    ids=["empty-lines", "headers", "chunks"],
)
@on_uvloop
async def test_a_drop_now_and_then_does_not_move_the_deadline(start: bytes, piece: bytes) -> None:
    async with listening(head_seconds=SOON, body_seconds=SOON) as site:
        peer = await site.peer()
        peer.send(start)
        await peer.send_until_refused(piece, 10_000_000)
        assert (await peer.answer())[0] in (408, 431)
        assert sum(site.refused.values()) == 1


@on_uvloop
async def test_an_idle_connection_is_closed_and_one_that_is_answered_is_not() -> None:
    async with listening(idle_seconds=SOON, head_seconds=SOON, body_seconds=SOON) as site:
        idle, busy = await site.peers(GET, GET)
        assert await idle.statuses() == [200]
        site.hold.clear()
        [waiting] = await site.peers(GET)
        assert await busy.statuses() == [200]
        # both others are closed, so the deadlines of this one are long past
        site.hold.set()
        assert await waiting.answer() == (200, b"0")
        assert site.refused == {}


@on_uvloop
async def test_pipelined_requests_are_answered_in_order_but_not_any_number() -> None:
    numbered = [POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size for size in range(1_000)]
    async with listening() as site:
        peer = await site.peer()
        peer.send(b"".join(numbered[:10]))
        assert [(await peer.answer())[1] for _ in range(10)] == [b"%d" % size for size in range(10)]
        assert site.refused == {}
        peer.send(b"".join(numbered[:100]))
        assert [(await peer.answer())[1] for _ in range(16)] == [b"%d" % size for size in range(16)]
        assert await peer.is_closed()
        assert site.refused == {"pipelined": 1}
        assert site.answering == 26


@pytest.mark.parametrize("seed", range(8))
@on_uvloop
async def test_requests_are_understood_wherever_their_packets_are_cut(seed: int) -> None:
    random = Random(seed)
    sizes = [random.choice((0, 1, 7, 5_000, 70_000, 200_000)) for _ in range(40)]
    sent = b"".join(random.choice((with_length, in_chunks, with_trailers))(size, random) for size in sizes)
    async with listening() as site:
        peer = await site.peer()
        answers = asyncio.create_task(peer.answers(len(sizes)))
        while sent:
            cut = random.choice((1, 20, 300, 4_000, 66_000))
            await peer.deliver(sent[:cut])
            sent = sent[cut:]
        assert await answers == [b"%d" % size for size in sizes]
        assert site.refused == {}


def with_length(size: int, random: Random) -> bytes:
    return POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size


def in_chunks(size: int, random: Random) -> bytes:
    chunks = []
    while size:
        length = random.randint(1, size)
        chunks.append(b"%x\r\n%b\r\n" % (length, b"x" * length))
        size -= length
    return CHUNKED + b"".join(chunks) + b"0\r\n\r\n"


def with_trailers(size: int, random: Random) -> bytes:
    return in_chunks(size, random)[:-2] + b"X-One: 1\r\nX-Two: 2\r\n\r\n"


@on_uvloop
async def test_an_answer_is_not_disturbed_by_nonsense_that_follows_its_request() -> None:
    async with listening() as site:
        site.hold.clear()
        [peer] = await site.peers(GET + b"nonsense\r\n\r\n")
        await until(lambda: site.refused)
        site.hold.set()
        assert await peer.statuses() == [200]
        assert site.refused == {"malformed": 1}


@on_uvloop
async def test_nonsense_in_a_body_is_answered_once() -> None:
    async with listening() as site:
        for path in (b"/", b"/unread"):
            peer = await site.peer()
            peer.send(CHUNKED.replace(b"/", path, 1) + b"nonsense\r\n")
            assert await peer.statuses() == [400]
        assert site.refused == {"malformed": 2}


@on_uvloop
async def test_the_rest_of_a_body_that_nobody_wants_is_read_so_that_the_answer_is() -> None:
    async with listening() as site:
        peer = await site.peer()
        peer.send(POST.replace(b"/", b"/unread", 1) + b"Content-Length: 5000000\r\n\r\n" + b"x" * 2_500_000)
        assert await peer.answer() == (200, b"0")
        peer.send(b"x" * 2_500_000 + GET)
        assert await peer.answer() == (200, b"0")


@pytest.mark.parametrize("length", [b"Content-Length: 11000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
@on_uvloop
async def test_whoever_writes_a_large_body_before_it_reads_gets_the_answer(length: bytes) -> None:
    async with listening() as site:
        peer = await site.peer()
        part = b"x" * 11_000 if length.startswith(b"Content") else b"2af8\r\n" + b"x" * 11_000 + b"\r\n"
        peer.send(POST.replace(b"/", b"/unread", 1) + b"Connection: close\r\n" + length)
        for _ in range(1_000):
            await peer.deliver(part)
        peer.send(b"" if length.startswith(b"Content") else b"0\r\n\r\n")
        assert await peer.answer() == (200, b"0")
        assert await peer.is_closed()
        await until(lambda: len(site.connections.table) == 0)


@on_uvloop
async def test_a_body_that_nobody_wants_is_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harken.app.http_protocol.MAX_UNWANTED", 1_000_000)
    async with listening(linger_seconds=NEVER) as site:
        peer = await site.peer()
        peer.send(POST.replace(b"/", b"/unread", 1) + b"Connection: close\r\nContent-Length: 50000000\r\n\r\n")
        assert await peer.answer() == (200, b"0")
        peer.send(b"x" * 10_000_000)
        await until(lambda: len(site.connections.table) == 0)


@on_uvloop
async def test_the_rest_of_a_body_that_never_comes_is_not_waited_for_without_end() -> None:
    async with listening(body_seconds=SOON) as site:
        peer = await site.peer()
        peer.send(POST.replace(b"/", b"/unread", 1) + b"Connection: close\r\nContent-Length: 50000000\r\n\r\nx")
        assert await peer.answer() == (200, b"0")
        await until(lambda: len(site.connections.table) == 0)


@on_uvloop
async def test_chunks_that_nobody_wants_are_not_parsed_without_end() -> None:
    async with listening(linger_seconds=SOON) as site:
        peer = await site.peer()
        peer.send(CHUNKED.replace(b"/", b"/unread", 1))
        assert await peer.answer() == (200, b"0")
        assert await peer.send_until_refused(b"1\r\nx\r\n" * 9_999, 50_000_000) < 20_000_000
        await until(lambda: len(site.connections.table) == 0)


@on_uvloop
async def test_whoever_does_not_read_its_answer_is_not_kept_for_ever() -> None:
    async with listening(stalled_seconds=SOON) as site:
        await site.peers(GET.replace(b"/ ", b"/long "))
        await until(lambda: site.refused)
        assert site.refused == {"not_reading": 1}
        await until(lambda: len(site.connections.table) == 0)


@on_uvloop
async def test_from_one_address_the_oldest_that_waits_makes_room() -> None:
    async with listening(per_address=3) as site:
        site.hold.clear()
        first, *others = await site.peers(GET, b"", b"GET")
        await until(lambda: site.answering == 1)
        newest = await site.peer()
        newest.send(GET)
        # neither the one that is answered nor the youngest
        assert await others[0].is_closed()
        await until(lambda: site.answering == 2)
        site.hold.set()
        assert [(await peer.answer())[0] for peer in (first, newest)] == [200, 200]
        assert site.refused == {"address": 1}


@on_uvloop
async def test_when_all_are_being_answered_the_next_one_is_told_to_come_again() -> None:
    async with listening(connections=2) as site:
        site.hold.clear()
        busy = await site.peers(GET, GET)
        await until(lambda: site.answering == 2)
        late = await site.peer()
        status, body = await late.answer()
        assert (status, b"too many connections" in body) == (503, True)
        assert site.refused == {"connections": 1}
        site.hold.set()
        assert [(await peer.answer())[0] for peer in busy] == [200, 200]
        # idle now, so the oldest gives its place away, which is no refusal
        after = await site.peer()
        after.send(GET)
        assert (await after.answer())[0] == 200
        assert await busy[0].is_closed()
        assert site.refused == {"connections": 1}


@on_uvloop
async def test_the_api_gets_in_when_webhooks_fill_its_port() -> None:
    webhook = GET.replace(b"/ ", b"/webhooks/generic/hook ")
    async with listening(of_api=True, connections=2, reserved=2) as site:
        site.hold.clear()
        await site.peers(webhook, webhook)
        await until(lambda: site.answering == 2)
        one_more, api = await site.peer(), await site.peer()
        one_more.send(webhook)
        assert (await one_more.answer())[0] == 503
        site.hold.set()
        api.send(GET)
        assert (await api.answer())[0] == 200
        assert site.refused == {"connections": 1}


@on_uvloop
async def test_what_is_refused_is_logged_once_a_minute() -> None:
    async with listening() as site:
        with structlog.testing.capture_logs() as logs:
            for _ in range(20):
                peer = await site.peer()
                peer.send(b"nonsense\r\n\r\n")
                assert (await peer.answer())[0] == 400
        assert site.refused == {"malformed": 20}
        assert [(line["event"], line["reason"], line["sender"]) for line in logs] == [
            ("connection.refused", "malformed", "127.0.0.1")
        ]
