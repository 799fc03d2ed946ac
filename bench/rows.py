"""Triggers that are rows, on three stores: the start with many of them, the change of one, and memory."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from bench.figures import Figure, Say, at_most
from bench.measurement_sizes import Sizes
from bench.processes import report
from bench.rows_flow import Asked, Started
from bench.servers import durable_postgres, durable_redis, new_database

__all__ = ["measure"]

SQLITE = "SQLite"
READY_SECONDS = 10.0
BYTES_PER_ROW = 20_000.0
PATIENCE = 1_800.0
"""To compile 100,000 rows takes a minute or two, and longer on a machine that others use too."""
FLAT = 5.0
"""The change of a row may cost so many times what it costs beside few rows."""


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """On each store few rows are measured for comparison: what a row costs is what the many cost more."""
    return [figure for store in sizes.row_stores for figure in _on(store, sizes, say)]


def _on(store: str, sizes: Sizes, say: Say) -> list[Figure]:
    with _locations(store) as locate:
        few = _with_rows(store, locate(), max(3, sizes.trigger_rows // 100), say)
        filled, many = _with_rows(store, locate(), sizes.trigger_rows, say)
    rows = f"{sizes.trigger_rows:,} rows" + ("" if store == SQLITE else f" on {store}")
    more = max(1, many.triggers - few[1].triggers)
    first = Figure(measure=f"{rows}: compiling one", value=filled.cpu * 1000 / max(1, filled.compiled), unit="ms")
    change = Figure(
        measure=f"{rows}: change of one", value=many.change * 1000, unit="ms", limit=few[1].change * 1000,
        limit_is="beside a hundredth of them", ratio=many.change / few[1].change,
    )  # fmt: skip
    return [
        at_most(Figure(measure=f"{rows}: start to ready", value=many.seconds, unit="s"), READY_SECONDS),
        at_most(Figure(measure=f"{rows}: CPU of the start", value=many.cpu, unit="s"), READY_SECONDS),
        Figure(measure=f"{rows}: CPU of the start, per row", value=many.cpu * 1e6 / many.triggers, unit="µs"),
        at_most(Figure(measure=f"{rows}: compiled at the start", value=many.compiled, unit=""), _first_of_kinds()),
        first,
        at_most(change, FLAT, of="ratio"),
        at_most(Figure(measure=f"{rows}: compiled for a change", value=many.change_compiled, unit=""), 2),
        at_most(
            Figure(measure=f"{rows}: memory per row", value=(many.megabytes - few[1].megabytes) * 1e6 / more, unit="B"),
            BYTES_PER_ROW,
        ),
    ]


@contextmanager
def _locations(store: str) -> Iterator[Callable[[], str]]:
    """Where an empty store of this kind is, each time it is asked."""
    if store == SQLITE:
        yield lambda: "harken.db"
    elif store == "PostgreSQL":
        with durable_postgres() as server:
            yield lambda: new_database(server)
    else:
        with durable_redis() as server:
            databases = itertools.count()
            yield lambda: server.url(next(databases))


def _first_of_kinds() -> float:
    """The source of the first schedule is built, to see what sources of this kind can do."""
    return 1.0


def _with_rows(store: str, location: str, rows: int, say: Say) -> tuple[Started, Started]:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = (Asked(rows=rows, directory=scratch, store=location, fill=fill) for fill in (True, False))
        filled, started = map(_run, asked)
    say(f"{rows:,} rows on {store}: compiled in {filled.cpu:.1f} s of CPU; ready after {started.seconds:.1f} s "
        f"({started.cpu:.1f} s of CPU), {started.compiled} compiled, {started.megabytes:.0f} MB, "
        f"a change {started.change * 1000:.1f} ms")  # fmt: skip
    return filled, started


def _run(asked: Asked) -> Started:
    return msgspec.convert(report("bench.rows_flow", msgspec.to_builtins(asked), PATIENCE), Started)
