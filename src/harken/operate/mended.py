"""A credential changed: feeds that had stopped for want of it are read again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from harken.feed import Trigger
from harken.store import Store

__all__ = ["Freed", "free"]

# a person had to do something, and now has done it
MENDED = ("attention", "refused", "misconfigured", "not_found", "unauthorized")


class Freed(NamedTuple):
    """The triggers that go on, and those that a person paused."""

    freed: list[str]
    left: list[str]


async def free(store: Store, triggers: Iterable[Trigger], feeds: Collection[str]) -> Freed:
    """Let those of these feeds go on that had stopped until a person acts. A pause that a person set stays."""
    stopped = [
        state.name
        for state in await store.feeds()
        if state.name in feeds and state.health.state == "paused" and state.health.code in MENDED
    ]
    if not stopped:
        return Freed([], [])
    known = list(triggers)
    paused = {state.name: state.paused for state in await store.triggers() if state.removed_at is None}
    found = Freed([], [])
    for feed in stopped:
        listening = sorted(trigger.name for trigger in known if trigger.feed == feed)
        awake = [trigger for trigger in listening if paused.get(trigger) == ""]
        if awake:
            # resuming one that nobody paused does no more than forget the errors of its feed
            await store.resume(awake[0])
        found.freed.extend(awake)
        found.left.extend(trigger for trigger in listening if paused.get(trigger))
    return found
