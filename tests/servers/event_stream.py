"""An HTTP server with one event stream, in the loop of the test: it can be restarted and frozen, and forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web
from aiohttp.typedefs import Handler

from tests.servers.sending import SendingServer

__all__ = ["EventServer"]

TOKEN = "Bearer s3cret-of-the-server"
COMMENT_SECONDS = 0.5


class EventServer(SendingServer):
    """Started by `async with`. Without an id it sends all that it has, after one what follows; 410 if it is gone.

    With `script` the body of every answer is that, and then its end. `last_ids` are those it was asked to go on from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generation = 1
        self.first = 1
        self.script: bytes | None = None
        self.status = 200
        self.content_type = "text/event-stream"
        self.headers: dict[str, str] = {}
        self.last_ids: list[str | None] = []

    def url(self, path: str = "/events") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def handlers(self) -> Mapping[str, Handler]:
        return {"/events": self._answer, "/moved": self._redirect}

    def trim(self) -> None:
        """Forget all messages; the numbers go on."""
        self.first += len(self.messages)
        self.messages = []

    def recreate(self, *, told: bool = True) -> None:
        """Begin again with an empty history and the first number; ids show that unless it is not `told`."""
        self.generation += told
        self.first, self.messages = 1, []

    async def _redirect(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(self.url().replace("127.0.0.1", "localhost"))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await self._thawed.wait()
        self.last_ids.append(request.headers.get("Last-Event-ID"))
        if request.headers.get("Authorization") not in (TOKEN, None):
            raise web.HTTPUnauthorized
        last = request.headers.get("Last-Event-ID")
        following = self._following(last) if last and self.script is None else self.first
        headers = {"Content-Type": self.content_type, **self.headers}
        response = web.StreamResponse(status=self.status, headers=headers)
        await response.prepare(request)
        if self.script is not None:
            await response.write(self.script)
            return response
        with suppress(ConnectionError):
            # the client goes when it likes
            await self._send(response, following)
        return response

    def _following(self, last: str) -> int:
        generation, number = map(int, last.split("-"))
        if generation != self.generation or not self.first <= number + 1 <= self.first + len(self.messages):
            raise web.HTTPGone
        return number + 1

    async def _send(self, response: web.StreamResponse, following: int) -> None:
        while True:
            changed = self._changed
            await self._thawed.wait()
            body = b":\n\n"
            for number in range(following, self.first + len(self.messages)):
                body += b"id: %d-%d\ndata: %s\n\n" % (self.generation, number, self.messages[number - self.first])
                following = number + 1
            await response.write(body)
            try:
                async with asyncio.timeout(COMMENT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue
