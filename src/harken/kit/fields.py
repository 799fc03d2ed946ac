"""Reading a value out of what a stranger's API sent: ids, instants, states. A wrong shape is None, never a crash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeAlias

from harken.language.paths import lookup, suggest

__all__ = ["Precision", "describe", "folded_text", "instant", "list_of", "rfc3339", "text_of", "whole_number"]

Precision: TypeAlias = Literal["auto", "milliseconds"]

_NUMBER = re.compile(r"-?\d{9,17}(\.\d{1,9})?")
_MS, _US = 1e11, 1e14
_SHOWN = 12


def text_of(data: Any, path: str) -> str | None:
    """The text or number at the path as text; None when it is missing, empty or not a plain value."""
    value = data[path] if type(data) is dict and path in data else lookup(data, path)
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def folded_text(data: Any, path: str) -> str:
    """The text at the path for comparing it without capitals; empty when it is missing."""
    return (text_of(data, path) or "").casefold()


def whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def instant(value: Any) -> datetime | None:
    """An instant written as RFC 3339, RFC 2822, or epoch seconds, ms or µs. Without a zone it is taken as UTC."""
    try:
        if isinstance(value, str):
            return _written(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _counted(value)
    except (ValueError, OverflowError, OSError, TypeError, IndexError):
        return None
    return None


def rfc3339(at: datetime | None, precision: Precision = "auto") -> str | None:
    """The instant as RFC 3339; in UTC with a Z."""
    return None if at is None else at.isoformat(timespec=precision).replace("+00:00", "Z")


def describe(data: Any, wanted: str = "") -> str:
    """What is there instead, for an error: the names of an object's keys, never its values."""
    if not isinstance(data, Mapping):
        kind = "nothing" if data is None else "a list" if isinstance(data, list) else "a plain value"
        return f"there is {kind}"
    if not data:
        return "the object is empty"
    names = ", ".join(_short(data))
    return f"its keys are {names}{suggest(wanted.partition('.')[0], data) if wanted else ''}"


def _short(keys: Iterable[Any]) -> list[str]:
    names = [str(key)[:40] for key in keys]
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], "…"]


def _written(text: str) -> datetime | None:
    if _NUMBER.fullmatch(text):
        return _counted(float(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = parsedate_to_datetime(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _counted(number: float) -> datetime:
    size = abs(number)
    return datetime.fromtimestamp(number / (1e6 if size >= _US else 1e3 if size >= _MS else 1), UTC)
