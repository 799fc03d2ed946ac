"""From the items of a listing to events. What is not where the query says is an error that names what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit.digest import digest_of_json
from harken.kit.fields import describe, instant, text_of
from harken.language.paths import lookup

__all__ = ["Shape", "events_of", "items_at"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item of `whose` listing has its id, time and state. An empty id path: the item itself is its id."""

    whose: str
    id_field: str
    type: str
    time_field: str = ""
    state_field: str = ""


def items_at(document: Any, path: str, whose: str) -> list[Any]:
    """The list at the path; NeedsAttention when there is none, because no list is not the same as an empty one."""
    items = lookup(document, path)
    if isinstance(items, list):
        return items
    where = f"at items_path {path!r}" if path else "at its root (items_path is empty)"
    found = describe(items) if path and items else describe(document, path)
    raise NeedsAttention(f"the answer of {whose} has no list {where}; {found}", fix="Correct items_path")


def events_of(items: Sequence[Any], shape: Shape) -> list[Event]:
    """One event per item. A time or state may be missing from some items, but not from all: that is a wrong path."""
    events = [_event(item, number, shape) for number, item in enumerate(items, 1)]
    if shape.time_field and events and all(event.occurred_at is None for event in events):
        raise _nowhere("an instant", shape.time_field, "time_field", items[0], shape)
    if shape.state_field and events and not any(event.state for event in events):
        raise _nowhere("a state", shape.state_field, "state_field or version_field", items[0], shape)
    return events


def _event(item: Any, number: int, shape: Shape) -> Event:
    plain = isinstance(item, dict)
    subject = (text_of(item, shape.id_field) if plain else None) if shape.id_field else _itself(item)
    if subject is None:
        told = describe(item, shape.id_field)
        raise NeedsAttention(
            f"item {number} of {shape.whose} has no id at {shape.id_field!r}; {told}", fix="Correct id_field"
        )
    return Event(
        subject=subject,
        type=shape.type,
        data=item if plain else {"value": item},
        state=(text_of(item, shape.state_field) or "") if shape.state_field else None,
        occurred_at=instant(lookup(item, shape.time_field)) if shape.time_field else None,
    )


def _itself(item: Any) -> str:
    return item if isinstance(item, str) and item else digest_of_json(item)


def _nowhere(what: str, path: str, setting: str, item: Any, shape: Shape) -> NeedsAttention:
    message = f"no item of {shape.whose} has {what} at {path!r}; {describe(item, path)}"
    return NeedsAttention(message, fix=f"Correct {setting}")
