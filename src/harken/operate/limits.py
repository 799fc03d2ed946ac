"""What a trigger's own limits say at this moment: its freshness, its quiet hours and its budget, in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from harken.durations import format_duration
from harken.feed import Trigger, TriggerState
from harken.operate.rows import Plain
from harken.operate.wording import stamp
from harken.schedule import Quiet, quiet_hours, zone_of

__all__ = ["budget_lines", "limits", "next_room", "quiet_line"]


def limits(trigger: Trigger | None, state: TriggerState, now: datetime) -> Plain:
    """The rows that `triggers show` has for them; empty where a limit is not set."""
    return {
        "stale_after": format_duration(trigger.stale_after) if trigger and trigger.stale_after else "",
        "max_age": format_duration(trigger.max_age) if trigger and trigger.max_age else "",
        "quiet_hours": quiet_line(trigger.quiet, now) if trigger and trigger.quiet else "",
        "budget": budget_lines(trigger, state, now),
    }


def quiet_line(quiet: Quiet, now: datetime) -> str:
    begin, end = quiet_hours(quiet, now)
    zone = zone_of(quiet.tz)
    state = (
        f"now, until {end.astimezone(zone):%Y-%m-%d %H:%M}"
        if begin <= now
        else f"next {begin.astimezone(zone):%Y-%m-%d %H:%M}"
    )
    return f"{quiet.start} to {quiet.end} {quiet.tz} ({state})"


def budget_lines(trigger: Trigger | None, state: TriggerState, now: datetime) -> list[str]:
    """A line for each limit: what of it is used, and when it begins anew."""
    return [
        f"{used:g} of {most:g} {what}, anew at {stamp(anew)}" for used, most, what, anew in _used(trigger, state, now)
    ]


def next_room(trigger: Trigger | None, state: TriggerState, now: datetime) -> tuple[str, datetime] | None:
    """Which limit is used up and when there is room again; None while there is room."""
    spent = [
        (f"{used:g} of {most:g} {what}", anew) for used, most, what, anew in _used(trigger, state, now) if used >= most
    ]
    return max(spent, key=lambda one: one[1], default=None)


def _used(trigger: Trigger | None, state: TriggerState, now: datetime) -> Iterator[tuple[float, float, str, datetime]]:
    budget = trigger.budget if trigger else None
    if budget is None:
        return
    day = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    if budget.runs_per_hour is not None:
        yield state.runs_this_hour, budget.runs_per_hour, "runs this hour", hour
    if budget.tokens_per_day is not None:
        yield state.tokens_today, budget.tokens_per_day, "tokens today", day
    if budget.usd_per_day is not None:
        yield round(state.usd_today, 4), budget.usd_per_day, "dollars today", day
