"""A store that dies when told to: before or after any verb, as a power cut does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Crash", "CrashingStore"]

Heard = Callable[[str, tuple[Any, ...], dict[str, Any], Any], None]


class Crash(BaseException):
    """The process is gone. Not an Exception, because nothing may handle it."""


class CrashingStore:
    """Passes every verb on to `store` until it dies; from then on every verb raises Crash, whoever calls.

    `heard(verb, args, kwargs, answer)` is told of each verb that took effect, also when its caller never learns of it.
    `meanwhile` holds things that happen while a verb is on its way: they are awaited before the verb is passed on.
    """

    def __init__(self, store: Any, heard: Heard = lambda verb, args, kwargs, answer: None) -> None:
        self.inner = store
        self.dead = asyncio.Event()
        self.meanwhile: dict[str, list[Callable[[], Awaitable[object]]]] = {}
        self._heard = heard
        self._left: int | None = None
        self._after = False
        self._only = ""

    def crash(self, verbs: int, *, after: bool, only: str = "") -> None:
        """Die at the verb that comes after so many others: before it is passed on, or when it has taken effect.

        `only` counts verbs of one name."""
        self._left, self._after, self._only = verbs, after, only

    def spare(self) -> None:
        """Take a crash back that has not come yet."""
        self._left = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            for happening in self._due(name):
                await happening()
            due = self._count(name)
            if due and not self._after:
                self._die()
            answer = await found(*args, **kwargs)
            self._heard(name, args, kwargs, answer)
            if due:
                self._die()
            return answer

        return verb

    def _due(self, verb: str) -> list[Callable[[], Awaitable[object]]]:
        return self.meanwhile.pop(verb, [])

    def _count(self, verb: str) -> bool:
        if self.dead.is_set():
            raise Crash
        if self._left is None or self._only not in ("", verb):
            return False
        self._left -= 1
        return self._left < 0

    def _die(self) -> None:
        self.dead.set()
        raise Crash
