"""The status of a trigger (new, healthy, degraded, paused, stale, refused), its reason and its limits: all pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from harken.circuit_breaker import Health
from harken.clock import from_unix
from harken.durations import format_duration
from harken.feed import AT_START, Feed, FeedState, Trigger, TriggerState
from harken.ingest.feed_runtime_state import Late
from harken.operate.output_rows import Plain
from harken.operate.wording import ago, count, duration, stamp, when
from harken.schedule import At, Every, Quiet, is_over, quiet_hours, zone_of
from harken.store import FUTURE_SECONDS, Backlog

__all__ = [
    "Status",
    "TriggerStatus",
    "Unread",
    "budget_lines",
    "last_sign",
    "limits",
    "mend_advice",
    "next_room",
    "offline_since",
    "over_reason",
    "quiet_line",
    "reset_command",
    "status_of",
]


def limits(trigger: Trigger | None, state: TriggerState, now: datetime) -> Plain:
    """The limits as `triggers show` prints them; empty where a limit is not set."""
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
    """A line for each limit: how much is used, and when it starts again."""
    return [
        f"{used:g} of {most:g} {what}, anew at {stamp(anew)}" for used, most, what, anew in _used(trigger, state, now)
    ]


def next_room(trigger: Trigger | None, state: TriggerState, now: datetime) -> tuple[str, datetime] | None:
    """The limit that is used up and when it starts again; None while there is room."""
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


Status = Literal["new", "healthy", "degraded", "paused", "stale", "refused", "disabled"]

GRACE_SECONDS = 120.0
"""How late a read may be before it is called stale; slow feeds get twice their interval."""


SHOWN_LATE = 2.0
"""A read that waits for a slot is shown as late after so many seconds."""

NO_BACKLOG = Backlog()
OFFLINE = "offline: "
"""How the message of such an error begins."""


class TriggerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`needs_person`: it does not mend by itself, and nobody has stopped it on purpose."""

    status: Status
    reason: str = ""
    advice: str = ""
    needs_person: bool = False


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a feed that cannot be read while the rest of it is."""

    what: str
    since: datetime
    message: str
    advice: str
    needs_person: bool = False


def status_of(
    trigger: TriggerState,
    feed: Feed | None,
    state: FeedState | None,
    now: datetime,
    stale_after: float = 0.0,
    backlog: Backlog = NO_BACKLOG,
    last_dead: str = "",
    waits: Late | None = None,
    unread: Unread | None = None,
) -> TriggerStatus:
    """The first that applies: removed, paused, one-shot over, in the future, stale, unread, failing, dead, late, new.

    Runs that are held until somebody releases them are mentioned in any of these. `last_dead` is why the newest dead
    run died. `waits`: its read is due and waits for a slot. `unread`: what the trigger is for is not read.
    """
    found = (
        _removed(trigger, now)
        or _paused(trigger, feed, state, now)
        or _over(trigger, feed, state)
        or _starts_later(trigger, now)
        or _stale(trigger, feed, state, now, stale_after)
        or _unread(unread, now)
        or _failing(trigger, state, now)
        or _dead(trigger, backlog, last_dead)
        or _retrying(trigger, backlog)
        or _waiting(waits)
        or _late(feed, state, now)
        or _new(feed, state, now)
    )
    return _with_held(trigger, backlog, found or TriggerStatus(status="healthy"))


def _with_held(trigger: TriggerState, backlog: Backlog, found: TriggerStatus) -> TriggerStatus:
    flood, paused = backlog.held.get("flood", 0), backlog.held.get("paused", 0)
    if not flood and not paused:
        return found
    by = {"the flood guard": flood, "the pause": paused}
    held = " and ".join(f"{count(number, 'run')} held by {what}" for what, number in by.items() if number)
    name = trigger.name
    release = f"Let them go: harken triggers release {name}; or cancel them: harken triggers drop {name}"
    return TriggerStatus(
        status="degraded" if found.status in ("healthy", "new") else found.status,
        reason=f"{found.reason}; {held}" if found.reason else held,
        advice=f"{found.advice}. {release}" if found.advice else release,
        needs_person=found.needs_person or flood > 0,
    )


def _dead(trigger: TriggerState, backlog: Backlog, last_dead: str) -> TriggerStatus | None:
    if not backlog.dead:
        return None
    last = f", the last with: {last_dead}" if last_dead else ""
    return TriggerStatus(
        status="degraded",
        reason=f"{count(backlog.dead, 'dead run')}{last}",
        advice=f"Mend that, then: harken dead retry --trigger {trigger.name}. See them: harken dead list",
        needs_person=True,
    )


def _retrying(trigger: TriggerState, backlog: Backlog) -> TriggerStatus | None:
    if not backlog.retrying:
        return None
    return TriggerStatus(
        status="degraded",
        reason=f"{count(backlog.retrying, 'run')} failed and will be tried again",
        advice=f"See why: harken runs list --trigger {trigger.name} --status ready",
    )


def _removed(trigger: TriggerState, now: datetime) -> TriggerStatus | None:
    if trigger.removed_at is None:
        return None
    reason = f"it left the configuration {ago(trigger.removed_at, now)}"
    return TriggerStatus(status="paused", reason=reason, advice="Write it again and it goes on where it stopped")


def reset_command(name: str, *, is_job: bool) -> str:
    """The command that forgets how far the trigger's or job's feed was read, and begins at now."""
    return f"harken pollers reset {name} --yes" if is_job else f"harken triggers reset {name} --cursor --yes"


def mend_advice(name: str, health: Health, now: datetime, *, is_job: bool) -> str:
    """What to do about a feed that stopped, with the command that works, and when it is tried again by itself."""
    if health.code == "cursor_expired":
        return f"Begin anew at now: {reset_command(name, is_job=is_job)}"
    resume = f"Mend that, then: harken {'pollers' if is_job else 'triggers'} resume {name}"
    if not health.probed or health.blocked_until is None:
        return resume
    following = from_unix(health.blocked_until)
    return f"{resume}. It is tried again by itself {ago(following, now) if following > now else 'now'}"


def offline_since(states: Iterable[FeedState]) -> datetime | None:
    """Since when feeds have found this machine offline; None if none of them does."""
    found = [state.health.offline_since for state in states if state.health.offline_since is not None]
    return from_unix(min(found)) if found else None


def _paused(trigger: TriggerState, feed: Feed | None, state: FeedState | None, now: datetime) -> TriggerStatus | None:
    if trigger.paused:
        says_who = trigger.paused == AT_START or trigger.paused.startswith("paused by ")
        return TriggerStatus(
            status="paused",
            reason=trigger.paused if says_who else f"paused by a person: {trigger.paused}",
            advice=f"{_while_paused(feed)}. To go on: harken triggers resume {trigger.name}",
        )
    if state is None or state.health.state != "paused":
        return None
    stopped = f"its feed {feed.display_name if feed else state.name} stopped"
    return TriggerStatus(
        status="paused",
        reason=f"{stopped}: {state.health.message or state.health.code}",
        advice=mend_advice(trigger.name, state.health, now, is_job=feed is not None and feed.breaker is not None),
        needs_person=True,
    )


def _while_paused(feed: Feed | None) -> str:
    if feed is None or feed.way != "poll":
        return "Events are recorded and their runs held"
    return "Its runs are held, and its feed is not read while all its triggers are paused"


def over_reason(feed: Feed | None, state: FeedState | None) -> str:
    """Why a feed that is read once is not read any more; empty for any other, and before its time."""
    if feed is None or state is None or not isinstance(feed.schedule, At):
        return ""
    if not is_over(feed.schedule, state.last_success):
        return ""
    return f"its one time, {feed.schedule.instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z, is over"


def _over(trigger: TriggerState, feed: Feed | None, state: FeedState | None) -> TriggerStatus | None:
    reason = over_reason(feed, state)
    if not reason:
        return None
    return TriggerStatus(
        status="paused",
        reason=reason,
        advice=f"Give it another time, or once more by hand: harken triggers run {trigger.name}",
    )


def last_sign(trigger: TriggerState, state: FeedState | None) -> datetime:
    """The last success of the trigger's feed (a read or a push); before the first one, the trigger's creation."""
    last = state.last_success if state else None
    return trigger.created_at if last is None else max(last, trigger.created_at)


def _starts_later(trigger: TriggerState, now: datetime) -> TriggerStatus | None:
    if (trigger.start_line - now).total_seconds() <= FUTURE_SECONDS:
        return None
    return TriggerStatus(
        status="degraded",
        reason=f"its start line {stamp(trigger.start_line)} is in the future, as the clock was ahead when it was set",
        advice="A running controller moves it back within a minute. Is the clock right now? See: harken doctor",
    )


def _stale(
    trigger: TriggerState, feed: Feed | None, state: FeedState | None, now: datetime, stale_after: float
) -> TriggerStatus | None:
    last = last_sign(trigger, state)
    if not stale_after or (now - last).total_seconds() <= stale_after:
        return None
    silence = "no read has succeeded" if feed is None or feed.way == "poll" else "nothing has come"
    reason = f"{silence} since {when(last, now)}, which is longer than stale_after {format_duration(stale_after)}"
    if state is not None and not state.health.clean:
        reason = f"{reason}: {state.health.message}"
    advice = f"See why: harken explain {trigger.name}"
    return TriggerStatus(status="stale", reason=reason, advice=advice, needs_person=True)


def _unread(unread: Unread | None, now: datetime) -> TriggerStatus | None:
    if unread is None:
        return None
    return TriggerStatus(
        status="degraded",
        reason=f"{unread.what} is not read since {when(unread.since, now)}: {unread.message}",
        advice=unread.advice,
        needs_person=unread.needs_person,
    )


def _failing(trigger: TriggerState, state: FeedState | None, now: datetime) -> TriggerStatus | None:
    if state is None or state.health.clean:
        return None
    health = state.health
    again = from_unix(health.blocked_until) if health.blocked_until else state.next_due
    following = f"The next try is {ago(again, now)}" if again and again > now else "It is tried again now"
    if health.offline_since is not None:
        reason = f"offline since {when(from_unix(health.offline_since), now)}: {health.message.removeprefix(OFFLINE)}"
    elif health.state in ("open", "half_open"):
        reason = f"the breaker is open after {count(health.failures, 'failure')} in a row: {health.message}"
    elif health.rate_limited and not health.failures:
        reason = f"the service asked us to slow down: {health.message}"
    else:
        reason = f"{count(health.failures, 'failure')} in a row: {health.message}"
    advice = (
        f"{following}; nothing is lost meanwhile. To see what the service shows: harken triggers test {trigger.name}"
    )
    return TriggerStatus(status="degraded", reason=reason, advice=advice)


def _waiting(waits: Late | None) -> TriggerStatus | None:
    if waits is None or waits.seconds < SHOWN_LATE:
        return None
    return TriggerStatus(
        status="degraded",
        reason=f"its read is {duration(waits.seconds)} late: it {waits.reason}",
        advice="Reads that hang end by themselves after page_timeout. See which services are slow: harken feeds list",
    )


def _late(feed: Feed | None, state: FeedState | None, now: datetime) -> TriggerStatus | None:
    if feed is None or state is None or feed.way != "poll" or state.next_due is None:
        return None
    late = (now - state.next_due).total_seconds()
    interval = feed.schedule.seconds if isinstance(feed.schedule, Every) else 0.0
    if late <= max(GRACE_SECONDS, 2 * interval):
        return None
    reason = f"its read is {duration(late)} late; the last success was {when(state.last_success, now)}"
    advice = "Is a controller running? See: harken status"
    return TriggerStatus(status="stale", reason=reason, advice=advice, needs_person=True)


def _new(feed: Feed | None, state: FeedState | None, now: datetime) -> TriggerStatus | None:
    if state is None:
        return TriggerStatus(status="new", reason="its feed was never opened", advice="Run: harken start")
    if feed is not None and feed.way == "poll" and state.last_success is None:
        first = f"; the first read is {ago(state.next_due, now)}" if state.next_due else ""
        return TriggerStatus(status="new", reason=f"not read yet{first}")
    return None
