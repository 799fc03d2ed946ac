"""Runs in flight: what is known of each, and the heartbeat that keeps them ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import structlog

from harken.clock import Clock
from harken.errors import StoreBusy, StoreUnavailable
from harken.run.journal import Ledger
from harken.runs import Claimed
from harken.store import Runs

__all__ = ["EMPTY_PAUSE", "LONGEST_SLEEP", "TROUBLE_PAUSE", "Active", "Due", "Why", "heartbeat", "landed"]

TROUBLE_PAUSE = 1.0
LONGEST_SLEEP = 5.0
EMPTY_PAUSE = 0.02

Why = Literal["lost", "cancel", "stopped"]

log = structlog.get_logger()


class Active:
    """A run that occupies a slot. `why` says who ended it early, if anyone did."""

    __slots__ = ("claimed", "ledger", "task", "why")

    def __init__(self, claimed: Claimed, ledger: Ledger) -> None:
        self.claimed = claimed
        self.ledger = ledger
        self.task: asyncio.Task[None] | None = None
        self.why: Why | None = None

    def end(self, why: Why) -> None:
        if self.why is None and self.task is not None:
            self.why = why
            self.task.cancel()


async def landed(flights: Iterable[Active], seconds: float) -> None:
    """Wait until these have ended, but no longer than that."""
    tasks = [flight.task for flight in flights if flight.task is not None]
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


class Due:
    """How long until the store has something for us; capped, so that a jump of the wall clock is noticed.

    Runs are handed out by the store's clock. Where it has nothing yet although by ours it should, ours is ahead: each
    look that was in vain makes the next one wait longer.
    """

    def __init__(self, store: Runs, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._in_vain = 0

    def came(self) -> None:
        self._in_vain = 0

    async def seconds(self) -> float:
        try:
            due = await self._store.next_due()
        except (StoreBusy, StoreUnavailable):
            return TROUBLE_PAUSE
        except Exception:
            log.exception("next_due_failed")
            return LONGEST_SLEEP
        if due is None:
            return LONGEST_SLEEP
        wait = (due - self._clock.now()).total_seconds()
        self._in_vain = min(self._in_vain + 1, 8) if wait <= 0 else 0
        return min(max(wait, EMPTY_PAUSE * 2.0 ** max(0, self._in_vain - 1)), LONGEST_SLEEP)


async def heartbeat(
    store: Runs,
    clock: Clock,
    lease_seconds: float,
    claims: Callable[[], Mapping[str, int]],
    interrupt: Callable[[str, int, Why], None],
) -> None:
    """Keep the claims for ever. A store that is away for a moment does not end the heartbeat."""
    failing = False
    while True:
        await clock.sleep(min(lease_seconds / 3, TROUBLE_PAUSE) if failing else lease_seconds / 3)
        held = claims()
        try:
            answers = await store.extend(held, lease_seconds) if held else {}
        except Exception as error:
            if not failing:
                log.warning("heartbeat_failed", code=getattr(error, "code", type(error).__name__))
            failing = True
            continue
        if failing:
            log.warning("heartbeat_recovered")
        failing = False
        for run_id, answer in answers.items():
            if answer != "kept":
                interrupt(run_id, held[run_id], answer)
