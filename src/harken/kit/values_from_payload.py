"""Values out of a payload of any shape: ids, instants, states. What is missing or has another type is None."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeAlias

from harken.language.dotted_paths import lookup
from harken.suggest import suggest_clause

__all__ = ["Precision", "describe", "folded_text", "instant", "list_of", "rfc3339", "text_of", "whole_number"]

Precision: TypeAlias = Literal["auto", "milliseconds"]

_EPOCH = re.compile(r"-?\d{9,17}(\.\d{1,9})?")
# smallest numbers that are milliseconds and microseconds
_MS, _US = 1e11, 1e14
_MAX_KEYS = 12


def text_of(data: Any, path: str) -> str | None:
    """Return the plain value at the dotted path as text; None when it is missing, empty, a list or an object."""
    value = data[path] if type(data) is dict and path in data else lookup(data, path)
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def folded_text(data: Any, path: str) -> str:
    """Return the text at the path for a comparison that ignores case; empty when it is missing."""
    return (text_of(data, path) or "").casefold()


def whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def instant(value: Any) -> datetime | None:
    """Parse RFC 3339, RFC 2822, or epoch seconds, milliseconds or microseconds. Without a zone it is taken as UTC."""
    try:
        if isinstance(value, str):
            return _parse_text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _from_epoch(value)
    except (ValueError, OverflowError, OSError, TypeError, IndexError):
        return None
    return None


def rfc3339(at: datetime | None, precision: Precision = "auto") -> str | None:
    """Return the instant as RFC 3339, with a Z if it is in UTC."""
    return None if at is None else at.isoformat(timespec=precision).replace("+00:00", "Z")


def describe(data: Any, wanted: str = "") -> str:
    """Describe what was found instead, for an error: the keys of an object, never its values."""
    if not isinstance(data, Mapping):
        kind = "nothing" if data is None else "a list" if isinstance(data, list) else "a plain value"
        return f"there is {kind}"
    if not data:
        return "the object is empty"
    first, _, rest = wanted.partition(".")
    if wanted and first in data:
        found = data[first]
        inside = rest and isinstance(found, Mapping)
        return f"below {first!r}, {describe(found, rest)}" if inside else f"{first!r} is {_kind(found)}"
    names = ", ".join(_key_names(data))
    return f"its keys are {names}{suggest_clause(first, data) if wanted else ''}"


def _kind(value: Any) -> str:
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "an object"
    return "empty" if value in (None, "") else "a plain value that cannot be read so"


def _key_names(keys: Iterable[Any]) -> list[str]:
    names = [str(key)[:40] for key in keys]
    return names if len(names) <= _MAX_KEYS else [*names[:_MAX_KEYS], "…"]


def _parse_text(text: str) -> datetime | None:
    if _EPOCH.fullmatch(text):
        return _from_epoch(float(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = parsedate_to_datetime(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _from_epoch(number: float) -> datetime:
    size = abs(number)
    return datetime.fromtimestamp(number / (1e6 if size >= _US else 1e3 if size >= _MS else 1), UTC)
