"""The way of each replica to the store that all share: it may be cut, slow as ice, or end with the replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from random import Random
from typing import Any

from harken.clock import Clock
from harken.errors import HarkenError
from harken.testing.crashing import Heard
from harken.testing.lease_history import History
from harken.testing.shared_store_faults_per_replica import Connection
from harken.testing.virtual_clock_with_servers import WaitingLoop

__all__ = ["DESK", "Exchange", "Line"]

DESK = "desk"
"""The line of whoever looks at what has become of it."""
MEANWHILE = 30.0
ORDERED = ("open", "reset", "move_start_lines", "lease", "release_lease", "commit", "fail", "record_idle", "forget")


class Turns:
    """One at a time, first come, first served.

    With `dice` the next is chosen among those who wait when all have come that can come at this moment. Nobody goes
    before or after his time where one waits for all before him.
    """

    def __init__(self, loop: WaitingLoop, dice: Random | None) -> None:
        self._loop = loop
        self._dice = dice
        self._waiting: list[tuple[asyncio.Future[None], bool]] = []
        self._taken = False

    @asynccontextmanager
    async def turn(self, *, after_all: bool = False) -> AsyncIterator[None]:
        ticket = self._loop.create_future()
        self._waiting.append((ticket, after_all))
        if not self._taken:
            self._taken = True
            self._pass_on()
        try:
            await ticket
            yield
        finally:
            # whoever was cancelled while he waited has no turn to pass on
            if not ticket.cancelled():
                self._pass_on()

    def _pass_on(self) -> None:
        if self._dice is None:
            self._call(None)
        else:
            self._loop.create_task(self._choose(self._dice), context=Context())

    async def _choose(self, dice: Random) -> None:
        await self._loop.rest()
        self._call(dice)

    def _call(self, dice: Random | None) -> None:
        self._waiting = [one for one in self._waiting if not one[0].cancelled()]
        self._taken = bool(self._waiting)
        if self._waiting:
            free = next((n for n, (_, after_all) in enumerate(self._waiting) if after_all), len(self._waiting))
            chosen = dice.randrange(free) if dice and free else 0
            self._waiting.pop(chosen)[0].set_result(None)


class Exchange:
    """Where all lines meet. Each verb is noted when it has taken effect.

    They take effect one at a time, in the order in which they were sent, or as the `dice` have it: so the same scenario
    has the same history every time. With `overlap` only those that move a lease, a cursor or the definitions are one at
    a time: the others go beside them and beside each other, and it is the server's haste that decides.
    """

    def __init__(self, clock: Clock, heard: Heard, *, dice: Random | None = None, overlap: bool = False) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        self.history = History(clock)
        self.nowhere = Context()
        self._heard = heard
        self._overlap = overlap
        self._loop = loop
        self._turns = Turns(loop, dice)
        self._sent: set[asyncio.Task[Any]] = set()
        self._open = asyncio.Event()
        self._open.set()

    async def alone(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Do it when whatever was sent before has been answered."""
        with self._loop.waiting():
            async with self._turns.turn(after_all=True):
                if self._sent:
                    await asyncio.wait(self._sent)
                return await act()

    async def hold(self) -> None:
        """From now on only the desk is served, and time stands still for whoever else asks.

        What is found then is how things were at one moment: between two verbs of the desk there could be a whole run.
        """
        self._open.clear()
        await self.alone(_nothing)

    def go_on(self) -> None:
        self._open.set()

    async def send(self, line: Connection, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have it done. What was sent takes effect, also when its sender dies before the answer."""
        sent = self._loop.create_task(self._pass(line, verb, args, kwargs), context=self.nowhere.copy())
        sent.add_done_callback(_nobody_listens)
        return await asyncio.shield(sent)

    async def _pass(self, line: Connection, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._loop.waiting():
            if line.name != DESK:
                await self._open.wait()
            if not self._overlap or verb in ORDERED:
                async with self._turns.turn():
                    return await self._take(line, verb, args, kwargs)
            sent = self._loop.create_task(self._take(line, verb, args, kwargs))
            self._sent.add(sent)
            sent.add_done_callback(self._sent.discard)
            return await sent

    async def _take(self, line: Connection, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        line.must_live()
        began = self.history.position
        try:
            answer = await getattr(line.store, verb)(*args, **kwargs)
        except HarkenError as error:
            self.history.note(line.name, verb, args, kwargs, error, began)
            raise
        self._heard(verb, args, kwargs, answer)
        self.history.note(line.name, verb, args, kwargs, answer, began)
        return answer


class Line(Connection):
    """`store` as one replica sees it. `meanwhile` holds things that happen while a verb is on its way."""

    def __init__(self, name: str, store: Any, exchange: Exchange, clock: Clock) -> None:
        super().__init__(name, store, exchange.send, clock, before=self._happens)
        self.meanwhile: dict[str, list[Callable[[], Awaitable[object]]]] = {}
        self._exchange = exchange

    async def _happens(self, verb: str) -> None:
        for happening in self.meanwhile.pop(verb, []):
            loop = asyncio.get_running_loop()
            with suppress(TimeoutError):
                async with asyncio.timeout(MEANWHILE):
                    await asyncio.shield(loop.create_task(_of(happening), context=self._exchange.nowhere.copy()))


async def _of(happening: Callable[[], Awaitable[object]]) -> None:
    await happening()


async def _nothing() -> None:
    """It is enough that all others are done."""


def _nobody_listens(sent: asyncio.Task[Any]) -> None:
    """Whoever asked may be gone, and then nobody else wants to know of the error."""
    if not sent.cancelled():
        sent.exception()
