"""What happened to each item of a list, for where the list does not tell since when it matches; read and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

__all__ = ["Gone", "Histories", "History", "together"]

T = TypeVar("T")
History: TypeAlias = Sequence[Any] | None
"""What happened to one item; None when it is too much to read."""

AT_ONCE = 5
KEPT = 5000


class Gone(Exception):
    """The item was deleted after it was listed."""


class Histories:
    """Histories by the id of their item and the version that they belong to. A few are read at once."""

    def __init__(self) -> None:
        self._known: dict[str | int, tuple[object, History]] = {}
        self._busy = asyncio.Semaphore(AT_ONCE)

    async def of(
        self,
        id: str | int,
        version: object,
        read: Callable[[], Awaitable[History]],
        settled: Callable[[History], bool],
    ) -> History:
        """The history, read if it is not known; remembered only if it is settled, and the version is not None."""
        known = self._known.get(id)
        if known is not None and known[0] == version:
            return known[1]
        async with self._busy:
            history = await read()
        if version is not None and settled(history):
            self._keep(id, version, history)
        return history

    def _keep(self, id: str | int, version: object, history: History) -> None:
        while len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        self._known[id] = (version, history)


async def together(each: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each of them returns, in their order. The first error ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in each]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
