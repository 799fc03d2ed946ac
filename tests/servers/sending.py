"""The common part of test servers that send on a connection which stays open: they can be restarted and frozen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler

from tests.servers.ports import free_port

__all__ = ["SendingServer"]


class SendingServer:
    """Started by `async with`, in the loop of the test. Handlers by path are what `handlers` returns."""

    def __init__(self) -> None:
        self.port = free_port()
        self.messages: list[bytes] = []
        self._runner: web.AppRunner | None = None
        self._changed = asyncio.Event()
        self._thawed = asyncio.Event()
        self._thawed.set()

    def handlers(self) -> Mapping[str, Handler]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        await self.stop()

    async def start(self) -> None:
        app = web.Application()
        for path, handler in self.handlers().items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()
        self._runner = None

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def publish(self, bodies: Sequence[bytes]) -> None:
        self.messages += bodies
        self._changed.set()
        self._changed = asyncio.Event()
