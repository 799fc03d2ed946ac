"""Copying the database to another home, or filling it from one: a snapshot to read, one transaction to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from harken.backends.encryption import Seal, unwrap
from harken.backends.postgres import PostgresStore, opening
from harken.backends.postgres.connection import Door, Settings
from harken.backends.postgres.errors import translate
from harken.backends.postgres.moving_rows import Taking, all_rows
from harken.backends.table_export import COUNTED
from harken.backends.transfer import Staying, arrive, refuse_full
from harken.clock import Clock
from harken.store.export_rows import Chunk
from harken.store.transfer import Counts

__all__ = ["PostgresMoving"]

PATIENT = """SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET enable_seqscan = on; SET enable_hashjoin = on; SET plan_cache_mode = auto"""
"""A copy reads and writes whole tables, and takes its time."""

WRITTEN = "feeds, triggers, documents, events, memory, runs, leases, audit, buried"


class PostgresMoving:
    """Nobody else uses the store once `writers` found nobody: its leases are ours then."""

    def __init__(self, url: str, clock: Clock | None, key: str) -> None:
        self._url = url
        self._clock = clock
        self._key = key
        self._door = Door(url, clock, key, Settings(), readonly=False)
        self.place = self._door.where
        self._staying = Staying(self.place, self._opened)

    @classmethod
    def at(cls, url: str, clock: Clock | None = None, *, key: str = "") -> PostgresMoving:
        """Without a clock the server's counts. Raise Misconfigured for a URL that is none."""
        return cls(url, clock, key)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await self._door.connection_of_its_own()
        try:
            await connection.execute(PATIENT)
            yield connection
        except Exception as error:
            raise translate(error, self.place) from None
        finally:
            await connection.close()

    async def _opened(self) -> PostgresStore:
        """The store as everybody uses it."""
        async with self._connection() as connection:
            key = await self._own_key(connection)
        return PostgresStore.at(self._url, self._clock, key=key, settings=Settings(pool=2))

    async def _own_key(self, connection: Any) -> str:
        """Our key, where the store has one: a plain store is read as it is, also with a key for the other one."""
        await opening.prepare(connection, key := await self._fitting(connection), self.place, readonly=True)
        return key

    async def _fitting(self, connection: Any) -> str:
        begun = await connection.fetchval("SELECT to_regclass('seal') IS NOT NULL")
        plain = begun and await connection.fetchval("SELECT wrapped='' FROM seal")
        return "" if plain else self._key

    async def _seal(self, connection: Any) -> tuple[Seal, bytes]:
        """The seal of a store that is there, and the key of its names."""
        seal = await opening.prepare(connection, await self._fitting(connection), self.place, readonly=True)
        wrapped = await connection.fetchval("SELECT wrapped FROM seal")
        return seal, unwrap(self._key, wrapped)[1] if wrapped else b""

    async def writers(self) -> Sequence[str]:
        return await self._staying.writers(self._shards)

    async def _shards(self) -> list[int]:
        async with self._connection() as connection:
            return [row[0] for row in await connection.fetch("SELECT DISTINCT shard FROM feeds")]

    async def stay(self) -> None:
        await self._staying.stay()

    async def rows(self) -> AsyncIterator[Chunk]:
        async with self._connection() as connection:
            seal, identity = await self._seal(connection)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                async for chunk in all_rows(connection, seal, identity):
                    yield chunk

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """One transaction: interrupted, it leaves the database as empty as it was, so there is nothing to force."""
        async with self._connection() as connection:
            await opening.prepare(connection, await self._fitting(connection), self.place, readonly=False)
            async with connection.transaction():
                # whoever starts waits for this, as for somebody who changes the schema
                await connection.fetchval("SELECT pg_advisory_xact_lock($1)", opening.LOCK)
                await connection.execute(f"LOCK TABLE {WRITTEN} IN EXCLUSIVE MODE")
                await self._refuse_full(connection)
                arrival = await arrive(rows, self._key)
                taking = Taking(connection, arrival.seal)
                await taking.begin(arrival.beginning, arrival.wrapped)
                async for chunk in arrival.rows:
                    await taking.take(chunk)
                await taking.end()

    async def _refuse_full(self, connection: Any) -> None:
        fix = "Name an empty database, or a schema of its own with ?search_path=NAME"
        refuse_full(self.place, await _counts(connection), fix)

    async def counts(self) -> Counts:
        async with self._connection() as connection:
            return await _counts(connection)

    async def mark(self, words: str, fix: str) -> None:
        await self._staying.mark(words, fix)

    async def close(self) -> None:
        await self._staying.close()


async def _counts(connection: Any) -> Counts:
    return {kind: await connection.fetchval(sql) for kind, sql in COUNTED.items()}
