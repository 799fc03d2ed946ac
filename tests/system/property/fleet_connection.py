"""The way of each replica to the store that all share: it may be cut, slow as ice, or end with the replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

from harken.clock import Clock
from harken.errors import HarkenError, StoreUnavailable
from harken.testing.crashing import Crash, Heard
from harken.testing.waiting_clock import WaitingLoop
from tests.system.property.fleet_history import History
from tests.system.property.fleet_scenario import Hazard

__all__ = ["Exchange", "Line"]

MEANWHILE = 30.0
ORDERED = ("open", "reset", "move_start_lines", "lease", "release_lease", "commit", "fail", "record_idle", "forget")


class Exchange:
    """Where all lines meet. Each verb is noted when it has taken effect.

    Those that move a lease, a cursor or the definitions do so one at a time: that is the store's order. With `overlap`
    the others go beside them and beside each other, as they come.
    """

    def __init__(self, clock: Clock, heard: Heard, *, overlap: bool = False) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        self.history = History(clock)
        self.nowhere = Context()
        self._heard = heard
        self._overlap = overlap
        self._loop = loop
        self._turn = asyncio.Lock()
        self._sent: set[asyncio.Task[Any]] = set()

    async def alone(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Do it when whatever was sent before has been answered."""
        with self._loop.waiting():
            async with self._turn:
                if self._sent:
                    await asyncio.wait(self._sent)
                return await act()

    async def send(self, line: Line, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have it done. What was sent takes effect, also when its sender dies before the answer."""
        sent = self._loop.create_task(self._pass(line, verb, args, kwargs), context=self.nowhere.copy())
        sent.add_done_callback(_nobody_listens)
        return await asyncio.shield(sent)

    async def _pass(self, line: Line, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._loop.waiting():
            if not self._overlap or verb in ORDERED:
                async with self._turn:
                    return await self._take(line, verb, args, kwargs)
            sent = self._loop.create_task(self._take(line, verb, args, kwargs))
            self._sent.add(sent)
            sent.add_done_callback(self._sent.discard)
            return await sent

    async def _take(self, line: Line, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        line.must_live()
        try:
            answer = await getattr(line.store, verb)(*args, **kwargs)
        except HarkenError as error:
            self.history.note(line.name, verb, args, kwargs, error)
            raise
        self._heard(verb, args, kwargs, answer)
        self.history.note(line.name, verb, args, kwargs, answer)
        return answer


class Line:
    """`store` as one replica sees it. Each hazard strikes at the verb that comes after so many others.

    `meanwhile` holds things that happen while a verb is on its way.
    """

    def __init__(self, name: str, store: Any, exchange: Exchange, clock: Clock) -> None:
        self.name = name
        self.store = store
        self.dead = asyncio.Event()
        self.hazards: list[list[Any]] = []
        self.meanwhile: dict[str, list[Callable[[], Awaitable[object]]]] = {}
        self._exchange = exchange
        self._clock = clock
        self._frozen = self._cut = 0.0

    def expect(self, hazard: Hazard) -> None:
        self.hazards.append([hazard.verbs, hazard])

    def cut(self, seconds: float) -> None:
        self._cut = self._clock.monotonic() + seconds

    @property
    def well(self) -> bool:
        """Neither frozen nor cut off."""
        return max(self._frozen, self._cut) <= self._clock.monotonic()

    async def thawed(self) -> None:
        """Return when this replica is not frozen."""
        while self._frozen > self._clock.monotonic():
            await self._clock.sleep(self._frozen - self._clock.monotonic())

    def must_live(self) -> None:
        if self.dead.is_set():
            raise Crash

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            await self._happens(name)
            due = self._due(name)
            self._strike([hazard for hazard in due if not hazard.after])
            await self.thawed()
            self._must_reach()
            try:
                return await self._exchange.send(self, name, args, kwargs)
            finally:
                self._strike([hazard for hazard in due if hazard.after])
                await self.thawed()
                self._must_reach()

        return verb

    async def _happens(self, verb: str) -> None:
        for happening in self.meanwhile.pop(verb, []):
            loop = asyncio.get_running_loop()
            with suppress(TimeoutError):
                async with asyncio.timeout(MEANWHILE):
                    await asyncio.shield(loop.create_task(_of(happening), context=self._exchange.nowhere.copy()))

    def _due(self, verb: str) -> list[Hazard]:
        due = []
        for expected in list(self.hazards):
            left, hazard = expected
            if hazard.only in ("", verb):
                expected[0] -= 1
                if left <= 0:
                    self.hazards.remove(expected)
                    due.append(hazard)
        return due

    def _strike(self, hazards: list[Hazard]) -> None:
        for hazard in hazards:
            if hazard.what == "crash":
                self.dead.set()
            elif hazard.what == "freeze":
                self._frozen = self._clock.monotonic() + hazard.seconds
            else:
                self.cut(hazard.seconds)

    def _must_reach(self) -> None:
        self.must_live()
        if self._cut > self._clock.monotonic():
            raise StoreUnavailable("the network is cut", after=5.0)


async def _of(happening: Callable[[], Awaitable[object]]) -> None:
    await happening()


def _nobody_listens(sent: asyncio.Task[Any]) -> None:
    """Whoever asked may be gone, and then nobody else wants to know of the error."""
    if not sent.cancelled():
        sent.exception()
