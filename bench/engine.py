"""The engine in this process: a store on a real file, a worker, and an intake whose sources are given."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
import structlog

from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.errors import NotFound
from harken.feed import INTERNAL, Feed, Trigger
from harken.http import Client
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_event_matcher import has_listeners, internal_matcher
from harken.run.compiled_workflows import WorkflowCache
from harken.run.language_models import Models
from harken.run.services_given_to_steps import Environment
from harken.run.worker import Worker
from harken.runs import Workflow
from harken.source import Source
from harken.store import Definitions

__all__ = ["NOTHING", "Engine", "answer", "definitions", "engine", "quiet_logs"]

NOTHING = Workflow(name="nothing", rev="r1", definition={"steps": []})
T = TypeVar("T")


class Engine:
    def __init__(self, store: SqliteStore, worker: Worker, intake: Intake) -> None:
        self.store = store
        self.worker = worker
        self.intake = intake


@asynccontextmanager
async def engine(path: Path, build: Callable[[Feed], Source]) -> AsyncIterator[Engine]:
    """Joined as the application joins them. The worker runs; starting the intake is left to the caller."""
    clock, random = SystemClock(), Random(7)
    store = SqliteStore.at(path, clock)
    rule_cache, workflows = RuleCache(store), WorkflowCache(store)
    workflows.put(NOTHING)
    worker = Worker(
        store,
        clock,
        random,
        workflows=workflows,
        environment=_environment(clock, random),
        holder="bench",
        internal=internal_matcher(rule_cache, clock),
        learn=lambda: rule_cache.learn(INTERNAL),
        listens=has_listeners(rule_cache),
    )
    intake = Intake(store, clock, random, worker, build, holder="bench", rule_cache=rule_cache)
    running = asyncio.create_task(worker.run())
    try:
        yield Engine(store, worker, intake)
    finally:
        await intake.stop()
        await worker.stop(1.0)
        running.cancel()
        await store.close()


def definitions(feeds: Sequence[Feed]) -> Definitions:
    """These feeds, a trigger for each, and the workflow that does nothing."""
    internal = Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal", lookback=0.0, first="deliver")
    triggers = [
        Trigger(name=f"t-{feed.name}", feed=feed.name, workflow=NOTHING.name, workflow_rev=NOTHING.rev, flood_limit=0)
        for feed in feeds
    ]
    workflows = {NOTHING.name: (NOTHING.rev, msgspec.json.encode(NOTHING.definition))}
    return Definitions(generation="1", starting=True, feeds=[internal, *feeds], triggers=triggers, workflows=workflows)


def _environment(clock: SystemClock, random: Random) -> Environment:
    def absent(name: str) -> Any:
        raise NotFound(f"there is no {name} in a benchmark")

    return Environment(
        http=Client(clock),
        clock=clock,
        random=random,
        models=Models(),
        destination=absent,
        action=absent,
        workflow_rev=lambda name: None,
    )


def quiet_logs() -> None:
    """Standard output belongs to the answer; only trouble is worth a line beside it."""
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )


def answer(question: type[T], respond: Callable[[T], Coroutine[Any, Any, Any]]) -> None:
    """Be a child that answers one question: read it, respond on the event loop that Harken uses, and say the answer."""
    import uvloop

    quiet_logs()
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=question)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(respond(asked))) + b"\n")
    sys.stdout.buffer.flush()
