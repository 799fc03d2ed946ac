"""Pages for people: so many at a time, newest first, each with the place from which the next goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harken.store import Page

__all__ = ["Filling"]


class Filling:
    """A page on its way. Read on below `before` until it is `done`: what a filter drops must not look like the end."""

    def __init__(
        self, wanted: Callable[[Any], bool], place: Callable[[Any], int], before: int | None, limit: int
    ) -> None:
        self.before = before
        self.done = False
        self._wanted = wanted
        self._place = place
        self._limit = limit
        self._items: list[Any] = []

    def add(self, batch: Sequence[Any]) -> None:
        """Take what is wanted of the next `limit` rows, or of as many as are left."""
        for item in batch:
            self.before = self._place(item)
            if self._wanted(item):
                self._items.append(item)
                if len(self._items) == self._limit:
                    self.done = True
                    return
        if len(batch) < self._limit:
            self.before, self.done = None, True

    def page(self) -> Page:
        return Page(items=self._items, next=self.before)
