"""A laptop that sleeps for nine hours: everything from the gap, once, oldest first, and no storm at the wake-up."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Listing
from tests.downloads.debian import program
from tests.system.hostile.misbehaving_server import Harken, started, until, write
from tests.system.hostile.world import PAGES, House, configured, feed, listing

HOURS = 9 * 3600.0
FEEDS = tuple(f"feed-{number}" for number in range(8))


def settle_in(directory: Path, url: str, names: tuple[str, ...], interval: str) -> None:
    feeds = [feed(name, f"{url}/offsets?of={name}", interval=interval, more=PAGES) for name in names]
    triggers = {name: f"trigger: {{feed: {name}, flood_limit: 0}}\n" for name in names}
    write(directory, configured(*feeds), **triggers)


@virtual
async def test_nine_hours_of_sleep_lose_nothing_double_nothing_and_wake_gently(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with listing(clock) as shop:
        settle_in(tmp_path, shop.url, FEEDS, "60s")
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(200)
        slept, before = clock.time(), len(shop.seen)
        clock.sleep_laptop(HOURS)
        wanted = [f"item-{number:03}" for number in range(250)]
        for number, id in enumerate(wanted):
            shop.add(id, age=HOURS - number * HOURS / 250)
        await clock.sleep(300)
        for name in FEEDS:
            assert await house.fired(name) == wanted
        first = {name: min(at_of(shop, name, before)) - slept - HOURS for name in FEEDS}
        assert max(first.values()) < 60
        # spread, not all in the same second
        assert len({round(seconds) for seconds in first.values()}) >= 4
        await house.down()


def at_of(shop: Listing, name: str, after: int) -> list[float]:
    return [seen.at for seen in shop.seen[after:] if seen.query.get("of") == name]


class Shifted:
    """Our clock, as the sleeper will see it when it wakes."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def false_time(file: Path) -> Mapping[str, str]:
    """Processes with this environment read their wall clock's offset from the file; their timers stay true."""
    library = program("libfaketime")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.process
@pytest.mark.worker_group("hostile-sleep")
async def test_a_real_process_that_was_stopped_for_nine_hours_catches_up(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    env = await asyncio.to_thread(false_time, offset)
    clock = Shifted()
    shop = Listing(clock)
    async with shop.serve():
        settle_in(tmp_path, shop.url, ("items", "twin"), "1s")
        async with started(tmp_path, **env) as harken:
            await until(lambda: _asked(shop, 6))
            os.kill(harken.process.pid, signal.SIGSTOP)
            clock.ahead = HOURS
            wanted = [f"item-{number:03}" for number in range(250)]
            for number, id in enumerate(wanted):
                shop.add(id, age=HOURS - number * HOURS / 250)
            # a new file appears whole: the sleeper never reads half a number
            coming = tmp_path / "offset.new"
            coming.write_text(f"+{HOURS:.0f}\n")
            os.replace(coming, offset)
            await asyncio.sleep(1.5)
            woken = clock.time()
            os.kill(harken.process.pid, signal.SIGCONT)
            ended = await until(lambda: _done(harken, 250))
            assert ended >= woken, "its own clock went on while it slept"
            for name in ("items", "twin"):
                runs = await harken.runs(name)
                assert [run["event_keys"] for run in reversed(runs)] == [[id] for id in wanted]
            assert "Traceback" not in harken.log


async def _asked(shop: Listing, times: int) -> bool:
    return len(shop.seen) >= times


async def _done(harken: Harken, count: int) -> float:
    found = [run for name in ("items", "twin") for run in await harken.runs(name) if run["status"] == "done"]
    ended = max((datetime.fromisoformat(run["finished_at"]).timestamp() for run in found), default=0.0)
    return ended if len(found) >= 2 * count else 0.0
