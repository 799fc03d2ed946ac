"""Fixtures: a PostgreSQL for the tests of a module, and an empty schema in it for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer

__all__ = ["server", "session", "url"]

SCHEMAS = 2_000
MAKE_ALL = f"DO $$ BEGIN FOR n IN 1..{SCHEMAS} LOOP EXECUTE 'CREATE SCHEMA store_' || n; END LOOP; END $$"
_numbers = count(1)


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
    return f"{server.url('postgres')}?sslmode=disable&search_path=store_{next(_numbers)}"


@pytest.fixture
async def session(server: PostgresServer, url: str) -> AsyncIterator[Any]:
    """A plain connection to the same schema, as another process would have it."""
    connection = await server.connect("postgres")
    await connection.execute(f"SET search_path={url.rsplit('=', 1)[1]}")
    yield connection
    await connection.close()
