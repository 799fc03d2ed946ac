"""One round of the poll flow: from sources that show pages to settled runs that did nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.engine import Engine, answer, definitions, engine
from bench.sample_pages import Book, PollFlow, Used, pages, reached
from harken.feed import Feed
from harken.schedule import Every

__all__ = ["flow"]

WARM_PAGES = 3


async def flow(asked: PollFlow) -> Used:
    """Read each feed once to set the stage, a few pages to warm up, and then everything."""
    tx = {f"f{number}": Book() for number in range(asked.feeds)}
    feeds = [Feed(name=name, kind="bench", integration="bench", schedule=Every(seconds=3600)) for name in tx]
    async with engine(Path(asked.directory) / "flow.db", lambda feed: tx[feed.name]) as running:
        await running.intake.start(definitions(feeds))
        await _read(running, tx, 0, asked.page, "none")
        await _read(running, tx, WARM_PAGES, asked.page, "warm")
        return await _read(running, tx, asked.pages, asked.page, "real")


async def _read(running: Engine, tx: dict[str, Book], count: int, size: int, label: str) -> Used:
    for name, book in tx.items():
        book.fill(pages(f"{label}-{name}", count, size))
    target = running.worker.done + len(tx) * count * size
    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(running.intake.tick(name) for name in tx))
    await reached(lambda: running.worker.done, target)
    return Used(seconds=time.perf_counter() - began, cpu=time.process_time() - used)


if __name__ == "__main__":
    answer(PollFlow, flow)
