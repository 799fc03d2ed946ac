"""One process that reads a scripted service on virtual time, and can be stopped, killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harken.backends.sqlite import SqliteStore
from harken.event import Event, Verdict
from harken.feed import Feed, Trigger
from harken.ingest.intake import Intake
from harken.match import Read
from harken.runs import Claimed, Run
from harken.schedule import Every
from harken.store import Definitions, EarlyEnd, Intent
from harken.testing import VirtualClock, World, WorldSource

HOUR = 3600.0
FEED = Feed(name="inbox", kind="world", integration="world", identity="once", schedule=Every(seconds=60), jitter=0.0)
PUSH = Feed(name="hooks", kind="webhook", integration="", way="push")
INTERNAL = Feed(name="harken", kind="harken", integration="harken", way="internal", identity="change", first="deliver")
FLOWS = {"w": ("r", b'{"steps":[]}')}


class NoExecutor:
    """Executes nothing: the runs stay in the store, where tests look at them."""

    holder = "tests"

    def reserve(self, wanted: int) -> int:
        return 0

    def unreserve(self, count: int) -> None:
        raise AssertionError("nothing was reserved")

    def accept(self, claimed: Sequence[Claimed]) -> None:
        raise AssertionError("nothing was reserved")

    def nudge(self) -> None:
        """There is no worker that could look for runs."""

    def find_end(self, feed: str, trigger: str, event: Event, intent: Intent) -> EarlyEnd | None:
        """Runs are executed elsewhere."""
        return None

    def note_over(self, claimed: Claimed, end: EarlyEnd) -> None:
        raise AssertionError("no end was found")


class SinceRecorder(WorldSource):
    """Notes the `since` of every poll, and leaves the keys of its events to the engine."""

    def __init__(self, world: World, **how: Any) -> None:
        super().__init__(world, **how)
        self.since: list[float] = []

    async def poll(self, cursor: Any, since: Any) -> Any:
        self.since.append(since.timestamp())
        batch = await super().poll(cursor, since)
        events = [msgspec.structs.replace(event, key="") for event in batch.events]
        return msgspec.structs.replace(batch, events=events)


def trigger(name: str = "t", **changes: Any) -> Trigger:
    made = Trigger(name=name, feed="inbox", workflow="w", workflow_rev="r")
    return msgspec.structs.replace(made, **changes)


class Process:
    def __init__(self, clock: VirtualClock, path: Path, view: str = "since", **how: Any) -> None:
        self.clock = clock
        self._path = path / "harken.db"
        self.world = World(clock)
        kind: Any = view
        self.source = SinceRecorder(self.world, view=kind, **how)
        self.feed = FEED
        self.triggers: tuple[Trigger, ...] = ()

    def definitions(self, *, starting: bool = False) -> Definitions:
        feeds = (self.feed, PUSH, INTERNAL)
        return Definitions(generation="g", starting=starting, feeds=feeds, triggers=self.triggers, workflows=FLOWS)

    async def start(self, *triggers: Trigger) -> None:
        """Start the process, with these triggers or with those that it had, and read once."""
        self.triggers = triggers or self.triggers
        self.store = SqliteStore.at(self._path, self.clock, inline=True)
        self.intake = self.another_intake("tests")
        await self.intake.start(self.definitions(starting=True))
        await self.clock.sleep(5)

    def another_intake(self, holder: str) -> Intake:
        """Another process's intake on the same store."""
        engine: Any = (self.store, self.clock, Random(1), NoExecutor(), self._build)
        return Intake(*engine, holder=holder)

    def _build(self, feed: Feed) -> Any:
        # a pushed feed is never polled, so any object will do
        return self.source if feed.way == "poll" else object()

    async def reload(self, *triggers: Trigger) -> None:
        self.triggers = triggers
        await self.intake.apply(self.definitions())

    async def stop(self) -> None:
        await self.intake.stop()
        await self.store.close()

    async def crash(self) -> None:
        """As kill -9 does: nothing is flushed."""
        self.intake.scheduler.stop()
        running = list(self.intake._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.store.abandon()

    async def stop_for(self, seconds: float) -> None:
        """Stop for so long."""
        await self.stop()
        await self.clock.sleep(seconds)

    async def push(self, name: str) -> None:
        event = Event(subject=name, key=name, type="hook", data={"id": name}, occurred_at=self.clock.now())
        await self.intake.committer.push("hooks", [event], Read(now=self.clock.now()))

    async def runs(self, name: str = "t", **filters: Any) -> list[Run]:
        """The trigger's runs, oldest first."""
        return list(reversed((await self.store.runs(trigger=name, limit=500, **filters)).items))

    async def fired(self, name: str = "t") -> list[str]:
        """What the runs of this trigger are about, in their order."""
        return [key.partition("@")[0] for run in await self.runs(name) for key in run.event_keys]

    async def verdict(self, subject: str, name: str = "t") -> Verdict:
        events = (await self.store.events(feed="inbox", limit=500)).items
        [found] = [one for event in events if event.subject == subject for one in event.verdicts if one.trigger == name]
        assert isinstance(found, Verdict)
        return found
