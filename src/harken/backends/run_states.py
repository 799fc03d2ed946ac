"""The states of a run as stores number them, how its id is made, and the reasons that stores write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from harken.backends.encryption import Seal
from harken.event import Verdict
from harken.runs import Cancelled, Dead, Failed, Finished, RunOutcome
from harken.store import Backlog

__all__ = [
    "BLOCKED",
    "CANCELLED",
    "DEAD",
    "DONE",
    "DROPPED",
    "FAILED",
    "FINAL",
    "GATHERING",
    "HAS_ITS_RUN",
    "HELD",
    "HOLD_REASONS",
    "MOST_COUNTED",
    "NEVER",
    "NOT_OVER",
    "READY",
    "REPLACED",
    "RUNNING",
    "STATES",
    "WAITING",
    "backlogs_of",
    "duplicate_verdicts",
    "error_and_output",
    "gathered_reason",
    "id_of",
    "run_id_of",
]


GATHERING, HELD, READY, BLOCKED, RUNNING, WAITING, DONE, FAILED, DEAD, CANCELLED = range(10)

STATES = ("gathering", "held", "ready", "blocked", "running", "waiting", "done", "failed", "dead", "cancelled")

FINAL: dict[type, int] = {Finished: DONE, Failed: FAILED, Dead: DEAD, Cancelled: CANCELLED}
"""The state in which an outcome leaves its run."""

NEVER = 2**62
"""The stored due time of a run that only an answer can wake."""


def run_id_of(seal: Seal, uid: str, epoch: int, run_key: str, replay: str = "") -> bytes:
    return seal.name(f"run\0{uid}\0{epoch}\0{run_key}\0{replay}")


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
NOT_OVER = "an earlier run of this key is not over"
REPLACED = "a newer run of this key took its place"
DROPPED = "dropped by hand while it was held"


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


def gathered_reason(number: int, reason: str) -> str:
    return f"event {number} of the run that is gathering" + (f": {reason}" if reason else "")


def duplicate_verdicts(first: int, earlier: Iterable[Verdict], triggers: Iterable[str]) -> tuple[Verdict, ...]:
    """Verdicts for an event that is recorded already: each trigger got its run, if any, from the first one."""
    run_ids = {verdict.trigger: verdict.run_id for verdict in earlier}
    reason = f"the same occurrence as event {first}"
    return tuple(
        Verdict(trigger=trigger, outcome="duplicate", reason=reason, run_id=run_ids.get(trigger, ""))
        for trigger in triggers
    )
