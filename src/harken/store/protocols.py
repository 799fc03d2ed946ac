"""What a store can do, as six small protocols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self

from harken.clock import Clock
from harken.event import Event, Known, Recorded
from harken.feed import FeedState, TickSpan, TriggerState
from harken.runs import BY_HAND, Claimed, Park, Run, StepRecord
from harken.store.method_arguments_and_results import (
    Backlog,
    Commit,
    Committed,
    Definitions,
    Document,
    DocumentChange,
    Erased,
    Failure,
    Generation,
    HeldLease,
    History,
    IdleRead,
    Lease,
    Listeners,
    MovedRun,
    MovedStart,
    NewRun,
    Opened,
    Page,
    Settlement,
    Space,
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

        A feed's revision rises when it or its listeners changed. When a feed's identity changed, its memory is
        dropped and its triggers begin a new epoch at its last success, so that known events do not fire again."""
        ...

    async def state(self, feed: str) -> FeedState: ...

    async def listeners(self, feed: str) -> Listeners:
        """The feed's current definition, revision and triggers. Raise NotFound for a feed that was never opened."""
        ...

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        """Take or renew the shard's lease; None while another holder's lease is valid.

        The token rises with every new holder, and after a release. A holder whose lease expired keeps its token if
        nobody took the lease meanwhile. With `generation`: when the store is at another generation, release the
        holder's lease and return None."""
        ...

    async def release_lease(self, lease: Lease, holder: str) -> None:
        """End the lease at once. Do nothing if it is no longer the holder's."""
        ...

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        """What the feed remembers of these ids; unknown ids are left out."""
        ...

    async def commit(self, commit: Commit) -> Committed | Stale:
        """Write one page of events. Stale, and nothing is written, when the feed's revision or memory changed since
        the page was matched."""
        ...

    async def fail(self, failure: Failure) -> None:
        """Record a read that failed."""
        ...

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        """Record reads that found nothing new. Reads of feeds that have another revision now are not recorded, as
        somebody changed or reset the feed meanwhile; return the names of these feeds."""
        ...

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime | None) -> int:
        """Forget subjects that were last seen before `before`, except those in `listed`. Return how many.

        Those in `listed` count as seen now. Without `before` that is all: a long list is given in portions."""
        ...

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        """Keep an event that `commit` refused, and why, as a dead letter."""
        ...

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        """Hold the trigger's new runs from now on, and those that still gather. The feed's revision rises."""
        ...

    async def resume(self, trigger: str) -> TriggerState:
        """Release the runs that the pause held, oldest first; clear the feed's errors and make it due now."""
        ...

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        """Clear errors and pause. With `cursor`: raise the epoch, start at now, wipe the feed's cursor and memory."""
        ...

    async def move_start_lines(self, lines: Mapping[str, datetime]) -> Sequence[MovedStart]:
        """Move start lines that are in the future to these times, by trigger, or to now if that is earlier.

        The clock was ahead when they were set. Others, and those of unknown triggers, stay. The triggers look back
        from there, as what was read meanwhile counted as too early. Return what was moved, by trigger."""
        ...

    async def seek(
        self, trigger: str, start_line: datetime, *, revision: int, back: bool, cursor: Any = None
    ) -> TriggerState | None:
        """Move the trigger's start line. None, and nothing is changed, if its feed has another revision by now.

        With `back` its feed forgets its cursor and is due now: what happened since the start line is read again, and
        stored events that the trigger has not decided are decided. Memory stays, so that known events stay known.
        With `cursor` the feed gets this one, which tells its next reader where to go, in both directions."""
        ...

    async def wake(self, feed: str) -> FeedState:
        """Make the feed due now."""
        ...


