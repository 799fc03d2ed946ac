"""The store for a fleet: PostgreSQL by asyncpg, one transaction per verb, and the server's clock for every token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from harken.backends.postgres import claims, commit, definitions, feeds, leases, records, registry, runs, upkeep
from harken.backends.postgres.connection import Database, Settings
from harken.backends.postgres.group_commit import GroupCommit, may_share
from harken.backends.postgres.notify import Waking
from harken.backends.postgres.queue import Share
from harken.clock import Clock
from harken.errors import Refused
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

__all__ = ["PostgresStore", "Settings"]


class PostgresStore:
    """All five protocols on one database. Nothing is reached before the first verb, or `connect`."""

    shared: ClassVar[bool] = True

    def __init__(self, database: Database) -> None:
        self.place = database.where
        self._database = database
        self._pushes = GroupCommit(self._commit)
        self._waking = Waking(database)

    @classmethod
    def at(
        cls,
        url: str,
        clock: Clock | None = None,
        *,
        readonly: bool = False,
        key: str = "",
        settings: Settings | None = None,
    ) -> Self:
        """Without a clock the server's counts, as it must where several replicas write.

        Raise Misconfigured for a URL that is none. The first verb raises it for a wrong key or a schema that is newer.
        """
        return cls(Database(url, clock, key, settings or Settings(), readonly=readonly))

    async def connect(self) -> Sequence[str]:
        """Reach the server and bring the schema up to date now, so that a person hears of trouble at the start."""
        await self._database.connect()
        return ()

    def listen(self, heard: Callable[[], object]) -> None:
        """Call `heard` when another replica has made runs ready: a hint, so go on asking now and then."""
        self._waking.listen(heard)

    @property
    def trouble(self) -> str:
        return self._database.trouble

    @property
    def queued(self) -> int:
        return self._database.waiting

    async def close(self) -> None:
        await self._waking.close()
        await self._database.close()

    def abandon(self) -> None:
        """Let go of the server without ceremony, as a dying process does."""
        self._database.abandon()

    async def open(self, wanted: Definitions) -> Opened:
        return await self._waking.write(definitions.open_all, wanted)

    async def state(self, feed: str) -> FeedState:
        return await self._database.read(definitions.state, feed)

    async def listeners(self, feed: str) -> Listeners:
        return await self._database.read(definitions.listeners, feed)

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        return await self._waking.write(leases.lease, shard, holder, seconds, generation)

    async def release_lease(self, lease: Lease, holder: str) -> None:
        await self._waking.write(leases.release_lease, lease, holder)

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        return await self._database.at_once(feeds.recall, feed, memory_ids, writes=False) if memory_ids else {}

    async def commit(self, wanted: Commit) -> Committed | Stale:
        return await (self._pushes.commit(wanted) if may_share(wanted) else self._commit(wanted))

    async def _commit(self, wanted: Commit, shares: Sequence[Share] = ()) -> Committed | Stale:
        return await self._waking.write(commit.commit, wanted, shares, timed=False)

    async def fail(self, failure: Failure) -> None:
        await self._waking.write(feeds.fail, failure, timed=False)

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        return await self._waking.write(feeds.record_idle, reads, timed=False) if reads else ()

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
        return await self._waking.write(feeds.forget, feed, token, listed, before, timed=False)

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        await self._waking.write(feeds.dead_letter, feed, event, reason, timed=False)

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        return await self._waking.write(definitions.pause, trigger, reason)

    async def resume(self, trigger: str) -> TriggerState:
        return await self._waking.write(definitions.resume, trigger)

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        return await self._waking.write(definitions.reset, trigger, cursor)

    async def wake(self, feed: str) -> FeedState:
        return await self._waking.write(definitions.wake, feed)

    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        claimed = await self._database.at_once(claims.claim_quickly, holder, limit, seconds)
        if claimed is None:
            return await self._waking.write(claims.claim_carefully, holder, limit, seconds)
        return claimed

    async def next_due(self) -> datetime | None:
        return await self._database.at_once(claims.next_due, writes=False)

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        return await self._waking.write(runs.journal, run_id, token, records, caused, start)

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        return await self._database.at_once(runs.extend, claims, seconds)

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        await self._waking.write(runs.park, run_id, token, park, record)

    async def answer(self, run_id: str, answer: Any) -> bool:
        return await self._database.at_once(runs.answer, run_id, answer)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        """Each counts by itself, so those that nothing depends on need no transaction around them."""
        plain = [one for one in settlements if runs.is_plain(one)]
        settled = await self._database.at_once(runs.settle_plain, plain) if plain else frozenset()
        if len(settled) == len(settlements):
            return ["settled"] * len(settlements)
        return await self._waking.write(runs.settle, settlements, settled)

    async def start(self, run: NewRun) -> str:
        return await self._waking.write(runs.start, run)

    async def cancel(self, run_id: str) -> bool:
        return await self._waking.write(runs.cancel, run_id)

    async def retry(self, run_id: str, *, workflow_rev: str = "") -> bool:
        return await self._waking.write(runs.retry, run_id, workflow_rev)

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        return await self._waking.write(runs.release, trigger, drop, hold)

    async def drop_dead_letter(self, run_id: str) -> bool:
        return await self._waking.write(runs.drop_dead_letter, run_id)

    async def get(self, kind: str, name: str) -> Document | None:
        found = await self._database.at_once(registry.documents, kind, name, writes=False)
        return found[0] if found else None

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        return await self._database.at_once(registry.put, kind, name, value, expect)

    async def delete(self, kind: str, name: str) -> bool:
        return await self._database.at_once(registry.delete, kind, name)

    async def documents(self, kind: str) -> Sequence[Document]:
        return await self._database.at_once(registry.documents, kind, writes=False)

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        await self._database.at_once(registry.audit, who, did, what, detail)

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
        return await self._database.at_once(records.events_after, after, limit, writes=False)

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
        return await self._database.read(registry.audits, before, limit)

    async def requeue_expired(self) -> int:
        return await self._database.at_once(upkeep.requeue_expired)

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
        return await self._waking.write(upkeep.prune, events, ticks, runs, pushed)

    async def check(self) -> Sequence[str]:
        return await self._database.read(upkeep.check)

    async def backup(self, target: str) -> None:
        """Refused: the server's own tools copy a database that is being written."""
        fix = f"Use the server's own: pg_dump --format=custom --file={target} URL"
        raise Refused(f"Harken does not back up {self.place}", fix=fix)

    @staticmethod
    async def rekey(url: str, old: str, new: str) -> None:
        """Make the store open with another key; replicas that run go on with the keys that they have."""
        await Database(url, None, old, Settings(pool=1), readonly=False).rekey(new)
