"""Copies the file into another store, or fills it from one: reads a snapshot, writes in one transaction."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from harken.backends.codec import decode_feed
from harken.backends.copy_encryption_and_exclusive_access import prepare_import, refuse_nonempty
from harken.backends.encryption import PlainSeal, unwrap
from harken.backends.sqlite.connection import (
    WRAPPED_KEYS,
    connect,
    existing_seal,
    lock_file,
    migrate,
    refuse_other_schema,
)
from harken.backends.sqlite.leases import GIVEN_UP
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.table_export import COLUMNS, COPIED_DOCUMENTS, COUNTED, HAS_SLOT, Row, TableRuns, Tables
from harken.backends.verdicts import decode_verdicts
from harken.clock import Clock, SystemClock
from harken.errors import Misconfigured, Refused
from harken.store.document_kinds import COUNTER, IDS, KEYS, SEAL, THIS_STORE, TRANSFER
from harken.store.transfer_protocol_and_exclusive_access import Counts, chunks
from harken.store.transfer_rows import (
    Chunk,
    ExportedEvent,
    ExportedFeed,
    ExportedRow,
    ExportedRun,
    ExportedTrigger,
    ExportHeader,
)

__all__ = ["SqliteTransfer"]


class SqliteTransfer:
    """Once `writers` found none, it holds the file's lock until `close`."""

    def __init__(self, path: Path, clock: Clock, key: str) -> None:
        self.place = str(path)
        self._path = path
        self._clock = clock
        self._key = key
        self._lock: int | None = None

    @classmethod
    def at(cls, path: str | Path, clock: Clock | None = None, *, key: str = "") -> SqliteTransfer:
        return cls(Path(path), clock or SystemClock(), key)

    async def writers(self) -> Sequence[str]:
        self._refuse_missing()
        try:
            self._lock_file()
        except Refused:
            return ["another Harken process writes it"]
        self._refuse_marked()
        return []

    def _refuse_marked(self) -> None:
        tx, _ = self._reader()
        try:
            sealed = tx.value("SELECT value FROM documents WHERE kind=? AND name=?", (TRANSFER, THIS_STORE))
            if sealed is not None:
                found = tx.json(sealed)
                raise Refused(found["words"], fix=found["fix"])
        finally:
            tx.connection.close(True)

    def _refuse_missing(self) -> None:
        if not self._path.exists():
            raise Misconfigured(f"there is no store at {self._path}", fix="Name the file of a store")

    def _lock_file(self) -> None:
        if self._lock is None:
            self._lock = lock_file(self._path)

    async def stay(self) -> None:
        """Do nothing: the lock is held until `close`."""

    def _reader(self) -> tuple[Transaction, bytes]:
        """A transaction on the file as it is, and its identity key (empty if not encrypted)."""
        self._refuse_missing()
        seal = existing_seal(self._path, self._key, alone=False)
        connection = connect(self._path, readonly=True)
        refuse_other_schema(connection)
        tx = Transaction(connection, seal or PlainSeal(), self._clock, for_reading=True)
        return tx, unwrap(self._key, bytes(tx.value(WRAPPED_KEYS)).decode())[1] if seal else b""

    async def rows(self) -> AsyncIterator[Chunk]:
        tx, identity = self._reader()
        try:
            tx.execute("BEGIN")
            for chunk in _export(tx, identity):
                yield chunk
        finally:
            tx.connection.close(True)

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """Load in one transaction: an interrupted copy leaves the file empty, so `force` has nothing to wipe."""
        self._lock_file()
        existing_seal(self._path, self._key, alone=True)
        connection = connect(self._path)
        try:
            migrate(connection)
            arrival = await prepare_import(rows, self._key)
            tx = Transaction(connection, arrival.seal, self._clock, for_reading=True)
            refuse_nonempty(self.place, _counts(tx), "Name a file that is not there")
            connection.execute("BEGIN IMMEDIATE")
            loader = _Loader(tx)
            loader.begin(arrival.beginning, arrival.wrapped)
            async for chunk in arrival.rows:
                loader.load(chunk)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            # rolls back what was not committed
            connection.close(True)

    async def counts(self) -> Counts:
        tx, _ = self._reader()
        try:
            return _counts(tx)
        finally:
            tx.connection.close(True)

    async def mark(self, words: str, fix: str) -> None:
        self._lock_file()
        reader, _ = self._reader()
        reader.connection.close(True)
        connection = connect(self._path)
        try:
            tx = Transaction(connection, reader.seal, self._clock, for_reading=True)
            if words:
                value = tx.seal.shut(msgspec.json.encode({"words": words, "fix": fix, "holder": ""}))
                row = (TRANSFER, THIS_STORE, value, 1, tx.now())
                tx.execute("INSERT OR REPLACE INTO documents VALUES (?,?,?,?,?)", row)
            else:
                tx.execute("DELETE FROM documents WHERE kind=? AND name=?", (TRANSFER, THIS_STORE))
        finally:
            connection.close(True)

    async def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _counts(tx: Transaction) -> Counts:
    return {kind: tx.value(sql) for kind, sql in COUNTED.items()}


