"""Tells other replicas that runs became ready, by LISTEN and NOTIFY on a connection beside the pool.

NOTIFY is sent after the commit: within one it would make all commits of the server wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from harken.backends.notify import Notifications

__all__ = ["Notifier"]

CHANNEL = "harken"


class Notifier:
    """`connect` opens a connection beside the pool, `execute` runs one statement on the pool."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], execute: Callable[..., Awaitable[None]]) -> None:
        self._connect = connect
        self._execute = execute
        self._notifications = Notifications(self._receive, self._send)

    def listen(self, on_ready: Callable[[], object]) -> None:
        """Call `on_ready` when another replica has made runs ready."""
        self._notifications.listen(on_ready)

    def notify(self) -> None:
        """Tell the other replicas soon that runs are ready. Does nothing before `listen`."""
        self._notifications.give()

    async def close(self) -> None:
        await self._notifications.close()

    async def _send(self, sender: str) -> None:
        await self._execute("SELECT pg_notify($1, $2)", CHANNEL, sender)

    async def _receive(self, hint: Callable[[str], None]) -> None:
        """Pass on the name of each sender until the connection ends."""
        connection, ended = await self._connect(), asyncio.Event()

        def on_notify(_: Any, __: int, ___: str, sender: str) -> None:
            hint(sender)

        try:
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(CHANNEL, on_notify)
            # there may have been notifications before we listened
            hint("")
            await ended.wait()
        finally:
            connection.terminate()
