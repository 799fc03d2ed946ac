"""Wake-up hints between replicas by PUBLISH and SUBSCRIBE, on a connection of their own."""

from __future__ import annotations

from collections.abc import Callable

from harken.backends.redis.connection import Connection
from harken.store import Committed

__all__ = ["WAKING", "leaves_runs", "listen", "publish"]

WAKING = frozenset({"runs.answer", "runs.release", "runs.release_run", "runs.retry", "runs.start", "definitions.steer"})
"""Verbs after which other replicas may have runs to claim. What a settlement makes ready, its own worker claims."""

MESSAGE_SECONDS = 10.0


def leaves_runs(committed: Committed) -> bool:
    """Whether a commit started runs that it did not hand over, and that are not over."""
    fired = sum(verdict.outcome == "fired" for verdicts in committed.verdicts for verdict in verdicts)
    return fired > len(committed.claimed) + len(committed.over)


async def publish(connection: Connection, name: str) -> None:
    await connection.execute(("PUBLISH", connection.key("hints"), name))


async def listen(connection: Connection, hint: Callable[[str], None]) -> None:
    """Call `hint` with the sender of each message, until the connection ends."""
    async with connection.redis.pubsub(ignore_subscribe_messages=True) as subscription:
        await subscription.subscribe(connection.key("hints"))
        # messages may have been missed before
        hint("")
        while True:
            message = await subscription.get_message(timeout=MESSAGE_SECONDS)
            if message is not None:
                hint(message["data"].decode())
