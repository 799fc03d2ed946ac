"""Events out of the items of a listing, where the query names the paths of id, time and state.

A path that leads nowhere is an error that names the keys that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.errors import Garbled
from harken.event import Event
from harken.kit.digest import digest_of_json
from harken.kit.fields import describe, instant, text_of
from harken.language.paths import lookup

__all__ = ["Shape", "events_of", "items_at"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item has its id, time and state. Without `id_field` the item is its own id. Errors say `whose` it is."""

    whose: str
    id_field: str
    type: str
    time_field: str = ""
    state_field: str = ""


def items_at(document: Any, path: str, whose: str) -> list[Any]:
    """Return the list at the path. Raise Garbled when there is none: no list is not an empty list."""
    items = lookup(document, path)
    if isinstance(items, list):
        return items
    where = f"at items_path {path!r}" if path else "at its root (items_path is empty)"
    found = describe(items) if path and items else describe(document, path)
    raise Garbled(f"the answer of {whose} has no list {where}; {found}", fix="Correct items_path")


def events_of(items: Sequence[Any], shape: Shape) -> list[Event]:
    """Return one event per item. Raise Garbled if no item has the time or state: the path must be wrong."""
    events = [_event(item, number, shape) for number, item in enumerate(items, 1)]
    if shape.time_field and events and all(event.occurred_at is None for event in events):
        raise _wrong_path("an instant", shape.time_field, "time_field", items[0], shape)
    if shape.state_field and events and not any(event.state for event in events):
        raise _wrong_path("a state", shape.state_field, "state_field or version_field", items[0], shape)
    return events


def _event(item: Any, number: int, shape: Shape) -> Event:
    is_object = isinstance(item, dict)
    subject = (text_of(item, shape.id_field) if is_object else None) if shape.id_field else _own_id(item)
    if subject is None:
        message = f"item {number} of {shape.whose} has no id at {shape.id_field!r}; {describe(item, shape.id_field)}"
        raise Garbled(message, fix="Correct id_field")
    return Event(
        subject=subject,
        type=shape.type,
        data=item if is_object else {"value": item},
        state=(text_of(item, shape.state_field) or "") if shape.state_field else None,
        occurred_at=instant(lookup(item, shape.time_field)) if shape.time_field else None,
    )


def _own_id(item: Any) -> str:
    return item if isinstance(item, str) and item else digest_of_json(item)


def _wrong_path(what: str, path: str, setting: str, item: Any, shape: Shape) -> Garbled:
    message = f"no item of {shape.whose} has {what} at {path!r}; {describe(item, path)}"
    return Garbled(message, fix=f"Correct {setting}")
