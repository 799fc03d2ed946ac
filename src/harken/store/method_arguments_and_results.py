"""Arguments and results of the store's methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.circuit_breaker import Health
from harken.event import Event, Span, Verdict
from harken.feed import Feed, FeedState, Overlap, Trigger, TriggerState
from harken.runs import Claimed, RunOutcome, RunState, StepRecord

__all__ = [
    "FUTURE_SECONDS",
    "HOUSEKEEPING",
    "Backlog",
    "Commit",
    "Committed",
    "DeadLetter",
    "Definitions",
    "Distinct",
    "Document",
    "DocumentChange",
    "EarlyEnd",
    "Entry",
    "Erased",
    "Failure",
    "GatherInto",
    "Generation",
    "HeldLease",
    "History",
    "IdleRead",
    "Intent",
    "JoinPart",
    "Lease",
    "Listeners",
    "MovedRun",
    "MovedStart",
    "NewRun",
    "Opened",
    "Page",
    "Part",
    "RateLimit",
    "Settlement",
    "Space",
    "Stale",
    "Tick",
]


class JoinPart(msgspec.Struct, frozen=True, gc=False):
    """Which part of a join an event is, and what the join needs: so many different parts within `span` seconds.

    `ordered`: the parts in the order of their numbers happened one after the other. `ends`: the join is without this
    part, so it ends the wait of the others. `waits`: the join is without some part, so it is complete only when the
    time is over. `keeps`: an incomplete run is run when the time is over, not dropped. `early`: it happened before the
    trigger was there; a join of which all parts did never runs.
    """

    number: int
    at: datetime
    span: float
    needs: int
    ordered: bool = False
    ends: bool = False
    waits: bool = False
    keeps: bool = False
    early: bool = False


class Distinct(msgspec.Struct, frozen=True, gc=False):
    """The event counts only if no other one with this key has started a run within `seconds`."""

    key: str
    seconds: float


class RateLimit(msgspec.Struct, frozen=True, gc=False):
    """At most `most` runs with this key start within `seconds`. The others start later, or are dropped."""

    key: str
    most: int
    seconds: float
    drops: bool = False


class GatherInto(msgspec.Struct, frozen=True, gc=False):
    """Add the event to the gathering run of this key, or open one. It is due at `due_at`, or once it has `max` events.

    The first event sets the due time; with `extends` each later event postpones it to its own, if that is later, but
    by no more than `wait` seconds after the first event (0: without limit). With `part` the run is a join.
    """

    key: str
    due_at: datetime
    max: int = 0
    extends: bool = False
    wait: float = 0.0
    part: JoinPart | None = None


class EarlyEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a run ends that was executed before its commit, as none of its steps waits for or changes anything outside.

    `output` and the `records` of its steps are JSON; without an output it is empty. `filtered`: a filter ended it.
    """

    output: bytes = b""
    records: tuple[bytes, ...] = ()
    filtered: bool = False


class Intent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What matching wants for one event and one trigger; the commit decides what becomes of it.

    The run's id is H(trigger, epoch, run_key). `input` is the mapped input as JSON; empty means: the event itself.
    `slot` is the concurrency key, empty for none. `quiet`: a run does not start within this span, but at its end.
    `reason` is written to the verdict. `watched`: whoever asks `moved_runs` is told each time the run's state changes.
    `distinct` and `rate` are decided at the commit, so that all replicas agree.
    `end`: if the run may start at once it is inserted as over, with its journal. Otherwise, and if it has a slot,
    gathers, is watched or is of a stored event, `end` is ignored.
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
    watched: bool = False
    distinct: Distinct | None = None
    rate: RateLimit | None = None
    end: EarlyEnd | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A new event with what was decided about it, and what the feed remembers from now on.

    `expect` is the memory's seq that matching saw (0: unknown). If it changed meanwhile, the event is a duplicate when
    the stored state is the same, otherwise the commit is Stale. An empty `memory_id` is not remembered.
    `again` is the id of a stored event that is decided again, only for triggers that have no verdict on it or the
    verdict `before_start`. No event is recorded, memory stays, and the feed does not count as read.
    """

    event: Event
    memory_id: str
    expect: int = 0
    seq: int = 1
    decisions: tuple[Verdict | Intent, ...] = ()
    again: int = 0


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of a read. `seen` counts the items it returned, `new` those not known before."""

    result: Literal["nothing_new", "events", "unchanged", "changed"]
    started_at: datetime
    seconds: float = 0.0
    seen: int = 0
    new: int = 0
    covered: Span | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a feed: events, verdicts, runs, memory and cursor, together or not at all.

    `token` is the lease where a cursor moves, None for webhooks and shared streams (which have no cursor).
    `done`: this was the last page of a read; without a `next_due` there is no further one.
    `release`: flood limits by trigger uid, applied to its held runs.
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
    """`verdicts[i]` and `event_ids[i]` belong to `entries[i]`; a duplicate event has the id of the first one.

    `over`: the runs that were inserted as over, with their ends.
    """

    event_ids: Sequence[int]
    verdicts: Sequence[tuple[Verdict, ...]]
    claimed: Sequence[Claimed] = ()
    over: Sequence[tuple[Claimed, EarlyEnd]] = ()


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The feed has another revision, or its memory changed: match the same batch again."""

    revision: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A read that failed, with the feed's new health and when to try again."""

    feed: str
    token: int | None
    health: Health
    next_due: datetime | None
    result: Literal["error", "rate_limited"]
    error: str
    started_at: datetime
    seconds: float = 0.0


