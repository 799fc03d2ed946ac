"""What must have happened, told from what the sources showed and what the store took: a simple oracle.

It shares no code with matching. It hears of every store verb that took effect, and follows each feed's cursor back
through the answers that led to it: whatever was in those answers must have been recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from harken.clock import Clock
from harken.event import Event
from harken.feed import INTERNAL, Feed, Trigger
from harken.store import Commit, Committed, Definitions
from tests.system.property.sources import Noted, Served, number_of, shown

DAY = 86_400.0


@dataclass
class Listener:
    """A trigger as the model knows it."""

    definition: Trigger
    start: datetime
    epoch: int = 1
    present: bool = True
    reset_at: datetime | None = None
    created: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.created = self.start

    def began_by(self, moment: datetime) -> bool:
        """A time in whole seconds is one within its second, but for a trigger that was reset."""
        coarse = moment.microsecond == 0 and self.epoch == 1
        return moment >= (self.start.replace(microsecond=0) if coarse else self.start)

    def wants(self, event: Event) -> bool:
        state = event.data.get("state")
        wanted = {"": True, 'event.state == "open"': state == "open", 'event.state != "closed"': state != "closed"}
        return wanted[self.definition.condition]


@dataclass
class Remembered:
    state: str | None
    seq: int
    since: float


@dataclass
class Stored:
    """An occurrence that was recorded, and the triggers that have decided about it for good."""

    key: str
    event: Event
    decided: set[str] = field(default_factory=set)


@dataclass
class Told:
    """What one feed has told us. `resumed`: not read to its end since the process began."""

    feed: Feed
    source: Noted | None
    memory: dict[str, Remembered] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    baselined: bool = False
    keys: Counter[str] = field(default_factory=Counter)
    shown: set[tuple[str, str | None]] = field(default_factory=set)
    starts: list[datetime] = field(default_factory=list)
    resumed: bool = True
    stored: list[Stored] = field(default_factory=list)


class Model:
    def __init__(self, clock: Clock, sources: Mapping[str, Noted]) -> None:
        self._clock = clock
        self._sources = sources
        self.feeds: dict[str, Told] = {}
        self.listeners: dict[str, Listener] = {}
        self.expected: set[tuple[str, int, str]] = set()
        # who looks back has these to decide about, unless the process dies before
        self.pending: dict[str, list[Stored]] = {}

    def heard(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        if verb == "open":
            self._opened(args[0])
        elif verb == "reset" and kwargs["cursor"]:
            self._reset(self.listeners[args[0]])
        elif verb == "move_start_lines":
            for moved in answer:
                self._moved(self.listeners[moved.trigger], moved.start_line)
        elif verb == "commit" and isinstance(answer, Committed):
            self._committed(args[0])
        elif verb == "record_idle":
            for rest in [one for one in args[0] if one.feed not in answer]:
                self._stands(rest.feed, rest.cursor, set())
                self.feeds[rest.feed].resumed = False

    def runs(self) -> Counter[tuple[str, str]]:
        """How many runs there must be of each trigger and event key."""
        for name, waiting in self.pending.items():
            for stored in waiting:
                self._decides(self.listeners[name], stored)
        return Counter((trigger, key) for trigger, _, key in self.expected)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(int(self._clock.time() * 1e6) / 1e6, UTC)

    def _opened(self, definitions: Definitions) -> None:
        for feed in definitions.feeds:
            self.feeds.setdefault(feed.name, Told(feed, self._sources.get(feed.name)))
        if definitions.starting:
            for told in self.feeds.values():
                told.resumed = True
        named = {trigger.name: trigger for trigger in definitions.triggers}
        for name, listener in self.listeners.items():
            listener.present = name in named
            if not listener.present:
                # who comes back counts from then on: it does not go on with an old look back
                self.pending.pop(name, None)
        for name, trigger in named.items():
            if name not in self.listeners:
                self._begins(self.listeners.setdefault(name, Listener(trigger, self._now())), trigger.backfill)
            elif definitions.starting and trigger.startup == "ignore_historical":
                self.listeners[name].start = self._now()
            elif definitions.starting and trigger.startup == "backfill":
                self._begins(self.listeners[name], trigger.backfill)
            self.listeners[name].definition = trigger

    def _begins(self, listener: Listener, back: float) -> None:
        listener.start = self._now() - timedelta(seconds=back)
        if listener.reset_at is not None:
            listener.start = max(listener.start, listener.reset_at)
        self._looks_back(listener, bool(back))

    def _moved(self, listener: Listener, start: datetime) -> None:
        """The start line was in the future, because the clock was ahead."""
        listener.start = start
        if listener.reset_at is not None:
            listener.reset_at = min(listener.reset_at, start)
        self._looks_back(listener, True)

    def _looks_back(self, listener: Listener, back: bool) -> None:
        told, name = self.feeds[listener.definition.feed], listener.definition.name
        told.starts.append(listener.start)
        dated = [one for one in told.stored if one.event.occurred_at and listener.began_by(one.event.occurred_at)]
        self.pending[name] = [one for one in dated if name not in one.decided] if back else []

    def _decides(self, listener: Listener, stored: Stored) -> None:
        """The trigger looks back at something that was recorded when it did not count."""
        if listener.definition.name not in stored.decided:
            stored.decided.add(listener.definition.name)
            if listener.wants(stored.event):
                self.expected.add((listener.definition.name, listener.epoch, stored.key))

    def _reset(self, listener: Listener) -> None:
        told = self.feeds[listener.definition.feed]
        listener.epoch += 1
        listener.start = listener.reset_at = self._now()
        self.pending.pop(listener.definition.name, None)
        told.starts.append(listener.start)
        if told.feed.identity != "transition" or len(self._present(told.feed.name)) == 1:
            told.memory.clear()
            told.baselined = False

    def _present(self, feed: str) -> list[Listener]:
        return [one for one in self.listeners.values() if one.present and one.definition.feed == feed]

    def _committed(self, commit: Commit) -> None:
        if commit.feed == INTERNAL:
            return
        if commit.entries and commit.entries[0].again:
            self._looked_back(commit)
        elif commit.token is None:
            for entry in commit.entries:
                self._sees(self.feeds[commit.feed], entry.event, {entry.event.key}, 0)
        else:
            self._stands(commit.feed, commit.cursor, {entry.event.key for entry in commit.entries})

    def _looked_back(self, commit: Commit) -> None:
        keys = {entry.event.key for entry in commit.entries}
        for listener in self._present(commit.feed):
            for stored in self.pending.get(listener.definition.name, []):
                if stored.key in keys:
                    self._decides(listener, stored)

    def _stands(self, feed: str, cursor: Any, recorded: set[str]) -> None:
        """The feed's cursor is here from now on: everything on the way to it counts."""
        told = self.feeds[feed]
        if told.source is None or cursor is msgspec.UNSET:
            return
        for served in told.source.path_to(number_of(cursor), told.taken):
            told.taken.add(served.number)
            self._takes(told, served, recorded)

    def _takes(self, told: Told, served: Served, recorded: set[str]) -> None:
        for event in served.batch.events:
            told.shown.add(shown(event))
            self._sees(told, event, recorded, served.number)
        if not served.batch.more:
            told.baselined, told.resumed = True, False

    def _sees(self, told: Told, event: Event, recorded: set[str], number: int) -> None:
        identity = told.feed.identity
        name = f"{event.subject}@{event.state}" if identity == "change" and event.state else event.subject
        known = told.memory.get(name)
        key = _key(event, identity)
        seq, moved = 1, known is None
        if known is not None and identity == "transition":
            moved, seq = known.state != event.state, known.seq + 1
        if seq > 1:
            key = f"{key}#{seq}"
        if not moved:
            assert known is not None
            if key not in recorded or not self._forgettable(told, name, known, number):
                return
        # one that was forgotten is remembered anew, so the next entry about it in the same answer is a repeat
        since = known.since if known is not None and moved else self._clock.time()
        told.memory[name] = Remembered(event.state, seq, since)
        told.keys[key] += 1
        stored = Stored(key, event)
        told.stored.append(stored)
        for listener in self._present(told.feed.name):
            if self._after_start(told, event, listener):
                self._decides(listener, stored)

    def _after_start(self, told: Told, event: Event, listener: Listener) -> bool:
        if told.feed.first == "deliver" and not told.baselined:
            return True
        if event.occurred_at is None:
            skips = listener.definition.startup == "ignore_historical" and told.resumed and told.source is not None
            return (told.baselined and not skips) or told.source is None
        if told.source is None and listener.start <= listener.created:
            # it was sent to the trigger, whenever it happened
            return True
        return listener.began_by(event.occurred_at)

    def _forgettable(self, told: Told, name: str, known: Remembered, number: int) -> bool:
        """It was absent from two complete reads that returned content, and is older than a day."""
        if told.source is None:
            return self._clock.time() - known.since >= 3 * DAY
        absent = longest = 0
        for served in reversed(told.source.served[: number - 1]):
            if any(name in (event.subject, f"{event.subject}@{event.state}") for event in served.batch.events):
                absent = 0
                if served.number in told.taken:
                    break
                continue
            absent += served.batch.complete and not served.batch.more
            longest = max(longest, absent)
        return longest >= 2 and self._clock.time() - known.since >= DAY


def _key(event: Event, identity: str) -> str:
    if event.key:
        return event.key
    return event.subject if identity == "once" or event.state is None else f"{event.subject}@{event.state}"
