"""Schedules as they are written in files: a cron line, an interval or one instant; for triggers and for poller jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any

import msgspec
from pydantic import Field

from harken.config.findings import Path, Report
from harken.config.model_validation import Strict, as_table, check
from harken.config.settings import Duration
from harken.config.yaml.nodes import Node, Scalar, Table, locate
from harken.errors import Misconfigured
from harken.schedule import At, Cron, Every, Missed, Schedule, activations
from harken.schedule import check as check_schedule

__all__ = ["JobSchedule", "ParsedSchedule", "ScheduleBlock", "read_job_schedule", "read_schedule", "shortest_gap"]

_FIX = "Write a cron line such as '0 9 * * 1-5', or one of cron:, every: and at:"
_JOB_FIX = (
    "Write {every: 15m}, {every_secs: 60}, {cron: '0 */5 * * * *', tz: Europe/Berlin} or {at: '2026-03-01T09:00:00Z'}"
)
LONGEST_GAP = 86_400.0
_SAMPLE = datetime(2026, 1, 1, tzinfo=UTC)


class ScheduleBlock(Strict):
    """One of `cron`, `every` and `at`. `missed` says what happens to activations while nothing ran."""

    cron: str | None = None
    tz: str = "UTC"
    missed: Missed = "coalesce"
    every: Duration | None = None
    at: str | None = None


class ParsedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule; `query` holds the same as the query of the cron service."""

    schedule: Schedule
    query: dict[str, Any]


def read_schedule(node: Node, report: Report, path: Path) -> ParsedSchedule | None:
    """Return the schedule of this node; None when it is wrong."""
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
        schedule = _parse_schedule(block)
        check_schedule(schedule)
    except Misconfigured as error:
        report.error(place, path, error.message, error.fix)
        return None
    query: dict[str, Any] = {given[0]: getattr(block, given[0]), "missed": block.missed}
    if block.cron is not None:
        query["tz"] = block.tz
    return ParsedSchedule(schedule=schedule, query=query)


def _parse_schedule(block: ScheduleBlock) -> Schedule:
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
    """Return the shortest time between two activations, for cron lines in a sample of 100."""
    if isinstance(schedule, Every):
        return schedule.seconds
    found = activations(schedule, _SAMPLE, datetime(2036, 1, 1, tzinfo=UTC), 100)
    return min(((b - a).total_seconds() for a, b in pairwise(found)), default=float("inf"))


class JobScheduleBlock(Strict):
    """`schedule:` of a poller job: one of `every_secs`, `every`, `cron` and `at`."""

    every_secs: float | None = Field(default=None, ge=1, le=31_536_000)
    every: Annotated[Duration, Field(ge=1, le=31_536_000)] | None = None
    cron: str | None = None
    tz: str | None = None
    at: str | None = None
    stagger_jitter_ms: int | None = Field(default=None, ge=0, le=3_600_000)


class JobSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """`gap` is the shortest time between two reads; `jitter_ms` is the job's own, None for the default."""

    schedule: Schedule
    gap: float
    jitter_ms: int | None = None

    def as_written(self, default_jitter_ms: int) -> dict[str, Any]:
        """Return it in the form of the file, with the default jitter filled in."""
        jitter = default_jitter_ms if self.jitter_ms is None else self.jitter_ms
        return {**_as_written(self.schedule), "stagger_jitter_ms": jitter}


def read_job_schedule(node: Node, report: Report, path: Path) -> JobSchedule | None:
    """Return the schedule of this node; None when it is wrong."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        node = Table(items={"cron": node}, keys={"cron": node.place}, place=node.place)
    table = as_table(node, report, path)
    block = check(JobScheduleBlock, table, report, path) if table is not None else None
    if table is None or block is None:
        return None
    given = [name for name in ("every_secs", "every", "cron", "at") if getattr(block, name) is not None]
    if len(given) != 1:
        report.error(node.place, path, "a schedule is one of every_secs, every, cron and at", _JOB_FIX)
        return None
    if block.tz is not None and block.cron is None:
        report.error(table.keys["tz"], (*path, "tz"), "belongs to cron", "Remove it")
        return None
    schedule = _parse_job_schedule(block, table, report, path)
    if schedule is None:
        return None
    return JobSchedule(
        schedule=schedule, gap=min(shortest_gap(schedule), LONGEST_GAP), jitter_ms=block.stagger_jitter_ms
    )


def _parse_job_schedule(block: JobScheduleBlock, table: Table, report: Report, path: Path) -> Schedule | None:
    seconds = block.every_secs if block.every is None else block.every
    if seconds is not None:
        return Every(seconds=seconds)
    names = ("at",) if block.at is not None else ("cron", "tz")
    items: dict[str, Node] = {}
    for name in names:
        node = table.items.get(name)
        if isinstance(node, Scalar) and node.value is not None:
            items[name] = node
    parsed = read_schedule(Table(items=items, keys=table.keys, place=table.place), report, path)
    return parsed.schedule if parsed else None


def _as_written(schedule: Schedule) -> dict[str, Any]:
    if isinstance(schedule, Every):
        return {"every_secs": schedule.seconds}
    if isinstance(schedule, Cron):
        return {"cron": schedule.expression, "tz": schedule.tz}
    assert isinstance(schedule, At)
    return {"at": schedule.instant.isoformat()}
