"""Runs: one execution of a workflow for one or more events."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from harken.event import Recorded

__all__ = [
    "BY_HAND",
    "FINAL",
    "MISSED",
    "NOT_OVER",
    "OPEN",
    "REPLAYED",
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

BY_HAND = "cancelled by hand"
"""Why a run was cancelled, if nothing else is said."""

NOT_OVER = "an earlier run of this key is not over"
"""Why an event starts no run under `overlap: skip`."""

MISSED = "not all parts of its join came in time"
"""Why a run that waited for the parts of a join was cancelled."""

REPLAYED = "$replay"
"""A field of a run's input that is no input: the run is a replay, so that `event.replay` is true in its steps."""

Hold = Literal["", "flood", "paused", "budget"]
"""Why a run is held: the flood guard (a person decides), a paused trigger (until it is resumed), a spent budget."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One journaled step. `path` names its place in the run: `triage`, `each[3].post`, `choose.then.page`.

    `input` is what the step was given, shortened if it is long. `attempt` counts the tries of its run, `retries` the
    further ones that its own `retry` made within them. `code` is the code of its error. `tokens` and `usd` are what a
    model used for it; writing the record charges them to the trigger's budget. `from_run`: the step was not executed
    in this run; its record was taken from that one.
    """

    path: str
    action: str
    status: Literal["ok", "failed", "skipped", "waiting"]
    attempt: int = 1
    retries: int = 0
    input: Any = None
    output: Any = None
    error: str = ""
    code: str = ""
    warnings: tuple[str, ...] = ()
    started_at: datetime | None = None
    finished_at: datetime | None = None
    tokens: int = 0
    usd: float = 0.0
    from_run: str = ""


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants done. `rev` is the hash of name and definition; a run keeps the revision it began with.

    Tokens that are limited to an owner may see and start it if they have the role `share_with` or more.
    """

    name: str
    rev: str
    definition: Any
    share_with: Literal["", "viewer", "operator"] = ""
    description: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the store holds it. `parts` are the numbers of the parts of a join that are there."""

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
    parts: tuple[int, ...] = ()
    journal: tuple[StepRecord, ...] = ()


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that belongs to the worker that claimed it, until the claim ends.

    `input` is None when the run takes its event as it is; `answer` is the decision of a person on an approve step.
    `alone`: no other run waits for the end of this one. `events` are without their verdicts.
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
    """The workflow itself failed the run: it is not retried automatically."""

    error: str


class Again(msgspec.Struct, frozen=True, kw_only=True, tag="again"):
    """Try the run again at `at`; journaled steps are not executed again. `counts`: this was one of its tries."""

    at: datetime
    error: str
    counts: bool = True


class Dead(msgspec.Struct, frozen=True, kw_only=True, tag="dead"):
    """No tries are left, or none could succeed: a dead letter, which a person retries or drops."""

    error: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True, tag="cancelled"):
    reason: str = ""


RunOutcome: TypeAlias = Finished | Failed | Again | Dead | Cancelled


class Park(msgspec.Struct, frozen=True, kw_only=True):
    """Suspend a run until `until` (a wait step), or until it is woken (`waiting_for`: an approval or a sub-run)."""

    until: datetime | None = None
    waiting_for: str = ""
    prompt: str = ""
