"""The store contract on a real Redis, plain and sealed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from harken.backends.redis import RedisStore
from harken.store import Store
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
from tests.backends.quick_keys import quick_keys
from tests.servers.redis import RedisServer
from tests.soak import SOAK, larger

__all__ = ["quick_keys"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("redis")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


class OnRedis:
    key = ""

    @pytest.fixture
    async def url(self, server: RedisServer) -> str:
        """The address of an empty database."""
        async with Redis.from_url(server.url()) as client:
            await client.flushall()
        return server.url()

    @pytest.fixture
    async def store(self, clock: HandClock, url: str) -> AsyncIterator[Store]:
        store = RedisStore.at(url, clock, key=self.key)
        yield store
        await store.close()

    @pytest.fixture
    async def reopen(self, clock: HandClock, url: str) -> AsyncIterator[Reopen]:
        opened: list[RedisStore] = []

        async def again(store: Store) -> Store:
            opened.append(RedisStore.at(url, clock, key=self.key))
            return opened[-1]

        yield again
        for store in opened:
            await store.close()


class Sealed(OnRedis):
    key = "a long key of the operator"


class TestFeeds(OnRedis, FeedsContract):
    pass


class TestRuns(OnRedis, RunsContract):
    pass


class TestBudgets(OnRedis, BudgetContract):
    pass


class TestRegistry(OnRedis, RegistryContract):
    pass


class TestRecords(OnRedis, RecordsContract):
    many_rows = larger(__file__, 400)


class TestUpkeep(OnRedis, UpkeepContract):
    pass


class TestFeedsSealed(Sealed, FeedsContract):
    pass


class TestRegistrySealed(Sealed, RegistryContract):
    pass


class TestRecordsSealed(Sealed, RecordsContract):
    pass


if SOAK:

    class TestRunsSealed(Sealed, RunsContract):
        pass

    class TestBudgetsSealed(Sealed, BudgetContract):
        pass

    class TestUpkeepSealed(Sealed, UpkeepContract):
        pass
