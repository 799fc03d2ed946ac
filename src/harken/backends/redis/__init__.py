"""The store in Redis: every verb is one Lua function, so it happens as a whole or not at all."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from harken.backends.notify import Notifications
from harken.backends.redis import (
    commit,
    definitions,
    durability,
    encryption,
    feeds,
    leases,
    notify,
    records,
    registry,
    runs,
    upkeep,
)
from harken.backends.redis.connection import Connection
from harken.backends.redis.transaction import Transaction
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

__all__ = ["RedisStore"]


class RedisStore:
    """All five protocols on one Redis primary. `promise` says what survives a crash of it, once it was reached."""

    shared: ClassVar[bool] = True

    def __init__(self, connection: Connection, key: str) -> None:
        self.promise: durability.Promise | None = None
        self._connection = connection
        connection.on_write = self._wrote
        self._hints = Notifications(
            lambda hint: notify.hear(connection, hint), lambda name: notify.tell(connection, name)
        )
        self._key = key
        self._tx: Transaction | None = None
        self._reaching = asyncio.Lock()

    @classmethod
    def at(
        cls,
        url: str,
        clock: Clock | None = None,
        *,
        readonly: bool = False,
        key: str = "",
        space: str = "harken",
        limit: int = 10_000,
    ) -> Self:
        """Without a clock the server's counts, as it must where several replicas write.

        Nothing is asked of the server before the first verb, or `reach`. Stores of different `space` share a server
        without meeting. Raise Misconfigured for a URL that is none.
        """
        # one partition: all keys share the braced tag, so that a cluster keeps them together
        return cls(Connection(url, f"{{{space}:0}}:", clock, limit=limit, readonly=readonly), key)

    @staticmethod
    async def rekey(url: str, old: str, new: str, *, space: str = "harken") -> None:
        """Make the store open with another key."""
        connection = Connection(url, f"{{{space}:0}}:", None)
        try:
            await encryption.rekey(connection, old, new)
        finally:
            await connection.close()

    async def connect(self) -> Sequence[str]:
        promise = await self.reach()
        return promise.words, str(await self.forecast())

    async def reach(self) -> durability.Promise:
        """Look what the server keeps, also again later: replicas and settings change.

        Raise Misconfigured for one that may lose rows, or a wrong key.
        """
        self.promise = await durability.keep_promise(self._connection, self.promise)
        await encryption.refuse_newer(self._connection)
        if self._tx is None:
            self._tx = Transaction(
                self._connection, await encryption.seal_for(self._connection, self._key), secrets.token_hex(8)
            )
        return self.promise

    async def _ready(self) -> Transaction:
        if self._tx is None:
            async with self._reaching:
                if self._tx is None:
                    await self.reach()
        assert self._tx is not None
        return self._tx

    @property
    def trouble(self) -> str:
        return self._connection.trouble

    @property
    def queued(self) -> int:
        return self._connection.waiting

    async def close(self) -> None:
        await self._hints.close()
        await self._connection.close()

    def listen(self, heard: Callable[[], object]) -> None:
        """Call `heard` when another replica may have made runs ready: a hint, so go on asking now and then."""
        self._hints.listen(heard)

    def _wrote(self, verb: str) -> None:
        if verb in notify.WAKING:
            self._hints.give()

    async def forecast(self, events_per_day: float | None = None) -> durability.Forecast:
        """How much memory a day of retention takes, from what events have taken so far."""
        return await durability.forecast(await self._ready(), events_per_day)

    async def open(self, wanted: Definitions) -> Opened:
        return await definitions.open_all(await self._ready(), wanted)

    async def state(self, feed: str) -> FeedState:
        return await definitions.state(await self._ready(), feed)

    async def listeners(self, feed: str) -> Listeners:
        return await definitions.listeners(await self._ready(), feed)

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        return await leases.lease(await self._ready(), shard, holder, seconds, generation)

    async def release_lease(self, lease: Lease, holder: str) -> None:
        await leases.release_lease(await self._ready(), lease, holder)

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        return await feeds.recall(await self._ready(), feed, memory_ids)

    async def commit(self, wanted: Commit) -> Committed | Stale:
        answer = await commit.commit(await self._ready(), wanted)
        if isinstance(answer, Committed) and notify.leaves_some(answer):
            self._hints.give()
        return answer

    async def fail(self, failure: Failure) -> None:
        await feeds.fail(await self._ready(), failure)

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        return await feeds.record_idle(await self._ready(), reads)

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
        return await feeds.forget(await self._ready(), feed, token, listed, before)

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        await feeds.dead_letter(await self._ready(), feed, event, reason)

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        return await feeds.steer(await self._ready(), "pause", trigger, reason)

    async def resume(self, trigger: str) -> TriggerState:
        return await feeds.steer(await self._ready(), "resume", trigger)

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        return await feeds.steer(await self._ready(), "reset", trigger, cursor)

    async def wake(self, feed: str) -> FeedState:
        return await feeds.wake(await self._ready(), feed)

    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        return await runs.claim(await self._ready(), holder, limit, seconds)

    async def next_due(self) -> datetime | None:
        return await runs.next_due(await self._ready())

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        return await runs.journal(await self._ready(), run_id, token, records, caused, start)

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        return await runs.extend(await self._ready(), claims, seconds)

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        await runs.park(await self._ready(), run_id, token, park, record)

    async def answer(self, run_id: str, answer: Any) -> bool:
        return await runs.answer(await self._ready(), run_id, answer)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        return await runs.settle(await self._ready(), settlements)

    async def start(self, run: NewRun) -> str:
        return await runs.start(await self._ready(), run)

    async def cancel(self, run_id: str) -> bool:
        return await runs.cancel(await self._ready(), run_id)

    async def retry(self, run_id: str, *, workflow_rev: str = "") -> bool:
        return await runs.retry(await self._ready(), run_id, workflow_rev)

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        return await runs.release(await self._ready(), trigger, drop, hold)

    async def drop_dead_letter(self, run_id: str) -> bool:
        return await runs.drop_dead_letter(await self._ready(), run_id)

    async def get(self, kind: str, name: str) -> Document | None:
        return await registry.get(await self._ready(), kind, name)

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        return await registry.put(await self._ready(), kind, name, value, expect)

    async def delete(self, kind: str, name: str) -> bool:
        return await registry.delete(await self._ready(), kind, name)

    async def documents(self, kind: str) -> Sequence[Document]:
        return await registry.documents(await self._ready(), kind)

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        await registry.audit(await self._ready(), who, did, what, detail)

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
        return await records.events(await self._ready(), feed, key, trigger, since, before, limit)

    async def events_after(self, after: int, limit: int = 200) -> Sequence[Recorded]:
        return await records.events_after(await self._ready(), after, limit)

    async def event(self, event_id: int) -> Recorded | None:
        return await records.event(await self._ready(), event_id)

    async def memory_of(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        return await records.memory_of(await self._ready(), feed, memory_id)

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
        return await records.runs(await self._ready(), trigger, status, workflow, event_id, before, limit)

    async def run(self, run_id: str) -> Run | None:
        return await records.run(await self._ready(), run_id)

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await records.dead(await self._ready(), before, limit)

    async def feeds(self) -> Sequence[FeedState]:
        return await definitions.feed_states(await self._ready())

    async def triggers(self) -> Sequence[TriggerState]:
        return await definitions.trigger_states(await self._ready())

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]:
        return await records.ticks(await self._ready(), feed, limit)

    async def counts(self) -> Mapping[str, int]:
        return await records.counts(await self._ready())

    async def leases(self) -> Sequence[HeldLease]:
        return await leases.leases(await self._ready())

    async def generation(self) -> Generation:
        return await leases.generation(await self._ready())

    async def audits(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await registry.audits(await self._ready(), before, limit)

    async def requeue_expired(self) -> int:
        return await upkeep.requeue_expired(await self._ready())

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
        return await upkeep.prune(await self._ready(), events, ticks, runs, pushed)

    async def check(self) -> Sequence[str]:
        return await upkeep.check(await self._ready())

    async def backup(self, target: str) -> None:
        fix = "Let Redis do it (BGSAVE, then copy its dump file), or copy the store: harken store copy"
        raise Refused("a store in Redis is not backed up by Harken", fix=fix)
