"""An answer leaves in one write, in order and before the connection closes; a long one does not pile up."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from harken.app.http_protocol import MAX_BUFFERED, Corked
from harken.app.server import Listener, bind


class Wire:
    """A transport that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


def corked() -> tuple[Any, Wire]:
    wire: Any = Wire()
    return Corked(wire, asyncio.get_running_loop()), wire


async def test_writes_of_one_turn_go_out_together_and_in_order() -> None:
    transport, wire = corked()
    transport.write(b"head ")
    transport.write(b"body")
    assert wire.done == []
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)
    assert wire.done == [b"head body", b"next"]


async def test_what_waits_goes_out_before_the_end() -> None:
    transport, wire = corked()
    transport.write(b"last words")
    transport.close()
    await asyncio.sleep(0)
    assert wire.done == [b"last words", "closed"]
    assert transport.is_closing()


async def test_nothing_is_written_to_a_connection_that_has_gone() -> None:
    transport, wire = corked()
    transport.write(b"too late")
    wire.closing = True
    await asyncio.sleep(0)
    assert wire.done == []


async def test_a_long_answer_does_not_wait_for_its_end() -> None:
    transport, wire = corked()
    transport.write(b"x" * MAX_BUFFERED)
    assert wire.done == []
    transport.write(b"y")
    assert wire.done == [b"x" * MAX_BUFFERED + b"y"]
    await asyncio.sleep(0)
    assert len(wire.done) == 1


async def test_a_real_server_answers_short_long_and_in_parts() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(int(scope["path"][1:])):
            await send({"type": "http.response.body", "body": b"%9d\n" % number, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    listener = Listener(answer, bind("127.0.0.1", 0))
    await listener.start()
    try:
        async with aiohttp.ClientSession() as session:
            for count in (0, 3, 50_000):
                async with session.get(f"http://127.0.0.1:{listener.port}/{count}") as reply:
                    lines = (await reply.text()).splitlines()
                assert [*map(int, lines[:-1]), lines[-1]] == [*range(count), "end"]
    finally:
        await listener.stop()
