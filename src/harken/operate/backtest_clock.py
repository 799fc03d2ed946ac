"""The clock of a simulated past: it stands where it was set."""

from __future__ import annotations

from datetime import datetime

from harken.clock import from_unix

__all__ = ["PastClock"]


class PastClock:
    def __init__(self, now: datetime) -> None:
        self._now = now.timestamp()

    def set(self, now: datetime) -> None:
        """Move to this time; never back."""
        self._now = max(self._now, now.timestamp())

    def time(self) -> float:
        return self._now

    def now(self) -> datetime:
        return from_unix(self._now)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
