"""The shop of `harken demo streams`: an event stream with ids and a history, and the room where parcels are packed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

__all__ = ["AGAIN", "OrderStream", "PackingRoom"]

KEPT = 1_000
AGAIN = 2
"""So many messages that were sent before are sent again to whoever connects again, as careful servers do."""
COMMENT_SECONDS = 1.0
RETRY_MS = 300


class Message(msgspec.Struct, frozen=True):
    number: int
    body: bytes


class OrderStream:
    """Server-sent events on loopback. It can be stopped and started again at its address, and keeps its messages.

    `tell` is called in words when somebody connects again.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._messages: deque[Message] = deque(maxlen=KEPT)
        self._sent = 0
        self._more = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen where it listened before. OSError if another program has the port just now."""
        runner = await _serve([web.get("/orders", self._follow)], self._port)
        self._runner, self._port = runner, runner.addresses[0][1]

    async def stop(self) -> None:
        """Drop every connection."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def send(self, body: bytes) -> int:
        """Keep a message, and send it to everybody who is connected. Returns its id."""
        self._sent += 1
        self._messages.append(Message(self._sent, body))
        self._more.set()
        self._more = asyncio.Event()
        return self._sent

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        known = request.headers.get("Last-Event-ID", "")
        after = max(0, int(known) - AGAIN) if known.isdecimal() else 0
        if known:
            self._tell(f"Harken connects again after message {known}; the shop repeats the last {AGAIN} before that")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):
            # whoever listens goes when they like
            await self._write(response, after)
        return response

    async def _write(self, response: web.StreamResponse, after: int) -> None:
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        while True:
            more = self._more
            for message in [one for one in self._messages if one.number > after]:
                await response.write(b"id: %d\nevent: order.placed\ndata: %s\n\n" % (message.number, message.body))
                after = message.number
            try:
                async with asyncio.timeout(COMMENT_SECONDS):
                    await more.wait()
            except TimeoutError:
                await response.write(b":\n\n")


class PackingRoom:
    """Takes messages about parcels. `parcels` has their idempotency keys by order."""

    def __init__(self) -> None:
        self.parcels: dict[str, set[str]] = {}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve on a free loopback port until the block ends; yields the address."""
        runner = await _serve([web.post("/parcels", self._pack)], 0)
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _pack(self, request: web.Request) -> web.Response:
        message = await request.json()
        order = str(message.get("text", "")).split(" ", 1)[0]
        self.parcels.setdefault(order, set()).add(request.headers.get("Idempotency-Key", ""))
        return web.json_response({"ok": True})


async def _serve(routes: list[web.RouteDef], port: int) -> web.AppRunner:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
