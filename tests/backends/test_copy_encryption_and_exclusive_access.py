"""The transfer contracts between all kinds of stores: SQLite to PostgreSQL to Redis to SQLite, plain and encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from harken.backends.postgres import PostgresStore, Settings
from harken.backends.postgres.transfer import PostgresTransfer
from harken.backends.redis import RedisStore
from harken.backends.redis.transfer import RedisTransfer
from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.transfer import SqliteTransfer
from harken.store import Store
from harken.store.transfer_protocol_and_exclusive_access import StoreTransfer
from harken.testing import HandClock
from harken.testing.store.transfer import CopiedStoreContract, TransferContract
from harken.testing.store.transfer_world import Place
from tests.backends.postgres_database import server, url
from tests.backends.quick_keys import quick_keys
from tests.servers.redis import RedisServer

__all__ = ["quick_keys", "server", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("transfer")

KEY = "a long key of the operator"


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
async def redis_url(redis_server: RedisServer) -> str:
    async with Redis.from_url(redis_server.url()) as client:
        await client.flushall()
    return redis_server.url()


class SqlitePlace:
    def __init__(self, path: Path, clock: HandClock, key: str) -> None:
        self.where: dict[str, Any] = {"path": path, "clock": clock, "key": key}

    async def open(self) -> Store:
        return SqliteStore.at(**self.where, inline=True)

    def transfer(self) -> StoreTransfer:
        return SqliteTransfer.at(**self.where)


class PostgresPlace:
    def __init__(self, url: str, clock: HandClock, key: str) -> None:
        self.where: dict[str, Any] = {"url": url, "clock": clock, "key": key}

    async def open(self) -> Store:
        return PostgresStore.at(**self.where, settings=Settings(pool=2))

    def transfer(self) -> StoreTransfer:
        return PostgresTransfer.at(**self.where)


class RedisPlace:
    def __init__(self, url: str, clock: HandClock, key: str) -> None:
        self.where: dict[str, Any] = {"url": url, "clock": clock, "key": key}

    async def open(self) -> Store:
        return RedisStore.at(**self.where)

    def transfer(self) -> StoreTransfer:
        return RedisTransfer.at(**self.where)


class Places:
    """One empty store of each kind."""

    key = ""

    @pytest.fixture
    def sqlite(self, tmp_path: Path, clock: HandClock) -> Place:
        return SqlitePlace(tmp_path / "harken.db", clock, self.key)

    @pytest.fixture
    def postgres(self, url: str, clock: HandClock) -> Place:
        return PostgresPlace(url, clock, self.key)

    @pytest.fixture
    def redis(self, redis_url: str, clock: HandClock) -> Place:
        return RedisPlace(redis_url, clock, self.key)


class SqliteToPostgres(Places):
    @pytest.fixture
    def origin(self, sqlite: Place) -> Place:
        return sqlite

    @pytest.fixture
    def goal(self, postgres: Place) -> Place:
        return postgres


class PostgresToRedis(Places):
    @pytest.fixture
    def origin(self, postgres: Place) -> Place:
        return postgres

    @pytest.fixture
    def goal(self, redis: Place) -> Place:
        return redis


class RedisToSqlite(Places):
    @pytest.fixture
    def origin(self, redis: Place) -> Place:
        return redis

    @pytest.fixture
    def goal(self, sqlite: Place) -> Place:
        return sqlite


class TestSqliteToPostgres(SqliteToPostgres, TransferContract, CopiedStoreContract):
    pass


class TestPostgresToRedis(PostgresToRedis, TransferContract, CopiedStoreContract):
    pass


class TestRedisToSqlite(RedisToSqlite, TransferContract, CopiedStoreContract):
    pass


class TestSqliteToPostgresSealed(SqliteToPostgres, TransferContract):
    key = KEY


class TestPostgresToRedisSealed(PostgresToRedis, TransferContract):
    key = KEY


class TestRedisToSqliteSealed(RedisToSqlite, TransferContract):
    key = KEY
