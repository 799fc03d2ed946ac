"""Time as a source: the cursor is the last activation, so activations that a sleeping laptop missed are known.

`missed` decides about them: `coalesce` makes one event for all, `all` one for each, `skip` none unless the last one
is only just over. DST follows Debian cron, see `harken.schedule`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pydantic import AwareDatetime, Field, model_validator

from harken.event import Event
from harken.kit import QueryModel, load_cursor
from harken.schedule import At, Cron, Every, Missed, Schedule, activations, check
from harken.source import Batch, Cursor, Host, Plugin

__all__ = ["Activations", "Query", "plugin"]

PAGE = 1000
# with `skip`, an activation that is this late still counts as on time: timers are never exact
GRACE = timedelta(seconds=60)
# a stored activation further in the future than this was written while the clock was wrong
MOST_AHEAD = timedelta(hours=1)


class Query(QueryModel):
    """Exactly one of cron, every and at."""

    cron: str = Field("", description="five fields, or six with seconds first")
    every: float | None = Field(None, ge=1, description="seconds between activations")
    at: AwareDatetime | None = Field(None, description="one instant (RFC 3339)")
    tz: str = Field("UTC", description="time zone of the cron line, such as Europe/Berlin")
    missed: Missed = Field("coalesce", description="what happens to activations that passed while down")

    @model_validator(mode="after")
    def _one_schedule(self) -> Query:
        if sum((bool(self.cron), self.every is not None, self.at is not None)) != 1:
            raise ValueError("name exactly one of cron, every, at")
        return self

    def schedule(self) -> Schedule:
        """The schedule; raises Misconfigured if the cron line or the time zone is invalid."""
        if self.at is not None:
            return At(instant=self.at.astimezone(UTC))
        found: Schedule = Every(seconds=self.every) if self.every else Cron(expression=self.cron, tz=self.tz)
        check(found)
        return found


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The last activation, and how many before it were skipped since the last event."""

    last: datetime
    missed: int = 0


class Activations:
    """The activations between the last one and now, by the policy for missed ones."""

    def __init__(self, query: Query, host: Host) -> None:
        self._schedule = query.schedule()
        self._missed = query.missed
        self._clock = host.clock
        self._schedule_data = (
            {"expression": query.cron} if query.cron else {"every": query.every} if query.every else {}
        )
        self._tz = query.tz

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        now = self._clock.now()
        place = _load_place(cursor, since, now)
        found = activations(self._schedule, place.last, now, PAGE)
        batch = self._to_batch(place, found, now) if found else Batch(cursor=_cursor(place))
        return msgspec.structs.replace(batch, next_at=self._next(found[-1] if found else place.last, now))

    def _to_batch(self, place: Place, found: list[datetime], now: datetime) -> Batch:
        more = len(found) == PAGE
        if self._missed == "all" or isinstance(self._schedule, At):
            return Batch(events=[self._event(instant, 0) for instant in found], cursor=found[-1].isoformat(), more=more)
        passed = Place(last=found[-1], missed=place.missed + len(found))
        if more or (self._missed == "skip" and now - passed.last > GRACE):
            return Batch(cursor=_cursor(passed), more=more)
        return Batch(events=[self._event(passed.last, passed.missed - 1)], cursor=passed.last.isoformat())

    def _next(self, last: datetime, now: datetime) -> datetime | None:
        """An interval counts from the last activation, however late it was read; cron lines need no such hint."""
        if not isinstance(self._schedule, Every):
            return None
        return min(last, now) + timedelta(seconds=self._schedule.seconds)

    def _event(self, instant: datetime, missed: int) -> Event:
        name = instant.isoformat()
        data: dict[str, Any] = {"scheduled_at": name, **self._schedule_data, "tz": self._tz, "missed": missed}
        return Event(subject=name, key=name, type="schedule.tick", occurred_at=instant, data=data)


def _load_place(cursor: Cursor, since: datetime, now: datetime) -> Place:
    place = load_cursor({"last": cursor} if isinstance(cursor, str) else cursor, Place)
    if place is None:
        return Place(last=since.astimezone(UTC))
    return place if place.last <= now + MOST_AHEAD else Place(last=now)


def _cursor(place: Place) -> Cursor:
    return {"last": place.last.isoformat(), "missed": place.missed} if place.missed else place.last.isoformat()


def _source(query: Query, account: object, host: Host) -> Activations:
    return Activations(query, host)


plugin = Plugin(
    kind="cron",
    summary="Cron lines, intervals and single instants",
    docs="reference/services/cron.md",
    query=Query,
    source=_source,
    first="deliver",
    floor_seconds=1.0,
    lookback_seconds=0.0,
)