def _export(tx: Transaction, identity: bytes) -> Iterator[list[ExportedRow]]:
    """All rows in chunks; the caller has begun a transaction."""
    yield [_header(tx, identity)]
    tables = Tables(tx.seal, dict(tx.execute("SELECT id, name FROM feeds")))

    def rows(table: str, order: str, where: str = "1") -> Iterator[Row]:
        yield from tx.execute(f"SELECT {COLUMNS[table]} FROM {table} WHERE {where} ORDER BY {order}")

    for kind in (
        map(tables.feed, rows("feeds", "id")),
        _triggers(tx, tables),
        map(tables.document, rows("documents", "kind, name", COPIED_DOCUMENTS)),
        map(tables.event, rows("events", "id")),
        map(tables.memory, rows("memory", "feed, mid")),
        _runs(tx),
        map(tables.tick, rows("ticks", "id")),
        map(tables.letter, rows("buried", "id")),
        map(tables.audit, rows("audit", "id")),
    ):
        yield from chunks(kind)


def _header(tx: Transaction, identity: bytes) -> ExportHeader:
    counted = tx.json(tx.value("SELECT value FROM documents WHERE kind=? AND name=?", (COUNTER, IDS))) or [1, 1]
    generation = tx.row("SELECT epoch, name, since FROM generation")
    assert generation is not None, "the first migration inserts it"
    return ExportHeader(
        identity=identity,
        next_event=max(counted[0], 1 + (tx.value("SELECT max(id) FROM events") or 0)),
        next_run=max(counted[1], 1 + (tx.value("SELECT max(seq) FROM runs") or 0)),
        epoch=generation[0],
        generation=generation[1],
        since=generation[2],
        tokens=tuple(tx.execute("SELECT shard, token FROM leases ORDER BY shard")),
    )


def _triggers(tx: Transaction, tables: Tables) -> Iterator[ExportedTrigger]:
    for *row, id in tx.execute(f"SELECT {COLUMNS['triggers']}, id FROM triggers ORDER BY id"):
        spent = tx.execute("SELECT what, since, amount FROM spent WHERE trigger=? ORDER BY what", (id,))
        marks = tx.execute("SELECT key, until, run, times FROM marks WHERE trigger=? ORDER BY key", (id,))
        yield tables.trigger(row, spent.fetchall(), marks.fetchall())


def _runs(tx: Transaction) -> Iterator[ExportedRun]:
    table = TableRuns(tx.seal, {0: "", **dict(tx.execute("SELECT id, uid FROM triggers"))})
    # the runs of one event follow each other, and may be a thousand
    decided = lru_cache(maxsize=16)(partial(_decided_runs, tx))
    for *row, has_slot in tx.execute(f"SELECT {COLUMNS['runs']}, {HAS_SLOT} FROM runs ORDER BY seq"):
        events = _column(tx, "SELECT event FROM run_events WHERE run=? ORDER BY event", row[0])
        journal = _column(tx, "SELECT record FROM journal WHERE run=? ORDER BY n", row[0])
        by_hand = _is_by_hand(row, events, decided)
        yield table.run(row, events, journal, by_hand=by_hand, has_slot=bool(has_slot))


def _column(tx: Transaction, sql: str, run: int) -> list[Any]:
    return [found for (found,) in tx.execute(sql, (run,))]


