"""The schedule of a job: every so many seconds, a cron line, or one instant, each with its own jitter."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from harken.config.findings import Path, Report
from harken.config.schedules import read_schedule, shortest_gap
from harken.config.validate import Strict, as_table, check
from harken.config.yaml.nodes import Node, Scalar, Table
from harken.schedule import At, Cron, Every, Schedule

__all__ = ["Pace", "read_pace"]

_FIX = "Write {every_secs: 60}, {cron: '0 */5 * * * *', tz: Europe/Berlin} or {at: '2026-03-01T09:00:00Z'}"
LONGEST_GAP = 86_400.0


class PaceBlock(Strict):
    every_secs: float | None = Field(default=None, ge=1, le=31_536_000)
    cron: str | None = None
    tz: str | None = None
    at: str | None = None
    stagger_jitter_ms: int | None = Field(default=None, ge=0, le=3_600_000)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """`gap` is the least time between two reads; `jitter_ms` is the job's own, None for the default."""

    schedule: Schedule
    gap: float
    jitter_ms: int | None = None

    def shown(self, default_jitter_ms: int) -> dict[str, Any]:
        jitter = default_jitter_ms if self.jitter_ms is None else self.jitter_ms
        return {**_shown(self.schedule), "stagger_jitter_ms": jitter}


def read_pace(node: Node, report: Report, path: Path) -> Pace | None:
    """Return the schedule that stands here; None when it is none."""
    table = as_table(node, report, path)
    block = check(PaceBlock, table, report, path) if table is not None else None
    if table is None or block is None:
        return None
    given = [name for name in ("every_secs", "cron", "at") if getattr(block, name) is not None]
    if len(given) != 1:
        report.error(node.place, path, "a schedule is one of every_secs, cron and at", _FIX)
        return None
    if block.tz is not None and block.cron is None:
        report.error(table.keys["tz"], (*path, "tz"), "belongs to cron", "Remove it")
        return None
    schedule = _schedule(block, table, report, path)
    if schedule is None:
        return None
    return Pace(schedule=schedule, gap=min(shortest_gap(schedule), LONGEST_GAP), jitter_ms=block.stagger_jitter_ms)


def _schedule(block: PaceBlock, table: Table, report: Report, path: Path) -> Schedule | None:
    if block.every_secs is not None:
        return Every(seconds=block.every_secs)
    names = ("at",) if block.at is not None else ("cron", "tz")
    items: dict[str, Node] = {}
    for name in names:
        node = table.items.get(name)
        if isinstance(node, Scalar) and node.value is not None:
            items[name] = node
    planned = read_schedule(Table(items=items, keys=table.keys, place=table.place), report, path)
    return planned.schedule if planned else None


def _shown(schedule: Schedule) -> dict[str, Any]:
    if isinstance(schedule, Every):
        return {"every_secs": schedule.seconds}
    if isinstance(schedule, Cron):
        return {"cron": schedule.expression, "tz": schedule.tz}
    assert isinstance(schedule, At)
    return {"at": schedule.instant.isoformat()}
