"""The states of a run as stores number them, how its id is made, and the reasons that stores write."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from harken.backends.encryption import Seal
from harken.event import Verdict
from harken.runs import MISSED, NOT_OVER, Cancelled, Dead, Failed, Finished, RunOutcome
from harken.store import Backlog

__all__ = [
    "ANSWERED",
    "BLOCKED",
    "CANCELLED",
    "DEAD",
    "DONE",
    "DROPPED",
    "ENDED",
    "FAILED",
    "FINAL",
    "GATHERING",
    "HAS_ITS_RUN",
    "HELD",
    "HOLD_REASONS",
    "MISSED",
    "MOST_COUNTED",
    "NEVER",
    "NOT_OVER",
    "READY",
    "REPLACED",
    "RUNNING",
    "SAME_VALUE",
    "STATES",
    "TOO_EARLY",
    "WAITING",
    "backlogs_of",
    "delayed_reason",
    "duplicate_verdicts",
    "error_and_output",
    "gathered_reason",
    "id_of",
    "mark_name",
    "run_id_of",
    "throttled_reason",
]


GATHERING, HELD, READY, BLOCKED, RUNNING, WAITING, DONE, FAILED, DEAD, CANCELLED = range(10)

STATES = ("gathering", "held", "ready", "blocked", "running", "waiting", "done", "failed", "dead", "cancelled")

FINAL: dict[type, int] = {Finished: DONE, Failed: FAILED, Dead: DEAD, Cancelled: CANCELLED}
"""The state in which an outcome leaves its run."""

NEVER = 2**62
"""The stored due time of a run that only an answer can wake."""


def run_id_of(seal: Seal, uid: str, epoch: int, run_key: str, replay: str = "") -> bytes:
    return seal.name(f"run\0{uid}\0{epoch}\0{run_key}\0{replay}")


def mark_name(seal: Seal, kind: str, epoch: int, value: str) -> bytes:
    """The key of what is remembered for a trigger's next runs; a reset forgets it with the epoch."""
    return seal.name(f"{kind}\0{epoch}\0{value}")


def id_of(run_id: str) -> bytes:
    """The stored form of a run's id. For malformed ids it is empty, which no run has."""
    try:
        return bytes.fromhex(run_id)
    except ValueError:
        return b""


def error_and_output(outcome: RunOutcome) -> tuple[str, Any]:
    """The error and the output of an attempt."""
    if isinstance(outcome, Finished):
        return "", outcome.output
    if isinstance(outcome, Cancelled):
        return outcome.reason, None
    return outcome.error, None


HOLD_REASONS = {
    "flood": "the flood guard holds the runs of a first read",
    "paused": "the trigger is paused",
    "budget": "the trigger's budget is spent",
}

HAS_ITS_RUN = "this occurrence has its run already"
REPLACED = "a newer run of this key took its place"
DROPPED = "dropped by hand while it was held"
SAME_VALUE = "an event with the same dedupe value has started this run"
ANSWERED = "a part that its join is without came after it"
TOO_EARLY = "it happened too long before the other parts of its join"
ENDED = "a part came that its join is without"


MOST_COUNTED = 10_000
"""Dead and retrying runs that a backlog counts at most: it is asked for every few seconds."""


def backlogs_of(rows: Iterable[tuple[str, int, str, int]]) -> dict[str, Backlog]:
    """Backlogs by trigger, of rows (trigger, state, hold, count); ready runs in them are retried ones."""
    found: dict[str, Backlog] = {}
    for trigger, state, hold, number in rows:
        before = found.get(trigger, Backlog())
        if state == HELD:
            change: dict[str, Any] = {"held": {**before.held, hold: before.held.get(hold, 0) + number}}
        elif state == DEAD:
            change = {"dead": before.dead + number}
        else:
            change = {"retrying": before.retrying + number}
        found[trigger] = msgspec.structs.replace(before, **change)
    return found


def gathered_reason(number: int, reason: str, *, has_run: bool = True) -> str:
    """`number`: which event of the run it is; 0 if it is one that the run is without."""
    if number:
        said = f"event {number} of the run that is gathering"
    else:
        said = "it ended the run that was gathering" if has_run else "no run that it would end is gathering"
    return said + (f": {reason}" if reason else "")


def throttled_reason(seconds: int) -> str:
    """Why an event starts no run; `seconds` since 1970 is when the next one may start."""
    return f"the throttle allows the next run at {_clock_text(seconds)}"


def delayed_reason(seconds: int, reason: str) -> str:
    """Why a run starts later, at `seconds` since 1970."""
    waits = f"waits until {_clock_text(seconds)} (throttle)"
    return f"{reason}; {waits}" if reason else waits


def _clock_text(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"


def duplicate_verdicts(first: int, earlier: Iterable[Verdict], triggers: Iterable[str]) -> tuple[Verdict, ...]:
    """Verdicts for an event that is recorded already: each trigger got its run, if any, from the first one."""
    run_ids = {verdict.trigger: verdict.run_id for verdict in earlier}
    reason = f"the same occurrence as event {first}"
    return tuple(
        Verdict(trigger=trigger, outcome="duplicate", reason=reason, run_id=run_ids.get(trigger, ""))
        for trigger in triggers
    )
