"""Fixtures: a PostgreSQL for the tests of a module, and in it an empty schema or an empty store for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
import pytest_asyncio

from harken.backends.postgres import PostgresStore
from tests.servers.postgres import PostgresServer

__all__ = ["emptied_url", "emptier", "server", "session", "url"]

SCHEMAS = 1_000
MAKE_ALL = f"DO $$ BEGIN FOR n IN 1..{SCHEMAS} LOOP EXECUTE 'CREATE SCHEMA store_' || n; END LOOP; END $$"
_numbers = count(1)

EMPTY_STORE = "reused"
END_CONNECTIONS = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'harken'"
KEEP_ROWS = f"""DO $$ DECLARE of record; BEGIN
    DELETE FROM {EMPTY_STORE}.seal;
    CREATE SCHEMA first_rows;
    FOR of IN SELECT relname AS name FROM pg_class WHERE relnamespace = '{EMPTY_STORE}'::regnamespace AND relkind = 'r'
    LOOP EXECUTE format('CREATE TABLE first_rows.%I AS TABLE {EMPTY_STORE}.%1$I', of.name); END LOOP;
END $$"""
EMPTY = f"""DO $$ DECLARE written text; of record; BEGIN
    SELECT string_agg(oid::regclass::text, ', ') INTO written FROM pg_class
        WHERE relnamespace = '{EMPTY_STORE}'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0;
    EXECUTE 'TRUNCATE ' || written || ' RESTART IDENTITY';
    FOR of IN SELECT relname AS name FROM pg_class
        WHERE relnamespace = 'first_rows'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
    LOOP EXECUTE format('INSERT INTO {EMPTY_STORE}.%I SELECT * FROM first_rows.%1$I', of.name); END LOOP;
    PERFORM setval(oid::regclass, 1, false) FROM pg_class
        WHERE relnamespace = '{EMPTY_STORE}'::regnamespace AND relkind = 'S';
END $$"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Create all schemas in one statement: creating one for each test would take longer than the tests."""
    with PostgresServer() as server:
        asyncio.run(_prepare(server))
        yield server


async def _prepare(server: PostgresServer) -> None:
    connection = await server.connect("postgres")
    await connection.execute(MAKE_ALL)
    await connection.close()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """The URL of an empty schema."""
    return _url(server, f"store_{next(_numbers)}")


def _url(server: PostgresServer, schema: str) -> str:
    return f"{server.url('postgres')}?sslmode=disable&search_path={schema}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def emptier(server: PostgresServer) -> AsyncIterator[Any]:
    """A connection to a server that has a store which no test has opened yet, in the schema EMPTY_STORE.

    Making all its tables takes longer than most tests: a module that never changes the schema itself shares one.
    """
    connection = await server.connect("postgres")
    await connection.execute(f"CREATE SCHEMA {EMPTY_STORE}")
    store = PostgresStore.at(_url(server, EMPTY_STORE))
    await store.connect()
    await store.close()
    await connection.execute(KEEP_ROWS)
    yield connection
    await connection.close()


@pytest_asyncio.fixture(loop_scope="module")
async def emptied_url(server: PostgresServer, emptier: Any) -> str:
    """The URL of a store as it is after its first migration, whatever the test before has left in it."""
    await emptier.execute(END_CONNECTIONS)
    await emptier.execute(EMPTY)
    return _url(server, EMPTY_STORE)


@pytest.fixture
async def session(server: PostgresServer, url: str) -> AsyncIterator[Any]:
    """A plain connection to the same schema, as another process would have it."""
    connection = await server.connect("postgres")
    await connection.execute(f"SET search_path={url.rsplit('=', 1)[1]}")
    yield connection
    await connection.close()
