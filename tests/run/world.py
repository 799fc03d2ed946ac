"""A store, a worker and a few workflows: the small world in which runs are tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

from harken.backends.sqlite import SqliteStore
from harken.clock import Clock
from harken.errors import NotFound
from harken.event import Event
from harken.feed import INTERNAL, Feed, Trigger
from harken.http import Client
from harken.run.compiled_workflows import WorkflowCache
from harken.run.language_models import Models, ModelSettings
from harken.run.services_given_to_steps import Environment
from harken.run.worker import Worker
from harken.runs import Run
from harken.source import Act
from harken.store import Commit, Definitions, Entry, Intent, NewRun, Opened

FEEDS = (
    Feed(name="inbox", kind="webhook", integration="", way="push"),
    Feed(name=INTERNAL, kind="internal", integration="", way="internal"),
)


class FlakyStore:
    """A store that fails when told to, and remembers what it was asked."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.failing: dict[str, list[Exception]] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._store, verb)

        async def flaky(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((verb, args))
            for error in self.failing.get(verb, [])[:1]:
                self.failing[verb].pop(0)
                raise error
            return await found(*args, **kwargs)

        return flaky

    def asked(self, verb: str) -> list[tuple[Any, ...]]:
        return [args for name, args in self.calls if name == verb]


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class FakeService:
    """A destination and a service action that keep what they got; `says` are the errors and answers to come.

    `before` is called with the idempotency key before each effect.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.got: list[Any] = []
        self.keys: list[str] = []
        self.says: list[Any] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.seconds = 0.0
        self.at_once = self.most_at_once = 0

    async def deliver(self, message: Any) -> Mapping[str, Any]:
        await self._take(message, message.idempotency_key)
        return {"delivered": message.to}

    async def act(self, call: Any) -> Any:
        return await self._take(call.params.model_extra, call.idempotency_key)

    async def _take(self, what: Any, key: str) -> Any:
        if self.before is not None:
            await self.before(key)
        self.got.append(what)
        self.keys.append(key)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._clock.sleep(self.seconds)
        finally:
            self.at_once -= 1
        said = self.says.pop(0) if self.says else {"said": len(self.got)}
        return _raised(said) if isinstance(said, Exception) else said


def _raised(error: Exception) -> Any:
    raise error


class World:
    """Workflows by name, each with a trigger of the same name; the revision of `x` is `x@1`."""

    def __init__(self, clock: Clock, store: SqliteStore, opened: Opened, **options: Any) -> None:
        self.clock = clock
        self.sqlite = store
        self.store = FlakyStore(store)
        self.opened = opened
        self.service = FakeService(clock)
        self.http = Client(clock)
        self.observed: list[str] = []
        self.emitted: list[Event] = []
        self.revisions = {name: f"{name}@1" for name in opened.triggers}
        self.started = 0
        self.worker = self.add_worker(**options)
        self._running: list[asyncio.Task[None]] = []

    def add_worker(self, holder: str = "w1", **options: Any) -> Worker:
        """Another worker on the same store."""
        host: Any = None
        environment = Environment(
            http=self.http,
            clock=self.clock,
            random=Random(1),
            models=options.pop("models", Models(ModelSettings(names={"default": "echo"}))),
            allow_shell=options.pop("allow_shell", False),
            allow_python=options.pop("allow_python", False),
            agents=options.pop("agents", None),
            destination=lambda channel: _only(channel, {"desk": self.service}),
            action=lambda name: (_only(name, {"desk.do": Act(params=Anything, run=self.service.act)}), None, host),
            workflow_rev=self.revisions.get,
        )
        options.setdefault("internal", self._match)
        options.setdefault("observe", lambda what, claimed: self.observed.append(what))
        store: Any = self.store
        return Worker(
            store,
            self.clock,
            Random(1),
            workflows=WorkflowCache(store),
            environment=environment,
            holder=holder,
            **options,
        )

    def _match(self, events: Sequence[Event]) -> Commit | None:
        """The internal feed as nobody listens to it: emitted events are recorded, ends of runs are not."""
        kept = [event for event in events if not event.type.startswith("run.")]
        self.emitted.extend(kept)
        entries = [Entry(event=event, memory_id=event.key) for event in kept]
        revision = self.opened.feeds[INTERNAL].revision
        return Commit(feed=INTERNAL, revision=revision, entries=entries) if entries else None

    def work(self, worker: Worker | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task((worker or self.worker).run())
        self._running.append(task)
        return task

    async def start(self, workflow: str = "main", max_attempts: int = 3, **input: Any) -> str:
        self.started += 1
        new = NewRun(
            trigger=workflow,
            workflow=workflow,
            workflow_rev=self.revisions[workflow],
            id_key=str(self.started),
            input=msgspec.json.encode(input) if input else b"",
            max_attempts=max_attempts,
        )
        run_id = await self.sqlite.start(new)
        self.worker.nudge()
        return run_id

    async def push(self, data: Mapping[str, Any], workflow: str = "main", claim: int = 0, slot: str = "") -> Any:
        """An event that fires the workflow; with `claim` it is handed to the worker as the hot path does."""
        self.started += 1
        state = self.opened.triggers[workflow]
        key = f"k{self.started}"
        intent = Intent(
            trigger=state.uid,
            epoch=state.epoch,
            run_key=key,
            workflow_rev=self.revisions[workflow],
            due_at=self.clock.now(),
            slot=slot,
            overlap="queue",
        )
        event = Event(subject=key, type="mail", data=data, key=key, occurred_at=self.clock.now())
        commit = Commit(
            feed="inbox",
            revision=self.opened.feeds["inbox"].revision,
            entries=[Entry(event=event, memory_id=key, decisions=(intent,))],
            claim=claim,
            holder="w1",
        )
        return await self.sqlite.commit(commit)

    async def look(self, run_id: str) -> Run:
        run = await self.sqlite.run(run_id)
        assert run is not None
        return run

    async def until(self, run_id: str, *statuses: str) -> Run:
        """Let virtual time pass until the run is in one of these states."""
        wanted = statuses or ("done", "failed", "dead", "cancelled")
        for look in range(10_000):
            run = await self.look(run_id)
            if run.status in wanted:
                return run
            await asyncio.sleep(0.01 if look < 1_000 else 1)
        raise AssertionError(f"the run stays {run.status}: {run.error}")

    async def end(self, workflow: str = "main", **input: Any) -> Run:
        """Start a run and wait for its end."""
        return await self.until(await self.start(workflow, **input))

    async def close(self) -> None:
        await self.worker.stop(0)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.http.close()
        await self.sqlite.close()


def _only(name: str, known: Mapping[str, Any]) -> Any:
    return known[name] if name in known else _raised(NotFound(f"there is no {name!r}"))


@asynccontextmanager
async def running_world(
    clock: Clock, path: Path, main: Any = None, /, workflows: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[World]:
    """A world with a worker at work: `main` is the workflow of that name."""
    world = await build(clock, path, {"main": main or {}, **(workflows or {})}, **options)
    world.work()
    try:
        yield world
    finally:
        await world.close()


async def build(clock: Clock, path: Path, workflows: Mapping[str, Any], **options: Any) -> World:
    store = SqliteStore.at(path / "harken.db", clock, inline=True)
    triggers = [
        Trigger(name=name, feed="inbox", workflow=name, workflow_rev=f"{name}@1", flood_limit=0) for name in workflows
    ]
    definitions = {name: (f"{name}@1", msgspec.json.encode(given)) for name, given in workflows.items()}
    opened = await store.open(Definitions(generation="g", feeds=FEEDS, triggers=triggers, workflows=definitions))
    return World(clock, store, opened, **options)


def steps(*given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": list(given), **more}


def do(step_id: str = "", /, **params: Any) -> dict[str, Any]:
    """A step that calls the fake service."""
    return {"action": "desk.do", **({"id": step_id} if step_id else {}), **params}
