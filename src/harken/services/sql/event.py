"""Rows become events: the key is the subject, the watermark the version of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from harken.errors import NeedsAttention
from harken.event import Event
from harken.services.sql.drivers import Rows
from harken.services.sql.query import Query
from harken.services.sql.values import Packed, data_of, happened, is_time, pack, text_of, unpack

__all__ = ["Border", "Shown", "alike", "higher", "orderly", "shown_of"]

Border: TypeAlias = tuple[Packed, Packed]
"""Watermark and key of a row."""


class Shown(msgspec.Struct, frozen=True):
    """The events of a page, and where its last row is."""

    events: Sequence[Event]
    last: Border | None


def alike(one: Any, other: Any) -> bool:
    """Whether two watermarks can be compared: both numbers, both texts, both times of one kind …"""
    numbers = int | float | Decimal
    if isinstance(one, numbers) and isinstance(other, numbers):
        return True
    if isinstance(one, UUID) and isinstance(other, UUID):
        return True
    if isinstance(one, datetime) and isinstance(other, datetime):
        return (one.tzinfo is None) == (other.tzinfo is None)
    return type(one) is type(other)


def higher(top: Packed | None, last: Packed) -> Packed:
    """The larger one. Where newest rows are deleted, a read must not go back to what is long forgotten."""
    if top is None:
        return last
    known, seen = unpack(top), unpack(last)
    # the order of texts is the database's own, and those are never read from below the top
    return top if isinstance(known, int | float | Decimal | date) and known > seen else last


def shown_of(found: Rows, query: Query, like: Any, by: str, border: Border | None) -> Shown:
    """Every row as an event, except that of the border, which the page before has shown."""
    names, rows = found.names, found.rows
    columns = names.index(query.watermark), names.index(query.key)
    places = [_place(row, columns, query, like, by) for row in rows]
    again = bool(border and places and places[0] == border)
    for before, place in zip([border, *places[again:]], places[again:], strict=False):
        if before == place:
            raise _several(query)
    if border and len(places) > 1 and places[-1] == border:
        raise _several(query)
    events = [_event(names, row, columns, query, by) for row in rows[again:]]
    return Shown(events, places[-1] if places else border)


def _several(query: Query) -> NeedsAttention:
    fix = "Name a key that is unique, or SELECT one: an id, or several columns joined to one text"
    return NeedsAttention(f"several rows have the same {query.watermark} and {query.key}", fix=fix)


def _place(row: Sequence[Any], columns: tuple[int, int], query: Query, like: Any, by: str) -> Border:
    watermark, key = row[columns[0]], row[columns[1]]
    place = orderly(watermark, query.watermark), orderly(key, query.key)
    if not alike(watermark, like) or (by == "time") != is_time(watermark, query.epoch):
        fix = "CAST it in the query, so that all rows have the same type and format"
        raise NeedsAttention(f"{query.watermark} has values of different types", fix=fix)
    return place


def orderly(value: Any, column: str) -> Packed:
    """The value as it stands in a cursor. A type that has no order which could be asked for is an error."""
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
        occurred_at=_moment(watermark, query) if by == "time" else None,
        data=data_of(names, row),
    )


def _moment(watermark: Any, query: Query) -> datetime:
    try:
        return happened(watermark, query.epoch, query.zone)
    except ValueError:
        raise NeedsAttention(f"{query.watermark} has a day that no calendar has", fix="Correct the row") from None
