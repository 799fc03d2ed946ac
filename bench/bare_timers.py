"""The limit of the schedule: how late bare timers of the event loop ring in a process that does nothing else."""

from __future__ import annotations

import asyncio

import msgspec

from bench.engine import answer

__all__ = ["Asked", "naps"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    rate: float
    seconds: float


async def naps(asked: Asked) -> list[float]:
    """Seconds of delay of each timer."""
    loop = asyncio.get_running_loop()
    lags: list[float] = []
    start = loop.time() + 0.1
    for number in range(int(asked.rate * asked.seconds)):
        due = start + number / asked.rate
        loop.call_at(due, lambda due=due: lags.append(loop.time() - due))  # type: ignore[misc]
    await asyncio.sleep(asked.seconds + 0.3)
    return sorted(lags)[:: max(1, len(lags) // 2_000)]


if __name__ == "__main__":
    answer(Asked, naps)
