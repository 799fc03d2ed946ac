"""The store in one file: SQLite with one writer thread, WAL, synchronous=FULL and group commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Self

from harken.backends.notify import nothing
from harken.backends.sqlite.connection import Database, rekey
from harken.backends.sqlite.documents_and_audit import SqliteRegistry
from harken.backends.sqlite.errors import opening
from harken.backends.sqlite.feed_memory_and_failures import SqliteFeeds
from harken.backends.sqlite.last_event_ids_by_outcome import SqliteBank
from harken.backends.sqlite.record_queries import SqliteRecords
from harken.backends.sqlite.runs import SqliteRuns
from harken.backends.sqlite.subject_index import SqliteObjects
from harken.backends.sqlite.unused_page_release import compact
from harken.backends.sqlite.upkeep import SqliteUpkeep, release_orphans
from harken.clock import Clock, SystemClock

__all__ = ["SqliteStore"]


class SqliteStore(SqliteFeeds, SqliteRuns, SqliteRegistry, SqliteRecords, SqliteObjects, SqliteBank, SqliteUpkeep):
    """A store in one file, which one process writes."""

    shared: ClassVar[bool] = False

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.path = database.path

    @classmethod
    def at(
        cls,
        path: str | Path,
        clock: Clock | None = None,
        *,
        inline: bool = False,
        readonly: bool = False,
        key: str = "",
        limit: int = 10_000,
        new: bool = False,
    ) -> Self:
        """Open or create the file. `inline` runs each transaction in the caller's thread, for virtual time.

        `limit`: how many writes may wait. `new`: make a new store, also where an earlier one left something. Raise
        Refused when another process writes the file or an earlier store is gone, Misconfigured for a wrong key,
        StoreUnavailable for a file that is damaged, read-only or on a full disk.
        """
        file, clock = _file(path), clock or SystemClock()
        with opening(file):
            if readonly:
                return cls(Database.for_reading(file, clock, key))
            database = Database.for_writing(file, clock, key, inline=inline, limit=limit, new=new)
            try:
                release_orphans(database.tx)
            except BaseException:
                database.abandon()
                raise
            return cls(database)

    @classmethod
    def in_memory(cls, clock: Clock, image: bytes = b"") -> Self:
        """A store without a file, for virtual time: new, or with everything that `image` returned."""
        database = Database.in_memory(clock, image)
        release_orphans(database.tx)
        return cls(database)

    def image(self) -> bytes:
        """What has been committed to a store in memory; another one can be opened from it."""
        return self._database.tx.connection.serialize("main")

    @staticmethod
    async def rekey(path: str | Path, old: str, new: str) -> None:
        with opening(_file(path)):
            rekey(_file(path), old, new)

    @staticmethod
    def compact(path: str | Path) -> tuple[int, int]:
        """Write the file anew without unused pages. Return its size before and after."""
        with opening(_file(path)):
            return compact(_file(path))

    async def connect(self) -> Sequence[str]:
        return ()

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object] = nothing) -> None:
        """Do nothing: no other process writes the file."""

    @property
    def queued(self) -> int:
        return self._database.queued

    def abandon(self) -> None:
        """Release the file without finishing queued writes, as a process that is killed does."""
        self._database.abandon()


def _file(location: str | Path) -> Path:
    return Path(str(location).removeprefix("sqlite://"))
