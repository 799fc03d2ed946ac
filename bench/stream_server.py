"""Servers that send to whoever connects, for the stream flow: server-sent events, WebSockets, and Pub/Sub's REST.

A process of its own, so that its work is not measured. Each line on its input is a flow, whose messages it has then.
"""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode

import msgspec
from aiohttp import web

from bench.sample_stream import StreamFlow, bodies
from harken.clock import SystemClock
from harken.testing.fakes.pubsub import PubSubServer

__all__: list[str] = []

CHUNK = 100
"""So many events of a stream are in one write."""


class Messages:
    """What is sent at each path, from the first message to the last; then the connection stays open."""

    def __init__(self) -> None:
        self.of: dict[str, list[bytes]] = {}

    async def serve(self) -> str:
        app = web.Application()
        app.router.add_get("/sse/{stream}", self._events)
        app.router.add_get("/ws/{stream}", self._socket)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _events(self, request: web.Request) -> web.StreamResponse:
        messages = self.of[request.match_info["stream"]]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for first in range(0, len(messages), CHUNK):
            some = enumerate(messages[first : first + CHUNK], first)
            await response.write(b"".join(b"id: %d\ndata: %b\n\n" % pair for pair in some))
        await asyncio.Event().wait()
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for body in self.of[request.match_info["stream"]]:
            await socket.send_str(body.decode())
        async for _ in socket:
            pass
        return socket


async def main() -> None:
    messages, pubsub = Messages(), PubSubServer(SystemClock(), signed=False)
    address = await messages.serve()
    async with pubsub.serve() as pubsub_address:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            flow = msgspec.json.decode(line, type=StreamFlow)
            for stream, count in ((flow.warm_stream, flow.warm), (flow.stream, flow.messages)):
                messages.of[stream] = bodies(count)
                pubsub.subscribe(stream, stream, deadline=600)
                sent = [{"data": b64encode(body).decode()} for body in messages.of[stream]]
                pubsub.publish(stream, sent if flow.system == "pubsub" else [])
            found = pubsub_address if flow.system == "pubsub" else address
            sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())
