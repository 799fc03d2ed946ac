"""The store contract on a real PostgreSQL."""

from __future__ import annotations

import os

import pytest

from harken.backends.postgres import PostgresStore, Settings
from harken.store import Store
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
from tests.backends.postgres_database import server, url

__all__ = ["server", "url"]

SMALL = Settings(pool=3)
CLAIM_SECONDS = 60.0
SOAK = bool(os.environ.get("HARKEN_SOAK"))


class Served(Crashing):
    key = ""

    @pytest.fixture
    def opening(self, clock: HandClock, url: str) -> Opening:
        return lambda: PostgresStore.at(url, clock, key=self.key, settings=SMALL)


class TestFeeds(Served, FeedsContract):
    pass


class TestRuns(Served, RunsContract):
    pass


class TestBudgets(Served, BudgetContract):
    async def after_crash(self, store: Store, clock: HandClock) -> None:
        """The contract speaks of a store that knows its dead; a replica's claims run out and are reaped."""
        clock.advance(CLAIM_SECONDS + 1)
        await store.requeue_expired()


class TestRegistry(Served, RegistryContract):
    pass


class TestRecords(Served, RecordsContract):
    pass


class TestUpkeep(Served, UpkeepContract):
    pass


class TestRecordsSealed(Served, RecordsContract):
    key = "a long key of the operator"


class TestRegistrySealed(Served, RegistryContract):
    key = "a long key of the operator"


if SOAK:

    class TestFeedsSealed(Served, FeedsContract):
        key = "a long key of the operator"

    class TestRunsSealed(Served, RunsContract):
        key = "a long key of the operator"

    class TestUpkeepSealed(Served, UpkeepContract):
        key = "a long key of the operator"
