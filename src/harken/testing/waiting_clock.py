"""Virtual time for code that really waits for a server: while an answer is under way, the clock stands still."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from harken.testing.clock import START, VirtualClock, VirtualLoop

__all__ = ["Unanswered", "WaitingLoop", "run_waiting"]

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds of real time that a server may take for an answer."""


class Unanswered(RuntimeError):
    """A server gave no answer for so long that none will come."""


class WaitingLoop(VirtualLoop):
    """A virtual loop with servers: within `waiting` an answer takes no time, so no timeout of a driver runs out.

    What a server sends is looked at only when nothing else can go on, so that the order does not depend on its haste.
    """

    def __init__(self) -> None:
        self._expected = 0
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

    def pass_time(self, seconds: float | None) -> bool:
        return not self._expected and super().pass_time(seconds)


class _PatientSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
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
