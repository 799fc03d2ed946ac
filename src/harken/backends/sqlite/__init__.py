"""The store in one file: SQLite with one writer thread, WAL, synchronous=FULL and group commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from harken.backends.sqlite import commit, definitions, feeds, leases, records, registry, runs, upkeep
from harken.backends.sqlite.connection import Database, rekey
from harken.clock import Clock
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
    HeldLease,
    IdleRead,
    Lease,
    Listeners,
    NewRun,
    Opened,
    Page,
    Settlement,
    Stale,
)

__all__ = ["SqliteStore"]

RECALL_INLINE = 256


class SqliteStore:
    """All five protocols on one file. `inline` runs verbs in the caller's thread, for virtual time."""

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database

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
        if readonly:
            return cls(Database.for_reading(Path(path), clock, key))
        return cls(Database.for_writing(Path(path), clock, key, inline=inline, limit=limit))

    @property
    def trouble(self) -> str:
        return self._database.trouble

    @property
    def queued(self) -> int:
        return self._database.queued

    async def close(self) -> None:
        await self._database.close()

    def abandon(self) -> None:
        """Let go of the file without ceremony, as a dying process does."""
        self._database.abandon()

    async def open(self, wanted: Definitions) -> Opened:
        return await self._database.write(definitions.open_all, wanted)

    async def state(self, feed: str) -> FeedState:
        return await self._database.read(definitions.state, feed)

    async def listeners(self, feed: str) -> Listeners:
        return await self._database.read(definitions.listeners, feed)

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        return await self._database.write(leases.lease, shard, holder, seconds, generation)

    async def release_lease(self, lease: Lease, holder: str) -> None:
        await self._database.write(leases.release_lease, lease, holder)

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        if not memory_ids:
            return {}
        if len(memory_ids) <= RECALL_INLINE:
            # a few look-ups in a warm cache cost less than changing threads
            return feeds.recall(self._database.glance, feed, memory_ids)
        return await self._database.read(feeds.recall, feed, memory_ids)

    async def commit(self, wanted: Commit) -> Committed | Stale:
        return await self._database.write(
            commit.commit, wanted, manner="frugal" if len(wanted.entries) <= 1 else "guarded"
        )

    async def fail(self, failure: Failure) -> None:
        await self._database.write(feeds.fail, failure)

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        return await self._database.write(feeds.record_idle, reads)

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
        return await self._database.write(feeds.forget, feed, token, listed, before)

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        await self._database.write(feeds.dead_letter, feed, event, reason)

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        return await self._database.write(definitions.pause, trigger, reason)

    async def resume(self, trigger: str) -> TriggerState:
        return await self._database.write(definitions.resume, trigger)

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        return await self._database.write(definitions.reset, trigger, cursor)

    async def wake(self, feed: str) -> FeedState:
        return await self._database.write(definitions.wake, feed)

    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        return await self._database.write(runs.claim, holder, limit, seconds)

    async def next_due(self) -> datetime | None:
        return runs.next_due(self._database.glance)

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        return await self._database.write(runs.journal, run_id, token, records, caused, start)

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        return await self._database.write(runs.extend, claims, seconds)

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        await self._database.write(runs.park, run_id, token, park, record)

    async def answer(self, run_id: str, answer: Any) -> bool:
        return await self._database.write(runs.answer, run_id, answer)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        return await self._database.write(runs.settle, settlements, manner="frugal")

    async def start(self, run: NewRun) -> str:
        return await self._database.write(runs.start, run)

    async def cancel(self, run_id: str) -> bool:
        return await self._database.write(runs.cancel, run_id)

    async def retry(self, run_id: str, *, workflow_rev: str = "") -> bool:
        return await self._database.write(runs.retry, run_id, workflow_rev)

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        return await self._database.write(runs.release, trigger, drop, hold)

    async def drop_dead_letter(self, run_id: str) -> bool:
        return await self._database.write(runs.drop_dead_letter, run_id)

    async def get(self, kind: str, name: str) -> Document | None:
        return await self._database.read(records.get, kind, name)

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        return await self._database.write(registry.put, kind, name, value, expect)

    async def delete(self, kind: str, name: str) -> bool:
        return await self._database.write(registry.delete, kind, name)

    async def documents(self, kind: str) -> Sequence[Document]:
        return await self._database.read(records.documents, kind)

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        await self._database.write(registry.audit, who, did, what, detail)

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
        return await self._database.read(records.events, feed, key, trigger, since, before, limit)

    async def events_after(self, after: int, limit: int = 200) -> Sequence[Recorded]:
        return await self._database.read(records.events_after, after, limit)

    async def event(self, event_id: int) -> Recorded | None:
        return await self._database.read(records.event, event_id)

    async def memory_of(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        return await self._database.read(records.memory_of, feed, memory_id)

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
        return await self._database.read(records.runs, trigger, status, workflow, event_id, before, limit)

    async def run(self, run_id: str) -> Run | None:
        return await self._database.read(records.run, run_id)

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await self._database.read(records.dead, before, limit)

    async def feeds(self) -> Sequence[FeedState]:
        return await self._database.read(definitions.feed_states)

    async def triggers(self) -> Sequence[TriggerState]:
        return await self._database.read(definitions.trigger_states)

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]:
        return await self._database.read(records.ticks, feed, limit)

    async def counts(self) -> Mapping[str, int]:
        return await self._database.read(records.counts)

    async def leases(self) -> Sequence[HeldLease]:
        return await self._database.read(leases.leases)

    async def generation(self) -> Generation:
        return await self._database.read(leases.generation)

    async def audits(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await self._database.read(records.audits, before, limit)

    async def requeue_expired(self) -> int:
        return await self._database.write(upkeep.requeue_expired)

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
        return await self._database.write(upkeep.prune, events, ticks, runs, pushed)

    async def check(self) -> Sequence[str]:
        return await self._database.read(upkeep.check)

    @staticmethod
    def rekey(path: str | Path, old: str, new: str) -> None:
        """Make the file open with another key. Nobody may have it open."""
        rekey(Path(path), old, new)

    async def backup(self, target: str) -> None:
        await self._database.read(upkeep.backup, target)
