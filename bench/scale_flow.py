"""Many feeds at a steady rate in one process: CPU per tick, how late ticks begin, and memory."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from pathlib import Path
from random import Random

import msgspec

from bench.engine import Engine, answer, definitions, engine
from bench.processes import rss_megabytes
from harken.feed import Feed
from harken.ingest.feed_runtime_state import LiveFeed
from harken.schedule import Every
from harken.source import Batch, Cursor

__all__ = ["Asked", "Steady", "steady"]

AT_ONCE = 64
SETUP_SECONDS = 150.0
SETTLE_SECONDS = 2.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    feeds: int
    interval: float
    seconds: float
    directory: str


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """`lags` are seconds between the due time of a tick and the moment at which its source is asked."""

    ticks: int
    cpu: float
    seconds: float
    lags: list[float]
    megabytes: float


class Quiet:
    """A source that never has news, and notes how late it is asked."""

    def __init__(self) -> None:
        self.feeds: dict[str, LiveFeed] = {}
        self.lags: list[float] = []

    def of(self, feed: Feed) -> Asking:
        return Asking(self, feed.name)


class Asking:
    __slots__ = ("_feed", "_quiet")

    def __init__(self, quiet: Quiet, feed: str) -> None:
        self._quiet = quiet
        self._feed = feed

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        due = self._quiet.feeds[self._feed].next_due if self._quiet.feeds else None
        if due is not None:
            self._quiet.lags.append(time.time() - due)
        return UNCHANGED


UNCHANGED = Batch(cursor="c", unchanged=True)


async def steady(asked: Asked) -> Steady:
    """Read every feed once, spread them over their interval, and then watch the schedule."""
    quiet = Quiet()
    schedule = Every(seconds=asked.interval)
    feeds = [
        Feed(name=f"f{number}", kind="bench", integration="bench", schedule=schedule) for number in range(asked.feeds)
    ]
    async with engine(Path(asked.directory) / "scale.db", quiet.of) as running:
        await running.intake.start(definitions(feeds))
        running.intake.scheduler.stop()
        async with asyncio.timeout(SETUP_SECONDS):
            await _read_all(running)
        _spread(running, asked.interval)
        quiet.feeds = running.intake.feeds
        running.intake.scheduler.start()
        await asyncio.sleep(min(SETTLE_SECONDS, asked.seconds))
        return await _watch(quiet, asked.seconds)


async def _read_all(running: Engine) -> None:
    names = iter(list(running.intake.feeds))

    async def some() -> None:
        for name in names:
            await running.intake.tick(name)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    await running.intake.idle_reads.flush()


def _spread(running: Engine, interval: float) -> None:
    random, now = Random(3), time.time()
    for live in running.intake.feeds.values():
        live.next_due = now + random.random() * interval
        running.intake.scheduler.put(live, live.next_due)


async def _watch(quiet: Quiet, seconds: float) -> Steady:
    quiet.lags.clear()
    began, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    cpu, lags = time.process_time() - used, list(quiet.lags)
    return Steady(
        ticks=len(lags),
        cpu=cpu,
        seconds=time.perf_counter() - began,
        # enough for a percentile; a line of megabytes does not come through a pipe in one piece
        lags=sorted(lags)[:: max(1, len(lags) // 2_000)],
        megabytes=rss_megabytes(os.getpid()),
    )


if __name__ == "__main__":
    answer(Asked, steady)
