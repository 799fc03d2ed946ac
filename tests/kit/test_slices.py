"""Long work of our own: others have their turns, and a service is not blamed for it."""

from __future__ import annotations

import asyncio

import pytest

from harken.kit.slices import OwnWork, answer_within
from harken.testing import VirtualClock, virtual


def work_for(clock: VirtualClock, seconds: float) -> None:
    """Keep the loop busy for so long."""
    clock._loop._elapsed += seconds


@virtual
async def test_what_we_do_with_an_answer_does_not_count_against_the_time_of_the_service(clock: VirtualClock) -> None:
    async with answer_within(10):
        await asyncio.sleep(4)
        work = OwnWork()
        for _ in range(5):
            work_for(clock, 8)
            await work.pause()
        await asyncio.sleep(5.9)
    assert clock.monotonic() == pytest.approx(49.9)


@virtual
async def test_a_service_that_does_not_answer_has_no_more_than_its_time(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with answer_within(10):
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
