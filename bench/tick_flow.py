"""Rounds of ticks in a real application and of bare GETs of the same addresses, turn by turn in one process.

Both sides share the process, so that whatever else the machine does meanwhile slows both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from bench.engine import answer
from bench.feed_directory import lay_out
from bench.listing_server import ETAG
from harken.app import App, settle_memory

__all__ = ["Asked", "Round", "rounds_of"]

AT_ONCE = 8


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`address/N` is what feed N reads."""

    address: str
    conditional: bool
    feeds: int
    passes: int
    directory: str


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of one tick, and of one bare GET."""

    tick: float
    get: float


Pass = Callable[[], Awaitable[None]]


async def rounds_of(asked: Asked) -> list[Round]:
    directory = Path(asked.directory)
    lay_out(directory, asked.feeds, asked.address)
    async with App.start(directory, port=0) as app, aiohttp.ClientSession() as session:
        names = [name for name, live in app.intake.feeds.items() if live.feed.way == "poll"]
        ticks, gets = _ticks(app, names), _gets(asked, session)
        await _each(names, app.intake.tick)
        for warm_up in (ticks, gets):
            await warm_up()
        # as `harken start` does when it is ready
        settle_memory()
        return [
            Round(tick=await _cost(ticks) / asked.feeds, get=await _cost(gets) / asked.feeds)
            for _ in range(asked.passes)
        ]


async def _cost(once: Pass) -> float:
    began = time.process_time()
    await once()
    return time.process_time() - began


def _gets(asked: Asked, session: aiohttp.ClientSession) -> Pass:
    headers = {"If-None-Match": ETAG} if asked.conditional else {}

    async def get(number: int) -> None:
        async with session.get(f"{asked.address}/{number}", headers=headers) as response:
            await response.read()

    return lambda: _each(range(asked.feeds), get)


def _ticks(app: App, names: Sequence[str]) -> Pass:
    async def tick(name: str) -> None:
        # as the schedule does it; a read by hand is written at once
        report = await app.intake._tick(app.intake.feeds[name])
        if report.result not in ("unchanged", "nothing_new"):
            raise RuntimeError(f"a quiet tick was expected: {report}")

    async def once() -> None:
        await _each(names, tick)
        # each read of each feed has its row, as it has when the reads lie minutes apart
        await app.intake.idle_reads.flush()

    return once


async def _each(names: Sequence[object], do: Callable[..., Awaitable[object]]) -> None:
    left = iter(names)

    async def some() -> None:
        for name in left:
            await do(name)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    answer(Asked, rounds_of)
