"""The store contract on SQLite, with its writer thread and inline as virtual time needs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harken.backends.sqlite import SqliteStore
from harken.testing import HandClock
from harken.testing.store import (
    BudgetContract,
    FeedsContract,
    RecordsContract,
    RegistryContract,
    RunsContract,
    UpkeepContract,
)
from tests.backends.crashing import Crashing, Opening
from tests.backends.quick_keys import quick_keys
from tests.soak import larger

__all__ = ["quick_keys"]


@pytest.fixture(scope="module")
def new_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store that was opened and closed: making its tables for each test would be a quarter of all the work here."""
    path = tmp_path_factory.mktemp("new") / "harken.db"
    asyncio.run(SqliteStore.at(path, HandClock(), inline=True).close())
    return path.read_bytes()


class Threaded(Crashing):
    inline = False
    key = ""

    @pytest.fixture
    def opening(self, clock: HandClock, tmp_path: Path, new_file: bytes) -> Opening:
        path = tmp_path / "harken.db"
        path.touch(mode=0o600)
        path.write_bytes(new_file)
        return lambda: SqliteStore.at(path, clock, inline=self.inline, key=self.key)


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
    many_rows = larger(__file__, 400)


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
