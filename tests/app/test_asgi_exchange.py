"""Requests and answers as they stand on the wire: lengths, chunks, versions, failures, smuggled requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import structlog.testing

from harken.app.server import Listener, bind

PATIENCE = 30.0
App = Callable[[Any, Any, Any], Awaitable[None]]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the method, path, query and body of the request."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    said = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()} ".encode() + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


def answering(status: int, headers: list[tuple[bytes, bytes]], *parts: bytes) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    return app


def with_headers(status: int, headers: Any, body: bytes) -> App:
    """Answers with these very headers, and with the whole body at once."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if status == 204 else body})

    return app


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[Listener]:
    listener = Listener(app, bind("127.0.0.1", 0))
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def talk(listener: Listener, sent: bytes) -> bytes:
    """Everything that is answered until the connection is closed, without the dates."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
    finally:
        writer.close()
    return b"".join(line for line in said.splitlines(keepends=True) if not line.startswith(b"date: "))


def get(path: str = "/", version: str = "1.1", method: str = "GET", extra: str = "") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: h\r\nConnection: close\r\n{extra}\r\n".encode()


async def answer_to(app: App, sent: bytes) -> bytes:
    async with serving(app) as listener:
        return await talk(listener, sent)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (get("/a%20b?x=1#part"), b"GET /a b?x=1 "),
        (get("http://other/a?b"), b"GET /a?b "),
        (get("/%e2%82%ac"), "GET /€? ".encode()),
        (get("/", method="POST", extra="Content-Length: 2\r\n") + b"hi", b"POST /? hi"),
        (
            get("/", method="POST", extra="Transfer-Encoding: chunked\r\n") + b"2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n",
            b"POST /? hi!",
        ),
        (get("/", extra="Connection: upgrade\r\nUpgrade: websocket\r\n"), b"GET /? "),
        (get("/", method="PATCH", extra="Content-Length: 0\r\n"), b"PATCH /? "),
    ],
    ids=["path", "absolute", "utf-8", "length", "chunks", "upgrade", "other-method"],
)
async def test_a_request_is_understood(sent: bytes, said: bytes) -> None:
    assert (await answer_to(echo, sent)).endswith(b"\r\n\r\n" + said)


async def test_an_answer_without_a_length_is_sent_in_chunks() -> None:
    assert await answer_to(answering(200, [], b"one", b"", b"three"), get()) == (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
    )


async def test_http_1_0_gets_no_chunks_and_the_end_of_the_connection() -> None:
    said = await answer_to(answering(200, [], b"one", b"two"), b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert said == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonetwo"


@pytest.mark.parametrize(
    ("app", "method", "head"),
    [
        (answering(200, [(b"content-length", b"3")], b"one"), "HEAD", b"200 OK\r\ncontent-length: 3"),
        (answering(200, [], b"one"), "HEAD", b"200 OK"),
        (answering(204, []), "DELETE", b"204 No Content"),
        (answering(304, [(b"etag", b'"a"')]), "GET", b'304 Not Modified\r\netag: "a"'),
        (answering(299, [(b"content-length", b"0")]), "GET", b"299 \r\ncontent-length: 0"),
    ],
    ids=["head", "head-without-length", "204", "304", "status-of-our-own"],
)
async def test_answers_without_a_body(app: App, method: str, head: bytes) -> None:
    assert await answer_to(app, get(method=method)) == b"HTTP/1.1 " + head + b"\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.parametrize(
    "asked",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 3 + get(),
        b"HEAD / HTTP/1.1\r\n\r\n" * 2 + b"GET / HTTP/1.1\r\n\r\n" + get(method="HEAD"),
        b"GET / HTTP/1.1\r\n\r\n" * 2 + b"GET / HTTP/1.0\r\n\r\n",
    ],
    ids=["get", "head", "1.0"],
)
async def test_headers_in_a_tuple_make_the_same_answers_as_in_a_list(status: int, asked: bytes) -> None:
    headers = [(b"X-Number", b"%d" % status), (b"content-length", b"3")]
    in_list = await answer_to(with_headers(status, headers, b"one"), asked)
    in_tuple = await answer_to(with_headers(status, tuple(headers), b"one"), asked)
    assert in_tuple == in_list
    assert in_list.count(b"x-number: ") == asked.count(b" / HTTP")


async def test_a_connection_is_used_for_many_requests_until_one_of_both_closes_it() -> None:
    open_one = get().replace(b"Connection: close\r\n", b"")
    async with serving(answering(200, [(b"content-length", b"0")])) as listener:
        said = await talk(listener, open_one * 3 + get())
    assert said.count(b"200 OK") == 4
    assert said.endswith(b"content-length: 0\r\nconnection: close\r\n\r\n")
    async with serving(answering(200, [(b"content-length", b"0"), (b"connection", b"close")])) as listener:
        assert (await talk(listener, open_one * 3)).count(b"200 OK") == 1


async def test_whoever_waits_for_100_continue_gets_it_when_the_body_is_wanted() -> None:
    async with serving(echo) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(get(method="POST", extra="Content-Length: 2\r\nExpect: 100-continue\r\n"))
        async with asyncio.timeout(PATIENCE):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"hi")
            assert (await reader.read()).endswith(b"POST /? hi")
        writer.close()
    refused = answering(413, [(b"content-length", b"0")])
    said = await answer_to(refused, get(method="POST", extra="Content-Length: 2\r\nExpect: 100-continue\r\n"))
    assert said.startswith(b"HTTP/1.1 413 ")


async def test_the_head_of_a_stream_is_sent_before_its_first_part() -> None:
    go = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await go.wait()
        await send({"type": "http.response.body", "body": b"data: 1\n\n"})

    async with serving(stream) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(get())
        async with asyncio.timeout(PATIENCE):
            assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
            go.set()
            assert await reader.read() == b"9\r\ndata: 1\n\n\r\n0\r\n\r\n"
        writer.close()


async def test_an_application_hears_that_its_caller_has_gone() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(2):
            heard.put_nowait((await receive())["type"])

    async with serving(waiting) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(get())
        async with asyncio.timeout(PATIENCE):
            assert await heard.get() == "http.request"
            writer.close()
            assert await heard.get() == "http.disconnect"


async def _fails(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("what nobody outside should read")


async def _says_nothing(scope: Any, receive: Any, send: Any) -> None:
    return


@pytest.mark.parametrize(
    ("app", "event"),
    [
        (_fails, "http.failed"),
        (_says_nothing, "http.unanswered"),
        (answering(200, [(b"x", b"a\r\nSet-Cookie: b")]), "http.failed"),
        (answering(200, [(b"x", b"a\rSet-Cookie: b")]), "http.failed"),
        (answering(200, [(b"x", b"a\nSet-Cookie: b")]), "http.failed"),
        (answering(200, [(b"x", b"a\0Set-Cookie: b")]), "http.failed"),
        (answering(200, [(b"x y", b"a")]), "http.failed"),
        (answering(200, [(b"", b"a")]), "http.failed"),
    ],
    ids=[
        "raises",
        "unanswered",
        "crlf-in-value",
        "cr-in-value",
        "lf-in-value",
        "nul-in-value",
        "header-name",
        "no-name",
    ],
)
async def test_an_application_that_fails_is_answered_for_and_logged(app: App, event: str) -> None:
    with structlog.testing.capture_logs() as logs:
        said = await answer_to(app, get())
    assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"nobody" not in said
    assert b"Set-Cookie" not in said
    assert [line["event"] for line in logs] == [event]


async def _breaks_off(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"half"})


async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(_breaks_off) as listener, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{listener.port}/") as reply:
                    await reply.read()
    assert {line["event"] for line in logs} == {"http.failed"}


async def test_a_stop_lets_an_answer_come_to_its_end() -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        await go.wait()
        await echo(scope, receive, send)

    listener = Listener(slow, bind("127.0.0.1", 0))
    await listener.start()
    said = asyncio.create_task(talk(listener, get().replace(b"Connection: close\r\n", b"")))
    await reached.wait()
    stopping = asyncio.create_task(listener.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert (await said).endswith(b"connection: close\r\n\r\nGET /? ")


@pytest.mark.parametrize(
    "hidden",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 4x\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        "X\0: a\r\n",
    ],
)
async def test_a_request_that_two_servers_could_read_differently_is_refused(hidden: str) -> None:
    sent = f"POST / HTTP/1.1\r\nHost: h\r\n{hidden}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n".encode()
    said = await answer_to(echo, sent)
    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert said.count(b"HTTP/1.1 ") == 1
