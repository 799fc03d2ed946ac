"""Durations in steps: `30s`, `1h30m`, `500ms`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

__all__ = ["Duration", "seconds_of"]

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)


def seconds_of(text: object) -> float:
    """Return the seconds, or raise ValueError saying how to write it."""
    compact = text.replace(" ", "") if isinstance(text, str) else ""
    if not _WHOLE.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration: write it like 30s, 5m, 1h30m or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))


def _seconds(value: object) -> float:
    return value if isinstance(value, float) else seconds_of(value)


Duration = Annotated[float, BeforeValidator(_seconds)]