class Runs(Protocol):
    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        """Claim runs that are ready and due, by priority and due time, each for `seconds` and with its own token.

        A run that has not started is not claimed within its `quiet` span, but due at its end. A run of an event counts
        against its trigger's budget when it is claimed first. When the budget is spent the run is held instead;
        later claims release held runs, oldest first, as the budget allows."""
        ...

    async def next_due(self) -> datetime | None:
        """When the next open run becomes due, or a spent budget starts again; None when no run waits for a time."""
        ...

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        """Append steps, with the events they cause and the sub-runs they start. Raise LeaseLost for an old token."""
        ...

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        """Extend these claims (tokens by run id). Say which are lost, and which runs should be cancelled."""
        ...

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        """End the claim until a time or an answer comes. Raise LeaseLost for an old token."""
        ...

    async def answer(self, run_id: str, answer: Any) -> bool:
        """Give a waiting run the answer of a person or sub-run. False when it does not wait for one."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        """End these attempts and make the next run of each slot ready. Only those lost or stale are not written."""
        ...

    async def start(self, run: NewRun) -> str:
        """Insert the run with its journal and return its id. Repeating the call returns the same id and starts nothing.

        What the steps of its journal have spent is not charged: another run has paid for it."""
        ...

    async def cancel(self, run_id: str, reason: str = BY_HAND) -> bool:
        """Cancel a run that is not running; request a running one to stop. False when it is over already.

        The run ends as cancelled with this reason as its error, whatever its worker says. If it was requested to stop
        before, the first reason stays. If it is done or fails all the same, the reason is forgotten."""
        ...

    async def retry(self, run_id: str, *, workflow_rev: str = "", tries: int = 3, request: str = "") -> bool:
        """Make a failed, dead or cancelled run ready again; journaled steps stay done unless the revision changes.

        It may be tried `tries` times more. Its `attempt` counts on, unless it has never been tried. The same `request`
        retries it once: the answer is True each time, whatever has become of the run since.
        """
        ...

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        """Release the trigger's held runs regardless of its budget, or cancel them with `drop`. Return how many.

        With `hold` only those held for this reason."""
        ...

    async def release_run(self, run_id: str) -> bool:
        """Release one held run regardless of its trigger's budget. False when it is not held."""
        ...

    async def moved_runs(self, seen: Mapping[str, int] = MappingProxyType({}), limit: int = 200) -> Sequence[MovedRun]:
        """Watched runs whose state has changed, as they are now, each at most once.

        A run comes again until its `seen` is given back, by run id. If it is in another state or attempt by then, it
        comes again all the same. Of more than `limit` the others come with the next calls. Deal with a run first, then
        give it back: after a crash between the two it comes twice, and no change is lost."""
        ...

    async def drop_dead_letter(self, run_id: str) -> bool:
        """Remove a dead letter; a dead run becomes cancelled. False when there is none."""
        ...


