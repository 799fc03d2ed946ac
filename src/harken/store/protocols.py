"""The verbs of the store, as five small protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol, Self

from harken.clock import Clock
from harken.event import Event, Known, Recorded
from harken.feed import FeedState, TickSpan, TriggerState
from harken.runs import Claimed, Park, Run, StepRecord
from harken.store.values import (
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

__all__ = [
    "Connection",
    "Feeds",
    "Records",
    "Registry",
    "Runs",
    "Store",
    "Upkeep",
]


class Feeds(Protocol):
    async def open(self, definitions: Definitions) -> Opened:
        """Make the definitions current. Known feeds and triggers keep cursor, memory, uid, epoch and start line.

        A feed's revision rises when it or its listeners changed. Where a feed's identity changed, its memory means
        nothing any more: its triggers begin a new epoch at its last success, so that nothing is found twice."""
        ...

    async def state(self, feed: str) -> FeedState: ...

    async def listeners(self, feed: str) -> Listeners:
        """The rules of a feed as they are now; NotFound for a feed that was never opened."""
        ...

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        """Take or renew the shard's lease; None while another holder's has not run out. The token rises with every
        new holder, and with one who gave it up; who comes back after it ran out, before anybody else, keeps it.

        With `generation` also None, and ours is given up, when the store is at another one."""
        ...

    async def release_lease(self, lease: Lease, holder: str) -> None:
        """End the lease at once. Does nothing if it is no longer ours."""
        ...

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        """What the feed remembers of these; unknown ones are left out."""
        ...

    async def commit(self, commit: Commit) -> Committed | Stale: ...

    async def fail(self, failure: Failure) -> None: ...

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        """Note them. Those of feeds at another revision are left out, and named: a person changed the feed meanwhile,
        and what was read before says nothing about where it stands now."""
        ...

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
        """Keep what the last two complete reads listed; drop what is absent from them and was last seen before."""
        ...

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        """Dead-letter an event that the store refuses to take, alone."""
        ...

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        """From now on its intents are held. The feed's revision rises."""
        ...

    async def resume(self, trigger: str) -> TriggerState:
        """Release what the pause held, oldest first; its feed's errors are forgotten and it is due now."""
        ...

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        """Clear errors and pause. With `cursor`: raise the epoch, start at now, wipe the feed's cursor and memory."""
        ...

    async def wake(self, feed: str) -> FeedState:
        """Make the feed due now."""
        ...


class Runs(Protocol):
    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        """Ready runs that are due, by priority and due time; each is ours for `seconds` with a token of its own.

        One that has not begun is not claimed within its `quiet` span: it is due at the end of it.
        An event's run counts against its trigger's budget when it is first claimed. Where that is spent the run is held
        instead, and goes by itself, oldest first, once there is room again."""
        ...

    async def next_due(self) -> datetime | None:
        """When the next open run becomes due, or a budget begins anew; None when nothing waits for time."""
        ...

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        """Append steps, with the events they cause and the sub-runs they start. LeaseLost when the token is old."""
        ...

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        """Keep these claims alive; says which were lost and which were asked to stop."""
        ...

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None: ...

    async def answer(self, run_id: str, answer: Any) -> bool:
        """Wake a run that waits for a person or a sub-run. False when it does not wait."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        """End each try and promote the next run of its slot. A lost or stale one is not written; the others are."""
        ...

    async def start(self, run: NewRun) -> str:
        """Insert the run and return its id; an existing id is returned as it is."""
        ...

    async def cancel(self, run_id: str) -> bool:
        """Cancel what has not begun; ask what runs to stop. False when it is over already."""
        ...

    async def retry(self, run_id: str, *, workflow_rev: str = "") -> bool:
        """Make a failed, dead or cancelled run ready again; journaled steps stay done unless the revision changes."""
        ...

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        """Let the trigger's held runs go, whatever its budget says (or cancel them); how many."""
        ...

    async def drop_dead_letter(self, run_id: str) -> bool:
        """Drop a dead letter: its run becomes cancelled."""
        ...


class Registry(Protocol):
    async def get(self, kind: str, name: str) -> Document | None: ...

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        """Write; with `expect` only if the revision is still that one (0: absent), else None."""
        ...

    async def delete(self, kind: str, name: str) -> bool: ...

    async def documents(self, kind: str) -> Sequence[Document]: ...

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None: ...


class Records(Protocol):
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
        """Recorded events, newest first."""
        ...

    async def events_after(self, after: int, limit: int = 200) -> Sequence[Recorded]:
        """Events with a higher id, oldest first: the tail."""
        ...

    async def event(self, event_id: int) -> Recorded | None: ...

    async def memory_of(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        """What the feed remembers of this one, first seen and last seen."""
        ...

    async def runs(
        self,
        *,
        trigger: str = "",
        status: str = "",
        workflow: str = "",
        event_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page: ...

    async def run(self, run_id: str) -> Run | None:
        """One run with its journal. A unique beginning of the id is enough."""
        ...

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page: ...

    async def feeds(self) -> Sequence[FeedState]: ...

    async def triggers(self) -> Sequence[TriggerState]: ...

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]: ...

    async def counts(self) -> Mapping[str, int]:
        """events, and runs by status: what `status` and /metrics show."""
        ...

    async def leases(self) -> Sequence[HeldLease]:
        """Those that have neither run out nor been given up, by shard."""
        ...

    async def generation(self) -> Generation: ...

    async def audits(self, *, before: int | None = None, limit: int = 50) -> Page: ...


class Upkeep(Protocol):
    async def requeue_expired(self) -> int:
        """Make runs ready whose claim has run out; how many."""
        ...

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
        """Delete what is older than so many seconds, a small slice at a time; how many rows went this time."""
        ...

    async def check(self) -> Sequence[str]:
        """Every inconsistency found, in words; empty when sound."""
        ...

    async def backup(self, target: str) -> None:
        """A consistent copy at `target`, made while running."""
        ...

    async def close(self) -> None: ...

    @property
    def trouble(self) -> str:
        """Why the store cannot write now, empty when it can."""
        ...


class Connection(Protocol):
    """How a process opens a store. Nothing here is part of a transaction."""

    shared: ClassVar[bool]
    """Whether several processes may write the store at the same time."""

    @classmethod
    def at(cls, location: str, /, clock: Clock | None = None, *, readonly: bool = False, key: str = "") -> Self:
        """The store at a path or URL. A server is reached by `connect`, or by the first call of another method.

        Without a clock a shared store uses its server's, as the clocks of its processes may differ. `key` encrypts
        what is stored. Raise Misconfigured for a malformed location, Refused when a file is in use."""
        ...

    @staticmethod
    async def rekey(location: str, old: str, new: str, /) -> None:
        """Make an encrypted store open with another key. Raise Refused if it is not encrypted or is in use."""
        ...

    async def connect(self) -> Sequence[str]:
        """Reach the store and bring its schema up to date. Return what its operator should know, in sentences.

        May be called again to check the server's settings. Raise Misconfigured for a wrong key or an unsafe server."""
        ...

    def listen(self, on_ready: Callable[[], object]) -> None:
        """Call `on_ready` when another process made runs ready. Calls may get lost: poll as well."""
        ...

    @property
    def queued(self) -> int:
        """How many writes wait."""
        ...


class Store(Feeds, Runs, Registry, Records, Upkeep, Connection, Protocol):
    """All six in one place, so that cursors, events and runs are written in one transaction."""
