"""A fake Datadog, and a reader of it that remembers as the engine does: what it says fires, fires."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from harken.event import Event, Known
from harken.match import recognise
from harken.services.datadog import Account, MonitorStates, Query, plugin
from harken.source import Cursor, Host
from harken.testing import START, HandClock
from harken.testing.fakes.datadog import API_KEY, APP_KEY, FakeDatadog
from tests.services.reading import read

MINUTE = 60.0


def account(fake: FakeDatadog, **changes: Any) -> Account:
    given = {"api_key": API_KEY, "app_key": APP_KEY, "base_url": fake.url, **changes}
    return Account.model_validate(given)


class Watch:
    """A trigger with these wishes, created now. `interval` passes before each look."""

    def __init__(self, fake: FakeDatadog, clock: HandClock, host: Host, **query: Any) -> None:
        self.fake = fake
        self.clock = clock
        self.cursor: Cursor = None
        self.start_line: datetime = clock.now()
        self.query = Query.model_validate(query)
        self._host = host
        self._known: dict[str, Known] = {}
        self._reads = 0

    @property
    def source(self) -> MonitorStates:
        """A new one each time, as after a restart."""
        return MonitorStates(self.query, account(self.fake), self._host)

    async def events(self) -> list[Event]:
        """What one whole read shows."""
        batches = await read(self.source, self.cursor, self.start_line - timedelta(minutes=2))
        self.cursor = batches[-1].cursor
        return [event for batch in batches for event in batch.events]

    async def fires(self, interval: float = MINUTE) -> list[Event]:
        """What is new and happened after the start line; undated things at the first read are the baseline."""
        self.clock.advance(interval)
        sightings = recognise(await self.events(), self._known, plugin.identity)
        self._known |= {one.memory_id: Known(one.event.state, one.seq) for one in sightings}
        self._reads += 1
        return [one.event for one in sightings if self._counts(one.event)]

    def _counts(self, event: Event) -> bool:
        if event.occurred_at is None:
            return self._reads > 1
        return event.occurred_at >= self.start_line


async def changes(watch: Watch, interval: float = MINUTE) -> list[tuple[str, str, str]]:
    """What fires, in short: the group, the status before, the status now."""
    fired = await watch.fires(interval)
    return [(event.data["group"], event.data["previous_status"], event.data["status"]) for event in fired]


@asynccontextmanager
async def served(clock: HandClock, *, cap: int = 1000) -> AsyncIterator[FakeDatadog]:
    fake = FakeDatadog(clock, cap=cap)
    async with fake.serve():
        yield fake


LONG_AGO = START - timedelta(days=30)
