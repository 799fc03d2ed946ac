"""The store contract on SQLite, with its writer thread and inline as virtual time needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.store import Store
from harken.stores.sqlite import SqliteStore
from harken.testing import HandClock
from harken.testing.store import (
    BudgetContract,
    FeedsContract,
    RecordsContract,
    RegistryContract,
    Reopen,
    RunsContract,
    UpkeepContract,
)


class Threaded:
    inline = False
    key = ""

    def at(self, path: Path, clock: HandClock) -> SqliteStore:
        return SqliteStore.at(path / "harken.db", clock, inline=self.inline, key=self.key)

    @pytest.fixture
    async def store(self, clock: HandClock, tmp_path: Path) -> AsyncIterator[Store]:
        store = self.at(tmp_path, clock)
        yield store
        store.abandon()

    @pytest.fixture
    async def reopen(self, clock: HandClock, tmp_path: Path) -> AsyncIterator[Reopen]:
        opened: list[SqliteStore] = []

        async def again(store: Store) -> Store:
            assert isinstance(store, SqliteStore)
            store.abandon()
            opened.append(self.at(tmp_path, clock))
            return opened[-1]

        yield again
        for store in opened:
            store.abandon()


class Inline(Threaded):
    inline = True


class TestFeeds(Threaded, FeedsContract):
    pass


class TestRuns(Threaded, RunsContract):
    pass


class TestBudgets(Threaded, BudgetContract):
    pass


class TestRegistry(Threaded, RegistryContract):
    pass


class TestRecords(Threaded, RecordsContract):
    pass


class TestUpkeep(Threaded, UpkeepContract):
    pass


class TestFeedsInline(Inline, FeedsContract):
    pass


class TestRunsInline(Inline, RunsContract):
    pass


class TestBudgetsInline(Inline, BudgetContract):
    pass


class TestRegistryInline(Inline, RegistryContract):
    pass


class TestRecordsInline(Inline, RecordsContract):
    pass


class TestUpkeepInline(Inline, UpkeepContract):
    pass


class TestRecordsSealed(Inline, RecordsContract):
    key = "a long key of the operator"


class TestRegistrySealed(Inline, RegistryContract):
    key = "a long key of the operator"
