"""Long work of our own is done in slices: between two of them everything else goes on.

A service has a limited time to answer. What we do with a long answer is our time, and does not count against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any

__all__ = ["OwnWork", "answer_within"]

_limit: ContextVar[asyncio.Timeout | None] = ContextVar("harken_answer_within", default=None)


# named and used like asyncio.timeout
class answer_within:
    """Raise TimeoutError if the block takes longer than so many seconds, without the time of `OwnWork` in it."""

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)

    def __aenter__(self) -> Awaitable[object]:
        self._outer = _limit.set(self._timeout)
        return self._timeout.__aenter__()

    def __aexit__(self, *error: Any) -> Awaitable[bool | None]:
        _limit.reset(self._outer)
        return self._timeout.__aexit__(*error)


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
