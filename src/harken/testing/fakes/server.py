"""The base of every fake service: a loopback server that records its requests and can give wrong answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock

__all__ = ["Answer", "FakeServer", "Handler", "Seen", "json_reply"]

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to give instead of the right one. `hang`: never answer."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    hang: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded request. `query` has the last value of each name, `pairs` all of them in order."""

    method: str
    path: str
    query: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str]
    body: bytes
    status: int
    at: float = 0.0


class FakeServer:
    """Subclass it with `routes`. `answers` are given first; `after[n]` runs when the n-th request is answered."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answers: list[Answer] = []
        self.after: dict[int, Callable[[], object]] = {}
        self.seen: list[Seen] = []
        self.url = ""

    def routes(self) -> Mapping[str, Handler]:
        """The view of each path, for every method; aiohttp's patterns work."""
        raise NotImplementedError

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        """Called for every request instead of its view: override it for tokens and limits."""
        return await view(request)

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        """Serve on a free loopback port until the block ends; yields the address, without a slash at its end."""
        app = web.Application(middlewares=[self._watch])
        app.add_routes([web.route("*", path, view) for path, view in self.routes().items()])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            await runner.cleanup()

    @web.middleware
    async def _watch(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        body = await request.read()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None and answer.hang:
            await asyncio.Event().wait()
        if answer is not None:
            reply = web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        else:
            reply = await self.handle(request, handler)
        self._remember(request, body, reply.status)
        self.after.pop(len(self.seen), lambda: None)()
        return reply

    def _remember(self, request: web.Request, body: bytes, status: int) -> None:
        self.seen.append(
            Seen(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                pairs=tuple(request.query.items()),
                headers={name.lower(): value for name, value in request.headers.items()},
                body=body,
                status=status,
                at=self.clock.time(),
            )
        )


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json", headers=headers
    )
