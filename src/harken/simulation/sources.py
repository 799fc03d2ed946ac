"""Stand-ins of the sources of a configuration: they show what the script says, and remember what they have shown."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from harken.clock import Clock, from_unix
from harken.event import Event
from harken.simulation.script import ALIKE, Arrival, Script, StandIn, Trouble
from harken.source import Batch, Cursor, PollSource, Request
from harken.testing import Change, Fault, World, WorldSource
from harken.testing.scripted import suffer

__all__ = ["Occurrence", "RecordedSource", "ScriptedPoll", "ScriptedPush", "ScriptedStream", "Served", "event_of"]

STREAM_BEAT = 20.0
"""A stand-in of a stream says so often that it is there."""

Occurrence: TypeAlias = tuple[str, str | None]
"""The subject and the state of an event: what the source shows, whatever the engine names it."""


def event_of(arrival: Arrival, start: float) -> Event:
    dated = None if arrival.dated is None else from_unix(start + arrival.dated)
    return Event(
        subject=arrival.subject,
        type=arrival.type,
        data=arrival.data,
        key=arrival.key,
        state=arrival.state,
        occurred_at=dated,
    )


class Served:
    """What a source has shown so far, and how often it was read to its end."""

    def __init__(self) -> None:
        self.occurrences: Counter[Occurrence] = Counter()
        self.reads = 0

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            self.occurrences[(event.subject, event.state)] += 1


class RecordedSource:
    """A real source that needs nothing outside, such as a schedule; what it shows is remembered."""

    def __init__(self, inner: PollSource) -> None:
        self._inner = inner
        self.served = Served()
        self.events: dict[str, Event] = {}

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        batch = await self._inner.poll(cursor, since)
        self.served.add(batch.events)
        self.served.reads += not batch.more
        self.events.update({event.key: event for event in batch.events})
        return batch


class ScriptedPoll:
    """A polled source. `true` is the clock of the world outside."""

    def __init__(self, script: Script, feed: str, true: Clock) -> None:
        self.served = Served()
        self._start = script.start.timestamp()
        self._arrivals = sorted(script.of(feed), key=lambda one: one.at)
        self._events = {(one.subject, one.state): event_of(one, self._start) for one in reversed(self._arrivals)}
        self._true = true
        stand_in = script.stand_ins.get(feed, ALIKE)
        self.view = stand_in.view
        self._world = World(true, faults=faults_of(script, feed))
        self._inner = self._source(stand_in)

    def _source(self, stand_in: StandIn) -> PollSource:
        if stand_in.view == "log":
            return _Log(self._arrivals, self._start, self._world, stand_in.page_size)
        changes: list[Change] = []
        for one in self._arrivals:
            stamp = None if one.dated is None else self._start + one.dated
            changes.append(Change(at=self._start + one.at, id=one.subject, state=_state(one), stamp=stamp))
            if one.gone is not None:
                changes.append(Change(at=self._start + one.gone, id=one.subject, state=None))
        self._world.script(changes)
        return WorldSource(self._world, stand_in.view, stand_in.page_size)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        batch = await self._inner.poll(cursor, since)
        events = [self._complete(event) for event in batch.events] if self.view != "log" else batch.events
        self.served.add(events)
        self.served.reads += not batch.more
        return msgspec.structs.replace(batch, events=events)

    def _complete(self, shown: Event) -> Event:
        state = None if shown.state == STATELESS else shown.state
        return self._events[(shown.subject, state)]

    def visible(self) -> set[Occurrence]:
        """What whoever reads everything now would be shown."""
        if self.view == "log":
            return {(one.subject, one.state) for one in self._arrivals if self._start + one.at <= self._true.time()}
        return {(item.id, None if item.state == STATELESS else item.state) for item in self._world.listing()}


STATELESS = "-"
"""The state of an item without one, in the world behind a stand-in."""


def _state(arrival: Arrival) -> str:
    return STATELESS if arrival.state is None else arrival.state


class _Log:
    """Everything that was ever shown, in its order; the cursor is a position."""

    def __init__(self, arrivals: Sequence[Arrival], start: float, world: World, page_size: int) -> None:
        self._at = [start + one.at for one in arrivals]
        self._events = [event_of(one, start) for one in arrivals]
        self._world = world
        self._page_size = page_size

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        await suffer(self._world.fault(), self._world.clock)
        position, end = cursor or 0, bisect_right(self._at, self._world.clock.time())
        following = min(end, position + self._page_size)
        return Batch(events=self._events[position:following], cursor=following or None, more=following < end)


class ScriptedPush:
    """Takes what the player of a script sends as a webhook: the event itself, without a signature."""

    def __init__(self) -> None:
        self.served = Served()

    async def receive(self, request: Request) -> list[Event]:
        return [msgspec.json.decode(request.body, type=Event)]


class ScriptedStream:
    """A broker that delivers a message again unless it was acknowledged, which is when the next ones are asked for."""

    silence_seconds = 60.0

    def __init__(self, script: Script, feed: str, true: Clock, page_size: int = 10) -> None:
        self.served = Served()
        start = script.start.timestamp()
        arrivals = sorted(script.of(feed), key=lambda one: one.at)
        self._at = [start + one.at for one in arrivals]
        self._events = [event_of(one, start) for one in arrivals]
        self._world = World(true, faults=faults_of(script, feed))
        self._page_size = script.stand_ins.get(feed, StandIn(page_size=page_size)).page_size
        self._acknowledged = 0

    def visible(self) -> set[Occurrence]:
        """What has been sent to the stream by now."""
        end = bisect_right(self._at, self._world.clock.time())
        return {(event.subject, event.state) for event in self._events[:end]}

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        position = self._acknowledged
        while True:
            await suffer(self._world.fault(), self._world.clock)
            now = self._world.clock.time()
            end = bisect_right(self._at, now)
            following = min(end, position + self._page_size)
            events = self._events[position:following]
            self.served.add(events)
            yield Batch(events=events, cursor=following)
            self._acknowledged = position = following
            self.served.reads += following == end
            if following == end:
                wait = min(STREAM_BEAT, self._at[end] - now) if end < len(self._at) else STREAM_BEAT
                await asyncio.sleep(max(wait, 0.01))


def faults_of(script: Script, feed: str) -> list[Fault]:
    start = script.start.timestamp()
    return [
        Fault(begin=start + one.at, end=start + one.at + one.seconds, kind=one.kind, after=one.retry_after)
        for one in script.items
        if isinstance(one, Trouble) and one.feed == feed
    ]
