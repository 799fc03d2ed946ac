"""How far the clock of a service differs from ours, learnt from the `Date` of its answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from statistics import median

__all__ = ["LARGEST_LAG", "ServiceClock"]

SAMPLES = 9
SMALLEST = 2.0
LARGEST_LAG = 1800.0
"""Seconds. A clock that is further behind is not allowed for: the `Date` may be wrong, and the items dated right."""

AGREEING = [(0.0,) * number for number in range(SAMPLES + 1)]
"""Shared by all clocks that agree with ours, which are nearly all: there is one of these for each feed."""


class ServiceClock:
    """What the recent answers say; a single answer may be slow, or come from a cache."""

    __slots__ = ("_samples", "lag")

    def __init__(self) -> None:
        self._samples = AGREEING[0]
        # seconds that the service is behind us, as far as that is allowed for; 0 if it is ahead
        self.lag = 0

    @property
    def skew(self) -> float:
        """Seconds that the service is ahead of us; negative if it is behind, 0 if that is less than two seconds."""
        found = median(self._samples) if self._samples else 0.0
        return found if abs(found) >= SMALLEST else 0.0

    @property
    def is_known(self) -> bool:
        """Whether any answer had a date."""
        return bool(self._samples)

    def learn(self, headers: Mapping[str, str], sent: float, received: float) -> None:
        """Learn from an answer to what was sent at one wall time and received at another."""
        dated = _dated(headers)
        if dated is None:
            return
        # the second is rounded down, and the way there and back takes time: within that, both clocks may be right
        behind = sent - (dated + 1.0) > 0
        difference = dated - received if behind or dated > received else 0.0
        if not difference and self._samples is AGREEING[SAMPLES]:
            # as nearly always
            return
        samples = (*self._samples[1 - SAMPLES :], difference)
        self._samples = samples if any(samples) else AGREEING[len(samples)]
        self._allow()

    def shift(self, seconds: float) -> None:
        """Our wall clock was set forward by so many seconds, or back if they are negative."""
        self._samples = tuple(sample - seconds for sample in self._samples)
        self._allow()

    def _allow(self) -> None:
        """Find out what is allowed for, after the samples changed."""
        if min(self._samples, default=0.0) > -SMALLEST:
            # by no answer it is behind
            self.lag = 0
            return
        behind = max(0, math.ceil(-self.skew))
        lag = behind if behind <= LARGEST_LAG else 0
        # reads begin that much earlier: it must not move with every answer
        if not lag or abs(lag - self.lag) >= SMALLEST:
            self.lag = lag


def _dated(headers: Mapping[str, str]) -> float | None:
    """When the answer was given by the service's clock, also if a cache has kept it since (`Age`)."""
    date = _seconds(headers.get("Date", ""))
    if date is None:
        return None
    age = headers.get("Age", "").strip()
    return date + (int(age) if age.isdecimal() and len(age) < 10 else 0)


# a busy fleet gets hundreds of answers with the date of the same second
@lru_cache(maxsize=64)
def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
