"""Long work of our own: others have their turns, and a service is not blamed for it."""

from __future__ import annotations

import asyncio

import pytest

from harken.kit.timeout_without_own_work import OwnWork, answer_within
from harken.testing import VirtualClock, virtual


def work_for(clock: VirtualClock, seconds: float) -> None:
    """Keep the loop busy for so long."""
    clock._loop._elapsed += seconds


@virtual
async def test_what_we_do_with_an_answer_does_not_count_against_the_time_of_the_service(clock: VirtualClock) -> None:
    with answer_within(10):
        await asyncio.sleep(4)
        work = OwnWork()
        for _ in range(5):
            work_for(clock, 8)
            await work.pause()
        await asyncio.sleep(5.9)
    assert clock.monotonic() == pytest.approx(49.9)


@virtual
async def test_a_service_that_does_not_answer_has_no_more_than_its_time(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError), answer_within(10):
        work = OwnWork()
        work_for(clock, 8)
        await work.pause()
        await asyncio.sleep(10.1)
    assert clock.monotonic() == pytest.approx(18)


@virtual
async def test_others_have_their_turn_between_two_slices(clock: VirtualClock) -> None:
    turns: list[str] = []

    async def long(name: str) -> None:
        work = OwnWork()
        for number in range(3):
            turns.append(f"{name}{number}")
            await work.pause()

    await asyncio.gather(long("a"), long("b"))
    assert turns == ["a0", "b0", "a1", "b1", "a2", "b2"]


@virtual
async def test_a_task_that_is_cancelled_from_outside_is_cancelled(clock: VirtualClock) -> None:
    async def read() -> None:
        with answer_within(10):
            await asyncio.sleep(20)

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert clock.monotonic() == pytest.approx(1)


@virtual
async def test_work_that_goes_on_after_the_page_ends_nothing(clock: VirtualClock) -> None:
    async def work() -> None:
        own = OwnWork()
        await asyncio.sleep(2)
        await own.pause()

    with answer_within(1):
        working = asyncio.ensure_future(work())
        await asyncio.sleep(0)
    await working
    await asyncio.sleep(10)
