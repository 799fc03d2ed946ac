from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime

import pytest

from harken.testing import Deadlock, HandClock, VirtualClock, run_virtual, virtual

WEEK = 7 * 86_400.0


@virtual
async def test_a_week_passes_in_a_moment(clock: VirtualClock) -> None:
    begun, before = time.monotonic(), clock.now()
    await clock.sleep(WEEK)
    assert (clock.now() - before).total_seconds() == WEEK
    assert time.monotonic() - begun < 60


@virtual
async def test_timers_fire_in_order_at_their_instant(clock: VirtualClock) -> None:
    fired: list[tuple[str, float]] = []

    async def ring(name: str, after: float) -> None:
        await clock.sleep(after)
        fired.append((name, clock.monotonic()))

    await asyncio.gather(ring("late", 90.5), ring("early", 0.25), ring("middle", 30))
    assert fired == [("early", 0.25), ("middle", 30.0), ("late", 90.5)]


@virtual
async def test_asyncio_timeout_ends_a_wait(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.Event().wait()
    assert clock.monotonic() == 30


@virtual
async def test_time_stands_still_while_a_thread_works(clock: VirtualClock) -> None:
    alarm = asyncio.create_task(clock.sleep(1))
    await asyncio.to_thread(time.sleep, 0.02)
    assert clock.monotonic() == 0
    await alarm


@virtual
async def test_sockets_work(clock: VirtualClock) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, family=socket.AF_INET)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    server.close()
    assert clock.monotonic() == 0


@virtual
async def test_a_jump_moves_the_wall_clock_and_no_timer(clock: VirtualClock) -> None:
    before = clock.time()
    alarm = asyncio.create_task(clock.sleep(60))
    await asyncio.sleep(0)
    clock.jump(-3600)
    assert clock.time() == before - 3600
    clock.sleep_laptop(7200)
    assert clock.time() == before + 3600
    assert clock.monotonic() == 0
    await alarm
    assert clock.monotonic() == 60


def test_a_deadlock_names_who_waits() -> None:
    async def waits_for_ever(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_ever"):
        run_virtual(waits_for_ever)


def test_the_result_and_the_start_are_the_callers() -> None:
    async def year(clock: VirtualClock) -> int:
        return clock.now().year

    assert run_virtual(year, start=datetime(2031, 5, 6, tzinfo=UTC)) == 2031


def test_a_crash_comes_out_as_it_is() -> None:
    class Crash(BaseException):
        pass

    async def crash(clock: VirtualClock) -> None:
        raise Crash

    with pytest.raises(Crash):
        run_virtual(crash)


async def test_a_hand_clock_moves_only_when_moved() -> None:
    clock = HandClock()
    before = clock.time()
    await clock.sleep(5)
    clock.advance(10)
    clock.jump(-3)
    assert (clock.time() - before, clock.monotonic()) == (12, 15)
