"""Runs: one execution of a workflow for one or more events."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from harken.event import Recorded

__all__ = [
    "FINAL",
    "OPEN",
    "Again",
    "Cancelled",
    "Claimed",
    "Dead",
    "Failed",
    "Finished",
    "Hold",
    "Park",
    "Run",
    "RunOutcome",
    "RunState",
    "StepRecord",
    "Workflow",
]

RunState = Literal["gathering", "held", "ready", "blocked", "running", "waiting", "done", "failed", "dead", "cancelled"]
OPEN = frozenset({"gathering", "held", "ready", "blocked", "running", "waiting"})
FINAL = frozenset({"done", "failed", "dead", "cancelled"})

Hold = Literal["", "flood", "paused", "budget"]
"""Why a run is held: the flood guard (a person decides), a paused trigger (resume frees it), a spent budget."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One journaled step. `path` names its place in the run: `triage`, `each[3].post`, `choose.then.page`.

    `tokens` and `usd` are what a model took for it; writing the record charges them to the trigger's budget.
    """

    path: str
    action: str
    status: Literal["ok", "failed", "skipped", "waiting"]
    attempt: int = 1
    output: Any = None
    error: str = ""
    warnings: tuple[str, ...] = ()
    started_at: datetime | None = None
    finished_at: datetime | None = None
    tokens: int = 0
    usd: float = 0.0


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants done. `rev` is the hash of name and definition; a run keeps the revision it began with."""

    name: str
    rev: str
    definition: Any


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the store holds it."""

    id: str
    trigger: str
    workflow: str
    workflow_rev: str
    status: RunState
    event_keys: tuple[str, ...] = ()
    event_ids: tuple[int, ...] = ()
    input: Any = None
    output: Any = None
    attempt: int = 1
    priority: int = 0
    hold: str = ""
    due_at: datetime
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str = ""
    cancel_requested: bool = False
    waiting_for: str = ""
    parent: str = ""
    replay_of: str = ""
    journal: tuple[StepRecord, ...] = ()


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that is ours until its lease ends, or until the token is passed on.

    `input` is None when the run takes its event as it is; `answer` is what a person said to an approve step. `alone`:
    it is known that no other run waits for its end.
    """

    id: str
    token: int
    trigger: str
    workflow_rev: str
    attempt: int
    max_attempts: int
    events: tuple[Recorded, ...]
    input: Any = None
    journal: tuple[StepRecord, ...] = ()
    answer: Any = None
    parent: str = ""
    created_at: datetime
    cancel_requested: bool = False
    alone: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    output: Any = None
    filtered: bool = False


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Over, and not to be tried again by itself: the workflow said so."""

    error: str


class Again(msgspec.Struct, frozen=True, kw_only=True, tag="again"):
    """Try the run again at `at`; journaled steps are not executed again. A stop of ours does not count as a try."""

    at: datetime
    error: str
    counts: bool = True


class Dead(msgspec.Struct, frozen=True, kw_only=True, tag="dead"):
    """Tries are used up or hopeless: a dead letter, for a person to retry or drop."""

    error: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True, tag="cancelled"):
    reason: str = ""


RunOutcome: TypeAlias = Finished | Failed | Again | Dead | Cancelled


class Park(msgspec.Struct, frozen=True, kw_only=True):
    """Set a run aside until `until` (a wait), or until it is woken (`waiting_for`: an approval, a sub-run)."""

    until: datetime | None = None
    waiting_for: str = ""
    prompt: str = ""
