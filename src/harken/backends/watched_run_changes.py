"""Watched runs that have moved, as both SQL stores find them.

A run's state and the number of its claims make its version: whatever happens to a run changes one of the two. Its
column `watched` has the version that somebody has dealt with. An index has the rows where the two differ, so nothing
is written when a run moves, and no move can be forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

__all__ = ["MOVED", "NOT_DEALT_WITH", "VERSION", "Turns", "version"]

VERSION = "token*16+state"

MOVED = f"watched<>{VERSION}"
"""The rows of the index `runs_moved`. A run that nobody watches has no `watched`, and is not among them."""

NOT_DEALT_WITH = -1
"""`watched` of a run that nobody has dealt with yet."""


def version(state: int, token: int) -> int:
    return token * 16 + state


T = TypeVar("T")

LAST = 2**62
"""No run has a higher number."""


class Turns:
    """Goes round what is longer than one answer, so that runs which cannot be dealt with do not hide the others."""

    def __init__(self) -> None:
        self._after = 0

    async def take(self, limit: int, read: Callable[[int, int, int], Awaitable[Sequence[tuple[int, T]]]]) -> list[T]:
        """Up to `limit` of all, going on after the last answer. `read` gets: after, up to, how many."""
        begin = self._after
        found = list(await read(begin, LAST, limit))
        if len(found) < limit and begin:
            found += await read(0, begin, limit - len(found))
        self._after = found[-1][0] if len(found) == limit else 0
        return [each for _, each in found]
