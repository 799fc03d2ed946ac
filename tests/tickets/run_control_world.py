"""A fake GitHub, a store, a worker and the run control: the small world in which runs of tickets are tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

from harken.backends.sqlite import SqliteStore
from harken.errors import NotFound
from harken.event import Event, Known
from harken.feed import INTERNAL, Feed, Trigger
from harken.http import Client, HttpSettings
from harken.match.new_feed_items import recognise
from harken.run.compiled_workflows import WorkflowCache
from harken.run.language_models import Models, ModelSettings
from harken.run.services_given_to_steps import Environment
from harken.run.worker import Worker
from harken.runs import Run, StepRecord
from harken.services.github.issue_to_ticket import ticket_of
from harken.services.github.tracker import GitHubTracker
from harken.source import Act, Call, Host
from harken.store import Commit, Committed, Definitions, Entry, Intent, NewRun, Opened
from harken.testing import VirtualClock
from harken.testing.fakes.github import GitHub, Issue
from harken.testing.fakes.server import Answer
from harken.ticket import Ticket
from harken.tickets import (
    ProjectScope,
    ProjectSettings,
    Routes,
    TicketMemories,
    TrackerSettings,
    Trust,
    feed_name,
    scope_of,
    standing,
    trigger_name,
)
from harken.tickets.comment_marks import receipt_key
from harken.tickets.event_from_ticket import Placed, event_of
from harken.tickets.projector import Projector
from harken.tickets.run_control import RunControl
from harken.tickets.tracker_feed_source import TicketSource
from tests.services.github import SHOP, account

FEED, TRIGGER = feed_name("hub"), trigger_name("hub", "shop")
OURS = "harken[bot]"
WRITERS = Trust()


def settings(trust: Trust = WRITERS, **more: Any) -> TrackerSettings:
    project = ProjectSettings(
        name="shop",
        location=SHOP,
        scope=ProjectScope(name="shop", repo=SHOP),
        routes=more.pop("routes", Routes(by_label={"fix": "fix-bug"})),
        trust=trust,
        base="main",
    )
    given = {"name": "hub", "kind": "github", "account": "github", "locations": (SHOP,), "projects": (project,)}
    return TrackerSettings(**(given | more))


class Ours:
    """The lease is always ours."""

    async def keep(self) -> bool:
        return True


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class World:
    """Tickets are made on `hub` and told to the engine by `tell`, as the feed of the tracker would.

    The pipeline's steps may call `work.do`: it takes `seconds`, and remembers what it was called with.
    """

    def __init__(self, clock: VirtualClock, hub: GitHub, store: SqliteStore, opened: Opened, tracker: TrackerSettings):
        self.clock = clock
        self.hub = hub
        self.store = store
        # what the worker and the run control use
        self.used: Any = store
        self.opened = opened
        self.settings = {"hub": tracker}
        self.seconds = 0.0
        self.did: list[Any] = []
        self.http = Client(clock, settings=HttpSettings(total_seconds=30.0))
        host = Host(http=self.http, clock=clock, random=Random(1), allow_private=True)
        self.github = GitHubTracker(SHOP, account(hub, "app"), host)
        self.wrapped: Any = self.github
        self.run_control = self.new_run_control()
        self.worker = self.new_worker("w1")
        self._tasks: list[asyncio.Task[Any]] = []

    def new_run_control(self) -> RunControl:
        return RunControl(
            self.used,
            lambda name: {SHOP: self.wrapped},
            lambda: self.settings,
            self.clock,
            on_cancelled=self._check_claims,
        )

    def new_worker(self, holder: str) -> Worker:
        host: Any = None
        environment = Environment(
            http=self.http,
            clock=self.clock,
            random=Random(1),
            models=Models(ModelSettings(names={"default": "echo"})),
            destination=_missing,
            action=lambda name: (Act(params=Anything, run=self._do), None, host),
            workflow_rev=lambda name: None,
            bracket=self.run_control.bracket,
        )
        return Worker(
            self.used,
            self.clock,
            Random(1),
            workflows=WorkflowCache(self.used),
            environment=environment,
            holder=holder,
            internal=lambda events: None,
        )

    def project(self) -> None:
        """Let labels and comments follow the runs."""
        projector = Projector(
            self.store, lambda name: {SHOP: self.wrapped}, lambda: self.settings, self.clock, receipt_key("secret")
        )
        self._tasks.append(asyncio.create_task(projector.keep(Ours())))

    async def _check_claims(self) -> None:
        await self.worker.check_claims()

    async def _do(self, call: Call) -> Any:
        self.did.append(call.params.model_extra)
        await self.clock.sleep(self.seconds)
        return {"did": len(self.did)}

    def work(self) -> None:
        self._tasks.append(asyncio.create_task(self.worker.run()))

    def attend(self) -> None:
        self._tasks.append(asyncio.create_task(self.run_control.keep(Ours())))

    def use(self, store: Any) -> None:
        """Let the worker and the run control use this store, before they are at work."""
        self.used = store
        self.run_control = self.new_run_control()
        self.worker = self.new_worker("w1")

    async def crash(self) -> None:
        """The process is gone, with all that it had in memory; another one goes on with the store."""
        for task in [*self._tasks, *(active.task for active in self.worker._active.values() if active.task)]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self.worker._active.clear()
        self.used = self.store
        self.run_control = self.new_run_control()
        self.worker = self.new_worker("w2")

    def ticket(self, *labels: str, by: str = "mia", **more: Any) -> Issue:
        """A ticket that is an hour old, and labelled now."""
        issue = self.hub.open(age=3600, **more)
        for label in labels or ("fix",):
            self.hub.label(issue, label, by=by)
        return issue

    async def tell(self, issue: Issue) -> str:
        """Let the feed see the ticket as it is on the platform. Returns the id of its run, if it starts one."""
        return await self.tell_ticket(ticket_of(issue.to_json(), SHOP))

    async def tell_ticket(self, ticket: Ticket) -> str:
        tracker = self.settings["hub"]
        where = standing(ticket, scope_of(tracker, tracker.projects[0]))
        return await self.commit(event_of(Placed(ticket=ticket, standing=where, project="shop"), "hub"))

    async def commit(self, event: Event) -> str:
        """Commit an event of the feed as the engine does. Returns the id of the run that it starts, if any."""
        known = await self.store.recall(FEED, [event.subject])
        sightings = recognise([event], known, "transition")
        if not sightings:
            return ""
        (seen,) = sightings
        entry = Entry(
            event=seen.event,
            memory_id=seen.memory_id,
            expect=seen.expect,
            seq=seen.seq,
            decisions=(self._intent(seen.event),) if event.type == "ticket.ready" else (),
        )
        revision = self.opened.feeds[FEED].revision
        committed = await self.store.commit(Commit(feed=FEED, revision=revision, entries=[entry]))
        self.worker.nudge()
        assert isinstance(committed, Committed), "the feed's memory changed meanwhile"
        return next((verdict.run_id for verdict in committed.verdicts[0] if verdict.run_id), "")

    def _intent(self, event: Event) -> Intent:
        state = self.opened.triggers[TRIGGER]
        return Intent(
            trigger=state.uid,
            epoch=state.epoch,
            run_key=event.key,
            workflow_rev="fix-bug@1",
            due_at=self.clock.now(),
            slot=event.subject,
            overlap="skip",
            watched=True,
        )

    def poll(self) -> None:
        """Let the source of the tracker find the tickets, every 20 seconds."""
        self._tasks.append(asyncio.create_task(self._keep_polling()))

    async def _keep_polling(self) -> None:
        async def recall(subjects: Sequence[str]) -> Mapping[str, Known]:
            return await self.store.recall(FEED, subjects)

        memories = TicketMemories(self.store, "hub")
        source = TicketSource(self.settings["hub"], {SHOP: self.github}, memories, self.clock, recall=recall)
        cursor: Any = None
        while True:
            batch = await source.poll(cursor, self.clock.now())
            cursor = batch.cursor
            for event in batch.events:
                await self.commit(event)
            await self.clock.sleep(0.0 if batch.more else 20.0)

    async def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return list(reversed((await self.store.runs(trigger=TRIGGER)).items))

    async def start_without_ticket(self) -> str:
        """A run of the same pipeline that a person starts by hand."""
        new = NewRun(trigger=TRIGGER, workflow="fix-bug", workflow_rev="fix-bug@1", id_key="by hand")
        run_id = await self.store.start(new)
        self.worker.nudge()
        return run_id

    async def run(self, run_id: str) -> Run:
        found = await self.store.run(run_id)
        assert found is not None
        return found

    async def until(self, run_id: str, *states: str, seconds: float = 3600.0) -> Run:
        """Let time pass until the run is in one of these states; over by default."""
        wanted = states or ("done", "failed", "dead", "cancelled")
        begins = self.clock.time()
        while True:
            run = await self.run(run_id)
            if run.status in wanted:
                return run
            waited = self.clock.time() - begins
            assert waited < seconds, f"the run stays {run.status}: {run.error} {run.journal}"
            # whoever waits for hours does not look twice a second
            await self.clock.sleep(max(0.5, waited / 50))

    async def result(self, issue: Issue) -> Run:
        return await self.until(await self.tell(issue))

    def comments(self, issue: Issue) -> list[str]:
        return [comment["body"] for comment in issue.comments if comment["user"]["login"] == OURS]

    def pulls(self) -> list[Issue]:
        return [issue for issue in self.hub.repos[SHOP].issues.values() if issue.pull]

    async def close(self) -> None:
        await self.worker.stop(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.http.close()
        await self.store.close()


def _missing(name: str) -> Any:
    raise NotFound(f"there is no {name!r}")


def record_of(run: Run, path: str) -> StepRecord:
    return {record.path: record for record in run.journal}[path]


def failing(*answers: int) -> list[Answer]:
    return [Answer(status=status) for status in answers]


@asynccontextmanager
async def tickets_world(
    clock: VirtualClock,
    path: Path,
    *steps: Mapping[str, Any],
    tracker: TrackerSettings | None = None,
    working: bool = True,
    **more: Any,
) -> AsyncIterator[World]:
    """A project `shop` whose label `fix` starts these steps. Its worker and run control are at work if `working`."""
    hub = GitHub(clock)
    hub.tokens["app"], hub.apps["app"] = None, OURS
    hub.repos[SHOP].branches.append("harken/1")
    async with hub.serve():
        store = SqliteStore.at(path / "harken.db", clock, inline=True)
        opened = await store.open(_definitions(steps, **more))
        world = World(clock, hub, store, opened, tracker or settings())
        if working:
            world.work()
            world.attend()
        try:
            yield world
        finally:
            await world.close()


def _definitions(steps: Sequence[Mapping[str, Any]], **more: Any) -> Definitions:
    feeds = (
        Feed(name=FEED, kind="github", integration="github", way="push", identity="transition"),
        Feed(name=INTERNAL, kind="internal", integration="", way="internal"),
    )
    trigger = Trigger(
        name=TRIGGER,
        feed=FEED,
        workflow="fix-bug",
        workflow_rev="fix-bug@1",
        overlap="skip",
        flood_limit=0,
        routes={"fix-bug": "fix-bug@1"},
    )
    definition = msgspec.json.encode({"steps": list(steps), **more})
    return Definitions(
        generation="g", feeds=feeds, triggers=[trigger], workflows={"fix-bug": ("fix-bug@1", definition)}
    )
