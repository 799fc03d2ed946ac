"""A PostgreSQL for the tests of a module, and an empty schema in it for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer

__all__ = ["hand", "server", "url"]

_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def url(server: PostgresServer) -> AsyncIterator[str]:
    """The address of a store that nobody has opened yet."""
    name = f"store_{next(_numbers)}"
    connection = await server.connect("postgres")
    await connection.execute(f"CREATE SCHEMA {name}")
    await connection.close()
    yield f"{server.url('postgres')}?search_path={name}"
    connection = await server.connect("postgres")
    await connection.execute(f"DROP SCHEMA {name} CASCADE")
    await connection.close()


@pytest.fixture
async def hand(server: PostgresServer, url: str) -> AsyncIterator[Any]:
    """Somebody else's connection to the same schema."""
    connection = await server.connect("postgres")
    await connection.execute(f"SET search_path={url.rsplit('=', 1)[1]}")
    yield connection
    await connection.close()
