"""Values of a database: exact and typed in a cursor, as JSON in an event, and compared as watermarks."""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from harken.errors import NeedsAttention

__all__ = [
    "LONGEST_CELL",
    "LONGEST_ROW",
    "Epoch",
    "Packed",
    "data_of",
    "is_time",
    "lower_bound",
    "pack",
    "parse_like",
    "row_size",
    "step_back",
    "text_of",
    "unpack",
    "watermark_time",
]

LONGEST_CELL = 32_768
LONGEST_ROW = 262_144
_EXACT = 1 << 63
Packed: TypeAlias = tuple[str, str]
"""A value in a cursor: its type and its text."""

Epoch: TypeAlias = Literal["s", "ms", "us"]
USUAL_OVERLAP = 100
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_TEXT = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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


def is_time(value: Any, epoch: Epoch | None) -> bool:
    """Whether a watermark is a time, to the minute at least."""
    if isinstance(value, int | float | Decimal):
        return epoch is not None
    return isinstance(value, datetime) or (isinstance(value, str) and _TEXT.fullmatch(value) is not None)


def watermark_time(value: Any, epoch: Epoch | None, zone: ZoneInfo) -> datetime:
    """The time that a watermark says. ValueError if the calendar has no such day."""
    try:
        if isinstance(value, int | float | Decimal):
            return _UNIX_EPOCH + timedelta(microseconds=int(value * _MICROSECONDS[epoch or "s"]))
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        # `infinity`, or a number in another unit than `epoch`
        return datetime.max.replace(tzinfo=UTC)


def lower_bound(since: datetime, now: datetime, sample: Any, epoch: Epoch | None, zone: ZoneInfo) -> Any:
    """The smallest watermark that a row of `since` or later can have, of the same type as `sample`."""
    if isinstance(sample, int | float | Decimal):
        return (since - _UNIX_EPOCH) // timedelta(microseconds=1) // _MICROSECONDS[epoch or "s"]
    if isinstance(sample, datetime):
        return since if sample.tzinfo else _local(since, now, zone)
    offset, found = datetime.fromisoformat(sample).tzinfo, _TEXT.fullmatch(sample)
    moment = since.astimezone(offset) if offset else _local(since, now, zone)
    # to the minute and without a zone: a prefix of every longer text, and so sorts before it
    return f"{moment:%Y-%m-%d}{found[1] if found else ' '}{moment:%H:%M}"


def _local(since: datetime, now: datetime, zone: ZoneInfo) -> datetime:
    local = since.astimezone(zone)
    # if clocks were put back since then, an hour of local time came twice
    put_back = (local.utcoffset() or timedelta()) - (now.astimezone(zone).utcoffset() or timedelta())
    return local.replace(tzinfo=None) - max(put_back, timedelta())


def step_back(at: Any, overlap: int | None) -> Any:
    """The watermark from which to read again, for one that is not a time."""
    if isinstance(at, int):
        return at - (USUAL_OVERLAP if overlap is None else overlap)
    if isinstance(at, float | Decimal):
        return at - (overlap or 0)
    if isinstance(at, date):
        return at - timedelta(days=1 if overlap is None else overlap)
    if overlap:
        raise NeedsAttention("overlap is for numbers and days, and this watermark is neither", fix="Remove overlap")
    return at


def parse_like(initial: Any, sample: Any) -> Any:
    """The written `initial` as a value of the same type as `sample`."""
    try:
        if isinstance(sample, date):
            return date.fromisoformat(str(initial)[:10])
        if isinstance(sample, int | float | Decimal):
            return int(initial) if isinstance(sample, int) else type(sample)(str(initial))
        if isinstance(sample, bytes):
            return bytes.fromhex(str(initial))
        return UUID(str(initial)) if isinstance(sample, UUID) else str(initial)
    except (ValueError, InvalidOperation):
        kind = type(sample).__name__
        fix = f"Write initial as a value of the watermark column, which has values of type {kind}"
        raise NeedsAttention("initial does not fit the watermark column", fix=fix) from None
