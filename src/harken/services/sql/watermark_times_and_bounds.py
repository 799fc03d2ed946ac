"""Watermarks: the column by which a query reads on. Its values as times, how far to read back, and where to begin."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from harken.errors import NeedsAttention

__all__ = ["Epoch", "is_time", "lower_bound", "parse_like", "step_back", "watermark_time"]

Epoch: TypeAlias = Literal["s", "ms", "us"]
USUAL_OVERLAP = 100
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_TEXT = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
