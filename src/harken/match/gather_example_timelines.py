"""How a trigger gathers, told with events that might come: by the rules that the commit decides by.

The times of the events are made up from the trigger's own windows; what becomes of them is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from harken.durations import format_duration
from harken.feed import Debounce, Dedupe, Digest, Gather, Join, Throttle, Trigger
from harken.match.decide import gather_into
from harken.store import JoinPart, RateLimit
from harken.store.gathering_rules import (
    Gathered,
    answered_by,
    is_complete,
    postponed,
    runs_when_over,
    start_within,
    with_start,
)

__all__ = ["Moment", "Story", "stories"]

SHOWN = 8
"""The most events of a time line."""

BEGIN = datetime(2000, 1, 1, tzinfo=UTC)


class Moment(msgspec.Struct, frozen=True):
    """What happens so many seconds after the first event."""

    seconds: float
    text: str


class Story(msgspec.Struct, frozen=True):
    title: str
    moments: tuple[Moment, ...]

    def lines(self) -> list[str]:
        width = max(len(_after(moment.seconds)) for moment in self.moments)
        return [self.title, *(f"  {_after(moment.seconds):>{width}}  {moment.text}" for moment in self.moments)]


def stories(trigger: Trigger) -> list[Story]:
    """The time lines of what the trigger gathers and limits; none for a plain one."""
    found: list[Story] = []
    if isinstance(trigger.gather, Join):
        found += _joins(trigger.gather)
    elif trigger.gather is not None:
        found.append(_window(trigger.gather))
    if trigger.throttle is not None:
        found.append(_throttled(trigger.throttle))
    if trigger.dedupe is not None:
        found.append(_deduped(trigger.dedupe))
    return found


def _after(seconds: float) -> str:
    return f"+{format_duration(seconds)}" if seconds else "0s"


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _due(gather: Gather, seconds: float) -> int:
    """When a run that an event opens or postpones at `seconds` is due."""
    due = gather_into(gather, "", BEGIN + timedelta(seconds=seconds)).due_at
    return _micros((due - BEGIN).total_seconds())


def _window(gather: Digest | Debounce) -> Story:
    into = gather_into(gather, "", BEGIN)
    moments: list[Moment] = []
    due, events = 0, 0
    for seconds in _arrivals(gather):
        if events and due <= _micros(seconds):
            break
        events += 1
        due = postponed(due, 0, _due(gather, seconds), into) if events > 1 else _due(gather, seconds)
        said = "opens a run" if events == 1 else "joins it"
        moments.append(Moment(seconds, f"event {events} {said}: due at {_after(due / 1e6)}"))
        if into.max and events >= into.max:
            due = _micros(seconds)
            break
    moments.append(Moment(due / 1e6, f"the run starts with {events} events; the next event opens another"))
    title = f"{type(gather).__name__.lower()}{f' for each {gather.by}' if gather.by else ''}"
    return Story(title, tuple(moments))


def _arrivals(gather: Digest | Debounce) -> Iterable[float]:
    """Events that come closer together than the window; of a debounce with a longest wait, for as long as that."""
    step = gather.window * (0.4 if isinstance(gather, Digest) else 0.8)
    longest = gather.max_wait if isinstance(gather, Debounce) else 0.0
    count = min(SHOWN, max(3, int(longest / step) + 1, gather.max))
    return [number * step for number in range(count)]


def _joins(join: Join) -> list[Story]:
    wanted = [part.name for part in join.wanted]
    enough = wanted[: join.needs]
    title = f"join within {format_duration(join.within)}"
    found = [_join_story(f"{title}, when all goes well", join, enough)]
    if len(enough) > 1:
        found.append(_join_story(f"{title}, when {enough[-1]} does not come", join, enough[:-1]))
    if join.form == "then" and len(enough) > 1:
        found.append(_join_story(f"{title}, when they happen in another order", join, enough[::-1]))
    if join.none:
        found.append(_join_story(f"{title}, when {join.none[0]} comes", join, [*enough, join.none[0]]))
    return found


def _join_story(title: str, join: Join, names: Sequence[str]) -> Story:
    numbers = {part.name: number for number, part in enumerate(join.wanted)}
    step = join.within * 0.6 / len(names)
    due, gathered, moments = _due(join, 0), list[Gathered](), list[Moment]()
    ordered, keeps = join.form == "then", join.on_miss == "run"
    shape = JoinPart(0, BEGIN, join.within, join.needs, ordered=ordered, waits=bool(join.none), keeps=keeps)
    for at, name in enumerate(names):
        seconds = at * step
        if name in join.none:
            times = [time for _, time in gathered]
            assert answered_by(max(times), min(times), _micros(seconds), join.within)
            return Story(title, (*moments, Moment(seconds, f"{name} comes: the run is cancelled")))
        gathered.append((numbers[name], _micros(seconds)))
        if not shape.waits and is_complete(gathered, shape):
            started = f"{name} comes: the run starts with {len(gathered)} events"
            return Story(title, (*moments, Moment(seconds, started)))
        said = "opens a run" if at == 0 else "joins it"
        moments.append(Moment(seconds, f"{name} {said}: it waits until {_after(due / 1e6)}"))
    runs = runs_when_over(gathered, shape)
    end = "the run starts with what is there" if runs else "the run is cancelled: not all parts came in time"
    return Story(title, (*moments, Moment(due / 1e6, end)))


def _throttled(throttle: Throttle) -> Story:
    rate = RateLimit("", throttle.most, throttle.per, throttle.rest == "drop")
    times: list[int] = []
    moments: list[Moment] = []
    for number in range(1, throttle.most + 3):
        start = start_within(times, 0, rate)
        if start and rate.drops:
            moments.append(Moment(0, f"event {number} is skipped; the next run may start at {_after(start / 1e6)}"))
            continue
        times = with_start(times, start, rate)
        moments.append(Moment(start / 1e6, f"the run of event {number} starts"))
    # of many that start at once, the first and the last are enough
    moments = moments if len(moments) <= SHOWN else [*moments[:2], *moments[-4:]]
    each = f" for each {throttle.by}" if throttle.by else ""
    title = f"throttle: {throttle.most} in {format_duration(throttle.per)}{each}, all events at once"
    return Story(title, tuple(moments))


def _deduped(dedupe: Dedupe) -> Story:
    half = dedupe.within / 2
    moments = (
        Moment(0, "an event starts a run"),
        Moment(half, f"another with the same {dedupe.by} is a duplicate of it"),
        Moment(dedupe.within, "the next one starts a run again"),
    )
    return Story(f"dedupe by {dedupe.by}", moments)
