"""Sources that remember what they showed, and whose cursors tell which answer the engine stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event
from harken.ingest.partly_committed_page import stored_position
from harken.source import Batch, Cursor, PollSource


@dataclass(frozen=True, kw_only=True)
class Served:
    """One answer: `parent` is the number of the answer whose cursor was asked with (0: none)."""

    number: int
    parent: int
    batch: Batch


@dataclass
class Noted:
    """Numbers every answer in its cursor, and counts the reads that came to their end.

    `unnamed`: events carry no key, so that the engine has to name them.
    """

    inner: PollSource
    unnamed: bool = True
    served: list[Served] = field(default_factory=list)
    reads: int = 0

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        parent = number_of(cursor)
        batch = await self.inner.poll(cursor["c"] if parent else None, since)
        self.reads += not batch.more
        if batch.unchanged:
            return msgspec.structs.replace(batch, cursor=cursor)
        number = len(self.served) + 1
        events = [msgspec.structs.replace(event, key="") for event in batch.events] if self.unnamed else batch.events
        self.served.append(Served(number=number, parent=parent, batch=msgspec.structs.replace(batch, events=events)))
        return msgspec.structs.replace(batch, events=events, cursor={"n": number, "c": batch.cursor})

    def path_to(self, number: int, known: set[int]) -> list[Served]:
        """The answers that led to this one and were not known to be taken before, oldest first."""
        found: list[Served] = []
        while number and number not in known:
            found.append(self.served[number - 1])
            number = found[-1].parent
        return found[::-1]


def number_of(stored: Any) -> int:
    cursor = stored_position(stored)[0]
    return int(cursor["n"]) if cursor else 0


def shown(event: Event) -> tuple[str, str | None]:
    return event.subject, event.state
