"""When a step, a run or a call to the store is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog

from harken.circuit_breaker import doubled, doubling, retry
from harken.clock import Clock
from harken.errors import RetryLater, StoreBusy, StoreUnavailable

__all__ = ["RATE_LIMITED_TRIES", "Retry", "rate_limited_wait", "retry_store", "run_wait"]

T = TypeVar("T")

RUN_FIRST, RUN_CAP = 10.0, 600.0
RATE_LIMITED_FIRST = 30.0
RATE_LIMITED_TRIES = 30
"""After so many 429 answers in a row, the next one counts as a failed try of the run."""
JITTER = 0.2
LONGEST_STEP_PAUSE = 30.0
STORE_FIRST, STORE_CAP = 0.05, 5.0

log = structlog.get_logger("harken.run")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a step is attempted within one try of its run. Pauses double, starting at `backoff` seconds."""

    max_attempts: int = 1
    backoff: float = 1.0

    def wait(self, attempt: int, error: RetryLater, roll: float) -> float | None:
        """Seconds until the next attempt. None when none is left, or when the pause is too long to occupy a worker."""
        if attempt >= self.max_attempts:
            return None
        pause = max(_jittered(self.backoff * 2 ** (attempt - 1), roll), error.after or 0.0)
        return pause if pause <= LONGEST_STEP_PAUSE else None


def run_wait(attempt: int, retry_after: float | None, roll: float) -> float:
    """Seconds until a run's next try: 10 s doubling to 10 min, and at least `retry_after`, which is never cut."""
    return max(_jittered(doubled(RUN_FIRST, attempt - 1, RUN_CAP), roll), retry_after or 0.0)


def rate_limited_wait(earlier: int, retry_after: float | None, roll: float) -> float:
    """Seconds to wait after a 429 that follows `earlier` others: `retry_after`, else 30 s doubling to 10 min.

    A server that asks for the same short wait again and again gets longer ones: 1 s doubling to 10 min at least."""
    if retry_after:
        return max(retry_after, doubled(1.0, earlier, RUN_CAP))
    return _jittered(doubled(RATE_LIMITED_FIRST, earlier, RUN_CAP), roll)


def _jittered(seconds: float, roll: float) -> float:
    # jitter only lengthens a wait, so Retry-After and minimum waits hold
    return seconds * (1.0 + JITTER * roll)


async def retry_store(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a call to the store for as long as the store is busy or unavailable; every other error passes."""
    return await retry(
        call,
        clock,
        on=(StoreBusy, StoreUnavailable),
        pauses=doubling(STORE_FIRST, STORE_CAP),
        on_wait=lambda error: log.warning("store.unavailable", code=error.code, reason=str(error)),
    )
