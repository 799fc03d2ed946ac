"""One process with a store of its own, that can be killed at any use of the store and started again on what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from harken.app.store import open_in_memory
from harken.errors import StoreUnavailable
from harken.ingest.intake import Intake
from harken.simulation.script import Crash, Cut, Freeze, Happening, Lock, Restart
from harken.simulation.setting import Setting, build_engine
from harken.testing.crashing import Crash as Killed
from harken.testing.crashing import CrashingStore
from harken.timings import Timings

__all__ = ["LONG_NAPS", "OneProcess"]

LONG_NAPS = Timings(
    lease_seconds=3_600.0,
    claim_seconds=600.0,
    idle_flush=60.0,
    scheduler_nap=60.0,
    scheduler_dead=600.0,
    worker_sleep=300.0,
    ticket_runs_round=60.0,
    projection_round=60.0,
)
"""Nobody waits in virtual time, so the engine looks rarely: a day costs milliseconds."""

REQUEUE_SECONDS = 60.0
PAUSE = 5.0


class _Own:
    """The lease of whoever shares with nobody."""

    async def keep(self) -> bool:
        return True


class OneProcess:
    """`store` is what it writes to, and what can be looked at from outside."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.kills = self.restarts = 0
        # what befalls one of several replicas only
        self.freezes = self.cuts = 0
        self._image = b""
        self._down = 0.0
        self._main: asyncio.Task[Any] | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Start a process on what the last one has left, again and again while it dies in the middle of that."""
        self._main = self._main or asyncio.current_task()
        while True:
            self._inner = open_in_memory(self._setting.clock, self._image)
            self.store: Any = CrashingStore(self._inner)
            self.worker, self.intake, tickets = build_engine(
                self._setting, self.store, self._setting.clock, holders=("worker", "intake"), timings=LONG_NAPS
            )
            definitions = self._setting.configuration.definitions(starting=True)
            try:
                await self._insist(lambda: self.intake.start(definitions))  # noqa: B023
            except Killed:
                await self._die()
                continue
            work = [self.worker.run(), self._requeue(), *([tickets.keep(_Own())] if tickets else [])]
            self._tasks = [asyncio.create_task(one) for one in work]
            return

    async def _insist(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it again while the store is locked, as whoever starts a process does."""
        while True:
            try:
                await act()
            except StoreUnavailable:
                await self._setting.clock.sleep(PAUSE)
            else:
                return

    async def _requeue(self) -> None:
        """As housekeeping does: what a process left behind that is gone is claimed again."""
        while True:
            await self._setting.clock.sleep(REQUEUE_SECONDS)
            with suppress(StoreUnavailable):
                if await self.store.requeue_expired():
                    self.worker.nudge()

    async def _die(self) -> None:
        """As kill -9 does: nothing is flushed, nobody is told."""
        self.kills += 1
        self.store.crashed.set()
        self.intake.scheduler.stop()
        tasks = [task for task in asyncio.all_tasks() if task not in (asyncio.current_task(), self._main)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._image = self._inner.image()
        self._inner.abandon()
        down, self._down = self._down, 0.0
        await self._setting.clock.sleep(down)

    async def stop(self) -> None:
        await self.intake.stop()
        await self.worker.stop(0.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End it for good; what it has stored can be read no more."""
        await self.stop()
        self._inner.abandon()

    async def surviving(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it; when the process dies meanwhile, start another. What was begun is not done again."""
        doing = asyncio.ensure_future(act())
        dying = asyncio.ensure_future(self.store.crashed.wait())
        await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done() and not self.store.crashed.is_set():
            dying.cancel()
            doing.result()
            return
        await self._die()
        if doing.done() and not doing.cancelled() and (error := doing.exception()) and not isinstance(error, Killed):
            raise error
        await self.start()

    async def suffer(self, item: Happening) -> None:
        """Let it befall the process. It is not frozen, and its store is in its own file: both are for replicas."""
        if isinstance(item, Crash):
            self.store.crash(item.skip, after=item.after, only=item.verb)
            self._down = item.down
        elif isinstance(item, Lock):
            self.store.lock(item.verbs, after=item.after, only=item.verb)
        elif isinstance(item, Restart):
            await self._restart(item.down)
        else:
            assert isinstance(item, Freeze | Cut)

    async def _restart(self, down: float) -> None:
        self.restarts += 1
        await self.stop()
        self._image = self._inner.image()
        self._inner.abandon()
        await self._setting.clock.sleep(down)
        await self.start()

    async def act(self, act: Callable[[Intake], Awaitable[bool]]) -> bool:
        """Have it done by the process: whether it was, as the answer says."""
        return await act(self.intake)

    async def read(self, feed: str) -> None:
        """Read the feed once, now."""
        await self.intake.tick(feed)

    async def refresh(self, feed: str) -> None:
        """The feed was changed in the store."""
        await self.intake.refresh(feed)

    async def spare(self) -> None:
        """From now on nothing befalls it any more."""
        self.store.spare()
        self._down = 0.0
