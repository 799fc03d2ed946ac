"""The clock is passed in everywhere, so that a week of polling takes a second in a test."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "from_unix"]


class Clock(Protocol):
    """`time` and `now` are the wall clock and may jump; `monotonic` never goes back."""

    def time(self) -> float: ...

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


def from_unix(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class SystemClock:
    def time(self) -> float:
        return time.time()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
