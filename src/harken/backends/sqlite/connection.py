"""The way into the file: the lock on it, its key, one writer, and readers that never wait for the writer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from harken.backends.encryption import PlainSeal
from harken.backends.sqlite import encryption, opening, upkeep
from harken.backends.sqlite.transaction import Books
from harken.backends.sqlite.writer import Manner, Writer, readable
from harken.clock import Clock
from harken.errors import Misconfigured

__all__ = ["Door"]

T = TypeVar("T")
READ_SECONDS = 10.0


class Door:
    """`inline` runs verbs in the caller's thread, for virtual time. `glance` is for look-ups in the loop's thread."""

    def __init__(self, path: Path, books: Books, writer: Writer | None, clock: Clock, lock: int | None) -> None:
        self.path = path
        self.books = books
        self.writer = writer
        self.inline = writer is None or writer.inline
        self._clock = clock
        self._lock = lock
        self.glance = books if self.inline else self._reader()
        self._readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="harken-read")
        self._idle_readers: list[Books] = []

    @classmethod
    def for_reading(cls, path: Path, clock: Clock, key: str) -> Door:
        """Raise Misconfigured when there is no file, or for a wrong key."""
        if not path.exists():
            raise Misconfigured(f"there is no store at {path}", fix="Start once: harken start")
        seal = opening.existing_seal(path, key, alone=False) or PlainSeal()
        connection = opening.connect(path, readonly=True)
        opening.refuse_old(connection)
        return cls(path, Books(connection, seal, clock), None, clock, None)

    @classmethod
    def for_writing(cls, path: Path, clock: Clock, key: str, *, inline: bool, limit: int) -> Door:
        """Open or create the file. Raise Refused when another process writes it, Misconfigured for a wrong key."""
        lock = opening.lock_file(path)
        try:
            # first of all the key: whoever has the wrong one changes nothing
            known = opening.existing_seal(path, key, alone=True)
            connection = opening.connect(path)
            opening.migrate(connection)
            encryption.wipe(connection)
            books = Books(connection, known or opening.seal_for(connection, key), clock)
        except BaseException:
            os.close(lock)
            raise
        door = cls(path, books, Writer(books, inline=inline, limit=limit), clock, lock)
        upkeep.bury_the_dead(books)
        return door

    @property
    def trouble(self) -> str:
        return self.writer.trouble if self.writer else ""

    @property
    def queued(self) -> int:
        return self.writer.queued if self.writer else 0

    async def write(self, verb: Callable[..., T], *args: Any, manner: Manner = "guarded") -> T:
        """Run the verb in a transaction; return when it is on disk."""
        if self.writer is None:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")
        return await self.writer.do(verb, *args, manner=manner)

    async def read(self, query: Callable[..., T], *args: Any) -> T:
        """Answer a question beside whatever is being written."""
        if self.inline:
            return query(self.books, *args)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._query, query, args)

    def _query(self, query: Callable[..., T], args: tuple[Any, ...]) -> T:
        with readable():
            books = self._idle_readers.pop() if self._idle_readers else self._reader()
        deadline = self._clock.monotonic() + READ_SECONDS
        books.connection.set_progress_handler(lambda: self._clock.monotonic() > deadline, 10_000)
        try:
            books.distrust()
            with readable():
                return query(books, *args)
        except apsw.InterruptError:
            raise Misconfigured(
                f"the query took longer than {READ_SECONDS:.0f} s", fix="Ask for less at a time"
            ) from None
        finally:
            self._idle_readers.append(books)

    def _reader(self) -> Books:
        connection = opening.connect(self.path, readonly=True)
        books = Books(connection, self.books.seal, self._clock, for_reading=True)
        books.priorities = self.books.priorities
        books.short = self.books.short
        return books

    async def close(self) -> None:
        if self.writer is not None and not self.inline:
            await self.writer.stop()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file without ceremony, as a dying process does."""
        self._readers.shutdown(wait=not self.inline)
        for books in (*self._idle_readers, self.glance, self.books):
            books.connection.close(True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
