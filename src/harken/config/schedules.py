"""Schedules as people write them: a cron line, an interval, or one instant."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec

from harken.config.findings import Path, Report
from harken.config.settings import Duration
from harken.config.validate import Strict, check
from harken.config.yaml.nodes import Node, Scalar, Table, locate
from harken.errors import Misconfigured
from harken.schedule import At, Cron, Every, Missed, Schedule, activations
from harken.schedule import check as check_schedule

__all__ = ["Planned", "ScheduleBlock", "read_schedule", "shortest_gap"]

_FIX = "Write a cron line such as '0 9 * * 1-5', or one of cron:, every: and at:"
_SAMPLE = datetime(2026, 1, 1, tzinfo=UTC)


class ScheduleBlock(Strict):
    """One of `cron`, `every` and `at`. `missed` says what happens to activations while nothing ran."""

    cron: str | None = None
    tz: str = "UTC"
    missed: Missed = "coalesce"
    every: Duration | None = None
    at: str | None = None


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """`query` is the same in plain values, as the cron service reads it."""

    schedule: Schedule
    query: dict[str, Any]


def read_schedule(node: Node, report: Report, path: Path) -> Planned | None:
    """Return the schedule that stands here; None when it is none."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        node = Table(items={"cron": node}, keys={"cron": node.place}, place=node.place)
    block = check(ScheduleBlock, node, report, path)
    if block is None:
        return None
    given = [name for name in ("cron", "every", "at") if getattr(block, name) is not None]
    if len(given) != 1:
        report.error(node.place, path, "a schedule is one of cron, every and at", _FIX)
        return None
    place, path = locate(node, tuple(given)), (*path, given[0])
    try:
        schedule = _schedule(block)
        check_schedule(schedule)
    except Misconfigured as error:
        report.error(place, path, error.message, error.fix)
        return None
    query: dict[str, Any] = {given[0]: getattr(block, given[0]), "missed": block.missed}
    if block.cron is not None:
        query["tz"] = block.tz
    return Planned(schedule=schedule, query=query)


def _schedule(block: ScheduleBlock) -> Schedule:
    if block.cron is not None:
        return Cron(expression=block.cron.strip(), tz=block.tz)
    if block.every is not None:
        if block.every < 1:
            raise Misconfigured("every must be at least 1s", fix="Write 1s or more")
        return Every(seconds=block.every)
    try:
        instant = datetime.fromisoformat(str(block.at))
    except ValueError:
        raise Misconfigured("this is not an instant", fix="Write it like 2026-03-01T09:00:00Z") from None
    if instant.tzinfo is None:
        raise Misconfigured("this instant has no time zone", fix="Add Z, or an offset such as +01:00")
    return At(instant=instant)


def shortest_gap(schedule: Schedule) -> float:
    """The least time between two activations in a sample of them."""
    if isinstance(schedule, Every):
        return schedule.seconds
    found = activations(schedule, _SAMPLE, datetime(2036, 1, 1, tzinfo=UTC), 100)
    return min(((b - a).total_seconds() for a, b in pairwise(found)), default=float("inf"))
