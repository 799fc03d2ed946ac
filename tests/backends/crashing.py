"""The `store` and `reopen` of a contract on a home whose stores can be let go of as a dying process does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeAlias, cast

import pytest

from harken.store import Store
from harken.testing import HandClock
from harken.testing.store import Reopen

__all__ = ["Crashing", "Opening"]


class Mortal(Store, Protocol):
    def abandon(self) -> None: ...


Opening: TypeAlias = Callable[[], Mortal]
"""Open the home of this test, be it for the first time or again."""


class Crashing:
    """Subclass it and give an `opening` fixture (see Opening)."""

    @pytest.fixture
    async def store(self, opening: Opening) -> AsyncIterator[Store]:
        store = opening()
        yield store
        store.abandon()

    @pytest.fixture
    async def reopen(self, opening: Opening, clock: HandClock) -> AsyncIterator[Reopen]:
        opened: list[Mortal] = []

        async def again(store: Store) -> Store:
            cast(Mortal, store).abandon()
            opened.append(opening())
            await self.after_crash(opened[-1], clock)
            return opened[-1]

        yield again
        for store in opened:
            store.abandon()

    async def after_crash(self, store: Store, clock: HandClock) -> None:
        """Let pass what has to pass until the store knows its dead: nothing, where it knows them when it is opened."""
