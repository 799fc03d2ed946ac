"""Copying the database to another home, or filling it from one: a snapshot to read, one transaction to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from harken.backends.codec import decode_feed
from harken.backends.encryption import Seal, unwrap
from harken.backends.postgres import PostgresStore
from harken.backends.postgres.connection import LOCK, Database, Settings, prepare
from harken.backends.postgres.errors import translate
from harken.backends.postgres.leases import GIVEN_UP
from harken.backends.table_export import COLUMNS, COUNTED, HAS_SLOT, MOVED_DOCUMENTS, Row, TableRuns, Tables
from harken.backends.transfer import Staying, arrive, refuse_full
from harken.clock import Clock
from harken.store.export_rows import (
    Chunk,
    ExportedEvent,
    ExportedFeed,
    ExportedRun,
    ExportedTrigger,
    ExportHeader,
    Moved,
)
from harken.store.transfer import Counts, chunks_of

__all__ = ["Loader", "PostgresTransfer", "all_rows"]


T = TypeVar("T")

AT_ONCE = 50

"""Rows that the server sends at a time: any of them may be large."""

TALLIED = "SELECT trigger, sum(fired)::bigint, sum(done)::bigint, max(fired_at) FROM tallies GROUP BY trigger"


async def all_rows(connection: Any, seal: Seal, identity: bytes) -> AsyncIterator[Chunk]:
    """Chunk by chunk; the caller has begun the transaction that sees one moment."""
    yield [await _beginning(connection, identity)]
    tables = Tables(seal, await _pairs(connection, "SELECT id, name FROM feeds"))

    async def kind(of_row: Callable[[Row], Moved], table: str, order: str, where: str = "true") -> AsyncIterator[Moved]:
        sql = f"SELECT {COLUMNS[table]} FROM {table} WHERE {where} ORDER BY {order}"
        async for row in connection.cursor(sql, prefetch=AT_ONCE):
            yield of_row(row)

    for rows in (
        kind(tables.feed, "feeds", "id"),
        _triggers(connection, tables),
        kind(tables.document, "documents", "kind, name", MOVED_DOCUMENTS),
        kind(tables.event, "events", "id"),
        kind(tables.memory, "memory", "feed, mid"),
        _runs(connection, seal),
        kind(tables.tick, "ticks", "id"),
        kind(tables.letter, "buried", "id"),
        kind(tables.audit, "audit", "id"),
    ):
        async for chunk in chunks_of(rows):
            yield chunk


async def _pairs(connection: Any, sql: str) -> dict[Any, Any]:
    return {row[0]: row[1] for row in await connection.fetch(sql)}


async def _beginning(connection: Any, identity: bytes) -> ExportHeader:
    generation = await connection.fetchrow("SELECT epoch, name, since FROM generation")
    leases = await connection.fetch("SELECT shard, token FROM leases ORDER BY shard")
    return ExportHeader(
        identity=identity,
        next_event=await _following(connection, "event_ids"),
        next_run=await _following(connection, "run_seqs"),
        epoch=generation[0],
        generation=generation[1],
        since=generation[2],
        tokens=tuple((row[0], row[1]) for row in leases),
    )


async def _following(connection: Any, sequence: str) -> int:
    last, called = await connection.fetchrow(f"SELECT last_value, is_called FROM {sequence}")
    return int(last) + 1 if called else int(last)


async def _triggers(connection: Any, tables: Tables) -> AsyncIterator[ExportedTrigger]:
    tallied = {row[0]: row[1:] for row in await connection.fetch(TALLIED)}
    async for *row, id in connection.cursor(f"SELECT {COLUMNS['triggers']}, id FROM triggers ORDER BY id"):
        spent = await connection.fetch("SELECT what, since, amount FROM spent WHERE trigger=$1 ORDER BY what", id)
        found = tables.trigger(row, spent)
        fired, done, at = tallied.get(id, (0, 0, None))
        last = max(filter(None, (found.last_fired_at, at)), default=None)
        yield msgspec.structs.replace(found, fired=found.fired + fired, done=found.done + done, last_fired_at=last)


async def _runs(connection: Any, seal: Seal) -> AsyncIterator[ExportedRun]:
    table = TableRuns(seal, {0: "", **await _pairs(connection, "SELECT id, uid FROM triggers")})
    cursor = await connection.cursor(f"SELECT {COLUMNS['runs']}, {HAS_SLOT} FROM runs ORDER BY seq")
    while rows := await cursor.fetch(AT_ONCE):
        seqs = [row[0] for row in rows]
        events = await _grouped(connection, "SELECT run, event FROM run_events WHERE run=ANY($1) ORDER BY event", seqs)
        steps = await _grouped(connection, "SELECT run, record FROM journal WHERE run=ANY($1) ORDER BY run, n", seqs)
        for *row, has_slot in rows:
            named, event, gather = events.get(row[0], []), row[10], row[15]
            # an event that started its run by a verdict is not noted beside it
            by_hand = bool(named) and gather is None
            several = named if event is None else []
            yield table.run(row, several, steps.get(row[0], []), by_hand=by_hand, has_slot=has_slot)


async def _grouped(connection: Any, sql: str, runs: Sequence[int]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for run, value in await connection.fetch(sql, runs):
        found.setdefault(run, []).append(value)
    return found


class Loader:
    """Writes chunk after chunk in the transaction that its caller has begun."""

    def __init__(self, connection: Any, seal: Seal) -> None:
        self._connection = connection
        self._tables = Tables(seal, {})
        self._runs = TableRuns(seal, {"": 0})
        self._kinds: dict[type, Callable[[Any], Awaitable[None]]] = {
            ExportedFeed: self._take_feeds,
            ExportedTrigger: self._take_triggers,
            ExportedRun: self._take_runs,
            ExportedEvent: self._take_events,
        }
        self._plain = self._tables.plain()

    async def begin(self, beginning: ExportHeader, wrapped: str) -> None:
        do = self._connection.execute
        await do("UPDATE seal SET wrapped=$1", wrapped)
        generation = (beginning.epoch, beginning.generation, beginning.since)
        await do("UPDATE generation SET epoch=$1, name=$2, since=$3", *generation)
        await do("DELETE FROM leases")
        ended = [(shard, "", token, GIVEN_UP) for shard, token in beginning.tokens]
        await self._copy("leases", "shard, holder, token, until", ended)
        following = {
            "event_ids": beginning.next_event,
            "run_seqs": beginning.next_run,
            "lease_tokens": 1 + max((token for _, token in beginning.tokens), default=0),
        }
        for sequence, value in following.items():
            await do("SELECT setval($1::text::regclass, $2, false)", sequence, value)

    async def take(self, chunk: Chunk) -> None:
        kind = type(chunk[0])
        if kind in self._plain:
            table, of_row = self._plain[kind]
            await self._copy(table, COLUMNS[table], [of_row(row) for row in chunk])
        else:
            await self._kinds[kind](chunk)

    async def end(self) -> None:
        """The numbers of dead letters go on after the highest."""
        await self._connection.execute(
            "SELECT setval(pg_get_serial_sequence('buried', 'id'), 1 + coalesce(max(id), 0), false) FROM buried"
        )

    async def _copy(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        names = [name.strip() for name in columns.split(",")]
        await self._connection.copy_records_to_table(table, records=rows, columns=names)

    async def _take_feeds(self, chunk: Sequence[ExportedFeed]) -> None:
        rows = []
        for row in chunk:
            definition = decode_feed(row.definition)
            known = (definition.shard, definition.way != "poll", definition.identity)
            rows.append((*self._tables.of_feed(row), *known))
        await self._copy("feeds", COLUMNS["feeds"] + ", shard, pushed, identity", rows)
        self._tables.feeds.update(await _pairs(self._connection, "SELECT name, id FROM feeds"))

    async def _take_triggers(self, chunk: Sequence[ExportedTrigger]) -> None:
        rows = [self._tables.of_trigger(row, unpaused=b"") for row in chunk]
        await self._copy("triggers", COLUMNS["triggers"], rows)
        ids = self._runs.triggers
        ids.update(await _pairs(self._connection, "SELECT uid, id FROM triggers"))
        spent = [(ids[row.uid], one.what, one.since, float(one.amount)) for row in chunk for one in row.spent]
        await self._copy("spent", "trigger, what, since, amount", spent)

    async def _take_events(self, chunk: Sequence[ExportedEvent]) -> None:
        # a text cannot have a NUL here, and elsewhere a type may
        fit = (msgspec.structs.replace(row, type=row.type.replace("\0", "\ufffd")) for row in chunk)
        await self._copy("events", COLUMNS["events"] + ", kid", [self._tables.of_event(row) for row in fit])

    async def _take_runs(self, chunk: Sequence[ExportedRun]) -> None:
        await self._copy("runs", COLUMNS["runs"], [self._runs.of_run(row) for row in chunk])
        named = [(row.seq, event) for row in chunk for event in row.events]
        named += [(row.seq, row.event) for row in chunk if row.by_hand and row.event is not None]
        await self._copy("run_events", "run, event", named)
        await self._copy("journal", "run, n, record", self._runs.steps(chunk))
        await self._copy("slots", "key, run", self._runs.slots(chunk))
        priorities = list({row.priority for row in chunk})
        known = "INSERT INTO priorities SELECT unnest($1::int[]) ON CONFLICT DO NOTHING"
        await self._connection.execute(known, priorities)


PATIENT = """SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET enable_seqscan = on; SET enable_hashjoin = on; SET plan_cache_mode = auto"""

"""A copy reads and writes whole tables, and takes its time."""

WRITTEN = "feeds, triggers, documents, events, memory, runs, leases, audit, buried"


class PostgresTransfer:
    """Nobody else uses the store once `writers` found nobody: its leases are ours then."""

    def __init__(self, url: str, clock: Clock | None, key: str) -> None:
        self._url = url
        self._clock = clock
        self._key = key
        self._database = Database(url, clock, key, Settings(), readonly=False)
        self.place = self._database.where
        self._staying = Staying(self.place, self._opened)

    @classmethod
    def at(cls, url: str, clock: Clock | None = None, *, key: str = "") -> PostgresTransfer:
        """Without a clock the server's counts. Raise Misconfigured for a URL that is none."""
        return cls(url, clock, key)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await self._database.connection_of_its_own()
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
        await prepare(connection, key := await self._fitting(connection), self.place, readonly=True)
        return key

    async def _fitting(self, connection: Any) -> str:
        begun = await connection.fetchval("SELECT to_regclass('seal') IS NOT NULL")
        plain = begun and await connection.fetchval("SELECT wrapped='' FROM seal")
        return "" if plain else self._key

    async def _seal(self, connection: Any) -> tuple[Seal, bytes]:
        """The seal of a store that is there, and the key of its names."""
        seal = await prepare(connection, await self._fitting(connection), self.place, readonly=True)
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
            await prepare(connection, await self._fitting(connection), self.place, readonly=False)
            async with connection.transaction():
                # whoever starts waits for this, as for somebody who changes the schema
                await connection.fetchval("SELECT pg_advisory_xact_lock($1)", LOCK)
                await connection.execute(f"LOCK TABLE {WRITTEN} IN EXCLUSIVE MODE")
                await self._refuse_full(connection)
                arrival = await arrive(rows, self._key)
                taking = Loader(connection, arrival.seal)
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
