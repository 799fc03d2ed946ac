"""Times, amounts and schedules in words, the same in the CLI, the API and the logs."""

from __future__ import annotations

from datetime import datetime

from harken.schedule import At, Cron, Every, Schedule

__all__ = ["ago", "count", "duration", "lag_text", "schedule_text", "stamp", "when"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """`90 s`, `12 min`, `3 h`, `2 d`: one unit, as people say it."""
    amount = abs(seconds)
    for size, unit in _UNITS:
        if amount >= 2 * size or (size > 60 and amount >= size):
            return f"{amount / size:.0f} {unit}"
    return f"{amount:.0f} s"


def stamp(moment: datetime | None) -> str:
    """The moment to the second, in the time zone it came in."""
    if moment is None:
        return "never"
    return moment.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def ago(moment: datetime | None, now: datetime) -> str:
    """`3 min ago`, `in 12 s` or `never`."""
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(seconds)}"


def when(moment: datetime | None, now: datetime) -> str:
    """`2026-03-01 10:00:00Z (3 min ago)`."""
    return "never" if moment is None else f"{stamp(moment)} ({ago(moment, now)})"


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def lag_text(messages: int | None, seconds: float | None) -> str:
    """`12 messages, 3 s`: what waits at a broker, as far as it says."""
    said = [count(messages, "message")] if messages is not None else []
    return ", ".join([*said, duration(seconds)] if seconds is not None else said)


def schedule_text(schedule: Schedule | None) -> str:
    if isinstance(schedule, Every):
        return f"every {duration(schedule.seconds)}"
    if isinstance(schedule, Cron):
        return f"{schedule.expression} ({schedule.tz})"
    return f"at {stamp(schedule.instant)}" if isinstance(schedule, At) else ""
