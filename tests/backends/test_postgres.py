"""The store contract on a real PostgreSQL."""

from __future__ import annotations

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
from tests.backends.postgres_database import emptied_url, emptier, server
from tests.backends.quick_keys import quick_keys
from tests.soak import SOAK, larger

__all__ = ["emptied_url", "emptier", "quick_keys", "server"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("postgres")

SMALL = Settings(pool=3)
CLAIM_SECONDS = 60.0


class OnPostgres(Crashing):
    key = ""

    @pytest.fixture
    def opening(self, clock: HandClock, emptied_url: str) -> Opening:
        return lambda: PostgresStore.at(emptied_url, clock, key=self.key, settings=SMALL)


class TestFeeds(OnPostgres, FeedsContract):
    pass


class TestRuns(OnPostgres, RunsContract):
    pass


class TestBudgets(OnPostgres, BudgetContract):
    async def after_crash(self, store: Store, clock: HandClock) -> None:
        """The claims of a dead replica expire, and are then requeued by any other."""
        clock.advance(CLAIM_SECONDS + 1)
        await store.requeue_expired()


class TestRegistry(OnPostgres, RegistryContract):
    pass


class TestRecords(OnPostgres, RecordsContract):
    many_rows = larger(__file__, 400)


class TestUpkeep(OnPostgres, UpkeepContract):
    pass


class TestRecordsSealed(OnPostgres, RecordsContract):
    key = "a long key of the operator"


class TestRegistrySealed(OnPostgres, RegistryContract):
    key = "a long key of the operator"


if SOAK:

    class TestFeedsSealed(OnPostgres, FeedsContract):
        key = "a long key of the operator"

    class TestRunsSealed(OnPostgres, RunsContract):
        key = "a long key of the operator"

    class TestUpkeepSealed(OnPostgres, UpkeepContract):
        key = "a long key of the operator"
