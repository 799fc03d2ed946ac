"""What a watermark means: a time, which tells when a row happened, or just an order, such as a serial number.

A read begins some way back, because transactions end in another order than they begin: rows that were written first
may be seen last. For times `since` says how far; for numbers and days it is an overlap. The feed's memory drops what
is read again.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from harken.errors import NeedsAttention

__all__ = ["Epoch", "as_like", "back", "happened", "is_time", "lower_bound"]

Epoch: TypeAlias = Literal["s", "ms", "us"]

USUAL_OVERLAP = 100
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_TEXT = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def is_time(value: Any, epoch: Epoch | None) -> bool:
    """Whether a watermark such as this one tells when something happened, to the minute at least."""
    if isinstance(value, int | float | Decimal):
        return epoch is not None
    return isinstance(value, datetime) or (isinstance(value, str) and _TEXT.fullmatch(value) is not None)


def happened(value: Any, epoch: Epoch | None, zone: ZoneInfo) -> datetime:
    """When it was, for a watermark that is a time. ValueError when the calendar has no such day."""
    try:
        if isinstance(value, int | float | Decimal):
            return _ZERO + timedelta(microseconds=int(value * _MICROSECONDS[epoch or "s"]))
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        # `infinity`, or a count in another unit than was said
        return datetime.max.replace(tzinfo=UTC)


def lower_bound(since: datetime, now: datetime, like: Any, epoch: Epoch | None, zone: ZoneInfo) -> Any:
    """The smallest watermark that a row of `since` or later may have, as a value like the ones in the column."""
    if isinstance(like, int | float | Decimal):
        return (since - _ZERO) // timedelta(microseconds=1) // _MICROSECONDS[epoch or "s"]
    if isinstance(like, datetime):
        return since if like.tzinfo else _local(since, now, zone)
    offset, found = datetime.fromisoformat(like).tzinfo, _TEXT.fullmatch(like)
    moment = since.astimezone(offset) if offset else _local(since, now, zone)
    # to the minute and without a zone: that is the beginning of every longer text, and so sorts before it
    return f"{moment:%Y-%m-%d}{found[1] if found else ' '}{moment:%H:%M}"


def _local(since: datetime, now: datetime, zone: ZoneInfo) -> datetime:
    there = since.astimezone(zone)
    # where clocks were put back since then, an hour of local time came twice
    put_back = (there.utcoffset() or timedelta()) - (now.astimezone(zone).utcoffset() or timedelta())
    return there.replace(tzinfo=None) - max(put_back, timedelta())


def back(at: Any, overlap: int | None) -> Any:
    """The watermark from which to read again, for one that is no time."""
    if isinstance(at, int):
        return at - (USUAL_OVERLAP if overlap is None else overlap)
    if isinstance(at, float | Decimal):
        return at - (overlap or 0)
    if isinstance(at, date):
        return at - timedelta(days=1 if overlap is None else overlap)
    if overlap:
        raise NeedsAttention("overlap is for numbers and days, and this watermark is neither", fix="Remove overlap")
    return at


def as_like(initial: Any, like: Any) -> Any:
    """What a person wrote, as a value like the ones in the column."""
    try:
        if isinstance(like, date):
            return date.fromisoformat(str(initial)[:10])
        if isinstance(like, int | float | Decimal):
            return int(initial) if isinstance(like, int) else type(like)(str(initial))
        if isinstance(like, bytes):
            return bytes.fromhex(str(initial))
        return UUID(str(initial)) if isinstance(like, UUID) else str(initial)
    except (ValueError, InvalidOperation):
        kind = type(like).__name__
        fix = f"Write initial as a value of the watermark column, which has values of type {kind}"
        raise NeedsAttention("initial does not fit the watermark column", fix=fix) from None
