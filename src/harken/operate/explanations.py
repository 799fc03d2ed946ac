"""Why an event did or did not start a run, and why something was never read: pure sentences from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.clock import from_unix
from harken.event import Known, Outcome, Recorded, Span, Verdict
from harken.feed import MEMORY_COUNTED, Feed, FeedState, Gather, Join, TriggerState
from harken.operate.output_rows import outcome_of, title_of
from harken.operate.trigger_status import mend_advice
from harken.operate.wording import ago, count, schedule_text, stamp, when
from harken.runs import MISSED, NOT_OVER, Run

__all__ = [
    "Case",
    "Explanation",
    "Missing",
    "Stage",
    "covers",
    "explain_event",
    "explain_remembered",
    "explain_time",
    "explain_unseen",
    "feed_details",
    "feed_name",
    "named",
    "trouble",
]


Unstored = Literal["never_seen", "remembered", "dead_letter", "not_read", "in_flight", "lost"]
"""What became of something of which no event is stored."""

Stage = Literal["read", "memory", "match", "gather", "held", "run", "trigger"]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """How far an event got (`stage`), what was decided there, and what a person can do about it."""

    stage: Stage
    outcome: Outcome | Unstored | Literal["summary", "not_covered", "covered"]
    sentence: str
    details: Mapping[str, Any] = {}
    advice: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one event and one trigger. `verdict` is None when the trigger did not listen yet.

    `budget` says which limit of the trigger is used up, and until when. `gather` is how the trigger gathers now.
    `types` are those to which it listens now; empty for all.
    """

    trigger: TriggerState
    event: Recorded
    verdict: Verdict | None
    run: Run | None
    now: datetime
    budget: str = ""
    gather: Gather | None = None
    types: Sequence[str] = ()


def explain_event(case: Case) -> Explanation:
    """Return the answer for an event that was recorded."""
    if case.verdict is None:
        return _not_listening(case)
    return _ANSWERS[case.verdict.outcome](case, case.verdict)


def _fired(case: Case, verdict: Verdict) -> Explanation:
    run = case.run
    if run is None:
        sentence = f"{_event_words(case)} fired and started run {verdict.run_id}, which retention has removed since"
        return Explanation(
            stage="run", outcome="fired", sentence=sentence + _repeat_words(case), details=_details(case)
        )
    if run.hold == "budget" and run.status == "held":
        return _held(case, verdict)
    waits = f"; it {verdict.reason}" if verdict.reason and run.status == "ready" else ""
    sentence = (
        f"{_event_words(case)} fired {ago(case.event.recorded_at, case.now)} and started run {run.id}, "
        f"{_run_words(run, case.now)}{waits}"
    )
    return Explanation(
        stage="run",
        outcome="fired",
        sentence=sentence + _repeat_words(case),
        details=_details(case),
        advice=_run_advice(run),
    )


def _filtered(case: Case, verdict: Verdict) -> Explanation:
    sentence = (
        f"{_event_words(case)} was read, but the condition was not met: {verdict.reason or 'no clause was recorded'}"
    )
    advice = (
        f"See all fields that a condition can use: harken events show {case.event.id}",
        f"Start the run for it anyway: harken events replay {case.event.id} --trigger {case.trigger.name}",
    )
    return Explanation(
        stage="match",
        outcome="filtered",
        sentence=sentence + _repeat_words(case),
        details=_details(case),
        advice=advice,
    )


def _duplicate(case: Case, verdict: Verdict) -> Explanation:
    of = f"run {verdict.run_id}" if verdict.run_id else verdict.reason or "an event that was recorded before"
    state = f", {_run_words(case.run, case.now)}" if case.run else ""
    sentence = f"{_event_words(case)} is a duplicate of {of}{state}"
    advice = (f"To run it again on purpose: harken events replay {case.event.id} --trigger {case.trigger.name}",)
    return Explanation(
        stage="memory",
        outcome="duplicate",
        sentence=sentence + _repeat_words(case),
        details=_details(case),
        advice=advice,
    )


