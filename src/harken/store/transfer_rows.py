"""The contents of a store as rows that every store can write and read: how one is copied into another.

Names (subjects, keys of slots and gather windows, ids of runs) are 16-byte hashes. An encrypted store's hashes are
keyed, and the export includes the key. Texts are plain. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from harken.event import Verdict
from harken.runs import RunState

__all__ = [
    "KINDS",
    "Chunk",
    "ExportHeader",
    "ExportedAudit",
    "ExportedDeadLetter",
    "ExportedDocument",
    "ExportedEvent",
    "ExportedFeed",
    "ExportedIdleSpan",
    "ExportedMark",
    "ExportedMemory",
    "ExportedRow",
    "ExportedRun",
    "ExportedSpending",
    "ExportedTick",
    "ExportedTrigger",
]


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first row of every export.

    `identity` is the key of all hashes, empty for a plain store. `tokens` has each shard with its lease's token.
    `next_event` and `next_run` continue the ids of events and runs.
    """

    identity: bytes
    next_event: int
    next_run: int
    epoch: int = 0
    generation: str = ""
    since: int | None = None
    tokens: tuple[tuple[int, int], ...] = ()


class ExportedIdleSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The current span of a feed's reads that found nothing new."""

    result: str
    start: int
    end: int
    count: int
    seen: int


class ExportedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """`definition`, `cursor` and `health` are JSON. `coverage` has spans with gaps between them, oldest first."""

    name: str
    definition: bytes
    revision: int
    cursor: bytes | None
    watermark: int | None
    next_due: int | None
    health: bytes | None
    reads: int
    seen: int
    baselined: bool
    last_success: int | None
    last_tick: int | None
    coverage: tuple[tuple[int, int], ...]
    resting: ExportedIdleSpan | None
    created_at: int
    removed_at: int | None


class ExportedSpending(msgspec.Struct, frozen=True, kw_only=True):
    """What was used of a budget in the hour (runs) or day (tokens, usd) that began at `since`."""

    what: str
    since: int
    amount: float


class ExportedMark(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the next runs of a trigger until `until`: the run that came first, or times (gathering_rules.py)."""

    key: bytes
    until: int
    run: bytes | None
    times: bytes | None


class ExportedTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch_event` is the first event id of its epoch."""

    uid: str
    name: str
    feed: str
    definition: bytes
    epoch: int
    epoch_event: int
    start_line: int
    reads_from: int | None
    reset_at: int | None
    backfilling: bool
    paused: str
    fired: int
    last_fired_at: int | None
    done: int
    created_at: int
    removed_at: int | None
    spent: tuple[ExportedSpending, ...] = ()
    marks: tuple[ExportedMark, ...] = ()


class ExportedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the registry, as JSON; revisions of workflows are of the kind `workflow`."""

    kind: str
    name: str
    value: bytes
    revision: int
    updated_at: int


class ExportedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`data` is the payload as it was received."""

    id: int
    feed: str
    key: str
    subject: str
    state: str | None
    type: str
    occurred_at: int | None
    recorded_at: int
    repeats: int
    last_repeat_at: int | None
    verdicts: tuple[Verdict, ...]
    data: bytes


class ExportedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed remembers of a subject. `absent`: its source no longer lists it, and only `seq` counts."""

    feed: str
    mid: bytes
    state: str | None
    absent: bool
    seq: int
    event: int
    first_seen: int
    last_seen: int


class ExportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its journal. A running one is exported as `ready`, as its worker does not use the new store.

    `event` is its only event; `events` are those of a run with several. `by_hand`: a person or a step started it, so
    the verdicts of its events do not name it. Without `due_at` only an answer wakes it. `has_slot`: it holds its slot.
    `since` is when it came into its state, unless that is when it was created or finished. `moved`: it is watched, and
    nobody has dealt with its state yet.
    """

    seq: int
    id: bytes
    trigger: str
    workflow_rev: str
    state: RunState
    priority: int
    due_at: int | None
    attempt: int
    max_attempts: int
    token: int
    event: int | None
    events: tuple[int, ...]
    by_hand: bool
    gathered: int
    input: bytes | None
    slot: bytes | None
    has_slot: bool
    overlap: str
    gather: bytes | None
    parts: bytes | None
    hold: str
    quiet_from: int | None
    quiet_until: int | None
    budgeted: bool
    cancel_requested: bool
    waiting_for: str
    answer: bytes | None
    parent: bytes | None
    replay_of: bytes | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    since: int | None
    watched: bool
    moved: bool
    error: str
    output: bytes | None
    journal: tuple[bytes, ...]


class ExportedTick(msgspec.Struct, frozen=True, kw_only=True):
    feed: str
    started_at: int
    ended_at: int
    count: int
    result: str
    seen: int
    new: int
    error: str
    seconds: float


class ExportedDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event that the store refused: the dead letter `event-<id>`."""

    id: int
    feed: str
    key: str
    reason: str
    payload: bytes
    at: int


class ExportedAudit(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    who: str
    did: str
    what: str
    detail: bytes


ExportedRow: TypeAlias = (
    ExportHeader
    | ExportedFeed
    | ExportedTrigger
    | ExportedDocument
    | ExportedEvent
    | ExportedMemory
    | ExportedRun
    | ExportedTick
    | ExportedDeadLetter
    | ExportedAudit
)

KINDS: dict[type, str] = {
    ExportedFeed: "feeds",
    ExportedTrigger: "triggers",
    ExportedDocument: "documents",
    ExportedEvent: "events",
    ExportedMemory: "seen keys",
    ExportedRun: "runs",
    ExportedTick: "ticks",
    ExportedDeadLetter: "refused events",
    ExportedAudit: "audits",
}
"""Words for each kind, in the order of an export: no row refers to a later one."""

Chunk: TypeAlias = Sequence[ExportedRow]
"""Rows of one kind."""
