"""Durations and times as people write them: `90s`, `1h30m`, `2026-03-01T10:00:00Z`. A bare number has no unit."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from harken.errors import Misconfigured

__all__ = ["format_duration", "parse_duration", "parse_moment"]

# milliseconds, so that sums of parts stay whole numbers
_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|[wdhms])", re.ASCII)
_LONGEST = 36_525 * 86_400.0
_FIX = "Write it like 30s, 5m, 1h30m or 500ms"


def parse_duration(text: object) -> float:
    """Return the seconds of `1h30m`. Units go from large to small, each once; raises Misconfigured otherwise."""
    if not isinstance(text, str) or not text.strip():
        raise Misconfigured("a duration needs a number and a unit", fix=_FIX)
    compact = text.replace(" ", "")
    total, position, largest = 0.0, 0, float("inf")
    for part in _PART.finditer(compact):
        size = _UNITS[part[2]]
        if part.start() != position or size >= largest:
            break
        total, position, largest = total + float(part[1]) * size, part.end(), size
    if position != len(compact):
        # never a part of the text: what is cut off a secret could no longer be recognised and hidden
        raise Misconfigured(f"{text!r} is not a duration" if len(text) <= 40 else "this is not a duration", fix=_FIX)
    if total / 1_000 > _LONGEST:
        raise Misconfigured("that is longer than a hundred years", fix="Write a shorter duration")
    return total / 1_000


def parse_moment(text: str) -> datetime | None:
    """The time in UTC that the text says; local if it names no zone. None for what is no time between our years."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        # the first and the last day of the calendar have no equal in some zones
        return None


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` reads back as the same number of milliseconds."""
    rest, parts = round(seconds * 1_000), []
    for unit, size in _UNITS.items():
        if unit != "w" and rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join(parts) or "0s"
