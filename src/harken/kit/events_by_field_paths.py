"""Events out of the items of a listing, where the query names the paths of id, time and state.

A path that leads nowhere is an error that names the keys that are there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, overload

import msgspec

from harken.errors import Garbled
from harken.event import Event
from harken.kit.digest import digest_of_json
from harken.kit.timeout_without_own_work import OwnWork
from harken.kit.values_from_payload import describe, instant, text_of
from harken.language.dotted_paths import lookup

__all__ = ["ItemEvents", "Shape", "events_of", "items_at", "kept_events", "long_events_of"]

SLICE = 1_000
"""So many items are translated before everything else has a turn."""


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


async def long_events_of(items: Sequence[Any], shape: Shape) -> Sequence[Event]:
    """As `events_of`, for any number of items. All of them are checked, but the events of many are made when used."""
    if len(items) <= SLICE:
        return events_of(items, shape)
    events, work = ItemEvents(items, shape), OwnWork()
    dated = stated = False
    for begin in range(0, len(events), SLICE):
        some = events[begin : begin + SLICE]
        dated = dated or any(event.occurred_at is not None for event in some)
        stated = stated or any(event.state for event in some)
        await work.pause()
    if shape.time_field and not dated:
        raise _wrong_path("an instant", shape.time_field, "time_field", items[0], shape)
    if shape.state_field and not stated:
        raise _wrong_path("a state", shape.state_field, "state_field or version_field", items[0], shape)
    return events


async def kept_events(events: Sequence[Event], keep: Callable[[Event], bool], *, reverse: bool) -> Sequence[Event]:
    """The events to keep, in their order or reversed."""
    if not isinstance(events, ItemEvents):
        kept = [event for event in events if keep(event)]
        return kept[::-1] if reverse else kept
    positions, work = array("Q"), OwnWork()
    for begin in range(0, len(events), SLICE):
        some = events[begin : begin + SLICE]
        positions.extend(begin + at for at, event in enumerate(some) if keep(event))
        await work.pause()
    return ItemEvents(events.items, events.shape, positions[::-1] if reverse else positions)


class ItemEvents(Sequence[Event]):
    """The events of the items at these positions, or of all items; they are made when they are used."""

    def __init__(self, items: Sequence[Any], shape: Shape, positions: Sequence[int] | None = None) -> None:
        self.items = items
        self.shape = shape
        self._positions = range(len(items)) if positions is None else positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, at: int) -> Event: ...

    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...

    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        if isinstance(at, slice):
            return [self._event(position) for position in self._positions[at]]
        return self._event(self._positions[at])

    def _event(self, position: int) -> Event:
        return _event(self.items[position], position + 1, self.shape)


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
