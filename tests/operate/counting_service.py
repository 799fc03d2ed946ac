"""A service in this process whose readings can be counted: every read and every delivery is noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.source import Batch, Cursor, Delivery, Host, Message, Plugin

KIND = "meter"


class Readings:
    """What was asked of all meters since the last `clear`; `latency` is how long a read takes.

    Those that are `down` fail with that error, and so do deliveries while the door is `shut`.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.latency = 0.5
        self.down: dict[str, Exception] = {}
        self.shut: Exception | None = None
        self.reads: dict[str, list[tuple[float, int]]] = {}
        self.delivered: Counter[str] = Counter()


readings = Readings()


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    every: int = 1
    """Shows something new with every so many reads."""


class Meter:
    """The cursor counts the reads, so a read that was lost or done twice shows."""

    def __init__(self, query: Query, host: Host) -> None:
        self._query = query
        self._clock = host.clock

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        name, count = self._query.name, int(cursor or 0)
        readings.reads.setdefault(name, []).append((self._clock.time(), count))
        await self._clock.sleep(readings.latency)
        if name in readings.down:
            raise readings.down[name]
        fresh = count % self._query.every == 0
        value = f"{name}#{count}"
        event = Event(subject=value, type="meter.read", occurred_at=self._clock.now(), data={"value": value})
        return Batch(events=[event] if fresh else [], cursor=count + 1)


class Door:
    async def deliver(self, message: Message) -> Mapping[str, Any]:
        if readings.shut is not None:
            raise readings.shut
        readings.delivered[message.text] += 1
        return {}


plugin = Plugin(
    kind=KIND,
    query=Query,
    source=lambda query, account, host: Meter(query, host),
    destination=lambda query, account, host: Door(),
    first="all",
    floor_seconds=1.0,
    delivery=lambda query, integration: Delivery(template="{value}"),
)


def install(directory: Path) -> Path:
    """A folder for sys.path in which the meter is installed."""
    folder = directory / "installed"
    info = folder / "meter-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: meter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[harken.services]\n{KIND} = tests.operate.counting_service:plugin\n")
    return folder


def busy() -> RetryLater:
    return RetryLater("meter.example answered 503")


def locked() -> NeedsAttention:
    return NeedsAttention("meter.example answered 401", fix="Check the token")
