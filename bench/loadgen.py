"""The load generator, in a process of its own: signed requests on keep-alive connections, prepared beforehand."""

from __future__ import annotations

import asyncio
import hmac
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from bench.sample_event import sample

__all__ = ["Load", "main"]

END_OF_HEAD = b"\r\n\r\n"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What to send where. `batch` makes the ids unique across rounds."""

    port: int
    path: str
    secret: str
    batch: str
    count: int
    connections: int
    size: int = 500


def requests(load: Load) -> Iterator[bytes]:
    for number in range(load.count):
        body = _body(f"{load.batch}-{number}", load.size)
        signature = hmac.digest(load.secret.encode(), body, "sha256").hex()
        head = (
            f"POST {load.path} HTTP/1.1\r\nhost: 127.0.0.1:{load.port}\r\ncontent-type: application/json\r\n"
            f"x-signature-256: sha256={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


def _body(name: str, size: int) -> bytes:
    value = sample(name, "")
    value["text"] = "x" * max(0, size - len(msgspec.json.encode(value)))
    return msgspec.json.encode(value)


class Sender(asyncio.Protocol):
    """Sends the next request when the last is answered."""

    def __init__(self, waiting: Iterator[bytes], statuses: Counter[str], over: asyncio.Future[None]) -> None:
        self._waiting = waiting
        self._statuses = statuses
        self._over = over
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        request = next(self._waiting, None)
        if request is None:
            self._over.set_result(None)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got = data if not self._got else self._got + data
        head, found, body = self._got.partition(END_OF_HEAD)
        if not found or len(body) < _length(head):
            return
        self._statuses[self._got[9:12].decode()] += 1
        self._got = b""
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            self._over.set_exception(exc or ConnectionResetError("the server closed a connection"))


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0]) if found else 0


async def _run(load: Load) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    waiting, statuses = iter(list(requests(load))), Counter[str]()
    endings = [loop.create_future() for _ in range(load.connections)]
    senders = [
        (await loop.create_connection(lambda over=over: Sender(waiting, statuses, over), "127.0.0.1", load.port))[1]  # type: ignore[misc]
        for over in endings
    ]
    _say("ready")
    await loop.run_in_executor(None, sys.stdin.buffer.readline)
    began = time.perf_counter()
    for sender in senders:
        sender.send()
    await asyncio.gather(*endings)
    return {"seconds": time.perf_counter() - began, "statuses": dict(statuses)}


def _say(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Read a Load, say "ready", wait for a line, send, and say how it went."""
    import uvloop

    load = msgspec.json.decode(sys.stdin.buffer.readline(), type=Load)
    _say(uvloop.run(_run(load)))


if __name__ == "__main__":
    main()
