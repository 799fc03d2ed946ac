"""Keyset pages: newest first, each with the id below which the next page starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harken.store import Page

__all__ = ["PageBuilder"]


class PageBuilder:
    """Collects one page. Read batches below `before` until it is `done`, as a filter may drop most of a batch.

    `wanted` is the filter, `place` gives the id of an item.
    """

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
        """Add the next `limit` rows; fewer rows mean that there are no more."""
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
