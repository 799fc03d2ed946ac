"""What is left of a trigger's budget: runs per hour, tokens and money per day, by the calendar in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harken.feed import Budget

__all__ = ["DAY", "HOUR", "budget_room", "window"]

HOUR, DAY = 3_600_000_000, 86_400_000_000
_WINDOWS = {"runs": HOUR, "tokens": DAY, "usd": DAY}


def window(what: str, now: int) -> int:
    """When the current hour (runs) or day (tokens, usd) began."""
    return now - now % _WINDOWS[what]


def budget_room(budget: Budget, spent: Iterable[Any], now: int) -> float:
    """How many runs may start now; infinite if only tokens or money are limited and not used up.

    `spent` has rows of what, since and amount."""
    used = {what: amount for what, since, amount in spent if since == window(what, now)}
    if budget.tokens_per_day is not None and used.get("tokens", 0) >= budget.tokens_per_day:
        return 0
    if budget.usd_per_day is not None and used.get("usd", 0.0) >= budget.usd_per_day:
        return 0
    return float("inf") if budget.runs_per_hour is None else budget.runs_per_hour - used.get("runs", 0)
