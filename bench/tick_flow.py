"""One round of ticks in a real application, or of bare GETs of the same addresses, in a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from bench.engine import answer
from bench.listing import ETAG
from bench.site import lay_out
from harken.app import App

__all__ = ["Asked", "round_of"]

AT_ONCE = 8


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`bare`: only the GETs. `address/N` is what feed N reads."""

    bare: bool
    address: str
    conditional: bool
    feeds: int
    passes: int
    directory: str


async def round_of(asked: Asked) -> float:
    """CPU seconds for one read of one feed."""
    return await (_gets(asked) if asked.bare else _ticks(asked))


async def _gets(asked: Asked) -> float:
    headers = {"If-None-Match": ETAG} if asked.conditional else {}
    async with aiohttp.ClientSession() as session:

        async def get(number: int) -> None:
            async with session.get(f"{asked.address}/{number}", headers=headers) as response:
                await response.read()

        await _each(range(asked.feeds), get)
        began = time.process_time()
        for _ in range(asked.passes):
            await _each(range(asked.feeds), get)
        return (time.process_time() - began) / (asked.feeds * asked.passes)


async def _ticks(asked: Asked) -> float:
    directory = Path(asked.directory)
    lay_out(directory, asked.feeds, asked.address)
    async with App.start(directory, port=0) as app:
        names = [name for name, live in app.intake.feeds.items() if live.feed.way == "poll"]

        async def tick(name: str) -> None:
            report = await app.intake.tick(name)
            if report.result not in ("unchanged", "nothing_new"):
                raise RuntimeError(f"a quiet tick was expected: {report}")

        await _each(names, app.intake.tick)
        await _each(names, tick)
        began = time.process_time()
        for _ in range(asked.passes):
            await _each(names, tick)
            # each read of each feed has its row, as it has when the reads lie minutes apart
            await app.intake.rests.flush()
        return (time.process_time() - began) / (len(names) * asked.passes)


async def _each(names: Sequence[object], do: Callable[..., Awaitable[object]]) -> None:
    left = iter(names)

    async def some() -> None:
        for name in left:
            await do(name)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    answer(Asked, round_of)
