"""Where replicas keep what they share: a file, PostgreSQL or Redis. While a server has not answered, no time passes."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

from harken.clock import Clock
from harken.testing.virtual_clock_with_servers import WaitingLoop
from tests.system.property.fleet_stores import Home

__all__ = ["ServedStores", "Stores"]


class Stores:
    """Stores of a file: one process has it, so all replicas share one store."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def open(self, clock: Clock) -> None:
        await self._home.move_in(clock)

    def store(self) -> Any:
        """The store as a process of its own sees it."""
        return self._home.store()

    async def release(self, store: Any) -> None:
        """As a dying process does."""

    async def close(self) -> None:
        await self._home.move_out()


class ServedStores(Stores):
    """Stores of a server: each replica has connections of its own."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        self._loop = loop

    async def open(self, clock: Clock) -> None:
        with self._loop.waiting():
            await super().open(clock)

    def store(self) -> Any:
        return _Awaited(self._home.store(), self._loop)

    async def release(self, store: _Awaited) -> None:
        with self._loop.waiting():
            if store.sent:
                await asyncio.wait(store.sent)
            await self._home.let_go(store.store)

    async def close(self) -> None:
        with self._loop.waiting():
            await super().close()


class _Awaited:
    """What was sent takes effect, also when its sender dies before the answer."""

    def __init__(self, store: Any, loop: WaitingLoop) -> None:
        self.store = store
        self.sent: set[asyncio.Task[Any]] = set()
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            sent = self._loop.create_task(self._send(found, args, kwargs), context=Context())
            self.sent.add(sent)
            sent.add_done_callback(self._forget)
            return await asyncio.shield(sent)

        return verb

    async def _send(self, verb: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._loop.waiting():
            return await verb(*args, **kwargs)

    def _forget(self, sent: asyncio.Task[Any]) -> None:
        self.sent.discard(sent)
        if not sent.cancelled():
            # whoever asked may be gone, and then nobody wants to know of an error
            sent.exception()
