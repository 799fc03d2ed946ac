"""A store that dies when told to, before or after any verb, as a power cut does; or is locked for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from harken.errors import StoreUnavailable

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
        self.crashed = asyncio.Event()
        self.meanwhile: dict[str, list[Callable[[], Awaitable[object]]]] = {}
        self._heard = heard
        self._left: int | None = None
        self._after = False
        self._only = ""
        self._locked: tuple[int, bool, str] = (0, False, "")

    def crash(self, verbs: int, *, after: bool, only: str = "") -> None:
        """Die at the verb that comes after so many others: before it is passed on, or when it has taken effect.

        `only` counts verbs of one name."""
        self._left, self._after, self._only = verbs, after, only

    def lock(self, verbs: int, *, after: bool = False, only: str = "") -> None:
        """Fail at so many verbs to come, as a locked database does. `after`: it takes effect, and its answer is lost.

        `only` counts and concerns verbs of one name."""
        self._locked = (verbs, after, only)

    def spare(self) -> None:
        """Take back what has not come yet."""
        self._left = None
        self._locked = (0, False, "")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            locked, late = self._count_locked(name)
            if locked and not late:
                raise StoreUnavailable("the database is locked")
            for happening in self._due(name):
                await happening()
            due = self._count(name)
            if due and not self._after:
                self._die()
            answer = await found(*args, **kwargs)
            self._heard(name, args, kwargs, answer)
            if due:
                self._die()
            if locked:
                raise StoreUnavailable("the database did not answer")
            return answer

        return verb

    def _due(self, verb: str) -> list[Callable[[], Awaitable[object]]]:
        return self.meanwhile.pop(verb, [])

    def _count(self, verb: str) -> bool:
        if self.crashed.is_set():
            raise Crash
        if self._left is None or self._only not in ("", verb):
            return False
        self._left -= 1
        return self._left < 0

    def _count_locked(self, verb: str) -> tuple[bool, bool]:
        """Whether the verb fails, and whether it takes effect before."""
        left, late, only = self._locked
        if self.crashed.is_set() or not left or only not in ("", verb) or verb == "close":
            return False, False
        self._locked = (left - 1, late, only)
        return True, late

    def _die(self) -> None:
        self.crashed.set()
        raise Crash
