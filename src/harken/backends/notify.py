"""Notifications between replicas that there are runs to claim. One may get lost: workers also poll.

They are sent outside the transactions, and merged to a few per second.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import structlog

from harken.errors import RetryLater
from harken.tasks import cancel_and_wait

__all__ = ["Notifications", "Subscribe"]

log = structlog.get_logger("harken.store")

GATHER_SECONDS = 0.02
RETRY_SECONDS = (1.0, 30.0)

Subscribe = Callable[[Callable[[str], None]], Awaitable[None]]
"""Connects, calls back with the sender's name for each notification, and returns or raises when the connection ends."""


class Notifications:
    """Receives and sends notifications, from `listen` on."""

    def __init__(self, hear: Subscribe, tell: Callable[[str], Awaitable[None]]) -> None:
        self._hear = hear
        self._tell = tell
        self._name = secrets.token_hex(4)
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    def listen(self, heard: Callable[[], object]) -> None:
        """Call `heard` when another replica has made runs ready. Reconnects after errors."""
        self._task = asyncio.get_running_loop().create_task(self._listen(heard), name="store-hints")

    def give(self) -> None:
        """Notify the other replicas soon; calls within 20 ms become one notification."""
        if self._task is not None and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._give(), name="store-hint")

    async def _give(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        try:
            await self._tell(self._name)
        except RetryLater as error:
            # the store's own operations report that it is unavailable; a lost notification does no harm
            log.debug("notification.lost", reason=str(error))

    async def _listen(self, heard: Callable[[], object]) -> None:
        wait = RETRY_SECONDS[0]

        def on_message(sender: str) -> None:
            nonlocal wait
            wait = RETRY_SECONDS[0]
            if sender != self._name:
                heard()

        while True:
            try:
                await self._hear(on_message)
            except Exception as error:
                log.debug("notifications.disconnected", reason=type(error).__name__)
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_SECONDS[1])

    async def close(self) -> None:
        await cancel_and_wait(task for task in (self._task, self._sending) if task is not None)
        self._task = self._sending = None
