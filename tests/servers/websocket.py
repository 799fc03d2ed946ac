"""A WebSocket server in the loop of the test: it can be restarted and frozen, and goes on where it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import WSMessage, WSMsgType, web
from aiohttp.typedefs import Handler

from tests.servers.sending import SendingServer

__all__ = ["SocketServer"]

TOKEN = "Bearer s3cret-of-the-server"


class SocketServer(SendingServer):
    """Started by `async with`. `/live` sends what is published from then on, `/log` all, or what follows `?since=`.

    `/log` also follows a message with `since`. `said` has what clients sent. `/close` closes with the code `code`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.pings = 0
        self.code = 1000

    def url(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    def handlers(self) -> Mapping[str, Handler]:
        return {"/live": self._live, "/log": self._log, "/close": self._close, "/moved": self._redirect}

    async def _live(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, len(self.messages))

    async def _log(self, request: web.Request) -> web.StreamResponse:
        since = request.query.get("since")
        return await self._serve(request, self._after(int(since)) if since else 0)

    async def _close(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close(code=self.code)
        return socket

    async def _redirect(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"http://localhost:{self.port}/live")

    def _after(self, number: int) -> int:
        """Where the messages after that one begin."""
        wanted = msgspec.json.encode({"n": number})
        return 1 + [message.replace(b" ", b"") for message in self.messages].index(wanted)

    async def _serve(self, request: web.Request, following: int) -> web.StreamResponse:
        await self._thawed.wait()
        if request.headers.get("Authorization") != TOKEN:
            raise web.HTTPUnauthorized
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        sending = asyncio.create_task(self._send(socket, following))
        try:
            async for message in socket:
                sending = await self._hear(socket, message, sending)
        finally:
            sending.cancel()
        return socket

    async def _hear(self, socket: web.WebSocketResponse, message: WSMessage, sending: asyncio.Task[None]) -> Any:
        await self._thawed.wait()
        if message.type is WSMsgType.PING:
            self.pings += 1
            with suppress(ConnectionError):
                await socket.pong(message.data)
        elif message.type is WSMsgType.TEXT:
            self.said.append(message.data)
            if "since" in message.data:
                sending.cancel()
                return asyncio.create_task(self._send(socket, self._after(msgspec.json.decode(message.data)["since"])))
        return sending

    async def _send(self, socket: web.WebSocketResponse, following: int) -> None:
        with suppress(ConnectionError):
            while True:
                changed = self._changed
                await self._thawed.wait()
                while following < len(self.messages):
                    body = self.messages[following]
                    following += 1
                    await (socket.send_bytes(body) if b"\xff" in body else socket.send_str(body.decode()))
                await changed.wait()
