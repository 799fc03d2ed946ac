"""Hints by LISTEN and NOTIFY, beside the pool: a NOTIFY in a commit would make commits wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from harken.backends.notify import Notifications
from harken.backends.postgres.connection import Database
from harken.backends.postgres.transaction import Transaction

__all__ = ["Waking"]

T = TypeVar("T")
CHANNEL = "harken"


class Waking:
    """Writes through the door, and tells other replicas when that made runs ready which they may claim."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hints = Notifications(self._hear, self._tell)

    def listen(self, heard: Callable[[], object]) -> None:
        """Call `heard` when another replica has made runs ready."""
        self._hints.listen(heard)

    async def write(self, verb: Callable[..., Awaitable[T]], *args: Any, timed: bool = True) -> T:
        """As the door's own."""
        woken: list[bool] = []

        async def noted(tx: Transaction) -> T:
            answer = await verb(tx, *args)
            woken[:] = [tx.wakes]
            return answer

        answer = await self._database.write(noted, timed=timed)
        if woken == [True]:
            self._hints.give()
        return answer

    async def close(self) -> None:
        await self._hints.close()

    async def _hear(self, hint: Callable[[str], None]) -> None:
        await _hear(self._database.connection_of_its_own, hint)

    async def _tell(self, who: str) -> None:
        async def notify(tx: Transaction) -> None:
            await tx.value("SELECT pg_notify($1, $2)", CHANNEL, who)

        await self._database.at_once(notify)


async def _hear(connect: Callable[[], Awaitable[Any]], hint: Callable[[str], None]) -> None:
    """Until the connection ends."""
    connection, ended = await connect(), asyncio.Event()

    def notified(_: Any, __: int, ___: str, sender: str) -> None:
        hint(sender)

    try:
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(CHANNEL, notified)
        # what was said while nobody listened
        hint("")
        await ended.wait()
    finally:
        connection.terminate()
