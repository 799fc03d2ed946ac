"""Tasks end for certain, also one that a cancellation did not reach at first."""

from __future__ import annotations

import asyncio

from harken.task_cancellation import cancel_and_wait
from harken.testing import VirtualClock, virtual


@virtual
async def test_a_task_that_lost_its_first_cancellation_is_cancelled_again(clock: VirtualClock) -> None:
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost == 2:
                    raise
                lost += 1

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(asyncio.sleep(3_600))]
    await clock.sleep(1)
    await cancel_and_wait(tasks)
    assert lost == 2
    assert all(task.cancelled() for task in tasks)


@virtual
async def test_one_that_never_ends_does_not_keep_us(clock: VirtualClock) -> None:
    over = asyncio.Event()

    async def deaf() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(deaf())
    await clock.sleep(1)
    await cancel_and_wait([task])
    assert not task.done()
    over.set()
    await task


@virtual
async def test_what_is_over_already_is_left_alone(clock: VirtualClock) -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    await cancel_and_wait([task])
    assert not task.cancelled()
