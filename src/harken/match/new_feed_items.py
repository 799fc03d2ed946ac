"""Which of the items that a source shows are new occurrences, given what the feed remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harken.event import Event, Identity, Known

__all__ = ["Sighting", "memory_id", "recognise"]


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """A new occurrence: its event with its final key, and how it changes the memory of its subject.

    `expect` is the number of states that the memory has seen (0: unknown subject), `seq` that number with this event.
    """

    event: Event
    memory_id: str
    expect: int
    seq: int


def memory_id(event: Event, identity: Identity) -> str:
    """The name under which the feed remembers this item."""
    if identity == "change" and event.state is not None:
        return f"{event.subject}@{event.state}"
    return event.subject


def recognise(events: Sequence[Event], known: Mapping[str, Known], identity: Identity) -> list[Sighting]:
    """The events that are new, in their order. The same item twice in one batch is one occurrence."""
    seen: dict[str, Known] = {}
    sightings: list[Sighting] = []
    for event in events:
        name = memory_id(event, identity)
        before = seen.get(name) or known.get(name)
        if before is None:
            expect, seq = 0, 1
        elif identity == "transition" and before.state != event.state:
            expect, seq = before.seq, before.seq + 1
        else:
            continue
        seen[name] = Known(event.state, seq)
        sightings.append(Sighting(_keyed(event, identity, seq), name, expect, seq))
    return sightings


def _keyed(event: Event, identity: Identity, seq: int) -> Event:
    key = event.key or event.subject
    if identity != "once" and event.state is not None and not event.key:
        key = f"{event.subject}@{event.state}"
    if seq > 1:
        # A → B → A: the second A is another occurrence and needs another name
        key = f"{key}#{seq}"
    return event if key == event.key else msgspec.structs.replace(event, key=key)
