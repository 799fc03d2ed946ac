"""Three homes for the store of a fleet, each with an empty place for every example."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, Protocol

from asyncpg import ObjectInUseError  # type: ignore[import-untyped]
from redis.asyncio import Redis

from harken.backends.postgres import PostgresStore, Settings
from harken.backends.redis import RedisStore
from harken.backends.sqlite import SqliteStore
from harken.clock import Clock
from harken.testing.virtual_clock_with_servers import PATIENCE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

__all__ = ["Home", "PostgresHome", "RedisHome", "SqliteHome"]

TEMPLATE = "harken_empty"
# time stands still while the server works: on a machine that does much else nothing of it may be given up
PATIENT = Settings(pool=3, statement=PATIENCE, lock=PATIENCE, answer=PATIENCE, connect=PATIENCE)
TRIES = 100
_numbers = count()


class Home(Protocol):
    """Where the store of one example lives; all of it happens on the loop of that example."""

    async def move_in(self, clock: Clock) -> None: ...

    def store(self) -> Any:
        """The store as a process of its own sees it."""
        ...

    async def let_go(self, store: Any) -> None:
        """As a dying process does."""
        ...

    async def shake(self) -> None:
        """Drop all connections."""
        ...

    async def move_out(self) -> None: ...


class SqliteHome:
    """One process has the file, so all share one store."""

    def __init__(self, room: Path) -> None:
        self._path = room / f"fleet-{next(_numbers)}.db"

    async def move_in(self, clock: Clock) -> None:
        self._store = SqliteStore.at(self._path, clock, inline=True)

    def store(self) -> SqliteStore:
        return self._store

    async def let_go(self, store: Any) -> None:
        """The file is still open for the others."""

    async def shake(self) -> None:
        """There is no connection to drop."""

    async def move_out(self) -> None:
        self._store.abandon()
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()


class PostgresHome:
    """A database of its own, copied from an empty store."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._name = f"fleet_{next(_numbers)}"

    async def move_in(self, clock: Clock) -> None:
        self._clock = clock
        self._hand = await self._server.connect("postgres")
        if not await self._hand.fetchval("SELECT count(*) FROM pg_database WHERE datname=$1", TEMPLATE):
            await self._hand.execute(f"CREATE DATABASE {TEMPLATE}")
            store = PostgresStore.at(self._server.url(TEMPLATE), settings=PATIENT)
            await store.connect()
            await store.close()
        await self._insist(f"CREATE DATABASE {self._name} TEMPLATE {TEMPLATE}")

    def store(self) -> PostgresStore:
        return PostgresStore.at(self._server.url(self._name), self._clock, settings=PATIENT)

    async def let_go(self, store: Any) -> None:
        store.abandon()

    async def shake(self) -> None:
        drop = "SELECT bool_and(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname=$1"
        # false: one of them has not ended in that time; null: there is none left
        while await self._hand.fetchval(drop, self._name) is not None:
            pass

    async def move_out(self) -> None:
        await self._insist(f"DROP DATABASE {self._name} WITH (FORCE)")
        await self._hand.close()

    async def _insist(self, statement: str) -> None:
        """Do it again where the server has waited for a process that is about to end, and has given up."""
        for _ in range(TRIES):
            try:
                await self._hand.execute(statement)
            except ObjectInUseError:
                continue
            return
        raise AssertionError(f"the database stays in use: {statement}")


class RedisHome:
    def __init__(self, server: RedisServer) -> None:
        self._server = server

    async def move_in(self, clock: Clock) -> None:
        self._clock = clock
        self._hand = Redis.from_url(self._server.url())

    def store(self) -> RedisStore:
        return RedisStore.at(self._server.url(), self._clock)

    async def let_go(self, store: Any) -> None:
        await store.close()

    async def shake(self) -> None:
        await self._hand.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]

    async def move_out(self) -> None:
        await self._hand.flushall()
        await self._hand.aclose()
