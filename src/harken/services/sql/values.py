"""Values of a database: exact and typed in a cursor, as JSON in an event."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

__all__ = [
    "LONGEST_CELL",
    "LONGEST_ROW",
    "Packed",
    "data_of",
    "pack",
    "row_size",
    "text_of",
    "unpack",
]

LONGEST_CELL = 32_768
LONGEST_ROW = 262_144
_EXACT = 1 << 63
Packed: TypeAlias = tuple[str, str]
"""A value in a cursor: its type and its text."""


_PARSE: Mapping[str, Any] = {
    "int": int,
    "decimal": Decimal,
    "float": float,
    "text": str,
    "time": datetime.fromisoformat,
    "local": datetime.fromisoformat,
    "date": date.fromisoformat,
    "uuid": UUID,
    "bytes": b64decode,
}


def pack(value: Any) -> Packed | None:
    """The value with its type; None for a type that cannot be ordered."""
    kind = _kind(value)
    if kind is None:
        return None
    return kind, b64encode(value).decode() if kind == "bytes" else _to_text(value)


def unpack(packed: Packed) -> Any:
    """The value that was packed."""
    kind, text = packed
    return _PARSE[kind](text)


def text_of(value: Any) -> str:
    """The value as the subject or state of an event: different values have different texts."""
    return value.hex() if isinstance(value, bytes) else _to_text(value)


def _kind(value: Any) -> str | None:
    if isinstance(value, datetime):
        return "time" if value.tzinfo else "local"
    kinds = {int: "int", Decimal: "decimal", float: "float", str: "text", date: "date", bytes: "bytes"}
    return "uuid" if isinstance(value, UUID) else kinds.get(type(value))


def _to_text(value: Any) -> str:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat(timespec="microseconds")
    return value.isoformat() if isinstance(value, date) else repr(value) if isinstance(value, float) else str(value)


def row_size(row: Sequence[Any]) -> int:
    """About how many bytes the row needs."""
    return sum(len(value) if isinstance(value, str | bytes | list | dict) else 8 for value in row)


def data_of(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """The row as JSON. A long cell is cut, and so are the last cells of a long row; the text says so."""
    data: dict[str, Any] = {}
    left = LONGEST_ROW
    for name, value in zip(names, row, strict=True):
        data[name] = cell = _shorten(_to_json(value), min(LONGEST_CELL, left))
        left = max(0, left - (len(cell) if isinstance(cell, str) else 8))
    return data


def _shorten(value: Any, most: int) -> Any:
    text = msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value
    if not isinstance(text, str) or len(text) <= most:
        return value
    return f"{text[:most]}… (cut, {len(text)} characters)"


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value < 2 * _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(bytes(value)).decode()
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(name): _to_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_json(inner) for inner in value]
    return str(value)
