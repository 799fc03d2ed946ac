"""Why one event did or did not start a run: pure sentences from what the store holds about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.event import Outcome, Recorded, Verdict
from harken.feed import TriggerState
from harken.operate.wording import ago, count, stamp, when
from harken.runs import Run

__all__ = ["Answer", "Case", "Stage", "answer"]

Stage = Literal["read", "memory", "match", "gather", "held", "run", "trigger"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How far an event came (`stage`), what was decided there, and what a person can do about it."""

    stage: Stage
    outcome: Outcome | Literal["never_seen", "remembered", "summary", "not_covered", "covered"]
    sentence: str
    details: Mapping[str, Any] = {}
    advice: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one event and one trigger. `verdict` is None when the trigger did not listen.

    `budget` says which limit of the trigger is used up, and until when.
    """

    trigger: TriggerState
    event: Recorded
    verdict: Verdict | None
    run: Run | None
    now: datetime
    budget: str = ""


def answer(case: Case) -> Answer:
    """Return the answer for an event that was recorded."""
    if case.verdict is None:
        return _not_listening(case)
    return _ANSWERS[case.verdict.outcome](case, case.verdict)


def _fired(case: Case, verdict: Verdict) -> Answer:
    run = case.run
    if run is None:
        sentence = f"{_it(case)} fired and started run {verdict.run_id}, which retention has removed since"
        return Answer(stage="run", outcome="fired", sentence=sentence + _again(case), details=_details(case))
    if run.hold == "budget" and run.status == "held":
        return _held(case, verdict)
    waits = f"; it {verdict.reason}" if verdict.reason and run.status == "ready" else ""
    sentence = (
        f"{_it(case)} fired {ago(case.event.recorded_at, case.now)} and started run {run.id}, "
        f"{_doing(run, case.now)}{waits}"
    )
    return Answer(
        stage="run", outcome="fired", sentence=sentence + _again(case), details=_details(case), advice=_run_advice(run)
    )


def _filtered(case: Case, verdict: Verdict) -> Answer:
    sentence = f"{_it(case)} was read, but the condition was not met: {verdict.reason or 'no clause was recorded'}"
    advice = (
        f"See all fields that a condition can use: harken events show {case.event.id}",
        f"Start the run for it anyway: harken events replay {case.event.id} --trigger {case.trigger.name}",
    )
    return Answer(
        stage="match", outcome="filtered", sentence=sentence + _again(case), details=_details(case), advice=advice
    )


def _duplicate(case: Case, verdict: Verdict) -> Answer:
    of = f"run {verdict.run_id}" if verdict.run_id else verdict.reason or "an event that was recorded before"
    state = f", {_doing(case.run, case.now)}" if case.run else ""
    sentence = f"{_it(case)} is a duplicate of {of}{state}"
    advice = (f"To run it again on purpose: harken events replay {case.event.id} --trigger {case.trigger.name}",)
    return Answer(
        stage="memory", outcome="duplicate", sentence=sentence + _again(case), details=_details(case), advice=advice
    )


def _before_start(case: Case, verdict: Verdict) -> Answer:
    if case.event.occurred_at is None:
        sentence = f"{_it(case)} was there before the trigger: it is {verdict.reason}"
    elif "ignore_historical" in verdict.reason:
        sentence = f"{_it(case)} {verdict.reason}: what happened while nothing ran is skipped on purpose"
    else:
        happened, start = stamp(case.event.occurred_at), stamp(case.trigger.start_line)
        sentence = (
            f"{_it(case)} happened {happened}, before the trigger's start line {start}: "
            "what was there before a trigger does not start it"
        )
    details = _details(case) | {"start_line": stamp(case.trigger.start_line), "reason": verdict.reason}
    advice = (
        f"Start the run for it anyway: harken events replay {case.event.id} --trigger {case.trigger.name}",
        "For a new trigger, `startup: backfill` with `backfill: 2h` takes the last two hours",
    )
    return Answer(stage="match", outcome="before_start", sentence=sentence, details=details, advice=advice)


def _held(case: Case, verdict: Verdict) -> Answer:
    run, name = case.run, case.trigger.name
    if run is None or run.status != "held":
        now = f"; that run is over the hold: {_doing(run, case.now)}" if run else "; that run is gone since"
        sentence = f"{_it(case)} matched, and run {verdict.run_id} was held ({verdict.reason or 'no reason'}){now}"
        return Answer(stage="run", outcome="held", sentence=sentence, details=_details(case))
    sentence = f"{_it(case)} matched; run {run.id} is held: {_hold(case, run.hold, verdict.reason)}"
    advice = (
        f"Let it go: harken triggers {_freeing(run.hold)} {name}",
        f"Or cancel what is held: harken triggers drop {name}",
    )
    return Answer(stage="held", outcome="held", sentence=sentence, details=_details(case), advice=advice)


def _gathered(case: Case, verdict: Verdict) -> Answer:
    run = case.run
    if run is None:
        sentence = f"{_it(case)} was gathered into run {verdict.run_id}, which retention has removed since"
        return Answer(stage="gather", outcome="gathered", sentence=sentence, details=_details(case))
    together = f"{_it(case)} was gathered into run {run.id} with {count(len(run.event_keys), 'event')}{_why(verdict)}"
    if run.hold == "budget" and run.status == "held":
        sentence = f"{together}, which is held: {_hold(case, run.hold, '')}"
        return Answer(stage="held", outcome="gathered", sentence=sentence, details=_details(case))
    if run.status == "gathering":
        sentence = f"{together}; it is still gathering and becomes due {when(run.due_at, case.now)}"
        return Answer(stage="gather", outcome="gathered", sentence=sentence, details=_details(case))
    sentence = f"{together}, {_doing(run, case.now)}"
    return Answer(stage="run", outcome="gathered", sentence=sentence, details=_details(case), advice=_run_advice(run))


def _skipped(case: Case, verdict: Verdict) -> Answer:
    why = verdict.reason or "another run of the same concurrency key was under way (overlap: skip)"
    advice = (
        "With `overlap: queue` it would wait for the other run instead",
        f"Start the run for it now: harken events replay {case.event.id} --trigger {case.trigger.name}",
    )
    sentence = f"{_it(case)} matched, but was skipped: {why}"
    return Answer(stage="match", outcome="skipped", sentence=sentence, details=_details(case), advice=advice)


def _error(case: Case, verdict: Verdict) -> Answer:
    sentence = f"{_it(case)} could not be decided: {verdict.reason or 'no reason was recorded'}"
    advice = (
        f"See the fields it has: harken events show {case.event.id}",
        f"Mend the condition or mapping, then: harken events replay {case.event.id} --trigger {case.trigger.name}",
    )
    return Answer(stage="match", outcome="error", sentence=sentence, details=_details(case), advice=advice)


def _unmatched(case: Case, verdict: Verdict) -> Answer:
    why = verdict.reason or f"the trigger does not listen to events of type {case.event.type}"
    return Answer(
        stage="match", outcome="unmatched", sentence=f"{_it(case)} was read, but {why}", details=_details(case)
    )


def _not_listening(case: Case) -> Answer:
    created = case.trigger.created_at
    if created > case.event.recorded_at:
        why = f"trigger {case.trigger.name} was only created {stamp(created)}"
    else:
        why = f"trigger {case.trigger.name} has no verdict on it: it did not listen to this feed or type then"
    sentence = f"{_it(case)} was recorded {when(case.event.recorded_at, case.now)}, but {why}"
    advice = (f"Start the run for it: harken events replay {case.event.id} --trigger {case.trigger.name}",)
    return Answer(stage="match", outcome="unmatched", sentence=sentence, details=_details(case), advice=advice)


_ANSWERS: Mapping[Outcome, Callable[[Case, Verdict], Answer]] = {
    "fired": _fired,
    "filtered": _filtered,
    "duplicate": _duplicate,
    "before_start": _before_start,
    "gathered": _gathered,
    "held": _held,
    "skipped": _skipped,
    "error": _error,
    "unmatched": _unmatched,
}

_HOLDS = {
    "flood": "the first read brought more than the flood limit, so a person decides",
    "paused": "the trigger is paused, and resuming frees it",
    "budget": "the trigger's budget is spent",
}


def _hold(case: Case, hold: str, reason: str) -> str:
    if hold == "budget":
        return f"{_HOLDS[hold]}{f' ({case.budget})' if case.budget else ''}. It goes by itself, in its turn"
    return reason or _HOLDS.get(hold, hold or "no reason was recorded")


def _why(verdict: Verdict) -> str:
    """What was said besides the number of the event in its digest."""
    said = verdict.reason.partition(": ")[2]
    return f" ({said})" if said else ""


def _freeing(hold: str) -> str:
    return "resume" if hold == "paused" else "release"


def _it(case: Case) -> str:
    return f"Event {case.event.id} ({case.event.key or case.event.subject})"


def _again(case: Case) -> str:
    if not case.event.repeats:
        return ""
    times = count(case.event.repeats, "time")
    last = when(case.event.last_repeat_at, case.now)
    return f". The source showed it again {times}, last {last}: duplicates, which start nothing"


def _doing(run: Run | None, now: datetime) -> str:
    if run is None:
        return "which is gone since"
    if run.status in ("failed", "dead"):
        return f"which is {run.status} after {count(run.attempt, 'try').replace('trys', 'tries')}: {run.error}"
    if run.status == "waiting":
        return f"which waits for {run.waiting_for or stamp(run.due_at)}"
    if run.status in ("done", "cancelled"):
        return f"which is {run.status} since {when(run.finished_at, now)}"
    if run.status in ("ready", "gathering"):
        return f"which is {run.status} and due {when(run.due_at, now)}"
    return f"which is {run.status}"


def _run_advice(run: Run) -> tuple[str, ...]:
    see = f"See its steps: harken runs show {run.id}"
    if run.status in ("failed", "dead", "cancelled"):
        return (see, f"Try it again: harken runs retry {run.id}")
    if run.status == "waiting" and run.waiting_for == "approval":
        return (see, f"Answer it: harken runs approve {run.id}")
    return (see,)


def _details(case: Case) -> dict[str, Any]:
    event, run = case.event, case.run
    found: dict[str, Any] = {
        "event_id": event.id,
        "key": event.key,
        "subject": event.subject,
        "occurred_at": stamp(event.occurred_at) if event.occurred_at else "undated",
        "recorded_at": stamp(event.recorded_at),
        "reason": case.verdict.reason if case.verdict else "",
    }
    if event.repeats:
        found |= {"repeats": event.repeats, "last_repeat_at": stamp(event.last_repeat_at)}
    if run is not None:
        found |= {
            "run_id": run.id,
            "run_status": run.status,
            "run_error": run.error,
            "steps": [f"{record.path}: {record.status}" for record in run.journal],
        }
    return found