class IdleRead(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Reads of one feed that found nothing new: they extend its current tick span.

    `revision` is the feed's at the time of the reads; None skips the check.
    """

    feed: str
    token: int
    revision: int | None = None
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


HOUSEKEEPING = -1
"""The shard whose lease is the right to do housekeeping; it has no feeds."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to move the cursors of a shard. The token rises with every new holder.

    `taken_over`: its previous holder did not release it.
    """

    shard: int
    token: int
    until: datetime
    taken_over: bool = False


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """A valid lease with its holder."""

    shard: int
    holder: str
    token: int
    until: datetime


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The names of feeds and triggers that a change is about; all others stay as they are."""

    feeds: frozenset[str]
    triggers: frozenset[str]


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration at one generation. Absent feeds and triggers are removed; they keep their state.

    `starting`: the process has just started, so the triggers' startup modes apply: `ignore_historical` moves the start
    line to now, `backfill` to so long ago, but never before the last reset.
    The triggers in `pause` are paused with the given reason, unless they are paused already: all of them if the process
    is starting, else those that were not there before.
    `holder` is the replica that opens: with a new generation the leases of all other holders end.
    `workflows` has revision and definition (JSON) by name.
    With `only` this is a part of the configuration: what it names and does not define is removed, nothing else is
    looked at, the generation stays, and `Opened` has that part alone.
    """

    generation: str
    holder: str = ""
    starting: bool = False
    feeds: Sequence[Feed] = ()
    triggers: Sequence[Trigger] = ()
    workflows: Mapping[str, tuple[str, bytes]] = {}
    pause: Mapping[str, str] = {}
    only: Part | None = None

    def to_pause(self, there: Collection[str]) -> Mapping[str, str]:
        """The triggers that this opening pauses; `there` are those that were not removed before it."""
        if self.starting:
            return self.pause
        return {name: reason for name, reason in self.pause.items() if name not in there}


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The state after `open`. `epoch` counts the generations that this store has had."""

    feeds: Mapping[str, FeedState]
    triggers: Mapping[str, TriggerState]
    epoch: int = 0


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that the store has; a new store has epoch 0 and no name."""

    epoch: int = 0
    name: str = ""
    since: datetime | None = None


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """A feed and its triggers, at one revision."""

    revision: int
    feed: Feed
    triggers: Sequence[tuple[Trigger, TriggerState]]


FUTURE_SECONDS = 60.0
"""A start line so far ahead was set by a clock that was wrong: clocks of several machines may differ by less."""


class MovedStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start line of a trigger that was in the future, and to when it was moved back."""

    trigger: str
    feed: str
    was: datetime
    start_line: datetime


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a person or a step starts: by hand, a replay, or a sub-run. Equal `id_key`s give the same run.

    `watched` as in an Intent. `journal`: steps that count as done when the run begins.
    """

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
    watched: bool = False
    journal: tuple[StepRecord, ...] = ()


class MovedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A watched run whose state changed, as it is now. `subject` is that of its first event.

    `seen` is given back to the store once the change was dealt with. `since`: when it came into its state.
    """

    id: str
    seen: int
    trigger: str
    subject: str
    status: RunState
    since: datetime


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of an attempt. `record` is the last step's journal record; `caused` are commits to the internal feed.

    `trigger`: if the run succeeded, it is counted for this trigger.
    """

    id: str
    token: int
    outcome: RunOutcome
    record: StepRecord | None = None
    caused: tuple[Commit, ...] = ()
    trigger: str = ""


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True):
    """Write a document, or delete it if there is no value. `expect` is its revision (0: absent), None for any."""

    kind: str
    name: str
    value: Any = msgspec.UNSET
    expect: int | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    value: Any
    revision: int
    updated_at: datetime


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A keyset page, newest first; `next` is the `before` of the following page, None at the end."""

    items: Sequence[Any]
    next: int | None = None


class History(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Events of a feed in columns, oldest first: a million of them are read in seconds.

    Times are in microseconds since 1970. `outcomes` has what one trigger decided, empty for none. `data` has their
    payloads as JSON, one after the other. `next` is the `after` of the following page, None at the end.
    """

    ids: Sequence[int] = ()
    types: Sequence[str] = ()
    occurred_at: Sequence[int | None] = ()
    recorded_at: Sequence[int] = ()
    outcomes: Sequence[str] = ()
    data: bytes | str = b""
    next: int | None = None


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one trigger that do not go on as they should.

    `held` counts held runs by the reason of their hold. `dead` are dead letters. `retrying` have failed before and
    wait for their next try.
    """

    held: Mapping[str, int] = {}
    dead: int = 0
    retrying: int = 0


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """What the store takes on its disk or in memory. `advice`: why it does not give `unused` back, and what helps."""

    bytes: int
    unused: int = 0
    advice: str = ""


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """How many events, runs and dead letters of refused events were deleted."""

    events: int = 0
    runs: int = 0
    letters: int = 0


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A run that used up its attempts, or an event that the store refused."""

    id: str
    what: Literal["run", "event"]
    trigger: str
    key: str
    reason: str
    at: datetime
