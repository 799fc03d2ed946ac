"""Tells other replicas what they wait for, by LISTEN and NOTIFY on a connection beside the pool.

NOTIFY is sent after the commit: within one it would make all commits of the server wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from harken.backends.notify import Notifications, nothing

__all__ = ["Notifier"]

CHANNEL = "harken"


class Notifier:
    """`connect` opens a connection beside the pool, `execute` runs one statement on the pool."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], execute: Callable[..., Awaitable[None]]) -> None:
        self._connect = connect
        self._execute = execute
        self._notifications = Notifications(self._receive, self._send)

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object] = nothing) -> None:
        """Call these when another replica has made runs ready, or has released a lease."""
        self._notifications.listen(on_ready, on_released)

    def notify(self, what: str = "") -> None:
        """Tell the other replicas soon that runs are ready, or that this has happened. Does nothing before `listen`."""
        self._notifications.give(what)

    async def close(self) -> None:
        await self._notifications.close()

    async def _send(self, message: str) -> None:
        await self._execute("SELECT pg_notify($1, $2)", CHANNEL, message)

    async def _receive(self, hint: Callable[[str], None]) -> None:
        """Pass on each notification until the connection ends."""
        connection, ended = await self._connect(), asyncio.Event()

        def on_notify(_: Any, __: int, ___: str, message: str) -> None:
            hint(message)

        try:
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(CHANNEL, on_notify)
            # there may have been notifications before we listened
            hint("")
            await ended.wait()
        finally:
            connection.terminate()
