"""The heartbeat of a worker: claims are renewed in time, and runs that are lost or cancelled are interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from harken.errors import StoreUnavailable
from harken.run.worker import heartbeat
from harken.task_cancellation import cancel_and_wait
from harken.testing.clock import VirtualClock, virtual


class Leases:
    """A store that renews claims; `answers` are the errors and replies to come, then every claim is kept."""

    def __init__(self, clock: VirtualClock, *answers: Any) -> None:
        self._clock = clock
        self._answers = list(answers)
        self._began = clock.monotonic()
        self.beats: list[float] = []

    async def extend(self, claims: Mapping[str, int], seconds: float) -> Mapping[str, Any]:
        self.beats.append(round(self._clock.monotonic() - self._began, 3))
        answer = self._answers.pop(0) if self._answers else {}
        if isinstance(answer, Exception):
            raise answer
        return {**dict.fromkeys(claims, "kept"), **answer}

    async def run(self, run_id: str) -> Any:
        return SimpleNamespace(error=f"why {run_id} was cancelled")


async def beat(
    clock: VirtualClock, leases: Any, seconds: float, claims: Mapping[str, int] | None = None
) -> list[tuple[str, int, str, str]]:
    """Let the heartbeat of leases of 30 seconds go for some time; returns what it interrupted."""
    interrupted: list[tuple[str, int, str, str]] = []
    held = {"r1": 1, "r2": 2} if claims is None else claims
    task = asyncio.create_task(heartbeat(leases, clock, 30.0, lambda: held, lambda *given: interrupted.append(given)))
    await asyncio.sleep(seconds)
    await cancel_and_wait([task])
    return interrupted


@virtual
async def test_claims_are_renewed_when_a_third_of_the_lease_is_over(clock: VirtualClock) -> None:
    leases = Leases(clock)
    assert (await beat(clock, leases, 35), leases.beats) == ([], [10, 20, 30])


@virtual
async def test_pitfall_26_a_renewal_that_failed_is_repeated_after_a_second(clock: VirtualClock) -> None:
    leases = Leases(clock, {}, StoreUnavailable("away"), KeyError("a bug"))
    await beat(clock, leases, 35)
    assert leases.beats == [10, 20, 21, 22, 32]


@virtual
async def test_runs_that_are_lost_or_cancelled_are_interrupted_and_no_others(clock: VirtualClock) -> None:
    leases = Leases(clock, {"r1": "lost"}, {"r2": "cancel"})
    assert await beat(clock, leases, 35) == [("r1", 1, "lost", ""), ("r2", 2, "cancel", "why r2 was cancelled")]


@virtual
async def test_without_claims_the_store_is_not_asked(clock: VirtualClock) -> None:
    leases = Leases(clock)
    await beat(clock, leases, 100, claims={})
    assert leases.beats == []
