"""Why something was never read: what is known of the feed at the time, from its ledger, memory and health."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal

import msgspec

from harken.clock import from_unix
from harken.event import Known, Span
from harken.feed import Feed, FeedState, TriggerState
from harken.operate.explanations import Answer
from harken.operate.wording import ago, count, schedule_text, stamp, when

__all__ = ["Missing", "at_time", "covers", "near", "remembered", "unseen"]

Coverage = Literal["covered", "gap", "not yet", "before the first read", "no ledger"]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when there is no event of that key."""

    trigger: TriggerState
    key: str
    feed: Feed | None
    state: FeedState | None
    near: tuple[str, ...] = ()
    now: datetime


def unseen(missing: Missing) -> Answer:
    """Return the answer for something that was never read."""
    state = missing.state
    if state is None:
        sentence = f"{missing.key} was never read: the feed of {missing.trigger.name} was never opened"
        return Answer(stage="read", outcome="never_seen", sentence=sentence, advice=("Run: harken start",))
    why, advice = _likely(missing, state)
    sentence = f"{missing.key} was never read from feed {state.name}. {why}"
    return Answer(
        stage="read", outcome="never_seen", sentence=sentence, details=_details(missing, state), advice=advice
    )


def remembered(missing: Missing, known: Known, first: datetime, last: datetime) -> Answer:
    """Return the answer for an item that memory knows although no event of it is stored."""
    feed = missing.state.name if missing.state else "?"
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
    return Answer(stage="memory", outcome="remembered", sentence=sentence, details=details, advice=advice)


def at_time(missing: Missing, moment: datetime) -> Answer:
    """Return whether the feed has proven to have read that moment of its source's time."""
    state = missing.state
    if state is None:
        return unseen(missing)
    found = covers(state.coverage, moment, missing.now)
    words = {
        "covered": "Feed {feed} has read that time completely: what the API showed of it is in `harken events list`",
        "gap": "Feed {feed} has not proven to have read that time: it lies in a gap of its ledger",
        "not yet": "Feed {feed} has not read up to that time yet",
        "before the first read": "That time is before what feed {feed} has ever read",
        "no ledger": "Feed {feed} keeps no ledger of times: its source does not say what a read covers",
    }[found]
    covered = found == "covered"
    return Answer(
        stage="read",
        outcome="covered" if covered else "not_covered",
        sentence=words.format(feed=state.name),
        details=_details(missing, state) | {"time": stamp(moment), "coverage_there": found},
        advice=() if covered else _likely(missing, state)[1],
    )


def covers(coverage: Sequence[Span], moment: datetime, now: datetime) -> Coverage:
    """Tell what the ledger says about a moment."""
    if not coverage:
        return "no ledger"
    if any(span.start <= moment <= span.end for span in coverage):
        return "covered"
    if moment > max(span.end for span in coverage):
        return "not yet"
    return "before the first read" if moment < min(span.start for span in coverage) else "gap"


def near(key: str, known: Sequence[str]) -> tuple[str, ...]:
    """The recent keys and subjects that look most like this one."""
    exact = [name for name in known if name.casefold() == key.casefold()]
    inside = [name for name in known if key.casefold() in name.casefold()] if len(key) > 2 else []
    found = exact + inside + get_close_matches(key, known, n=3, cutoff=0.7)
    return tuple(dict.fromkeys(found))[:3]


def _likely(missing: Missing, state: FeedState) -> tuple[str, tuple[str, ...]]:
    name, health, now = missing.trigger.name, state.health, missing.now
    test = f"See what the API shows now: harken triggers test {name}"
    mend = f"Mend that, then: harken triggers resume {name}"
    if missing.near:
        shown = ", ".join(missing.near)
        meant = f"Did you mean: harken explain {name} '{missing.near[0]}'"
        # what is not read now may be what was meant
        then = f"If not: the feed is paused. {mend}" if health.state == "paused" else test
        return f"Something alike was: {shown}", (meant, then)
    if health.state == "paused":
        return f"The feed is paused: {health.message}", (mend,)
    if not health.clean:
        again = from_unix(health.blocked_until) if health.blocked_until else state.next_due
        failures = count(health.failures, "failure")
        return f"The feed is failing ({failures}: {health.message}); the next try is {ago(again, now)}", (test,)
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
    query = "If the API shows it elsewhere, the feed's query leaves it out: harken feeds show " + state.name
    return f"{reads}; up to then the API did not list it", (test, query)


def _details(missing: Missing, state: FeedState) -> dict[str, Any]:
    return {
        "feed": state.name,
        "schedule": schedule_text(missing.feed.schedule) if missing.feed else "",
        "last_read": stamp(state.last_success),
        "next_read": stamp(state.next_due),
        "reads": state.reads,
        "health": state.health.state if not state.health.clean else "ok",
        "error": state.health.message if not state.health.clean else "",
        "covered": [f"{stamp(span.start)} to {stamp(span.end)}" for span in state.coverage[-5:]],
        "remembers": state.memory,
        "trigger_paused": missing.trigger.paused,
        "start_line": stamp(missing.trigger.start_line),
        "near": list(missing.near),
    }
