"""From a row to an event: the key is the subject, the watermark its state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from harken.errors import NeedsAttention
from harken.event import Event
from harken.services.sql.cursor import Border
from harken.services.sql.drivers import Rows
from harken.services.sql.query import Query
from harken.services.sql.values import Packed, data_of, pack, text_of, unpack
from harken.services.sql.watermark_times_and_bounds import is_time, watermark_time

__all__ = ["comparable", "higher_watermark", "pack_ordered", "page_events"]


class EventPage(msgspec.Struct, frozen=True):
    """The events of a page, and the watermark and key of its last row."""

    events: Sequence[Event]
    last: Border | None


def comparable(one: Any, other: Any) -> bool:
    """Whether two watermarks can be compared: both numbers, both texts, both times with or without a zone …"""
    numbers = int | float | Decimal
    if isinstance(one, numbers) and isinstance(other, numbers):
        return True
    if isinstance(one, UUID) and isinstance(other, UUID):
        return True
    if isinstance(one, datetime) and isinstance(other, datetime):
        return (one.tzinfo is None) == (other.tzinfo is None)
    return type(one) is type(other)


def higher_watermark(top: Packed | None, last: Packed) -> Packed:
    """The larger one: if the newest rows are deleted, a read must not go back to rows that the engine has forgotten."""
    if top is None:
        return last
    known, seen = unpack(top), unpack(last)
    # texts are ordered by the database's collation, and have no overlap: the last one is the highest
    return top if isinstance(known, int | float | Decimal | date) and known > seen else last


def page_events(found: Rows, query: Query, sample: Any, by: str, border: Border | None) -> EventPage:
    """Every row as an event, except that of the border, which belongs to the page before."""
    names, rows = found.names, found.rows
    columns = names.index(query.watermark), names.index(query.key)
    places = [_border(row, columns, query, sample, by) for row in rows]
    again = bool(border and places and places[0] == border)
    for before, place in zip([border, *places[again:]], places[again:], strict=False):
        if before == place:
            raise _not_unique(query)
    if border and len(places) > 1 and places[-1] == border:
        raise _not_unique(query)
    events = [_event(names, row, columns, query, by) for row in rows[again:]]
    return EventPage(events, places[-1] if places else border)


def _not_unique(query: Query) -> NeedsAttention:
    fix = "Name a key that is unique, or SELECT one: an id, or several columns joined to one text"
    return NeedsAttention(f"several rows have the same {query.watermark} and {query.key}", fix=fix)


def _border(row: Sequence[Any], columns: tuple[int, int], query: Query, sample: Any, by: str) -> Border:
    watermark, key = row[columns[0]], row[columns[1]]
    place = pack_ordered(watermark, query.watermark), pack_ordered(key, query.key)
    if not comparable(watermark, sample) or (by == "time") != is_time(watermark, query.epoch):
        fix = "CAST it in the query, so that all rows have the same type and format"
        raise NeedsAttention(f"{query.watermark} has values of different types", fix=fix)
    return place


def pack_ordered(value: Any, column: str) -> Packed:
    """The value as the cursor stores it; raises for a type that cannot be ordered."""
    packed = pack(value)
    if packed is None:
        fix = "Use a number, text, date, time or UUID, or CAST it in the query"
        raise NeedsAttention(f"{column} is of type {type(value).__name__}, which has no useful order", fix=fix)
    return packed


def _event(names: Sequence[str], row: Sequence[Any], columns: tuple[int, int], query: Query, by: str) -> Event:
    watermark = row[columns[0]]
    return Event(
        subject=text_of(row[columns[1]]),
        type=query.type,
        state=text_of(watermark),
        occurred_at=_event_time(watermark, query) if by == "time" else None,
        data=data_of(names, row),
    )


def _event_time(watermark: Any, query: Query) -> datetime:
    try:
        return watermark_time(watermark, query.epoch, query.zone)
    except ValueError:
        raise NeedsAttention(f"{query.watermark} has a day that no calendar has", fix="Correct the row") from None
