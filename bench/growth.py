"""A store that has grown: what a webhook, `explain` and retention take beside the same store when it was empty."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from bench.figures import Figure, Say, at_most, middle, percentile
from bench.growth_flow import Asked, Grown, StoreName
from bench.measurement_sizes import Sizes
from bench.processes import report
from bench.servers import durable_postgres, durable_redis, new_database

__all__ = ["measure"]

TIMES_EMPTY = 3.0
EXPLAIN_MS = 10.0
RETENTION_MS = 110.0
MEGABYTE = 1 << 20
PATIENCE = 1_200.0
"""Seconds: filling a store takes minutes on a slow disk."""


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """All three stores, one after the other; the servers get fewer rows."""
    with durable_postgres() as postgres, durable_redis() as redis, tempfile.TemporaryDirectory() as scratch:
        file = str(Path(scratch) / "grown.db")
        return [
            *_grown("SQLite", file, sizes.growth_rows, sizes, say),
            *_grown("PostgreSQL", new_database(postgres), sizes.growth_server_rows, sizes, say),
            *_grown("Redis", redis.url(), sizes.growth_server_rows, sizes, say),
        ]


def _grown(store: StoreName, location: str, rows: int, sizes: Sizes, say: Say) -> list[Figure]:
    asked = Asked(
        store=store, location=location, rows=rows, rate=sizes.growth_rate, seconds=sizes.growth_seconds,
        explained=sizes.growth_explained,
    )  # fmt: skip
    say(f"{store}: filling it with {rows:,} events, runs and subjects, and measuring")
    grown = msgspec.convert(report("bench.growth_flow", msgspec.to_builtins(asked), PATIENCE), Grown)
    what = f"{store}, {rows:,} events, runs and subjects"
    say(f"{what}: filled in {grown.filling:.0f} s, p99 {_ms(grown.full):.1f} ms, empty {_ms(grown.empty):.1f} ms")
    return [*_figures(what, grown), *(_space(what, grown) if grown.largest else ())]


def _figures(what: str, grown: Grown) -> list[Figure]:
    empty = _ms(grown.empty)
    webhook = Figure(
        measure=f"{what}: a webhook's commit, p99",
        value=_ms(grown.full),
        unit="ms",
        limit=empty,
        limit_is="empty",
        ratio=_ms(grown.full) / empty,
    )
    during = Figure(
        measure=f"{what}: the same during retention, p99",
        value=_ms(grown.pruning),
        unit="ms",
        limit=empty,
        limit_is="empty",
    )
    explained = Figure(measure=f"{what}: explain KEY", value=middle(grown.explained) * 1000, unit="ms")
    unknown = Figure(measure=f"{what}: explain of an unknown key", value=middle(grown.unknown) * 1000, unit="ms")
    counts = Figure(measure=f"{what}: counts for status", value=middle(grown.counts) * 1000, unit="ms")
    deleted = Figure(measure=f"{what}: retention deletes", value=grown.deleted / grown.pruned, unit="/s")
    return [
        at_most(webhook, TIMES_EMPTY, of="ratio"),
        at_most(during, RETENTION_MS),
        at_most(explained, EXPLAIN_MS),
        at_most(unknown, EXPLAIN_MS),
        counts,
        deleted,
    ]


def _space(what: str, grown: Grown) -> list[Figure]:
    """What is left of the file when nearly all rows are gone, and what giving it back did to webhooks."""
    left = Figure(
        measure=f"{what}: the file when they are gone",
        value=grown.smallest / MEGABYTE,
        unit="MB",
        limit=grown.largest / MEGABYTE,
        limit_is="before",
        ratio=grown.smallest / grown.largest,
    )
    shrinking = Figure(
        measure=f"{what}: a webhook's commit while it shrinks, p99", value=_ms(grown.shrinking), unit="ms"
    )
    return [at_most(left, 0.5, of="ratio"), at_most(shrinking, RETENTION_MS)]


def _ms(seconds: list[float]) -> float:
    return percentile(seconds, 99) * 1000
