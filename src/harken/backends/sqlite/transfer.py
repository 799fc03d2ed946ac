"""Copying the file to another home, or filling it from one: a snapshot to read, one transaction to write."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from harken.backends.encryption import PlainSeal, unwrap
from harken.backends.sqlite.moving_rows import Taking, all_rows
from harken.backends.sqlite.opening import KEYS, connect, existing_seal, lock_file, migrate, refuse_old
from harken.backends.sqlite.transaction import Books
from harken.backends.table_export import COUNTED
from harken.backends.transfer import arrive, refuse_full
from harken.clock import Clock, SystemClock
from harken.errors import Misconfigured, Refused
from harken.store.export_rows import Chunk
from harken.store.transfer import HERE, MARK, Counts

__all__ = ["SqliteMoving"]


class SqliteMoving:
    """Nobody else can open the file for writing once `writers` found nobody."""

    def __init__(self, path: Path, clock: Clock, key: str) -> None:
        self.place = str(path)
        self._path = path
        self._clock = clock
        self._key = key
        self._lock: int | None = None

    @classmethod
    def at(cls, path: str | Path, clock: Clock | None = None, *, key: str = "") -> SqliteMoving:
        return cls(Path(path), clock or SystemClock(), key)

    async def writers(self) -> Sequence[str]:
        self._refuse_missing()
        try:
            self._alone()
        except Refused:
            return ["another Harken process writes it"]
        self._refuse_marked()
        return []

    def _refuse_marked(self) -> None:
        books, _ = self._reader()
        try:
            sealed = books.value("SELECT value FROM documents WHERE kind=? AND name=?", (MARK, HERE))
            if sealed is not None:
                found = books.json(sealed)
                raise Refused(found["words"], fix=found["fix"])
        finally:
            books.connection.close(True)

    def _refuse_missing(self) -> None:
        if not self._path.exists():
            raise Misconfigured(f"there is no store at {self._path}", fix="Name the file of a store")

    def _alone(self) -> None:
        if self._lock is None:
            self._lock = lock_file(self._path)

    async def stay(self) -> None:
        """The lock is ours for as long as we live."""

    def _reader(self) -> tuple[Books, bytes]:
        """The file as it is, and the key of its names."""
        self._refuse_missing()
        seal = existing_seal(self._path, self._key, alone=False)
        connection = connect(self._path, readonly=True)
        refuse_old(connection)
        books = Books(connection, seal or PlainSeal(), self._clock, for_reading=True)
        return books, unwrap(self._key, bytes(books.value(KEYS)).decode())[1] if seal else b""

    async def rows(self) -> AsyncIterator[Chunk]:
        books, identity = self._reader()
        try:
            books.execute("BEGIN")
            for chunk in all_rows(books, identity):
                yield chunk
        finally:
            books.connection.close(True)

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """One transaction: interrupted, it leaves the file as empty as it was, so there is nothing to force."""
        self._alone()
        existing_seal(self._path, self._key, alone=True)
        connection = connect(self._path)
        try:
            migrate(connection)
            arrival = await arrive(rows, self._key)
            books = Books(connection, arrival.seal, self._clock, for_reading=True)
            refuse_full(self.place, _counts(books), "Name a file that is not there")
            connection.execute("BEGIN IMMEDIATE")
            taking = Taking(books)
            taking.begin(arrival.beginning, arrival.wrapped)
            async for chunk in arrival.rows:
                taking.take(chunk)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            # what was not committed is undone by this
            connection.close(True)

    async def counts(self) -> Counts:
        books, _ = self._reader()
        try:
            return _counts(books)
        finally:
            books.connection.close(True)

    async def mark(self, words: str, fix: str) -> None:
        self._alone()
        reader, _ = self._reader()
        reader.connection.close(True)
        connection = connect(self._path)
        try:
            books = Books(connection, reader.seal, self._clock, for_reading=True)
            if words:
                value = books.seal.shut(msgspec.json.encode({"words": words, "fix": fix, "holder": ""}))
                row = (MARK, HERE, value, 1, books.now())
                books.execute("INSERT OR REPLACE INTO documents VALUES (?,?,?,?,?)", row)
            else:
                books.execute("DELETE FROM documents WHERE kind=? AND name=?", (MARK, HERE))
        finally:
            connection.close(True)

    async def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _counts(books: Books) -> Counts:
    return {kind: books.value(sql) for kind, sql in COUNTED.items()}