class Registry(Protocol):
    """JSON documents by kind and name (see harken.store.document_kinds), and the audit log."""

    async def get(self, kind: str, name: str) -> Document | None: ...

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        """Write; with `expect` only if the revision is still that one (0: absent), else None."""
        ...

    async def delete(self, kind: str, name: str) -> bool: ...

    async def change(self, changes: Sequence[DocumentChange]) -> Sequence[Document | None] | None:
        """Write and delete all of these documents, each once. None, and nothing is written, if one has another
        revision than expected. Of a document that was deleted the result is None."""
        ...

    async def documents(
        self, kind: str, *, after: str = "", limit: int | None = None, raw: bool = False
    ) -> Sequence[Document]:
        """Documents of a kind by name: all of them, or so many of those behind the name `after`.

        With `raw` their values are the JSON as it was written, in bytes: of many, only some fields may be needed."""
        ...

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

    async def events_by_id(self, event_ids: Sequence[int]) -> Sequence[Recorded]:
        """These events, newest first, without those that were deleted."""
        ...

    async def events_about(self, feed: str, name: str, *, limit: int = 10) -> Sequence[Recorded]:
        """Events of the feed about the object of this name, newest first (see harken.store.events_by_object_name)."""
        ...

    async def banked_events(self, trigger: str) -> Mapping[str, Sequence[int]]:
        """Ids of the trigger's last events by list: `fired`, `filtered`, `error`; newest first. See `bank_events`."""
        ...

    async def history(
        self,
        feed: str,
        trigger: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        limit: int = 1000,
        brief: bool = False,
    ) -> History:
        """A page of the feed's events after an id, oldest first, with what the trigger decided about each.

        Only those that were recorded from `since` on, and before `until`. With `brief` types and times may be left out,
        as to read them takes as long as anything else."""
        ...

    async def memory_of(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        """What the feed remembers of this id, when it was first seen and last seen."""
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
        journals: bool = False,
    ) -> Page:
        """Runs, newest first; with their journals only if `journals` asks for them."""
        ...

    async def run(self, run_id: str) -> Run | None:
        """One run with its journal. The beginning of an id is enough if it is unique."""
        ...

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page: ...

    async def backlogs(self) -> Mapping[str, Backlog]:
        """Triggers that have held, dead or retrying runs, by name. Counts may stop at 10,000 runs of a state."""
        ...

    async def feeds(self, *, names: Collection[str] | None = None) -> Sequence[FeedState]:
        """The feeds that are configured, by name: all, or those of these names."""
        ...

    async def triggers(
        self, *, names: Collection[str] | None = None, after: str = "", limit: int | None = None
    ) -> Sequence[TriggerState]:
        """The triggers that are configured, in the order of their names by code points.

        All of them, those of these `names`, or those `after` a name, at most so many."""
        ...

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]: ...

    async def counts(self) -> Mapping[str, int]:
        """Numbers of `events`, `refused_events` and of runs by status (`runs_ready` …)."""
        ...

    async def leases(self) -> Sequence[HeldLease]:
        """Valid leases, by shard."""
        ...

    async def generation(self) -> Generation: ...

    async def audits(
        self,
        *,
        who: str = "",
        did: str = "",
        what: str = "",
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page:
        """Entries of the audit log, newest first; each filter that is given has to fit exactly."""
        ...


class Upkeep(Protocol):
    async def requeue_expired(self) -> int:
        """Make runs ready whose claim has expired. Return how many."""
        ...

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float, audit: float) -> int:
        """Delete a small slice of rows older than so many seconds. Return how many; call it again and again.

        Events that an open run needs, that are starred or in the event bank, stay."""
        ...

    async def bank_events(self, keep: int) -> int:
        """Put a slice of the newest events into the event bank: the last `keep` that fired, were filtered or failed of
        each trigger. Return how many were looked at, 0 when there are none; call it again and again.

        From the first call on `prune` keeps what the bank has, and deletes no event that was not looked at. 0 ends
        it."""
        ...

    async def erase(self, events: Sequence[int], runs: Sequence[str], is_theirs: Callable[[str, str], bool]) -> Erased:
        """Delete these events and runs, and the dead letters of refused events for which `is_theirs` (key, payload).

        Runs that are not over stay, and so do events that they need. What a feed remembers of a subject stays: it is
        a hash, and keeps the subject from being new again."""
        ...

    async def index_objects(self) -> int:
        """Make a slice of the newest events quick to find by the name of what they are about. Return how many, 0 when
        there is nothing to do; call it again and again. `events_about` finds the others as well, but slower."""
        ...

    async def shrink(self) -> int:
        """Give a small slice of unused space back where the store has to be told to. Return how many bytes; call it
        again and again."""
        ...

    async def space(self) -> Space: ...

    async def check(self) -> Sequence[str]:
        """Every inconsistency found, as sentences; empty when the store is sound."""
        ...

    async def backup(self, target: str) -> None:
        """Write a consistent copy to `target` while the store is in use."""
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

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object] = ...) -> None:
        """Call `on_ready` when another process made runs ready, and `on_released` when it released a lease.

        Calls may get lost: poll as well."""
        ...

    @property
    def queued(self) -> int:
        """How many writes wait."""
        ...


class Store(Feeds, Runs, Registry, Records, Upkeep, Connection, Protocol):
    """All six in one place, so that cursors, events and runs are written in one transaction."""
