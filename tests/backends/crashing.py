"""The fixtures `store` and `reopen` for stores that can be abandoned, as a process that is killed does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeAlias, cast

import pytest

from harken.store import Store
from harken.testing import HandClock
from harken.testing.store import Reopen

__all__ = ["Crashing", "Opening"]


class AbandonableStore(Store, Protocol):
    def abandon(self) -> None: ...


Opening: TypeAlias = Callable[[], AbandonableStore]
"""Opens the store of this test, for the first time or again."""


class Crashing:
    """Subclass it with an `opening` fixture (see Opening)."""

    @pytest.fixture
    async def store(self, opening: Opening) -> AsyncIterator[Store]:
        store = opening()
        yield store
        store.abandon()

    @pytest.fixture
    async def reopen(self, opening: Opening, clock: HandClock) -> AsyncIterator[Reopen]:
        opened: list[AbandonableStore] = []

        async def again(store: Store) -> Store:
            cast(AbandonableStore, store).abandon()
            opened.append(opening())
            await self.after_crash(opened[-1], clock)
            return opened[-1]

        yield again
        for store in opened:
            store.abandon()

    async def after_crash(self, store: Store, clock: HandClock) -> None:
        """Advance the clock until the store notices that the old process died; SQLite knows it when it is opened."""
