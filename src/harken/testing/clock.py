"""Virtual time: a loop whose clock jumps to the next timer, so that a week of polling takes a moment in a test."""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, TypeVar, TypeVarTuple, Unpack

from harken.clock import from_unix

__all__ = ["START", "Deadlock", "HandClock", "VirtualClock", "VirtualLoop", "run_virtual", "virtual"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
"""A Monday morning: where virtual time begins unless told otherwise."""


class Deadlock(RuntimeError):
    """Every task waits for something that no timer, socket or thread will bring."""


class HandClock:
    """A clock that stands still until it is moved: for code that asks the time but never sleeps long."""

    def __init__(self, start: datetime = START) -> None:
        self._wall = start.timestamp()
        self._monotonic = 0.0

    def time(self) -> float:
        return self._wall

    def now(self) -> datetime:
        return from_unix(self._wall)

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move."""
        self._wall += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as NTP does."""
        self._wall += seconds


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time. `time()` starts at 0 and moves only when all tasks wait.

    Sockets and threads work: ready ones go first, and time stands still while an executor call is under way.
    A thread that the loop does not know of does not stop the time.
    """

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._in_threads = 0
        super().__init__(self.selector())

    def selector(self) -> selectors.BaseSelector:
        """How this loop waits for sockets."""
        return _JumpingSelector(self)

    def time(self) -> float:
        return self._elapsed

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self._in_threads += 1
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._left_thread)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self._in_threads += 1
        await super().shutdown_default_executor()
        self._in_threads -= 1

    def _left_thread(self, _: object) -> None:
        self._in_threads -= 1

    def pass_time(self, seconds: float | None) -> bool:
        """Jump to the next timer. False when a thread is at work, and must be waited for in real time."""
        if self._in_threads:
            return False
        if seconds is None:
            raise Deadlock(_what_waits(self))
        self._elapsed += seconds
        return True


class _JumpingSelector(selectors.DefaultSelector):
    """Real sockets, no waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self._loop.pass_time(timeout):
            return super().select(0)
        return super().select(None)


def _what_waits(loop: asyncio.AbstractEventLoop) -> str:
    waiting = [f"  {task.get_name()} at {_where(task)}" for task in asyncio.all_tasks(loop)]
    return "\n".join(["nothing is scheduled, and these tasks wait for ever:", *sorted(waiting)])


def _where(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack()
    if not stack:
        return str(task.get_coro())
    frame = stack[-1]
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


class VirtualClock:
    """The harken Clock of a VirtualLoop."""

    def __init__(self, loop: VirtualLoop, start: datetime = START) -> None:
        self._loop = loop
        self._epoch = start.timestamp()

    def time(self) -> float:
        return self._epoch + self._loop.time()

    def now(self) -> datetime:
        return from_unix(self.time())

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as NTP or a person does; no timer notices."""
        self._epoch += seconds

    def sleep_laptop(self, seconds: float) -> None:
        """Close the lid: the wall clock goes on, the monotonic one and all timers stand still."""
        self.jump(abs(seconds))


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]], start: datetime = START) -> T:
    """Run to the end on a fresh virtual loop. Raise Deadlock, naming the tasks, when nothing can ever happen again."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(VirtualClock(loop, start)))


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of `async def test_x(clock, …)` that runs on virtual time; other arguments are fixtures as usual."""

    @functools.wraps(test)
    def on_virtual_time(*args: Any, **kwargs: Any) -> None:
        async def main(clock: VirtualClock) -> None:
            await test(*args, **kwargs, clock=clock)

        run_virtual(main)

    # pytest must not look for a fixture named clock, nor take the wrapped test for a coroutine
    del on_virtual_time.__wrapped__
    on_virtual_time.__signature__ = _without_clock(test)  # type: ignore[attr-defined]
    return on_virtual_time


def _without_clock(test: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(test)
    kept: Mapping[str, inspect.Parameter] = signature.parameters
    return signature.replace(parameters=[p for name, p in kept.items() if name != "clock"])
