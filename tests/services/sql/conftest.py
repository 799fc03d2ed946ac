"""Three databases to read: a PostgreSQL and a MariaDB that run as long as the tests do, and a file of SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer
from tests.services.sql.databases import Db, Hand, MariaDb, PostgresDb, SqliteDb


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    with MariaDbServer() as server:
        yield server


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> Db:
    """An empty database; a test that is about one of them names it, with `indirect=True`."""
    made: dict[str, Callable[[], Db]] = {
        "postgres": lambda: PostgresDb(request.getfixturevalue("postgres")),
        "mariadb": lambda: MariaDb(request.getfixturevalue("mariadb")),
        "sqlite": lambda: SqliteDb(tmp_path / "orders.db"),
    }
    db = made[request.param]()
    await db.empty()
    return db


@pytest.fixture
async def hand(db: Db) -> AsyncIterator[Hand]:
    """Who writes into the table `orders`."""
    hand = await db.hand()
    await hand.do(f"CREATE TABLE orders (id integer PRIMARY KEY, at {db.time} NULL, seq bigint, note varchar(200))")
    yield hand
    await hand.close()
