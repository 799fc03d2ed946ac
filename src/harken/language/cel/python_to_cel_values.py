"""Convert Python values to types that CEL accepts, and to short texts for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import msgspec

from harken.errors import Refused
from harken.language.json_kinds import kind_of

__all__ = ["clean", "is_plain", "show", "size_of"]

DEEPEST = 200
_INT64 = 2**63
_NUL = b"\\u0000"
_SHOWN = 80
_SCALARS = (bool, int, float, type(None))

_encode = msgspec.json.Encoder(enc_hook=str).encode


def is_plain(value: Any) -> bool:
    """Whether CEL accepts the value as it is; False if it would cut it short or crash."""
    kind = type(value)
    if kind is str:
        return "\0" not in value and (value.isascii() or _encodes(value))
    if kind in _SCALARS:
        return True
    return (kind is dict or kind is list) and _encodes(value)


def _encodes(value: Any) -> bool:
    # CEL cuts text at a NUL and recurses on the C stack without a limit; encoding finds both in a microsecond
    try:
        return _NUL not in _encode(value)
    except (ValueError, TypeError, RecursionError):
        return False


def size_of(value: Any) -> int:
    """Return roughly the size of the value in bytes."""
    return len(_encode(value))


def clean(value: Any, depth: int = 0) -> Any:
    """Return the value in types that CEL accepts: dates and unknown types as text, huge integers as doubles."""
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
    """Return the value as JSON of about `limit` characters at most."""
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit] + "…"
    try:
        text = _encode(value).decode()
    except (ValueError, TypeError, RecursionError):
        text = f"a {kind_of(value)} that cannot be shown"
    return text if len(text) <= limit + 3 else text[:limit] + "…"
