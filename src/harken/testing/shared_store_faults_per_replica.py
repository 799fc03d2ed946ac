"""The connection of one replica to the store that all share: it may be cut, frozen, or end with the replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from harken.clock import Clock
from harken.errors import StoreUnavailable
from harken.testing.crashing import Crash

__all__ = ["Connection", "Hazard", "ReplicaClock", "Send"]

Send: TypeAlias = Callable[["Connection", str, tuple[Any, ...], dict[str, Any]], Awaitable[Any]]
"""Has a verb done by the store. What was sent takes effect, also when its sender dies before the answer."""


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """What befalls a replica at a store verb to come, before it is sent or when it has taken effect.

    `seconds`: so long the replica is frozen, or without the store. `only` counts verbs of one
    name; so many `verbs` pass before it.
    """

    what: Literal["crash", "freeze", "cut"]
    verbs: int = 0
    after: bool = False
    seconds: float = 0.0
    only: str = ""


class Connection:
    """The store as one replica sees it. `on_strike` is told of each hazard when it strikes.

    `before` is awaited with the name of each verb, before anything befalls it.
    """

    def __init__(
        self,
        name: str,
        store: Any,
        send: Send,
        clock: Clock,
        *,
        before: Callable[[str], Awaitable[object]] | None = None,
        on_strike: Callable[[Hazard], object] = lambda hazard: None,
    ) -> None:
        self.name = name
        self.store = store
        self.dead = asyncio.Event()
        self.hazards: list[tuple[list[int], Hazard]] = []
        self._send = send
        self._clock = clock
        self._before = before
        self._on_strike = on_strike
        self._frozen = self._cut = 0.0

    def expect(self, hazard: Hazard) -> None:
        self.hazards.append(([hazard.verbs], hazard))

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
            if self._before is not None:
                await self._before(name)
            due = self._due(name)
            self._strike([hazard for hazard in due if not hazard.after])
            await self.thawed()
            self._must_reach()
            try:
                return await self._send(self, name, args, kwargs)
            finally:
                self._strike([hazard for hazard in due if hazard.after])
                await self.thawed()
                self._must_reach()

        return verb

    def _due(self, verb: str) -> list[Hazard]:
        due = []
        for expected in list(self.hazards):
            left, hazard = expected
            if hazard.only in ("", verb):
                left[0] -= 1
                if left[0] < 0:
                    self.hazards.remove(expected)
                    due.append(hazard)
        return due

    def _strike(self, hazards: list[Hazard]) -> None:
        for hazard in hazards:
            self._on_strike(hazard)
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


class ReplicaClock:
    """The clock of a replica: it wakes up from no sleep while it is frozen."""

    def __init__(self, clock: Clock, connection: Connection) -> None:
        self._clock = clock
        self._connection = connection

    def time(self) -> float:
        return self._clock.time()

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._connection.thawed()