def _before_start(case: Case, verdict: Verdict) -> Explanation:
    if case.event.occurred_at is None:
        sentence = f"{_event_words(case)} was there before the trigger: it is {verdict.reason}"
    elif "ignore_historical" in verdict.reason:
        sentence = f"{_event_words(case)} {verdict.reason}: what happened while nothing ran is skipped on purpose"
    else:
        happened, start = stamp(case.event.occurred_at), stamp(case.trigger.start_line)
        sentence = (
            f"{_event_words(case)} happened {happened}, before the trigger's start line {start}: "
            "what was there before a trigger does not start it"
        )
    details = _details(case) | {"start_line": stamp(case.trigger.start_line), "reason": verdict.reason}
    advice = (
        f"Start the run for it anyway: harken events replay {case.event.id} --trigger {case.trigger.name}",
        "For a new trigger, `startup: backfill` with `backfill: 2h` takes the last two hours",
    )
    return Explanation(stage="match", outcome="before_start", sentence=sentence, details=details, advice=advice)


def _held(case: Case, verdict: Verdict) -> Explanation:
    run, name = case.run, case.trigger.name
    if run is None or run.status != "held":
        now = f"; that run is over the hold: {_run_words(run, case.now)}" if run else "; that run is gone since"
        sentence = (
            f"{_event_words(case)} matched, and run {verdict.run_id} was held ({verdict.reason or 'no reason'}){now}"
        )
        return Explanation(stage="run", outcome="held", sentence=sentence, details=_details(case))
    sentence = f"{_event_words(case)} matched; run {run.id} is held: {_hold(case, run.hold, verdict.reason)}"
    advice = (
        f"Let it go: harken triggers {_freeing(run.hold)} {name}",
        f"Or cancel what is held: harken triggers drop {name}",
    )
    return Explanation(stage="held", outcome="held", sentence=sentence, details=_details(case), advice=advice)


def _gathered(case: Case, verdict: Verdict) -> Explanation:
    run = case.run
    if not verdict.run_id:
        sentence = f"{_event_words(case)} is a part that a join is without: {verdict.reason}"
        return Explanation(stage="gather", outcome="gathered", sentence=sentence, details=_details(case))
    if run is None:
        sentence = f"{_event_words(case)} was gathered into run {verdict.run_id}, which retention has removed since"
        return Explanation(stage="gather", outcome="gathered", sentence=sentence, details=_details(case))
    events = count(len(run.event_keys), "event")
    together = f"{_event_words(case)} was gathered into run {run.id} with {events}{_reason_words(verdict)}"
    parts = _part_words(case, run)
    if run.hold == "budget" and run.status == "held":
        sentence = f"{together}, which is held: {_hold(case, run.hold, '')}"
        return Explanation(stage="held", outcome="gathered", sentence=sentence, details=_details(case))
    if run.status == "gathering":
        sentence = f"{together}{parts}; it is still gathering and becomes due {when(run.due_at, case.now)}"
        details = _details(case) | part_names(case.gather, run.parts)
        return Explanation(stage="gather", outcome="gathered", sentence=sentence, details=details)
    why = f": {run.error}" if run.status == "cancelled" and run.error else ""
    sentence = f"{together}, {_run_words(run, case.now)}{why}{parts}"
    return Explanation(
        stage="run", outcome="gathered", sentence=sentence, details=_details(case), advice=_run_advice(run)
    )


def part_names(gather: Gather | None, there: Sequence[int]) -> dict[str, list[str]]:
    """Which parts of a join are there, and which it still waits for; empty if it is no join."""
    if not isinstance(gather, Join) or not there:
        return {}
    named = [(part.name, number in there) for number, part in enumerate(gather.wanted)]
    return {
        "parts": [name for name, is_there in named if is_there],
        "missing": [name for name, is_there in named if not is_there],
    }


