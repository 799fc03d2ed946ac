"""Make any Python value fit for CEL, and show values to people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import msgspec

from harken.errors import Refused

__all__ = ["clean", "is_plain", "kind_of", "show", "size_of"]

DEEPEST = 200
_INT64 = 2**63
_NUL = b"\\u0000"
_SHOWN = 80
_SCALARS = (bool, int, float, type(None))

_encode = msgspec.json.Encoder(enc_hook=str).encode


def is_plain(value: Any) -> bool:
    """Return whether CEL will take the value as it is; False when it would cut it short or crash on it."""
    kind = type(value)
    if kind is str:
        return "\0" not in value and (value.isascii() or _encodes(value))
    if kind in _SCALARS:
        return True
    return (kind is dict or kind is list) and _encodes(value)


def _encodes(value: Any) -> bool:
    # CEL cuts text at a NUL and follows nesting on the C stack without a limit; this finds both in a microsecond
    try:
        return _NUL not in _encode(value)
    except (ValueError, TypeError, RecursionError):
        return False


def size_of(value: Any) -> int:
    """Return roughly how many bytes the value holds."""
    return len(_encode(value))


def clean(value: Any, depth: int = 0) -> Any:
    """Return the value in types that CEL knows: dates as text, huge integers as doubles, unknown things as text."""
    if depth > DEEPEST:
        raise Refused(f"the event is nested more than {DEEPEST} levels deep")
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else _as_double(value)
    if isinstance(value, Mapping):
        return {_clean_key(key): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item, depth + 1) for item in value]
    return _clean_other(value)


def _clean_text(value: str) -> str:
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _clean_key(key: Any) -> str | int:
    if isinstance(key, int) and not isinstance(key, bool) and -_INT64 <= key < _INT64:
        return int(key)
    return _clean_text(key if isinstance(key, str) else str(key))


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _clean_other(value: Any) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else _clean_text(str(value))


def show(value: Any, limit: int = _SHOWN) -> str:
    """Return the value as short JSON for a person to read, at most about `limit` characters."""
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit] + "…"
    try:
        text = _encode(value).decode()
    except (ValueError, TypeError, RecursionError):
        text = f"a {kind_of(value)} that cannot be shown"
    return text if len(text) <= limit + 3 else text[:limit] + "…"


def kind_of(value: Any) -> str:
    """Name the type of a value in the words of JSON."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "list" if isinstance(value, list | tuple | set | frozenset) else type(value).__name__
