"""How far the clock of a service differs from ours, learnt from the `Date` of its answers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from statistics import median

__all__ = ["LARGEST_LAG", "ServiceClock"]

SAMPLES = 9
SMALLEST = 2.0
LARGEST_LAG = 1800.0
"""Seconds. A clock that is further behind is not allowed for: the `Date` may be wrong, and the items dated right."""


class ServiceClock:
    """What the recent answers say; a single answer may be slow, or come from a cache."""

    __slots__ = ("_lag", "_samples")

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._lag = 0

    @property
    def skew(self) -> float:
        """Seconds that the service is ahead of us; negative if it is behind, 0 if that is less than two seconds."""
        found = median(self._samples) if self._samples else 0.0
        return found if abs(found) >= SMALLEST else 0.0

    @property
    def lag(self) -> int:
        """Seconds that the service is behind us, as far as that is allowed for; 0 if it is ahead."""
        return self._lag

    def learn(self, headers: Mapping[str, str], sent: float, received: float) -> None:
        """Learn from an answer to what was sent at one wall time and received at another."""
        dated = _dated(headers)
        if dated is None:
            return
        # the second is rounded down, and the way there and back takes time: within that, both clocks may be right
        if sent - (dated + 1.0) > 0:
            self._samples.append(dated - received)
        else:
            self._samples.append(max(0.0, dated - received))
        behind = max(0, math.ceil(-self.skew))
        lag = behind if behind <= LARGEST_LAG else 0
        # reads begin that much earlier: it must not move with every answer
        if not lag or abs(lag - self._lag) >= SMALLEST:
            self._lag = lag


def _dated(headers: Mapping[str, str]) -> float | None:
    """When the answer was given by the service's clock, also if a cache has kept it since (`Age`)."""
    try:
        date = parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    age = headers.get("Age", "").strip()
    return date + (int(age) if age.isdecimal() and len(age) < 10 else 0)
