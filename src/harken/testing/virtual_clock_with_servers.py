"""Virtual time for code that really waits for a server: while an answer is under way, the clock stands still."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple, Unpack

from harken.testing.clock import START, VirtualClock, VirtualLoop

__all__ = ["Unanswered", "WaitingLoop", "run_waiting"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE = 600.0
"""Seconds of real time that a server may take for an answer: far more than it needs, also on a busy machine."""


class Unanswered(RuntimeError):
    """A server gave no answer for so long that none will come."""


class WaitingLoop(VirtualLoop):
    """A virtual loop with servers: within `waiting` an answer takes no time, so no timeout of a driver runs out.

    What a server sends is looked at only when nothing else can go on, so that the order does not depend on its haste.
    Timers of one instant go off in the order in which they were set, whatever timers a driver sets and cancels.
    """

    def __init__(self) -> None:
        self._expected = 0
        self._timers = 0
        self._resting: list[asyncio.Future[None]] = []
        super().__init__()

    def selector(self) -> selectors.BaseSelector:
        return _PatientSelector(self)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """An answer is under way."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1

    async def rest(self) -> None:
        """Return when nobody else can go on before time passes or an answer comes."""
        resting = self.create_future()
        self._resting.append(resting)
        await resting

    def end_rest(self) -> bool:
        """Nobody can go on: let one go on that rests. False when none does."""
        while self._resting:
            resting = self._resting.pop(0)
            if not resting.done():
                resting.set_result(None)
                return True
        return False

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._timers += 1
        return super().call_at(_Instant(when, self._timers), callback, *args, context=context)

    def pass_time(self, seconds: float | None) -> bool:
        return not self._expected and super().pass_time(seconds)


class _Instant(float):
    """A time; of two that are equal, the one with the lower number comes first."""

    def __new__(cls, when: float, number: int) -> _Instant:
        instant = super().__new__(cls, when)
        instant.number = number
        return instant

    number: int

    def __lt__(self, other: float) -> bool:
        if isinstance(other, _Instant) and self == other:
            return self.number < other.number
        return super().__lt__(other)


class _PatientSelector(selectors.DefaultSelector):
    def __init__(self, loop: WaitingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 or self._loop.end_rest():
            return []
        ready = super().select(0)
        if ready or self._loop.pass_time(timeout):
            return ready
        ready = super().select(PATIENCE)
        if not ready:
            raise Unanswered(f"nothing came for {PATIENCE:.0f} s")
        return ready


def run_waiting(main: Callable[[VirtualClock], Coroutine[Any, Any, T]], start: datetime = START) -> T:
    """Run to the end on a fresh virtual loop that waits for servers."""
    with asyncio.Runner(loop_factory=WaitingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WaitingLoop)
        return runner.run(main(VirtualClock(loop, start)))
