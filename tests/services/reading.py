"""How the engine reads: page by page, each cursor through JSON as if it had been stored, until nothing more follows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event
from harken.source import Batch, Cursor, PollSource
from harken.testing import START

MOST = 60


async def page(source: PollSource, cursor: Cursor = None, since: Any = START) -> Batch:
    batch = await source.poll(cursor, since)
    return msgspec.structs.replace(batch, cursor=msgspec.json.decode(msgspec.json.encode(batch.cursor)))


async def read(source: PollSource, cursor: Cursor = None, since: Any = START) -> list[Batch]:
    """A whole read. A source that goes on for ever fails the test."""
    batches = [await page(source, cursor, since)]
    while batches[-1].more:
        assert len(batches) < MOST, "the read does not end"
        batches.append(await page(source, batches[-1].cursor, since))
    return batches


def events(batches: Iterable[Batch]) -> list[Event]:
    return [event for batch in batches for event in batch.events]


async def first_events(source: PollSource) -> list[Event]:
    """The events of a first read."""
    return events(await read(source))


async def times(source: PollSource) -> list[datetime | None]:
    """The times of those events."""
    return [event.occurred_at for event in await first_events(source)]


def subjects(batches: Iterable[Batch]) -> list[str]:
    return [event.subject for event in events(batches)]
