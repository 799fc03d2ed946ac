"""When something is due: pure functions on instants, so that DST and sleep can be tested in a line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from harken.errors import Misconfigured

__all__ = ["At", "Cron", "Every", "Missed", "Schedule", "activations", "check", "next_due"]

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
    instants = (instant.astimezone(UTC) for instant in _iterator(schedule, after))
    # in the hour that comes twice, the first of the two may be over already
    return next((instant for instant in instants if instant > after), None)


def activations(schedule: Schedule, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Every activation in (after, until], oldest first, at most `limit`."""
    found: list[datetime] = []
    instant = next_due(schedule, after)
    while instant is not None and instant <= until and len(found) < limit:
        found.append(instant)
        instant = next_due(schedule, instant)
    return found


def _iterator(schedule: Cron, after: datetime) -> CronSim:
    try:
        zone = ZoneInfo(schedule.tz)
    except (KeyError, ValueError, OSError):
        raise Misconfigured(f"there is no time zone {schedule.tz!r}", fix="Use a name such as Europe/Berlin") from None
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
