"""Copies the database to another store, or fills it from one: read from one snapshot, written in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from harken.backends.codec import decode_feed
from harken.backends.copy_encryption_and_exclusive_access import ExclusiveAccess, prepare_import, refuse_nonempty
from harken.backends.encryption import Seal, unwrap
from harken.backends.postgres import PostgresStore
from harken.backends.postgres.connection import SCHEMA_LOCK, Database, Settings, prepare
from harken.backends.postgres.errors import translate
from harken.backends.postgres.leases import RELEASED
from harken.backends.table_export import COLUMNS, COPIED_DOCUMENTS, COUNTED, HAS_SLOT, Row, TableRuns, Tables
from harken.clock import Clock
from harken.store.transfer_protocol_and_exclusive_access import Counts, chunks_of
from harken.store.transfer_rows import (
    Chunk,
    ExportedEvent,
    ExportedFeed,
    ExportedRow,
    ExportedRun,
    ExportedTrigger,
    ExportHeader,
)

__all__ = ["PostgresTransfer"]

FETCH_ROWS = 50
"""How many rows the server sends at a time: each may be large."""

LONG_TRANSACTION = """SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET enable_seqscan = on; SET enable_hashjoin = on; SET plan_cache_mode = auto"""
"""A copy reads and writes whole tables, which takes its time."""

WRITTEN_TABLES = "feeds, triggers, documents, events, memory, runs, leases, audit, buried"

TALLIES = "SELECT trigger, sum(fired)::bigint, sum(done)::bigint, max(fired_at) FROM tallies GROUP BY trigger"


async def _export(connection: Any, seal: Seal, identity: bytes) -> AsyncIterator[Chunk]:
    """All rows in chunks. The caller has begun the transaction that reads one snapshot."""
    yield [await _header(connection, identity)]
    tables = Tables(seal, await _pairs(connection, "SELECT id, name FROM feeds"))

    async def read(
        of_row: Callable[[Row], ExportedRow], table: str, order: str, where: str = "true"
    ) -> AsyncIterator[ExportedRow]:
        sql = f"SELECT {COLUMNS[table]} FROM {table} WHERE {where} ORDER BY {order}"
        async for row in connection.cursor(sql, prefetch=FETCH_ROWS):
            yield of_row(row)

    for rows in (
        read(tables.feed, "feeds", "id"),
        _triggers(connection, tables),
        read(tables.document, "documents", "kind, name", COPIED_DOCUMENTS),
        read(tables.event, "events", "id"),
        read(tables.memory, "memory", "feed, mid"),
        _runs(connection, seal),
        read(tables.tick, "ticks", "id"),
        read(tables.letter, "buried", "id"),
        read(tables.audit, "audit", "id"),
    ):
        async for chunk in chunks_of(rows):
            yield chunk


async def _pairs(connection: Any, sql: str) -> dict[Any, Any]:
    return {row[0]: row[1] for row in await connection.fetch(sql)}


async def _header(connection: Any, identity: bytes) -> ExportHeader:
    generation = await connection.fetchrow("SELECT epoch, name, since FROM generation")
    leases = await connection.fetch("SELECT shard, token FROM leases ORDER BY shard")
    return ExportHeader(
        identity=identity,
        next_event=await _next_value(connection, "event_ids"),
        next_run=await _next_value(connection, "run_seqs"),
        epoch=generation[0],
        generation=generation[1],
        since=generation[2],
        tokens=tuple((row[0], row[1]) for row in leases),
    )


async def _next_value(connection: Any, sequence: str) -> int:
    last, called = await connection.fetchrow(f"SELECT last_value, is_called FROM {sequence}")
    return int(last) + 1 if called else int(last)


async def _triggers(connection: Any, tables: Tables) -> AsyncIterator[ExportedTrigger]:
    tallied = {row[0]: row[1:] for row in await connection.fetch(TALLIES)}
    async for *row, id in connection.cursor(f"SELECT {COLUMNS['triggers']}, id FROM triggers ORDER BY id"):
        spent = await connection.fetch("SELECT what, since, amount FROM spent WHERE trigger=$1 ORDER BY what", id)
        marks = await connection.fetch("SELECT key, until, run, times FROM marks WHERE trigger=$1 ORDER BY key", id)
        found = tables.trigger(row, spent, marks)
        fired, done, at = tallied.get(id, (0, 0, None))
        last = max(filter(None, (found.last_fired_at, at)), default=None)
        yield msgspec.structs.replace(found, fired=found.fired + fired, done=found.done + done, last_fired_at=last)


async def _runs(connection: Any, seal: Seal) -> AsyncIterator[ExportedRun]:
    tables = TableRuns(seal, {0: "", **await _pairs(connection, "SELECT id, uid FROM triggers")})
    cursor = await connection.cursor(f"SELECT {COLUMNS['runs']}, {HAS_SLOT} FROM runs ORDER BY seq")
    while rows := await cursor.fetch(FETCH_ROWS):
        seqs = [row[0] for row in rows]
        events = await _group_rows(
            connection, "SELECT run, event FROM run_events WHERE run=ANY($1) ORDER BY event", seqs
        )
        steps = await _group_rows(connection, "SELECT run, record FROM journal WHERE run=ANY($1) ORDER BY run, n", seqs)
        for *row, has_slot in rows:
            listed, event, gather = events.get(row[0], []), row[10], row[15]
            # `run_events` has the events of gathering runs and of runs started by hand
            by_hand = bool(listed) and gather is None
            gathered = listed if event is None else []
            yield tables.run(row, gathered, steps.get(row[0], []), by_hand=by_hand, has_slot=has_slot)


async def _group_rows(connection: Any, sql: str, runs: Sequence[int]) -> dict[int, list[Any]]:
    """The second column of a query, by the run in its first."""
    found: dict[int, list[Any]] = {}
    for run, value in await connection.fetch(sql, runs):
        found.setdefault(run, []).append(value)
    return found


class _Loader:
    """Writes chunks in the transaction that its caller has begun."""

    def __init__(self, connection: Any, seal: Seal) -> None:
        self._connection = connection
        self._tables = Tables(seal, {})
        self._runs = TableRuns(seal, {"": 0})
        self._kinds: dict[type, Callable[[Any], Awaitable[None]]] = {
            ExportedFeed: self._load_feeds,
            ExportedTrigger: self._load_triggers,
            ExportedRun: self._load_runs,
            ExportedEvent: self._load_events,
        }
        self._plain = self._tables.plain()

    async def begin(self, beginning: ExportHeader, wrapped: str) -> None:
        do = self._connection.execute
        await do("UPDATE seal SET wrapped=$1", wrapped)
        generation = (beginning.epoch, beginning.generation, beginning.since)
        await do("UPDATE generation SET epoch=$1, name=$2, since=$3", *generation)
        await do("DELETE FROM leases")
        released = [(shard, "", token, RELEASED) for shard, token in beginning.tokens]
        await self._copy("leases", "shard, holder, token, until", released)
        next_values = {
            "event_ids": beginning.next_event,
            "run_seqs": beginning.next_run,
            "lease_tokens": 1 + max((token for _, token in beginning.tokens), default=0),
        }
        for sequence, value in next_values.items():
            await do("SELECT setval($1::text::regclass, $2, false)", sequence, value)

    async def load(self, chunk: Chunk) -> None:
        kind = type(chunk[0])
        if kind in self._plain:
            table, of_row = self._plain[kind]
            await self._copy(table, COLUMNS[table], [of_row(row) for row in chunk])
        else:
            await self._kinds[kind](chunk)

    async def end(self) -> None:
        """Let the ids of dead letters go on after the highest."""
        await self._connection.execute(
            "SELECT setval(pg_get_serial_sequence('buried', 'id'), 1 + coalesce(max(id), 0), false) FROM buried"
        )

    async def _copy(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        names = [name.strip() for name in columns.split(",")]
        await self._connection.copy_records_to_table(table, records=rows, columns=names)

    async def _load_feeds(self, chunk: Sequence[ExportedFeed]) -> None:
        rows = []
        for row in chunk:
            definition = decode_feed(row.definition)
            derived = (definition.shard, definition.way != "poll", definition.identity)
            rows.append((*self._tables.of_feed(row), *derived))
        await self._copy("feeds", COLUMNS["feeds"] + ", shard, pushed, identity", rows)
        self._tables.feeds.update(await _pairs(self._connection, "SELECT name, id FROM feeds"))

    async def _load_triggers(self, chunk: Sequence[ExportedTrigger]) -> None:
        rows = [self._tables.of_trigger(row, unpaused=b"") for row in chunk]
        await self._copy("triggers", COLUMNS["triggers"], rows)
        ids = self._runs.triggers
        ids.update(await _pairs(self._connection, "SELECT uid, id FROM triggers"))
        spent = [(ids[row.uid], one.what, one.since, float(one.amount)) for row in chunk for one in row.spent]
        await self._copy("spent", "trigger, what, since, amount", spent)
        await self._copy("marks", "trigger, key, until, run, times", self._tables.marks(chunk, ids))
        await self._copy("trigger_feeds", "trigger, feed, backfilling", self._tables.listening(chunk, ids))

    async def _load_events(self, chunk: Sequence[ExportedEvent]) -> None:
        # a text of PostgreSQL cannot have a NUL, and a type from another store may
        fit = (msgspec.structs.replace(row, type=row.type.replace("\0", "\ufffd")) for row in chunk)
        await self._copy("events", COLUMNS["events"] + ", kid", [self._tables.of_event(row) for row in fit])

    async def _load_runs(self, chunk: Sequence[ExportedRun]) -> None:
        await self._copy("runs", COLUMNS["runs"], [self._runs.of_run(row) for row in chunk])
        run_events = [(row.seq, event) for row in chunk for event in row.events]
        run_events += [(row.seq, row.event) for row in chunk if row.by_hand and row.event is not None]
        await self._copy("run_events", "run, event", run_events)
        await self._copy("journal", "run, n, record", self._runs.steps(chunk))
        await self._copy("slots", "key, run", self._runs.slots(chunk))
        priorities = list({row.priority for row in chunk})
        insert = "INSERT INTO priorities SELECT unnest($1::int[]) ON CONFLICT DO NOTHING"
        await self._connection.execute(insert, priorities)


class PostgresTransfer:
    """A PostgreSQL store to copy from or into. Once `writers` has found none, no other process can use the store."""

    def __init__(self, url: str, clock: Clock | None, key: str) -> None:
        self._url = url
        self._clock = clock
        self._key = key
        self._database = Database(url, clock, key, Settings(), readonly=False)
        self.place = self._database.place
        self._staying = ExclusiveAccess(self.place, self._open_store)

    @classmethod
    def at(cls, url: str, clock: Clock | None = None, *, key: str = "") -> PostgresTransfer:
        """Without a clock the server's counts. Raise Misconfigured for a URL of another kind."""
        return cls(url, clock, key)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await self._database.dedicated_connection()
        try:
            await connection.execute(LONG_TRANSACTION)
            yield connection
        except Exception as error:
            raise translate(error, self.place) from None
        finally:
            await connection.close()

    async def _open_store(self) -> PostgresStore:
        async with self._connection() as connection:
            key = await self._key_of(connection)
            await prepare(connection, key, self.place, readonly=True)
        return PostgresStore.at(self._url, self._clock, key=key, settings=Settings(pool=2))

    async def _key_of(self, connection: Any) -> str:
        """Our key, or an empty one for a store without encryption: then the key is meant for the other store."""
        exists = await connection.fetchval("SELECT to_regclass('seal') IS NOT NULL")
        plain = exists and await connection.fetchval("SELECT wrapped='' FROM seal")
        return "" if plain else self._key

    async def _seal(self, connection: Any) -> tuple[Seal, bytes]:
        """The seal of an existing store, and the key of its names."""
        seal = await prepare(connection, await self._key_of(connection), self.place, readonly=True)
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
                async for chunk in _export(connection, seal, identity):
                    yield chunk

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """One transaction: if interrupted, the database stays empty, so `force` has nothing to wipe."""
        async with self._connection() as connection:
            await prepare(connection, await self._key_of(connection), self.place, readonly=False)
            async with connection.transaction():
                # processes that start wait for this lock, as they do while another changes the schema
                await connection.fetchval("SELECT pg_advisory_xact_lock($1)", SCHEMA_LOCK)
                await connection.execute(f"LOCK TABLE {WRITTEN_TABLES} IN EXCLUSIVE MODE")
                await self._refuse_full(connection)
                arrival = await prepare_import(rows, self._key)
                loader = _Loader(connection, arrival.seal)
                await loader.begin(arrival.beginning, arrival.wrapped)
                async for chunk in arrival.rows:
                    await loader.load(chunk)
                await loader.end()

    async def _refuse_full(self, connection: Any) -> None:
        fix = "Name an empty database, or a schema of its own with ?search_path=NAME"
        refuse_nonempty(self.place, await _counts(connection), fix)

    async def counts(self) -> Counts:
        async with self._connection() as connection:
            return await _counts(connection)

    async def mark(self, words: str, fix: str) -> None:
        await self._staying.mark(words, fix)

    async def close(self) -> None:
        await self._staying.close()


async def _counts(connection: Any) -> Counts:
    return {kind: await connection.fetchval(sql) for kind, sql in COUNTED.items()}