def _part_words(case: Case, run: Run) -> str:
    found = part_names(case.gather, run.parts)
    if not found:
        return ""
    missing = f", {_listed(found['missing'])} missing" if found["missing"] else ""
    if run.error == MISSED and isinstance(case.gather, Join) and case.gather.form == "then" and not missing:
        order = ", then ".join(part.name for part in case.gather.wanted)
        return f"; all its parts are there, but they did not happen in the order {order}"
    needed = ""
    if isinstance(case.gather, Join) and case.gather.form == "any":
        needed = f" ({case.gather.needs} are enough)"
    return f"; of its parts {_listed(found['parts'])} there{missing}{needed}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _skipped(case: Case, verdict: Verdict) -> Explanation:
    why = verdict.reason or "another run of the same concurrency key was under way (overlap: skip)"
    start = f"Start the run for it now: harken events replay {case.event.id} --trigger {case.trigger.name}"
    by_overlap = verdict.reason in ("", NOT_OVER)
    # a throttle or a join skips events too, and has nothing to do with other runs of the key
    advice = ("With `overlap: queue` it would wait for the other run instead", start) if by_overlap else (start,)
    sentence = f"{_event_words(case)} matched, but was skipped: {why}"
    return Explanation(stage="match", outcome="skipped", sentence=sentence, details=_details(case), advice=advice)


def _error(case: Case, verdict: Verdict) -> Explanation:
    sentence = f"{_event_words(case)} could not be decided: {verdict.reason or 'no reason was recorded'}"
    advice = (
        f"See the fields it has: harken events show {case.event.id}",
        f"Mend the condition or mapping, then: harken events replay {case.event.id} --trigger {case.trigger.name}",
    )
    return Explanation(stage="match", outcome="error", sentence=sentence, details=_details(case), advice=advice)


def _unmatched(case: Case, verdict: Verdict) -> Explanation:
    why = verdict.reason or f"the trigger does not listen to events of type {case.event.type}"
    return Explanation(
        stage="match", outcome="unmatched", sentence=f"{_event_words(case)} was read, but {why}", details=_details(case)
    )


def _not_listening(case: Case) -> Explanation:
    if case.types and case.event.type not in case.types:
        return _of_other_type(case)
    created = case.trigger.created_at
    if created > case.event.recorded_at:
        why = f"trigger {case.trigger.name} was only created {stamp(created)}"
    else:
        why = f"trigger {case.trigger.name} has no verdict on it: it did not listen to this feed or type then"
    sentence = f"{_event_words(case)} was recorded {when(case.event.recorded_at, case.now)}, but {why}"
    advice = (f"Start the run for it: harken events replay {case.event.id} --trigger {case.trigger.name}",)
    return Explanation(stage="match", outcome="unmatched", sentence=sentence, details=_details(case), advice=advice)


def _of_other_type(case: Case) -> Explanation:
    """What the event is of says why where it is known: a ticket is ready, or where it stands and why."""
    event = case.event
    said, ref = event.data.get("reason"), event.data.get("ref")
    why = f"trigger {case.trigger.name} listens to {' and '.join(case.types)}, and not to {event.type}"
    advice: tuple[str, ...] = ()
    if event.type.startswith("ticket.") and isinstance(said, str) and said and isinstance(ref, str):
        why = f"started nothing: {said}"
        advice = (f"See where the ticket stands now: harken tickets show {ref}",)
    sentence = f"{_event_words(case)} was read {when(event.recorded_at, case.now)}, but {why}"
    return Explanation(stage="match", outcome="unmatched", sentence=sentence, details=_details(case), advice=advice)


