"""When a step or a run is tried again: pure tables, and the patience that store hiccups deserve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import RetryLater, StoreBusy, StoreUnavailable

__all__ = ["LONGEST_PAUSE", "RATE_LIMITED_TRIES", "Retry", "patiently", "rate_limited_wait", "run_wait"]

T = TypeVar("T")

FIRST, CAP = 10.0, 600.0
RATE_LIMITED_FIRST = 30.0
RATE_LIMITED_TRIES = 30
SPREAD = 0.2
LONGEST_PAUSE = 30.0
STORE_FIRST, STORE_CAP = 0.05, 5.0

log = structlog.get_logger()


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a step is tried within one try of its run. Waits double from `backoff` on."""

    max_attempts: int = 1
    backoff: float = 1.0

    def wait(self, attempt: int, error: RetryLater, roll: float) -> float | None:
        """Seconds until the next attempt; None when there is none, or only so late that the run should wait."""
        if attempt >= self.max_attempts:
            return None
        pause = max(_spread(self.backoff * 2 ** (attempt - 1), roll), error.after or 0.0)
        return pause if pause <= LONGEST_PAUSE else None


def run_wait(attempt: int, asked: float | None, roll: float) -> float:
    """Seconds until a run's next try: 10 s doubling to 10 min, never less than the other side asked for."""
    return max(_spread(min(FIRST * 2 ** min(attempt - 1, 10), CAP), roll), asked or 0.0)


def rate_limited_wait(earlier: int, asked: float | None, roll: float) -> float:
    """Seconds to wait after the (earlier + 1)th 429 in a row: 30 s doubling to 10 min, never less than asked for."""
    return max(_spread(min(RATE_LIMITED_FIRST * 2 ** min(earlier, 10), CAP), roll), asked or 0.0)


def _spread(seconds: float, roll: float) -> float:
    # only ever longer, so that Retry-After and floors hold
    return seconds * (1.0 + SPREAD * roll)


async def patiently(verb: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a store verb for as long as the store is busy or away; every other error passes."""
    pause = STORE_FIRST
    while True:
        try:
            return await verb()
        except (StoreBusy, StoreUnavailable) as error:
            if pause == STORE_FIRST:
                log.warning("store_wait", code=error.code)
            await clock.sleep(max(pause, error.after or 0.0))
            pause = min(pause * 2, STORE_CAP)
