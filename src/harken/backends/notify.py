"""Wake-up hints between replicas: "there are runs to claim". One may get lost; whoever polls finds the runs anyway.

They are sent outside the commits, and a few at most in a second.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import structlog

from harken.errors import RetryLater
from harken.tasks import end

__all__ = ["Hear", "Notifications"]

log = structlog.get_logger("harken.store")

GATHER_SECONDS = 0.02
RETRY_SECONDS = (1.0, 30.0)

Hear = Callable[[Callable[[str], None]], Awaitable[None]]
"""Connects, calls back with the name of whoever gave a hint, and returns or raises when the connection ends."""


class Notifications:
    """Hears of other replicas' runs and tells them of ours, from `listen` on."""

    def __init__(self, hear: Hear, tell: Callable[[str], Awaitable[None]]) -> None:
        self._hear = hear
        self._tell = tell
        self._name = secrets.token_hex(4)
        self._task: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None

    def listen(self, heard: Callable[[], object]) -> None:
        """Call `heard` when another replica has made runs ready. Reconnects by itself."""
        self._task = asyncio.get_running_loop().create_task(self._listen(heard), name="store-hints")

    def give(self) -> None:
        """Tell the others soon; many calls in a moment are one hint."""
        if self._task is not None and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._give(), name="store-hint")

    async def _give(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        try:
            await self._tell(self._name)
        except RetryLater as error:
            # the store's trouble is told by its verbs, and a hint more or less changes nothing
            log.debug("store.hint_lost", reason=str(error))

    async def _listen(self, heard: Callable[[], object]) -> None:
        wait = RETRY_SECONDS[0]

        def hint(sender: str) -> None:
            nonlocal wait
            wait = RETRY_SECONDS[0]
            if sender != self._name:
                heard()

        while True:
            try:
                await self._hear(hint)
            except Exception as error:
                log.debug("store.hints_away", reason=type(error).__name__)
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_SECONDS[1])

    async def close(self) -> None:
        await end(task for task in (self._task, self._telling) if task is not None)
        self._task = self._telling = None
