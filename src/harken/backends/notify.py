"""Notifications between replicas: there are runs to claim, or a lease was released. One may get lost: they also poll.

They are sent outside the transactions, and merged to a few per second.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import structlog

from harken.errors import RetryLater
from harken.task_cancellation import cancel_and_wait

__all__ = ["RELEASED", "Notifications", "Subscribe", "nothing"]

log = structlog.get_logger("harken.store")

GATHER_SECONDS = 0.02
LAST_SECONDS = 0.5
"""So long `close` waits for the last notification."""
RETRY_SECONDS = (1.0, 30.0)

RELEASED = "released"
"""The notification that a lease was released; all others say that there are runs."""

Subscribe = Callable[[Callable[[str], None]], Awaitable[None]]
"""Connects, calls back with each notification, and returns or raises when the connection ends."""


def nothing() -> None:
    """Nobody wants to know."""


class Notifications:
    """Receives and sends notifications, from `listen` on. Each has the name of its sender, and may have a word.

    One without a word says that there are runs. Older replicas take every other one for that too, which does no harm.
    """

    def __init__(self, hear: Subscribe, tell: Callable[[str], Awaitable[None]]) -> None:
        self._hear = hear
        self._tell = tell
        self._name = secrets.token_hex(4)
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._pending: set[str] = set()

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object] = nothing) -> None:
        """Call these when another replica has made runs ready, or has released a lease. Reconnects after errors."""
        listening = self._listen(on_ready, on_released)
        self._task = asyncio.get_running_loop().create_task(listening, name="store-hints")

    def give(self, what: str = "") -> None:
        """Notify the other replicas soon; calls within 20 ms become one notification."""
        if self._task is None:
            return
        self._pending.add(what)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._give(), name="store-hint")

    async def _give(self) -> None:
        while self._pending:
            await asyncio.sleep(GATHER_SECONDS)
            pending, self._pending = self._pending, set()
            try:
                for what in sorted(pending):
                    await self._tell(f"{self._name} {what}".rstrip())
            except RetryLater as error:
                # the store's own operations report that it is unavailable; a lost notification does no harm
                log.debug("notification.lost", reason=str(error))

    async def _listen(self, on_ready: Callable[[], object], on_released: Callable[[], object]) -> None:
        wait = RETRY_SECONDS[0]

        def on_message(message: str) -> None:
            nonlocal wait
            wait = RETRY_SECONDS[0]
            sender, _, what = message.partition(" ")
            if sender != self._name:
                (on_released if what == RELEASED else on_ready)()

        while True:
            try:
                await self._hear(on_message)
            except Exception as error:
                log.debug("notifications.disconnected", reason=type(error).__name__)
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_SECONDS[1])

    async def close(self) -> None:
        if self._sending is not None:
            # whoever stops has just released its leases, and others wait for them
            await asyncio.wait({self._sending}, timeout=LAST_SECONDS)
        await cancel_and_wait(task for task in (self._task, self._sending) if task is not None)
        self._task = self._sending = None
