"""Hints by LISTEN and NOTIFY, beside the pool: a NOTIFY in a commit would make commits wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["CHANNEL", "hear"]

CHANNEL = "harken"


async def hear(connect: Callable[[], Awaitable[Any]], hint: Callable[[str], None]) -> None:
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
