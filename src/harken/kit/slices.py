"""Long work of our own is done in slices: between two of them everything else goes on.

A service has a limited time to answer. What we do with a long answer is our time, and does not count against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

__all__ = ["OwnWork", "answer_within"]

_limit: ContextVar[asyncio.Timeout | None] = ContextVar("harken_answer_within", default=None)


@asynccontextmanager
async def answer_within(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer, without the time of `OwnWork` in it."""
    async with asyncio.timeout(seconds) as limit:
        token = _limit.set(limit)
        try:
            yield
        finally:
            _limit.reset(token)


class OwnWork:
    """Work that begins now. Call `pause` every few milliseconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    async def pause(self) -> None:
        """Let everything else go on for a moment."""
        self._spare()
        await asyncio.sleep(0)
        self._spare()

    def _spare(self) -> None:
        now, limit = self._loop.time(), _limit.get()
        if limit is not None and not limit.expired() and (end := limit.when()) is not None:
            limit.reschedule(end + now - self._since)
        self._since = now
