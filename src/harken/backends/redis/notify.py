"""Hints by PUBLISH and SUBSCRIBE, on a connection of their own."""

from __future__ import annotations

from collections.abc import Callable

from harken.backends.redis.connection import Connection
from harken.store import Committed

__all__ = ["WAKING", "hear", "leaves_some", "tell"]

WAKING = frozenset({"answer", "release", "retry", "start", "steer"})
"""The verbs after which others may have runs to claim. What a settling makes ready is claimed by whoever settled."""
PATIENCE = 10.0


def leaves_some(committed: Committed) -> bool:
    """Whether a commit started runs that it did not hand over."""
    fired = sum(verdict.outcome == "fired" for verdicts in committed.verdicts for verdict in verdicts)
    return fired > len(committed.claimed)


async def tell(connection: Connection, name: str) -> None:
    await connection.read(("PUBLISH", connection.key("hints"), name))


async def hear(connection: Connection, hint: Callable[[str], None]) -> None:
    """Until the connection ends."""
    async with connection.redis.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(connection.key("hints"))
        # what was said while nobody listened
        hint("")
        while True:
            message = await listener.get_message(timeout=PATIENCE)
            if message is not None:
                hint(message["data"].decode())
