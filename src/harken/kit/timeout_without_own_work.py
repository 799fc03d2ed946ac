"""Long work of our own is done in slices: between two of them everything else goes on.

A service has a limited time to answer. What we do with a long answer is our time, and does not count against it.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import TracebackType

__all__ = ["OwnWork", "answer_within"]

_limit: ContextVar[answer_within | None] = ContextVar("harken_answer_within", default=None)


# named like asyncio.timeout, which costs twice as much: each page of each feed is read within one
class answer_within:
    """Raise TimeoutError if the block takes longer than so many seconds, without the time of `OwnWork` in it."""

    __slots__ = ("_ends_at", "_expired", "_left", "_outer", "_requested_before", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = self._left = False

    def __enter__(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # whoever else cancels the task means it, and not this block
        self._task, self._requested_before = task, task.cancelling()
        self._ends_at = loop.time() + self._seconds
        self._timer = loop.call_at(self._ends_at, self._expire)
        self._outer = _limit.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._left = True
        _limit.reset(self._outer)
        if self._expired and self._task.uncancel() <= self._requested_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def extend(self, seconds: float) -> None:
        """Allow so many seconds more, unless the block is over or it is too late."""
        if not self._expired and not self._left:
            self._timer.cancel()
            self._ends_at += seconds
            self._timer = asyncio.get_running_loop().call_at(self._ends_at, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()


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
        if limit is not None:
            limit.extend(now - self._since)
        self._since = now
