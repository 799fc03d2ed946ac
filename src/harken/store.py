"""The store: five small protocols of domain verbs. Each has a contract suite that every store passes.

Every verb is one transaction: it happened as a whole, or it did not happen. A verb that returned has survived a
power cut. Verbs raise StoreBusy (nothing was written, try again), StoreUnavailable (cannot write now) or LeaseLost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from harken.event import Event, Known, Recorded, Span, Verdict
from harken.feed import Feed, FeedState, Overlap, TickSpan, Trigger, TriggerState
from harken.pace import Health
from harken.runs import Claimed, Park, Run, RunOutcome, StepRecord

__all__ = [
    "Buried",
    "Commit",
    "Committed",
    "Definitions",
    "Document",
    "Entry",
    "Failure",
    "Feeds",
    "GatherInto",
    "Intent",
    "Lease",
    "Listeners",
    "NewRun",
    "Opened",
    "Page",
    "Records",
    "Registry",
    "Rest",
    "Runs",
    "Settlement",
    "Stale",
    "Store",
    "Tick",
    "Upkeep",
]


class GatherInto(msgspec.Struct, frozen=True, gc=False):
    """Join the open run of this gather key, or open it. It is due at `due_at`, or once `max` events are in it.

    The first event sets the due time; with `extends` every event that joins moves it to its own, if that is later.
    """

    key: str
    due_at: datetime
    max: int = 0
    extends: bool = False


class Intent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What matching wants for one event and one trigger; the commit decides what becomes of it.

    The run's id is H(trigger, epoch, run_key). `input` is the mapped input as JSON; empty means: the event itself.
    `slot` is the concurrency key, empty for none. `quiet`: a run does not start within this span, but at its end.
    `reason` is told with the verdict.
    """

    trigger: str
    epoch: int
    run_key: str
    workflow_rev: str
    due_at: datetime
    input: bytes = b""
    gather: GatherInto | None = None
    overlap: Overlap = "allow"
    slot: str = ""
    hold: str = ""
    priority: int = 0
    max_attempts: int = 3
    quiet: Span | None = None
    reason: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A new event with what was decided about it, and what the feed remembers from now on.

    `expect` is the memory's seq that matching saw (0: unknown); if it moved on meanwhile, a same state makes the
    event a duplicate and another one makes the commit Stale. An empty `memory_id` is not remembered.
    `again` is the id of a stored event that is decided again: only for triggers that had no verdict on it, or said
    that it was before their start. Nothing is recorded or remembered anew, and the feed does not count as read.
    """

    event: Event
    memory_id: str
    expect: int = 0
    seq: int = 1
    decisions: tuple[Verdict | Intent, ...] = ()
    again: int = 0


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a read amounted to, for the ledger. `seen` counts items shown, `new` those not known before."""

    result: Literal["nothing_new", "events", "unchanged", "changed"]
    started_at: datetime
    seconds: float = 0.0
    seen: int = 0
    new: int = 0
    covered: Span | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a feed: events, verdicts, runs, memory and cursor, together or not at all.

    `token` is the lease where a cursor moves, None for webhooks and shared streams (which have no cursor).
    `done`: this was the last page of a read. `release`: flood limits by trigger uid, applied to its held runs.
    `claim`: hand at most so many of the new ready runs back, already claimed by `holder`.
    `backfilled`: uids of triggers that now have all that their start line asks for.
    """

    feed: str
    revision: int
    token: int | None = None
    entries: Sequence[Entry] = ()
    cursor: Any = msgspec.UNSET
    watermark: datetime | None = None
    next_due: datetime | None = None
    health: Health | None = None
    tick: Tick | None = None
    done: bool = False
    release: Mapping[str, int] = {}
    claim: int = 0
    holder: str = ""
    backfilled: Sequence[str] = ()


class Committed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`verdicts[i]` and `event_ids[i]` belong to `entries[i]`; a duplicate event has the id of the first one."""

    event_ids: Sequence[int]
    verdicts: Sequence[tuple[Verdict, ...]]
    claimed: Sequence[Claimed] = ()


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The feed's rules are at another revision, or its memory moved: match the same batch again."""

    revision: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A read that failed: what it does to the feed's health and when it is tried again."""

    feed: str
    token: int | None
    health: Health
    next_due: datetime | None
    result: Literal["error", "rate_limited"]
    error: str
    started_at: datetime
    seconds: float = 0.0


