"""Hints by PUBLISH and SUBSCRIBE, on a connection of their own."""

from __future__ import annotations

from collections.abc import Callable

from harken.stores.redis.link import Link

__all__ = ["WAKING", "hear", "tell"]

WAKING = frozenset({"answer", "commit", "journal", "reap", "release", "retry", "settle", "start", "steer"})
"""The verbs after which there may be runs to claim."""
PATIENCE = 10.0


async def tell(link: Link, name: str) -> None:
    await link.read(("PUBLISH", link.key("hints"), name))


async def hear(link: Link, hint: Callable[[str], None]) -> None:
    """Until the connection ends."""
    async with link.redis.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(link.key("hints"))
        # what was said while nobody listened
        hint("")
        while True:
            message = await listener.get_message(timeout=PATIENCE)
            if message is not None:
                hint(message["data"].decode())