_ANSWERS: Mapping[Outcome, Callable[[Case, Verdict], Explanation]] = {
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


def _reason_words(verdict: Verdict) -> str:
    """The verdict's reason without the event's number within its digest."""
    said = verdict.reason.partition(": ")[2]
    return f" ({said})" if said else ""


def _freeing(hold: str) -> str:
    return "resume" if hold == "paused" else "release"


def named(event: Recorded) -> str:
    """`INC-1 "Disk full"`: the key, and what the event is about if it says so."""
    key, title = event.key or event.subject, title_of(event.data)
    return f'{key} "{title}"' if title and title != key else key


def _event_words(case: Case) -> str:
    return f"Event {case.event.id} ({named(case.event)})"


def _repeat_words(case: Case) -> str:
    if not case.event.repeats:
        return ""
    times = count(case.event.repeats, "time")
    last = when(case.event.last_repeat_at, case.now)
    return f". The source showed it again {times}, last {last}: duplicates, which start nothing"


def _run_words(run: Run | None, now: datetime) -> str:
    if run is None:
        return "which is gone since"
    if run.status in ("failed", "dead"):
        return f"which is {run.status} after {count(run.attempt, 'try').replace('trys', 'tries')}: {run.error}"
    if run.status == "waiting":
        return f"which waits for {run.waiting_for or stamp(run.due_at)}"
    if run.status in ("done", "cancelled"):
        by_filter = f" ({_filter_words(run)})" if outcome_of(run) == "filtered" else ""
        return f"which is {run.status} since {when(run.finished_at, now)}{by_filter}"
    if run.status in ("ready", "gathering"):
        return f"which is {run.status} and due {when(run.due_at, now)}"
    return f"which is {run.status}"


def _filter_words(run: Run) -> str:
    stop = next(record for record in reversed(run.journal) if record.action == "filter")
    reason = stop.output.get("reason") if isinstance(stop.output, Mapping) else ""
    return f"ended by its filter step {stop.path}: {reason}" if reason else f"ended by its filter step {stop.path}"


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
        "title": title_of(event.data),
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


Coverage = Literal["covered", "gap", "not yet", "before the first read", "no ledger"]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when no event has that key."""

    trigger: TriggerState
    key: str
    feed: Feed | None
    state: FeedState | None
    near: tuple[str, ...] = ()
    now: datetime


def explain_unseen(missing: Missing) -> Explanation:
    """Return the answer for something that was never read."""
    state = missing.state
    if state is None:
        sentence = f"{missing.key} was never read: the feed of {missing.trigger.name} was never opened"
        return Explanation(stage="read", outcome="never_seen", sentence=sentence, advice=("Run: harken start",))
    why, advice = _likely(missing, state)
    sentence = f"{missing.key} was never read from feed {feed_name(missing, state)}. {why}"
    return Explanation(
        stage="read", outcome="never_seen", sentence=sentence, details=feed_details(missing, state), advice=advice
    )


def explain_remembered(missing: Missing, known: Known, first: datetime, last: datetime) -> Explanation:
    """Return the answer for an item that memory knows although no event of it is stored."""
    feed = feed_name(missing, missing.state) if missing.state else "?"
    sentence = (
        f"{missing.key} is known to feed {feed} since {when(first, missing.now)} "
        f"and was last listed {when(last, missing.now)}, but no event of it is stored: it was there at the first read, "
        "or its event is older than the retention. It fires when it changes, if the feed's identity says so"
    )
    details: dict[str, Any] = {
        "first_seen": stamp(first),
        "last_seen": stamp(last),
        "state": known.state,
        "changes": known.seq,
        "start_line": stamp(missing.trigger.start_line),
    }
    advice = (f"See what would fire now: harken triggers test {missing.trigger.name}",)
    return Explanation(stage="memory", outcome="remembered", sentence=sentence, details=details, advice=advice)


def explain_time(missing: Missing, moment: datetime) -> Explanation:
    """Explain whether the feed's coverage includes that moment of the source's time."""
    state = missing.state
    if state is None:
        return explain_unseen(missing)
    found = covers(state.coverage, moment, missing.now)
    words = {
        "covered": "Feed {feed} has read that time completely: what the API showed of it is in `harken events list`",
        "gap": "Feed {feed} has not proven to have read that time: it lies in a gap of its ledger",
        "not yet": "Feed {feed} has not read up to that time yet",
        "before the first read": "That time is before what feed {feed} has ever read",
        "no ledger": "Feed {feed} keeps no ledger of times: its source does not say what a read covers",
    }[found]
    covered = found == "covered"
    return Explanation(
        stage="read",
        outcome="covered" if covered else "not_covered",
        sentence=words.format(feed=feed_name(missing, state)),
        details=feed_details(missing, state) | {"time": stamp(moment), "coverage_there": found},
        advice=() if covered else _likely(missing, state)[1],
    )


def covers(coverage: Sequence[Span], moment: datetime, now: datetime) -> Coverage:
    """Whether the coverage ledger includes the moment."""
    if not coverage:
        return "no ledger"
    if any(span.start <= moment <= span.end for span in coverage):
        return "covered"
    if moment > max(span.end for span in coverage):
        return "not yet"
    return "before the first read" if moment < min(span.start for span in coverage) else "gap"


def _likely(missing: Missing, state: FeedState) -> tuple[str, tuple[str, ...]]:
    name, health, now = missing.trigger.name, state.health, missing.now
    test = f"See what the API shows now: harken triggers test {name}"
    if missing.near:
        shown = ", ".join(missing.near)
        meant = f"Did you mean: harken explain {name} '{missing.near[0]}'"
        # the feed may no longer be read at all: say so first
        then = f"If not: the feed is paused. {_mend(missing, state)}" if health.state == "paused" else test
        return f"Something alike was: {shown}", (meant, then)
    if (found := trouble(missing, state)) is not None:
        return found[0], found[1] or (test,)
    if missing.feed is not None and missing.feed.way != "poll":
        return "Nothing of that key was sent to us", ("Look at the sender's own log of deliveries",)
    if state.last_success is None:
        return f"The feed was not read yet; the first read is {ago(state.next_due, now)}", (test,)
    if state.next_due is not None and (now - state.next_due).total_seconds() > 60:
        late = f"The last read was {when(state.last_success, now)} and the next is overdue"
        return late, ("Is a controller running? See: harken status", test)
    due = state.next_due is not None and state.next_due <= now
    following = "due now" if due else ago(state.next_due, now)
    reads = f"The last read was {when(state.last_success, now)}, the next is {following}"
    shown = f"harken feeds show {feed_name(missing, state)}"
    query = f"If the API shows it elsewhere, the feed's query leaves it out: {shown}"
    return f"{reads}; up to then the API did not list it", (test, query)


def trouble(missing: Missing, state: FeedState) -> tuple[str, tuple[str, ...]] | None:
    """Why the feed is not read now, and how that is mended; None if it is well."""
    health, now = state.health, missing.now
    if health.clean:
        return None
    if health.state == "paused":
        return f"The feed is paused: {health.message}", (_mend(missing, state),)
    again = from_unix(health.blocked_until) if health.blocked_until else state.next_due
    failures = "no failure of its own" if health.offline_since else count(health.failures, "failure")
    return f"The feed is failing ({failures}: {health.message}); the next try is {ago(again, now)}", ()


def _mend(missing: Missing, state: FeedState) -> str:
    is_job = missing.feed is not None and missing.feed.breaker is not None
    return mend_advice(missing.trigger.name, state.health, missing.now, is_job=is_job)


def feed_name(missing: Missing, state: FeedState) -> str:
    return missing.feed.display_name if missing.feed else state.name


def feed_details(missing: Missing, state: FeedState) -> dict[str, Any]:
    return {
        "feed": feed_name(missing, state),
        "schedule": schedule_text(missing.feed.schedule) if missing.feed else "",
        "last_read": stamp(state.last_success),
        "next_read": stamp(state.next_due),
        "reads": state.reads,
        "health": state.health.state if not state.health.clean else "ok",
        "error": state.health.message if not state.health.clean else "",
        "covered": [f"{stamp(span.start)} to {stamp(span.end)}" for span in state.coverage[-5:]],
        "remembers": f"{MEMORY_COUNTED} or more" if state.memory >= MEMORY_COUNTED else state.memory,
        "trigger_paused": missing.trigger.paused,
        "start_line": stamp(missing.trigger.start_line),
        "near": list(missing.near),
    }