class Rest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Reads of one feed that found nothing new: they extend its current tick span."""

    feed: str
    token: int
    count: int
    result: Literal["nothing_new", "unchanged"]
    seen: int
    first_at: datetime
    last_at: datetime
    next_due: datetime | None
    cursor: Any = msgspec.UNSET
    watermark: datetime | None = None
    covered: Span | None = None
    health: Health | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to move the cursors of a shard. The token rises with every new holder."""

    shard: int
    token: int
    until: datetime


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """All that the configuration says at one generation. What is absent is removed, and comes back as it was.

    `starting`: this process just began, so the triggers' startup modes apply: `ignore_historical` moves the start line
    to now, `backfill` to so long ago, though never before the last reset.
    """

    generation: str
    starting: bool = False
    feeds: Sequence[Feed] = ()
    triggers: Sequence[Trigger] = ()
    workflows: Mapping[str, tuple[str, bytes]] = {}


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    feeds: Mapping[str, FeedState]
    triggers: Mapping[str, TriggerState]


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """A feed and who listens to it, at one revision."""

    revision: int
    feed: Feed
    triggers: Sequence[tuple[Trigger, TriggerState]]


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

    async def lease(self, shard: int, holder: str, seconds: float) -> Lease | None:
        """Take or renew the shard's lease; None while another holder's has not run out."""
        ...

    async def give_up(self, lease: Lease, holder: str) -> None:
        """End the lease at once. Does nothing if it is no longer ours."""
        ...

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        """What the feed remembers of these; unknown ones are left out."""
        ...

    async def commit(self, commit: Commit) -> Committed | Stale: ...

    async def fail(self, failure: Failure) -> None: ...

    async def rest(self, rests: Sequence[Rest]) -> None: ...

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
        """Keep what the last two complete reads listed; drop what is absent from them and was last seen before."""
        ...

    async def bury(self, feed: str, event: Event, reason: str) -> None:
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


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that no event asked for: by hand, a replay, or a step's sub-run. `id_key` makes repeating it harmless."""

    trigger: str
    workflow_rev: str
    id_key: str
    workflow: str = ""
    input: bytes = b""
    event_ids: tuple[int, ...] = ()
    replay_of: str = ""
    parent: str = ""
    due_at: datetime | None = None
    max_attempts: int = 3


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a try. `record` is the last step's journal; `caused` are commits to the internal feed."""

    id: str
    token: int
    outcome: RunOutcome
    record: StepRecord | None = None
    caused: tuple[Commit, ...] = ()


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

    async def drop_dead(self, run_id: str) -> bool:
        """Drop a dead letter: its run becomes cancelled."""
        ...


class Document(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    value: Any
    revision: int
    updated_at: datetime


class Registry(Protocol):
    async def get(self, kind: str, name: str) -> Document | None: ...

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        """Write; with `expect` only if the revision is still that one (0: absent), else None."""
        ...

    async def delete(self, kind: str, name: str) -> bool: ...

    async def documents(self, kind: str) -> Sequence[Document]: ...

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None: ...


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A keyset page, newest first; `next` is the `before` of the following page, None at the end."""

    items: Sequence[Any]
    next: int | None = None


class Buried(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: a run whose tries are used up, or an event that the store refused."""

    id: str
    what: Literal["run", "event"]
    trigger: str
    key: str
    reason: str
    at: datetime


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

    async def sighting(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
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

    async def audits(self, *, before: int | None = None, limit: int = 50) -> Page: ...


class Upkeep(Protocol):
    async def reap(self) -> int:
        """Make runs ready whose claim has run out; how many."""
        ...

    async def retain(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
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


class Store(Feeds, Runs, Registry, Records, Upkeep, Protocol):
    """One durable home for all of it: never cursors in one store and events in another."""


Decision: TypeAlias = Verdict | Intent
