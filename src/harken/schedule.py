"""Schedules and quiet hours: pure functions on instants."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from harken.errors import Misconfigured

__all__ = [
    "At",
    "Cron",
    "Every",
    "Missed",
    "Quiet",
    "Schedule",
    "activations",
    "check",
    "is_over",
    "next_due",
    "quiet_hours",
    "zone_of",
]

Missed = Literal["coalesce", "all", "skip"]


class Every(msgspec.Struct, frozen=True, kw_only=True, tag="every"):
    seconds: float


class Cron(msgspec.Struct, frozen=True, kw_only=True, tag="cron"):
    """Five fields, or six with seconds first. DST follows Debian cron: a skipped time runs late, a doubled one once."""

    expression: str
    tz: str = "UTC"


class At(msgspec.Struct, frozen=True, kw_only=True, tag="at"):
    instant: datetime


Schedule: TypeAlias = Every | Cron | At


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """Hours of the day in `tz` in which no run is started; `22:00` to `07:00` goes across midnight."""

    start: str
    end: str
    tz: str = "UTC"


_NEVER = datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MOST_COMING = 10_000
_coming: dict[tuple[str, str], tuple[datetime, datetime]] = {}
"""The next activation of cron lines, and a time after which it is that: thousands of triggers may have the same one."""


def check(schedule: Schedule) -> None:
    """Raise Misconfigured for a cron line or time zone that does not exist."""
    if isinstance(schedule, Cron):
        _iterator(schedule, datetime(2026, 1, 1, tzinfo=UTC))


def next_due(schedule: Schedule, after: datetime) -> datetime | None:
    """The first instant strictly after `after`, or None when there is none."""
    if isinstance(schedule, Every):
        return after + timedelta(seconds=schedule.seconds)
    if isinstance(schedule, At):
        return schedule.instant if schedule.instant > after else None
    begin, due = _coming.get((schedule.expression, schedule.tz), _NEVER)
    if begin <= after < due:
        return due
    instants = (instant.astimezone(UTC) for instant in _iterator(schedule, after))
    # in the hour that is repeated when DST ends, cronsim may give the first of the two, which is over already
    found = next((instant for instant in instants if instant > after), None)
    if found is not None and schedule.tz == "UTC":
        # where clocks change, what comes next may depend on the hour from which one looks
        if len(_coming) >= _MOST_COMING:
            _coming.clear()
        _coming[schedule.expression, schedule.tz] = after, found
    return found


def is_over(schedule: Schedule | None, last_success: datetime | None) -> bool:
    """Whether a one-shot was read at or after its instant. Failed reads, and reads before it, do not count."""
    return isinstance(schedule, At) and last_success is not None and last_success >= schedule.instant


def activations(schedule: Schedule, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Every activation in (after, until], oldest first, at most `limit`."""
    found: list[datetime] = []
    instant = next_due(schedule, after)
    while instant is not None and instant <= until and len(found) < limit:
        found.append(instant)
        instant = next_due(schedule, instant)
    return found


def quiet_hours(quiet: Quiet, instant: datetime) -> tuple[datetime, datetime]:
    """Begin and end of the quiet hours that contain `instant`, or of the next ones."""
    zone = zone_of(quiet.tz)
    begin, end = time.fromisoformat(quiet.start), time.fromisoformat(quiet.end)
    day = instant.astimezone(zone).date() - timedelta(days=1)
    while True:
        until = _local_instant(day + timedelta(days=end <= begin), end, zone)
        if until > instant:
            return _local_instant(day, begin, zone), until
        day += timedelta(days=1)


def _local_instant(day: date, at: time, zone: ZoneInfo) -> datetime:
    # a local time that DST repeats is the first of the two; one that DST skips is moved later by the skipped time
    return datetime.combine(day, at, zone).astimezone(UTC)


def zone_of(name: str) -> ZoneInfo:
    """Raise Misconfigured when there is no such time zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Misconfigured(f"there is no time zone {name!r}", fix="Use a name such as Europe/Berlin") from None


def _iterator(schedule: Cron, after: datetime) -> CronSim:
    zone = zone_of(schedule.tz)
    try:
        found = CronSim(schedule.expression, after.astimezone(zone))
    except CronSimError as error:
        fix = "Use five fields (minute hour day month weekday), or six with seconds first"
        raise Misconfigured(f"{schedule.expression!r} is not a cron line: {error}", fix=fix) from None
    fields = schedule.expression.split()
    if len(fields) == 6 and zone.key != "UTC" and not (fields[1].startswith("*") or fields[2].startswith("*")):
        # cronsim keeps Debian's rules for five fields; six would lose or double an hour when the clocks change
        found.fixup_tz, found.dt = zone, found.dt.replace(tzinfo=None)
    return found
