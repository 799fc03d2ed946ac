"""How long a worker waits for the next run, also where its clock and the store's differ."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from harken.errors import StoreUnavailable
from harken.run.worker import EMPTY_PAUSE, TROUBLE_PAUSE, NextDue
from harken.testing import HandClock
from harken.timings import Timings

LONGEST_SLEEP = Timings().worker_sleep


class Queue:
    def __init__(self, due: datetime | None) -> None:
        self.due = due
        self.away = False

    async def next_due(self) -> datetime | None:
        if self.away:
            raise StoreUnavailable("nobody answers")
        return self.due


def waiting(seconds: float | None) -> tuple[NextDue, Queue]:
    clock = HandClock()
    queue: Any = Queue(None if seconds is None else clock.now() + timedelta(seconds=seconds))
    return NextDue(queue, clock), queue


async def test_it_waits_until_the_next_run_is_due_but_never_for_long() -> None:
    assert [await waiting(seconds)[0].seconds() for seconds in (None, 600, 2, 0.001)] == [
        LONGEST_SLEEP, LONGEST_SLEEP, 2, EMPTY_PAUSE,
    ]  # fmt: skip


async def test_looks_in_vain_become_rarer_until_something_came() -> None:
    """By our clock it is due, by the store's not yet: that is no reason to ask 15,000 times."""
    due, _ = waiting(-300)
    waits = [await due.seconds() for _ in range(12)]
    assert waits[:3] == [EMPTY_PAUSE, 2 * EMPTY_PAUSE, 4 * EMPTY_PAUSE]
    assert waits == sorted(waits)
    assert 1.0 < waits[-1] <= LONGEST_SLEEP
    due.reset()
    assert await due.seconds() == EMPTY_PAUSE


async def test_a_store_that_is_away_is_asked_again_soon() -> None:
    due, queue = waiting(60)
    queue.away = True
    assert await due.seconds() == TROUBLE_PAUSE
