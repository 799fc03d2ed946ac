"""Unchanged rules give every verdict that the engine has recorded: of a pure condition, of everything that gathers, of
limits, overlap and quiet hours. `make soak` does it with a million events, most of which nobody wants, as in life."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from harken.app.store import scratch_store
from harken.backends.sqlite import SqliteStore
from harken.clock import Clock
from harken.config.loaded import Loaded
from harken.config.settings import Settings
from harken.event import Event
from harken.feed import INTERNAL, Debounce, Dedupe, Digest, Feed, Join, Part, Throttle, Trigger
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_event_matcher import internal_matcher
from harken.operate.operator import Operator
from harken.run.compiled_workflows import WorkflowCache
from harken.run.services_given_to_steps import Environment
from harken.run.worker import Worker
from harken.runs import Workflow
from harken.schedule import Every, Quiet
from harken.source import Act, Batch
from harken.store import Definitions, Store
from harken.testing import START, VirtualClock, run_virtual
from harken.timings import Timings
from tests.soak import larger, patience

EVENTS = int(os.environ.get("HARKEN_PARITY_EVENTS") or larger(__file__, 10_000))
# of a million events most are wanted by no trigger, and more come at a time, so that those that are wanted are as dense
UNWANTED = 24 if EVENTS > 100_000 else 0
PAGE = 200 if not UNWANTED else 800
TEAMS = [f"team{n}" for n in range(12)]
FLOW = Workflow(name="act", rev="act@1", definition={"steps": [{"id": "one", "action": "desk.do", "timeout": "10m"}]})
FEED = Feed(name="desk", kind="json", integration="desk", schedule=Every(seconds=60), identity="once", lookback=0.0)
INTERNAL_FEED = Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal", lookback=0.0, first="deliver")
TIMINGS = Timings(
    lease_seconds=400 * 86_400.0, claim_seconds=3600.0, idle_flush=60.0, scheduler_nap=60.0, scheduler_dead=600.0,
    worker_sleep=300.0,
)  # fmt: skip
PARTS = tuple(Part(name=f"p{n}", by="event.team", when=f"event.part == {n}") for n in range(3))


def trigger(name: str, condition: str, **rules: Any) -> Trigger:
    made = Trigger(name=name, feed=FEED.name, workflow=FLOW.name, workflow_rev=FLOW.rev, condition=condition)
    return msgspec.structs.replace(made, flood_limit=0, **rules)


TRIGGERS = (
    trigger("plain", "event.size <= 2 && event.kind == 'other'"),
    trigger("digest", "event.kind == 'digest'", gather=Digest(window=600, max=20, by="event.team")),
    trigger("debounce", "event.kind == 'debounce'", gather=Debounce(window=200, max_wait=900, by="event.team")),
    trigger("join", "event.kind == 'join'", gather=Join(parts=PARTS[:2], within=300)),
    trigger("then", "event.kind == 'join'", gather=Join(parts=PARTS, within=900, form="then", on_miss="run")),
    trigger("without", "event.kind == 'join'", gather=Join(parts=PARTS, within=300, none=("p2",), on_miss="run")),
    trigger("throttle", "event.kind == 'limit'", throttle=Throttle(most=3, per=900, by="event.team", rest="drop")),
    trigger("dedupe", "event.kind == 'limit'", dedupe=Dedupe(by="event.team + string(event.size)", within=900)),
    trigger(
        "dedupe-digest",
        "event.kind == 'digest'",
        dedupe=Dedupe(by="event.size", within=300),
        gather=Digest(window=900, by="event.team"),
    ),
    trigger("skip", "event.kind == 'overlap'", overlap="skip", concurrency_key="{{ .event.team }}"),
    trigger("queue", "event.kind == 'queue' && event.size == 1", overlap="queue", concurrency_key="{{ .event.team }}"),
    trigger(
        "quiet",
        "event.kind == 'quiet'",
        gather=Digest(window=300, by="event.team"),
        throttle=Throttle(most=6, per=3600),
        quiet=Quiet(start="22:00", end="06:00"),
    ),
)
KINDS = ["digest", "debounce", "join", "limit", "overlap", "queue", "quiet", "other"] + ["unwanted"] * UNWANTED


class Scratch:
    """Of an engine only what a backtest needs."""

    def scratch(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        return scratch_store(clock)


class Nothing(BaseModel):
    """An act that takes no parameters."""


class Desk:
    """A log of random events that grows as time passes, so many at a time as the moment brings."""

    def __init__(self, clock: VirtualClock, count: int) -> None:
        self._clock, self._count, self._random = clock, count, Random(1)

    async def poll(self, cursor: Any, since: Any) -> Batch:
        begin, random = cursor or 0, self._random
        if cursor is None:
            # the first read is the baseline
            return Batch(events=[], cursor=0)
        end = min(self._count, begin + random.choice([0, 1, 5, 40, PAGE, PAGE]))
        return Batch(events=[self._event(number, random) for number in range(begin, end)], cursor=end)

    def _event(self, number: int, random: Random) -> Event:
        data = {
            "kind": random.choice(KINDS),
            "team": random.choice(TEAMS),
            "size": random.choice([1, 2, 3, 5, 8, "large"]),
            "part": random.choice([0, 1, 2, 3]),
        }
        late = random.choice([0, 0, 0, 20, 200])
        occurred = max(self._clock.now() - timedelta(seconds=late), START + timedelta(seconds=90))
        return Event(subject=f"E{number}", key=f"E{number}", type="desk.item", data=data, occurred_at=occurred)


async def live(clock: VirtualClock, store: SqliteStore, definitions: Definitions) -> None:
    """The engine reads all events and executes their runs, which take some minutes."""
    random = Random(2)

    async def act(call: Any) -> Any:
        await clock.sleep(random.uniform(0.5, 400.0))
        return {}

    nothing: Any = None
    rule_cache = RuleCache(store)
    environment = Environment(
        http=nothing,
        clock=clock,
        random=random,
        models=nothing,
        destination=nothing,
        action=lambda name: (Act(params=Nothing, run=act), None, nothing),
        workflow_rev=lambda name: FLOW.rev,
    )
    worker = Worker(
        store,
        clock,
        random,
        workflows=WorkflowCache(store),
        environment=environment,
        holder="worker",
        internal=internal_matcher(rule_cache, clock),
        learn=lambda: rule_cache.learn(INTERNAL),
        parallel=1000,
        timings=TIMINGS,
    )
    desk = Desk(clock, EVENTS)
    engine: Any = (store, clock, random, worker, lambda feed: desk)
    intake = Intake(*engine, holder="intake", rule_cache=rule_cache, timings=TIMINGS)
    await intake.start(definitions)
    working = asyncio.create_task(worker.run())
    while (await store.events(limit=1)).items == [] or await newest(store) < EVENTS:
        await clock.sleep(3600)
    await clock.sleep(86_400)
    await intake.stop()
    await worker.stop(0.0)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def newest(store: SqliteStore) -> int:
    return int((await store.events(feed=FEED.name, limit=1)).items[0].subject[1:]) + 1


@pytest.mark.timeout(patience(600))
def test_unchanged_rules_give_every_verdict_that_the_engine_recorded(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        store = SqliteStore.at(tmp_path / "harken.db", clock, inline=True)
        loaded = Loaded(
            directory=tmp_path,
            settings=Settings(),
            store="harken.db",
            feeds=(FEED, INTERNAL_FEED),
            triggers=TRIGGERS,
            workflows={FLOW.name: FLOW},
        )
        await live(clock, store, loaded.definitions(starting=True))
        engine: Any = Scratch()
        operator = Operator(store, engine, loaded, clock)
        outcomes: set[str] = set()
        for each in TRIGGERS:
            answer = await operator.call("triggers.backtest", name=each.name, since=START.isoformat())
            logging.getLogger(__name__).info("%s: %s, %s", each.name, answer["recorded"], answer["lines"][1])
            assert (each.name, answer["differing"], answer["not_checked"]) == (each.name, [], {})
            assert answer["reproduced"] == answer["checked"] == answer["events"] == EVENTS
            assert answer["recorded"] == answer["now"]
            outcomes |= answer["recorded"].keys()
        assert outcomes >= {"fired", "filtered", "gathered", "duplicate", "skipped", "error"}
        await store.close()

    run_virtual(main)
