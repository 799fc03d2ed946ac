"""Idle: what a controller with many feeds uses while nothing happens."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from random import Random

import apsw

from bench.feed_directory import lay_out
from bench.figures import Figure, Say, at_most
from bench.measurement_sizes import Sizes
from bench.processes import child, cpu_seconds, harken, rss_megabytes, until

__all__ = ["measure"]

INTERVAL = 300
SETTLE_SECONDS = 5.0


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Feeds of five minutes whose reads are spread evenly, as they are some time after a start."""
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch, child("bench.listing_server") as server:
        directory = Path(scratch) / "site"
        lay_out(directory, sizes.idle_feeds, f"http://127.0.0.1:{int(server.line())}/etag")
        _read_once(directory, sizes.idle_feeds)
        say(f"{sizes.idle_feeds:,} feeds were read once; now watching for {sizes.idle_seconds:g} s")
        _spread(directory)
        with harken(directory) as (controller, _):
            time.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
            before, began = cpu_seconds(controller.pid), time.monotonic()
            time.sleep(sizes.idle_seconds)
            used = (cpu_seconds(controller.pid) - before) / (time.monotonic() - began)
            return _figures(sizes.idle_feeds, used * 100, rss_megabytes(controller.pid))


def _read_once(directory: Path, feeds: int) -> None:
    with harken(directory) as (_, _url):
        database = apsw.Connection(str(directory / "harken.db"), flags=apsw.SQLITE_OPEN_READONLY)
        question = "SELECT count(*) >= ? FROM feeds WHERE baselined AND next_due IS NOT NULL"
        until(lambda: database.execute(question, (feeds,)).fetchone() == (1,), 120.0, "the first reads")
        database.close()


def _spread(directory: Path) -> None:
    """The first reads all came at once, and so would the next: give each its own moment."""
    random, now = Random(5), time.time()
    database = apsw.Connection(str(directory / "harken.db"))
    with database:
        for (feed,) in database.execute("SELECT id FROM feeds WHERE next_due IS NOT NULL").fetchall():
            due = int((now + random.random() * INTERVAL) * 1_000_000)
            database.execute("UPDATE feeds SET next_due=? WHERE id=?", (due, feed))
    database.close()


def _figures(feeds: int, percent: float, megabytes: float) -> list[Figure]:
    with child("bench.imports") as bare:
        bare.line()
        limit = rss_megabytes(bare.pid)
    cpu = Figure(measure=f"idle, {feeds:,} feeds of 5 min: CPU", value=percent, unit="%")
    memory = Figure(
        measure=f"idle, {feeds:,} feeds of 5 min: memory", value=megabytes, unit="MB", limit=limit,
        limit_is="libraries only", ratio=megabytes / limit,
    )  # fmt: skip
    return [at_most(cpu, 1.0), at_most(memory, 120.0)]
