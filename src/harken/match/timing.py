"""When a run may start: old events share one run, and in quiet hours everything waits for their end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.durations import format_duration
from harken.event import Event, Span
from harken.match.rules import Rule
from harken.schedule import Quiet, quiet_hours, zone_of
from harken.store import GatherInto, Intent

__all__ = ["CATCH_UP", "SPREAD", "timed"]

CATCH_UP = timedelta(seconds=60)
"""The run of the old events is due when none has come for so long: the pages of one read land in one run."""
SPREAD = timedelta(seconds=60)
"""What waited for the end of the quiet hours becomes due within this time, in its order."""
OLD = "\0max_age"


def timed(intent: Intent, event: Event, rule: Rule, now: datetime, *, by_hand: bool) -> Intent:
    """The intent with what `max_age` and `quiet_hours` make of it; what a person asked for does not wait."""
    trigger = rule.trigger
    if trigger.max_age and _is_old(event, trigger.max_age, now):
        intent = _shared(intent, rule, now)
    return intent if trigger.quiet is None or by_hand else _waiting(intent, trigger.quiet)


def _is_old(event: Event, max_age: float, now: datetime) -> bool:
    return event.occurred_at is not None and (now - event.occurred_at).total_seconds() > max_age


def _shared(intent: Intent, rule: Rule, now: datetime) -> Intent:
    reason = f"older than max_age {format_duration(rule.trigger.max_age)} when it was found, so it shares one run"
    slot, overlap = intent.slot, intent.overlap
    if slot:
        # one run for many keys has no key; nor may it be skipped, or push out the run of something newer
        alone = rule.slot is not None or overlap == "cancel_previous"
        slot, overlap = f"{rule.uid}{OLD}" if alone else slot, "queue"
    into = GatherInto(OLD, now + CATCH_UP, extends=True)
    return msgspec.structs.replace(intent, gather=into, slot=slot, overlap=overlap, due_at=now, reason=reason)


def _waiting(intent: Intent, quiet: Quiet) -> Intent:
    begin, end = quiet_hours(quiet, intent.due_at)
    changes: dict[str, Any] = {"quiet": Span(begin, end), "due_at": _after(intent.due_at, begin, end)}
    due, into = intent.due_at, intent.gather
    if into is not None:
        due, (begin, end) = into.due_at, quiet_hours(quiet, into.due_at)
        changes["gather"] = GatherInto(into.key, _after(due, begin, end), into.max, into.extends)
    if begin <= due:
        until = f"waits until {end.astimezone(zone_of(quiet.tz)):%H:%M} (quiet hours)"
        changes["reason"] = f"{intent.reason}; {until}" if intent.reason else until
    return msgspec.structs.replace(intent, **changes)


def _after(due: datetime, begin: datetime, end: datetime) -> datetime:
    """The instant itself, or one shortly after the quiet hours: the later in them, the later after them."""
    return due if due < begin else end + SPREAD * ((due - begin) / (end - begin))
