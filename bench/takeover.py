"""A crash of the replica that reads 10,000 feeds: how long nobody reads them, beyond the time that its lease lasts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.counting_listing import HOSTS, After
from bench.feed_directory import lay_out
from bench.figures import Figure, Say, at_most
from bench.measurement_sizes import Sizes
from bench.processes import Child, child, harken, replicas, status, until
from bench.servers import new_database

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

__all__ = ["takeover"]

GAP_SECONDS = 2.0
INTERVAL = 60
STEADY_SECONDS = 5.0
RENEWED_AT = 20.5
PATIENCE = 60.0
TIMES = 1_000_000
LEASE = "SELECT l.shard, l.until FROM leases l JOIN feeds f USING (shard) WHERE f.name LIKE 'json%' LIMIT 1"
# as if they had been read for long, each at its own moment
SPREAD = """UPDATE feeds SET baselined = true, next_due = $1::bigint + (random() * $2::bigint)::bigint
WHERE name LIKE 'json%'"""
OVERDUE = "SELECT count(*) FROM feeds WHERE name LIKE 'json%' AND next_due <= $1"


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after the lease had ended: to the first read, and until the feeds that were due by then had been read."""

    first: float
    caught_up: float
    overdue: int


def takeover(sizes: Sizes, server: PostgresServer, directory: Path, say: Say) -> list[Figure]:
    """All feeds have one credential, so one of two replicas has them all; it is killed just before it would renew."""
    store = new_database(server)
    with child("bench.counting_listing") as source:
        address = f"http://{HOSTS[0]}:{int(source.line())}"
        lay_out(directory, sizes.takeover_feeds, address, interval=f"{INTERVAL}s", store=store)
        with harken(directory, "--role", "api"):
            say(f"{sizes.takeover_feeds:,} feeds are laid out")
        _ask(server, store, SPREAD, int(time.time() * TIMES), INTERVAL * TIMES)
        with replicas(directory, 2) as started:
            crash = _crash(server, store, source, started)
    say(
        f"read again {crash.first:.1f} s after the lease; {crash.overdue:,} overdue feeds {crash.caught_up:.1f} s after"
    )
    return _figures(sizes.takeover_feeds, crash)


def _crash(server: PostgresServer, store: str, source: Child, started: list[tuple[Child, str]]) -> Crash:
    until(lambda: all(status(url)["controller"]["shards"] for _, url in started), 120.0, "both to have a share")
    time.sleep(STEADY_SECONDS)
    until(lambda: _lease(server, store)[1] - time.time() < RENEWED_AT, 60.0, "a lease that is about to be renewed")
    shard, _ = _lease(server, store)
    [holder] = [one for one, url in started if shard in status(url)["controller"]["shards"]]
    holder.kill()
    _, ends = _lease(server, store)
    overdue = _ask(server, store, OVERDUE, int(ends * TIMES))[0]
    time.sleep(max(0.0, ends - time.time()))

    def after() -> After:
        source.tell({"moment": ends, "feeds": overdue})
        return msgspec.convert(source.hear(), After)

    until(lambda: after().caught_up is not None, PATIENCE, "the overdue feeds to be read")
    found = after()
    assert found.first is not None
    assert found.caught_up is not None
    return Crash(first=found.first, caught_up=found.caught_up, overdue=overdue)


def _lease(server: PostgresServer, store: str) -> tuple[int, float]:
    """The shard that the feeds are in, and when its lease ends unless it is renewed."""
    shard, ends = _ask(server, store, LEASE)
    return shard, ends / TIMES


def _ask(server: PostgresServer, store: str, question: str, *values: int) -> Any:
    async def ask() -> Any:
        connection = await server.connect(store.rpartition("/")[2])
        try:
            return await connection.fetchrow(question, *values)
        finally:
            await connection.close()

    return asyncio.run(ask())


def _figures(feeds: int, crash: Crash) -> list[Figure]:
    what = f"takeover of {feeds:,} feeds"
    gap = Figure(measure=f"{what}: nobody reads beyond the lease", value=crash.first, unit="s")
    backlog = Figure(measure=f"{what}: {crash.overdue:,} overdue are read", value=crash.caught_up, unit="s")
    return [at_most(gap, GAP_SECONDS), backlog]
