"""The store in one file: SQLite with one writer thread, WAL, synchronous=FULL and group commit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw

from harken.clock import Clock
from harken.errors import Misconfigured, Refused
from harken.event import Event, Known, Recorded
from harken.feed import FeedState, TickSpan, TriggerState
from harken.runs import Claimed, Park, Run, StepRecord
from harken.store import (
    Commit,
    Committed,
    Definitions,
    Document,
    Failure,
    Generation,
    Held,
    Lease,
    Listeners,
    NewRun,
    Opened,
    Page,
    Rest,
    Settlement,
    Stale,
)
from harken.stores.seal import PlainSeal
from harken.stores.sqlite import (
    commit,
    definitions,
    documents,
    encrypt,
    feeds,
    leasing,
    opening,
    orders,
    records,
    runs,
    standing,
    steering,
    upkeep,
)
from harken.stores.sqlite.books import Books
from harken.stores.sqlite.writer import Manner, Writer, readable

__all__ = ["SqliteStore"]

T = TypeVar("T")
READ_SECONDS = 10.0
RECALL_INLINE = 256


class SqliteStore:
    """All five protocols on one file. `inline` runs verbs in the caller's thread, for virtual time."""

    def __init__(self, path: Path, books: Books, writer: Writer | None, clock: Clock, lock: int | None) -> None:
        self.path = path
        self._clock = clock
        self._lock = lock
        self._books = books
        self._writer = writer
        self._inline = writer is None or writer.inline
        self._glance = self._reader()
        self._readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="harken-read")
        self._idle_readers: list[Books] = []

    @classmethod
    def at(
        cls,
        path: str | Path,
        clock: Clock,
        *,
        inline: bool = False,
        readonly: bool = False,
        key: str = "",
        limit: int = 10_000,
    ) -> SqliteStore:
        """Open or create the file. Raise Refused when another process writes it, Misconfigured for a wrong key."""
        path = Path(path)
        if readonly:
            if not path.exists():
                raise Misconfigured(f"there is no store at {path}", fix="Start once: harken start")
            seal = opening.existing_seal(path, key, alone=False) or PlainSeal()
            connection = opening.connect(path, readonly=True)
            opening.refuse_old(connection)
            return cls(path, Books(connection, seal, clock), None, clock, None)
        lock = opening.lock(path)
        try:
            # first of all the key: whoever has the wrong one changes nothing
            known = opening.existing_seal(path, key, alone=True)
            connection = opening.connect(path)
            opening.migrate(connection)
            encrypt.wipe(connection)
            books = Books(connection, known or opening.seal_for(connection, key), clock)
        except BaseException:
            os.close(lock)
            raise
        store = cls(path, books, Writer(books, inline=inline, limit=limit), clock, lock)
        upkeep.bury_the_dead(books)
        return store

    @property
    def trouble(self) -> str:
        return self._writer.trouble if self._writer else ""

    @property
    def queued(self) -> int:
        return self._writer.queued if self._writer else 0

    async def close(self) -> None:
        if self._writer is not None and not self._inline:
            await self._writer.stop()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file without ceremony, as a dying process does."""
        self._readers.shutdown(wait=not self._inline)
        for books in (*self._idle_readers, self._glance, self._books):
            books.connection.close(True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _reader(self) -> Books:
        connection = opening.connect(self.path, readonly=True)
        books = Books(connection, self._books.seal, self._clock, for_reading=True)
        books.priorities = self._books.priorities
        books.short = self._books.short
        return books

    async def _write(self, verb: Callable[..., T], *args: Any, manner: Manner = "guarded") -> T:
        if self._writer is None:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")
        return await self._writer.do(verb, *args, manner=manner)

    async def _read(self, query: Callable[..., T], *args: Any) -> T:
        if self._inline:
            return query(self._books, *args)
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

    async def open(self, wanted: Definitions) -> Opened:
        return await self._write(definitions.open_all, wanted)

    async def state(self, feed: str) -> FeedState:
        return await self._read(standing.state, feed)

    async def listeners(self, feed: str) -> Listeners:
        return await self._read(standing.listeners, feed)

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        return await self._write(leasing.lease, shard, holder, seconds, generation)

    async def give_up(self, lease: Lease, holder: str) -> None:
        await self._write(leasing.give_up, lease, holder)

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        if not memory_ids:
            return {}
        if self._inline:
            return feeds.recall(self._books, feed, memory_ids)
        if len(memory_ids) <= RECALL_INLINE:
            # a few look-ups in a warm cache cost less than changing threads
            return feeds.recall(self._glance, feed, memory_ids)
        return await self._read(feeds.recall, feed, memory_ids)

    async def commit(self, wanted: Commit) -> Committed | Stale:
        return await self._write(commit.commit, wanted, manner="frugal" if len(wanted.entries) <= 1 else "guarded")

    async def fail(self, failure: Failure) -> None:
        await self._write(feeds.fail, failure)

    async def rest(self, rests: Sequence[Rest]) -> Sequence[str]:
        return await self._write(feeds.rest, rests)

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
        return await self._write(feeds.forget, feed, token, listed, before)

    async def bury(self, feed: str, event: Event, reason: str) -> None:
        await self._write(feeds.bury, feed, event, reason)

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        return await self._write(steering.pause, trigger, reason)

    async def resume(self, trigger: str) -> TriggerState:
        return await self._write(steering.resume, trigger)

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        return await self._write(steering.reset, trigger, cursor)

    async def wake(self, feed: str) -> FeedState:
        return await self._write(steering.wake, feed)

    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        return await self._write(runs.claim, holder, limit, seconds)

    async def next_due(self) -> datetime | None:
        return runs.next_due(self._books if self._inline else self._glance)

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        return await self._write(runs.journal, run_id, token, records, caused, start)

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        return await self._write(runs.extend, claims, seconds)

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        await self._write(runs.park, run_id, token, park, record)

    async def answer(self, run_id: str, answer: Any) -> bool:
        return await self._write(orders.answer, run_id, answer)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        return await self._write(runs.settle, settlements, manner="frugal")

    async def start(self, run: NewRun) -> str:
        return await self._write(orders.start, run)

    async def cancel(self, run_id: str) -> bool:
        return await self._write(orders.cancel, run_id)

    async def retry(self, run_id: str, *, workflow_rev: str = "") -> bool:
        return await self._write(orders.retry, run_id, workflow_rev)

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        return await self._write(orders.release, trigger, drop, hold)

    async def drop_dead(self, run_id: str) -> bool:
        return await self._write(orders.drop_dead, run_id)

    async def get(self, kind: str, name: str) -> Document | None:
        return await self._read(records.get, kind, name)

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        return await self._write(documents.put, kind, name, value, expect)

    async def delete(self, kind: str, name: str) -> bool:
        return await self._write(documents.delete, kind, name)

    async def documents(self, kind: str) -> Sequence[Document]:
        return await self._read(records.documents, kind)

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        await self._write(documents.audit, who, did, what, detail)

    async def events(
        self,
        *,
        feed: str = "",
        key: str = "",
        trigger: str = "",
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page:
        return await self._read(records.events, feed, key, trigger, since, before, limit)

    async def events_after(self, after: int, limit: int = 200) -> Sequence[Recorded]:
        return await self._read(records.events_after, after, limit)

    async def event(self, event_id: int) -> Recorded | None:
        return await self._read(records.event, event_id)

    async def sighting(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        return await self._read(records.sighting, feed, memory_id)

    async def runs(
        self,
        *,
        trigger: str = "",
        status: str = "",
        workflow: str = "",
        event_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page:
        return await self._read(records.runs, trigger, status, workflow, event_id, before, limit)

    async def run(self, run_id: str) -> Run | None:
        return await self._read(records.run, run_id)

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await self._read(records.dead, before, limit)

    async def feeds(self) -> Sequence[FeedState]:
        return await self._read(standing.feed_states)

    async def triggers(self) -> Sequence[TriggerState]:
        return await self._read(standing.trigger_states)

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]:
        return await self._read(records.ticks, feed, limit)

    async def counts(self) -> Mapping[str, int]:
        return await self._read(records.counts)

    async def leases(self) -> Sequence[Held]:
        return await self._read(leasing.leases)

    async def generation(self) -> Generation:
        return await self._read(leasing.generation)

    async def audits(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await self._read(records.audits, before, limit)

    async def reap(self) -> int:
        return await self._write(upkeep.reap)

    async def retain(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
        return await self._write(upkeep.retain, events, ticks, runs, pushed)

    async def check(self) -> Sequence[str]:
        return await self._read(upkeep.check)

    @staticmethod
    def rekey(path: str | Path, old: str, new: str) -> None:
        """Make the file open with another key. Nobody may have it open."""
        opening.rekey(Path(path), old, new)

    async def backup(self, target: str) -> None:
        await self._read(_backup, target)


def _backup(books: Books, target: str) -> None:
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise Refused(f"cannot write {target} ({error.strerror})", fix="Name a new file in a folder of yours") from None
    destination = apsw.Connection(target)
    with destination.backup("main", books.connection, "main") as copying:
        while not copying.done:
            copying.step(1000)
    destination.close()