def _is_by_hand(row: Row, events: Sequence[int], decided: Callable[[int], frozenset[str] | None]) -> bool:
    """Whether a person or a step started the run: the verdicts of its events do not name it."""
    run_id, event, gather = row[1], row[10], row[15]
    if event is None:
        return bool(events) and gather is None
    runs = decided(event)
    return runs is not None and run_id.hex() not in runs


def _decided_runs(tx: Transaction, event: int) -> frozenset[str] | None:
    """The runs that the verdicts of an event name; None if the event was deleted."""
    sealed = tx.value("SELECT verdicts FROM events WHERE id=?", (event,))
    return None if sealed is None else frozenset(verdict.run_id for verdict in decode_verdicts(tx.seal.open(sealed)))


class _Loader:
    """Inserts exported rows; the caller has begun a transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._tables = Tables(tx.seal, {})
        self._runs = TableRuns(tx.seal, {"": 0})
        self._kinds: dict[type, Callable[[Any], None]] = {
            ExportedFeed: self._load_feeds,
            ExportedTrigger: self._load_triggers,
            ExportedRun: self._load_runs,
            ExportedEvent: self._load_events,
        }
        self._plain = self._tables.plain()

    def begin(self, header: ExportHeader, wrapped: str) -> None:
        tx = self._tx
        tx.execute("DELETE FROM documents WHERE kind=?", (SEAL,))
        if wrapped:
            self._insert("documents", COLUMNS["documents"], [(SEAL, KEYS, wrapped.encode(), 1, 0)])
        counted = tx.shut_json([header.next_event, header.next_run])
        self._insert("documents", COLUMNS["documents"], [(COUNTER, IDS, counted, 1, 0)])
        named = (header.epoch, header.generation, header.since)
        tx.execute("UPDATE generation SET epoch=?, name=?, since=?", named)
        ended = [(shard, "", token, GIVEN_UP) for shard, token in header.tokens]
        self._insert("leases", "shard, holder, token, until", ended)

    def load(self, chunk: Chunk) -> None:
        kind = type(chunk[0])
        if kind in self._plain:
            table, of_row = self._plain[kind]
            self._insert(table, COLUMNS[table], [of_row(row) for row in chunk])
        else:
            self._kinds[kind](chunk)

    def _insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        marks = ",".join("?" * len(columns.split(",")))
        self._tx.connection.executemany(f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})", rows)

    def _load_events(self, chunk: Sequence[ExportedEvent]) -> None:
        self._insert("events", COLUMNS["events"] + ", kid", [self._tables.of_event(row) for row in chunk])

    def _load_feeds(self, chunk: Sequence[ExportedFeed]) -> None:
        definitions = [decode_feed(row.definition) for row in chunk]
        rows = [
            (*self._tables.of_feed(row), definition.shard, definition.way != "poll")
            for row, definition in zip(chunk, definitions, strict=True)
        ]
        self._insert("feeds", COLUMNS["feeds"] + ", shard, pushed", rows)
        self._tables.feeds.update(self._tx.execute("SELECT name, id FROM feeds"))

    def _load_triggers(self, chunk: Sequence[ExportedTrigger]) -> None:
        self._insert("triggers", COLUMNS["triggers"], [self._tables.of_trigger(row, unpaused="") for row in chunk])
        ids = self._runs.triggers
        ids.update(self._tx.execute("SELECT uid, id FROM triggers"))
        spent = [(ids[row.uid], one.what, one.since, one.amount) for row in chunk for one in row.spent]
        self._insert("spent", "trigger, what, since, amount", spent)
        self._insert("marks", "trigger, key, until, run, times", self._tables.marks(chunk, ids))
        self._insert("trigger_feeds", "trigger, feed, backfilling", self._tables.listening(chunk, ids))

    def _load_runs(self, chunk: Sequence[ExportedRun]) -> None:
        self._insert("runs", COLUMNS["runs"], [self._runs.of_run(row) for row in chunk])
        self._insert("run_events", "run, event", [(row.seq, event) for row in chunk for event in row.events])
        self._insert("journal", "run, n, record", self._runs.steps(chunk))
        self._insert("slots", "key, run", self._runs.slots(chunk))
