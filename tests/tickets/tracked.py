"""A tracker that is read by the real engine on virtual time, and a stand-in for what writes the labels of its runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harken.backends.sqlite import SqliteStore
from harken.feed import Feed, FeedState, Trigger
from harken.http import Client, HttpSettings
from harken.ingest.intake import Intake
from harken.match import Read
from harken.runs import Cancelled, Claimed, Finished, Run, RunOutcome
from harken.schedule import Every
from harken.services.github.tracker import GitHubTracker
from harken.source import Host, Request
from harken.store import Definitions
from harken.store.method_arguments_and_results import Settlement
from harken.testing import VirtualClock
from harken.testing.fakes.github import GitHub
from harken.ticket import Notice, Ticket, TicketTracker
from harken.tickets import (
    Lifecycle,
    ProjectScope,
    ProjectSettings,
    Routes,
    TicketMemories,
    TicketMemory,
    TicketSource,
    TrackerSettings,
    feed_name,
    trigger_name,
)
from harken.tickets.webhook_loss import DeliveryCounter
from tests.ingest.process import NoExecutor
from tests.services.github import SHOP, account

DONE = Finished()
BY_LABEL = {"fix": "fix-bug", "scan": "security-scan"}


def project(name: str = "shop", location: str = SHOP, **changes: Any) -> ProjectSettings:
    made = ProjectSettings(
        name=name, location=location, scope=ProjectScope(name=name), routes=Routes(by_label=BY_LABEL)
    )
    return msgspec.structs.replace(made, **changes)


def settings(*projects: ProjectSettings, **changes: Any) -> TrackerSettings:
    """A tracker of these projects, polled every minute."""
    projects = projects or (project(),)
    made = TrackerSettings(
        name="hub",
        kind="github",
        account="hub",
        locations=tuple(dict.fromkeys(one.location for one in projects)),
        projects=projects,
        polled=True,
        interval=60.0,
        jitter=0.0,
    )
    return msgspec.structs.replace(made, **changes)


class Notices:
    """Webhooks are what a test says: the next request tells these notices."""

    def __init__(self) -> None:
        self.told: Sequence[Notice] = ()

    def read(self, request: Request) -> Sequence[Notice]:
        return self.told


@asynccontextmanager
async def host_of(clock: VirtualClock) -> AsyncIterator[Host]:
    client = Client(clock, settings=HttpSettings(total_seconds=60.0))
    yield Host(http=client, clock=clock, random=Random(1), allow_private=True)
    await client.close()


@asynccontextmanager
async def github(clock: VirtualClock, path: Path, given: TrackerSettings | None = None) -> AsyncIterator[Tracked]:
    """A GitHub with the repository acme/shop, and its tracker, which has not started."""
    hub = GitHub(clock)
    hub.writes_a_minute = 10_000
    given = given or settings()
    async with hub.serve(), host_of(clock) as host:
        for location in given.locations:
            if location.lower() not in hub.repos:
                hub.add_repo(location)
        trackers = {location: GitHubTracker(location, account(hub), host) for location in given.locations}
        tracked = Tracked(clock, path, given, trackers)
        tracked.hub = hub
        yield tracked
        await tracked.stop()


class Tracked:
    """A process with the feed of one tracker. It executes nothing: `begin_runs` and `end_runs` stand in for workers."""

    hub: GitHub

    def __init__(
        self, clock: VirtualClock, path: Path, given: TrackerSettings, trackers: Mapping[str, TicketTracker]
    ) -> None:
        self.clock = clock
        self.settings = given
        self.trackers = trackers
        self.notices: Any = Notices()
        self.woken = 0
        self.comments: list[Notice] = []
        self._path = path / "harken.db"
        self._running = False
        self.claims: list[Claimed] = []

    @property
    def feed(self) -> str:
        return feed_name(self.settings.name)

    async def start(self) -> None:
        """Start the process; its first read begins at once."""
        await self.open()
        await self.intake.start(self._definitions())
        self._running = True

    async def open(self) -> None:
        """Open the store and make the source, and read nothing."""
        self.store = SqliteStore.at(self._path, self.clock, inline=True)
        self.memories = TicketMemories(self.store, self.settings.name)
        self.counter = DeliveryCounter(self.clock, self.store, self.settings.name)
        self.source = self.another_source()
        engine: Any = (self.store, self.clock, Random(1), NoExecutor(), lambda feed: self.source)
        self.intake = Intake(*engine, holder="tests")

    def another_source(self) -> TicketSource:
        return TicketSource(
            self.settings,
            self.trackers,
            self.memories,
            self.clock,
            self.notices if self.settings.webhook else None,
            recall=partial(self.store.recall, self.feed),
            wake=self._wake,
            on_comment=self._on_comment,
            deliveries=self.counter,
        )

    async def stop(self) -> None:
        if self._running:
            self._running = False
            await self.intake.stop()
            await self.store.close()

    async def crash(self) -> None:
        """As kill -9 does: nothing is flushed."""
        self._running = False
        self.intake.scheduler.stop()
        running = list(self.intake._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.store.abandon()

    async def cycle(self, seconds: float = 65.0) -> None:
        """Let a poll pass."""
        await self.clock.sleep(seconds)

    async def tell(self, *notices: Notice) -> list[str]:
        """Deliver a webhook through the commit that the listener uses. Returns the states that were told."""
        self.notices.told = notices
        request = Request(headers={}, body=b"{}", received_at=self.clock.now())
        events = await self.source.receive(request)
        if events:
            await self.intake.committer.push(self.feed, events, Read(now=self.clock.now()))
        return [event.state or "" for event in events]

    async def begin_runs(self) -> None:
        """Claim the runs that are ready, and show on their tickets that they are in progress."""
        for claim in await self.store.claim("tests", 2000, 3600.0):
            self.claims.append(claim)
            await self.show(claim, Lifecycle.IN_PROGRESS, "running")

    async def end_runs(self, outcome: RunOutcome = DONE) -> None:
        """End the runs that are under way, and show it on their tickets."""
        ended, self.claims = self.claims, []
        await self.store.settle([Settlement(id=one.id, token=one.token, outcome=outcome) for one in ended])
        cancelled = isinstance(outcome, Cancelled)
        for claim in ended:
            await self.show(claim, None if cancelled else Lifecycle.DONE, "cancelled" if cancelled else "done")

    async def show(self, claim: Claimed, state: Lifecycle | None, status: str) -> None:
        data = claim.events[-1].data
        location = next(one.location for one in self.settings.projects if one.name == data["project"])
        tracker, labels = self.trackers[location], self.settings.lifecycle
        ticket = await tracker.get(data["id"])
        assert ticket is not None
        written = await tracker.swap_labels(
            ticket, [] if state is None else [labels.label(state)], labels.surplus(ticket.labels, state)
        )
        memory = await self.memories.get(ticket.id) or TicketMemory(project=data["project"])
        changed = msgspec.structs.replace(
            memory,
            run=claim.id,
            status=status,
            shown=state,
            wrote_at=self.clock.now(),
            version=written.version,
            confirmed=False,
            settled=f"{claim.id}:{status}:1",
        )
        await self.memories.put(ticket.id, changed)

    async def runs(self) -> list[Run]:
        """The runs of all projects, oldest first."""
        found = [
            run
            for one in self.settings.projects
            for run in (await self.store.runs(trigger=trigger_name(self.settings.name, one.name), limit=5000)).items
        ]
        return sorted(found, key=lambda run: run.created_at)

    async def states(self, id: str = "") -> list[str]:
        """The states that the feed has told of this ticket or of all, oldest first."""
        events = (await self.store.events(feed=self.feed, limit=5000)).items
        return [event.state for event in reversed(events) if not id or event.subject == id]

    async def feed_state(self) -> FeedState:
        return await self.store.state(self.feed)

    async def _wake(self) -> None:
        self.woken += 1
        await self.store.wake(self.feed)
        await self.intake.refresh(self.feed)

    async def _on_comment(self, tracker: str, notice: Notice) -> None:
        self.comments.append(notice)

    def _definitions(self) -> Definitions:
        feed = Feed(
            name=self.feed,
            kind=self.settings.kind,
            integration=self.settings.account,
            schedule=Every(seconds=self.settings.interval),
            identity="transition",
            first="all",
            jitter=0.0,
            page_timeout=60.0,
            path="github/hub" if self.settings.webhook else "",
        )
        pipelines = {name for one in self.settings.projects for name in one.routes.by_label.values()}
        pipelines |= {one.routes.default for one in self.settings.projects if one.routes.default}
        triggers = tuple(
            Trigger(
                name=trigger_name(self.settings.name, one.name),
                feed=self.feed,
                workflow=min(pipelines),
                workflow_rev=f"{min(pipelines)}-r1",
                condition=f'event.project == "{one.name}"',
                types=("ticket.ready",),
                overlap="skip",
                concurrency_key="{{.trigger.subject}}",
                routes={name: f"{name}-r1" for name in pipelines},
            )
            for one in self.settings.projects
        )
        flows = {name: (f"{name}-r1", b'{"steps":[]}') for name in pipelines}
        return Definitions(generation="g", starting=True, feeds=(feed,), triggers=triggers, workflows=flows)


async def read(tracked: Tracked, number: int, location: str = SHOP) -> Ticket:
    ticket = await tracked.trackers[location].get(str(number))
    assert ticket is not None
    return ticket
