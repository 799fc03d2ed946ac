"""A worker that was frozen past its lease wakes up and goes on: nothing that it writes then may count."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from harken.backends.sqlite import SqliteStore
from harken.feed import INTERNAL, Feed, Trigger
from harken.run.compiled_workflows import WorkflowCache
from harken.run.services_given_to_steps import Environment
from harken.run.worker import Worker
from harken.source import Act
from harken.store import Definitions, NewRun
from harken.testing import VirtualClock, run_virtual
from tests.soak import SOAK, longer, patience
from tests.system.property.scenarios import RARE_LOOKS

STEPS = ("one", "two", "three")
FLOW = msgspec.json.encode({"steps": [{"id": name, "action": "desk.do"} for name in STEPS]})
numbers = count()


class Nothing(BaseModel):
    """An act that takes no parameters."""


class Freezing:
    """The store as one process sees it. While it is frozen, no verb of it gets through or returns."""

    def __init__(self, store: SqliteStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._until = 0.0

    def freeze(self, seconds: float) -> None:
        self._until = self._clock.time() + seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        async def verb(*args: Any, **kwargs: Any) -> Any:
            await self._thawed()
            answer = await found(*args, **kwargs)
            await self._thawed()
            return answer

        return verb

    async def _thawed(self) -> None:
        while self._until > self._clock.time():
            await self._clock.sleep(self._until - self._clock.time())


class Office:
    """One store, two workers, and somebody who reaps."""

    def __init__(self, clock: VirtualClock, path: Path, seconds: float) -> None:
        self.clock = clock
        self.store = SqliteStore.at(path, clock, inline=True)
        self.seconds = seconds
        self.keys: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def hire(self, holder: str) -> Freezing:
        view: Any = Freezing(self.store, self.clock)
        nothing: Any = None
        environment = Environment(
            http=nothing,
            clock=self.clock,
            random=Random(1),
            models=nothing,
            destination=nothing,
            action=lambda name: (Act(params=Nothing, run=self._act), None, nothing),
            workflow_rev=lambda name: "f@1",
        )
        worker = Worker(
            view,
            self.clock,
            Random(1),
            workflows=WorkflowCache(view),
            environment=environment,
            holder=holder,
            internal=lambda events: None,
            timings=RARE_LOOKS,
        )
        self.tasks.append(asyncio.create_task(worker.run()))
        return view  # type: ignore[no-any-return]

    async def _act(self, call: Any) -> Any:
        await self.clock.sleep(self.seconds)
        self.keys.append(call.idempotency_key)
        return {"ok": True}

    async def reap(self) -> None:
        while True:
            await self.clock.sleep(5.0)
            await self.store.requeue_expired()

    async def start(self, runs: int) -> list[str]:
        trigger = Trigger(name="t", feed=INTERNAL, workflow="f", workflow_rev="f@1")
        feed = Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal")
        await self.store.open(
            Definitions(generation="1", feeds=[feed], triggers=[trigger], workflows={"f": ("f@1", FLOW)})
        )
        new = [NewRun(trigger="t", workflow="f", workflow_rev="f@1", id_key=str(number)) for number in range(runs)]
        return [await self.store.start(one) for one in new]

    async def close(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        self.store.abandon()


@pytest.mark.timeout(patience(1_200))
@settings(
    max_examples=longer(__file__, 60),
    deadline=None,
    derandomize=not SOAK,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    runs=st.integers(1, 4),
    seconds=st.sampled_from((3.0, 20.0, 45.0)),
    freezes=st.lists(st.tuples(st.floats(0.5, 120.0), st.floats(10.0, 300.0)), min_size=1, max_size=3),
)
def test_each_step_is_recorded_once_however_long_a_worker_was_frozen(
    runs: int, seconds: float, freezes: list[tuple[float, float]], room: Path
) -> None:
    path = room / f"frozen-{next(numbers)}.db"

    async def main(clock: VirtualClock) -> None:
        office = Office(clock, path, seconds)
        started = await office.start(runs)
        views = [office.hire("w1"), office.hire("w2")]
        office.tasks.append(asyncio.create_task(office.reap()))
        for number, (after, frozen) in enumerate(freezes):
            await clock.sleep(after)
            views[number % 2].freeze(frozen)
        await clock.sleep(2_000.0)
        for run_id in started:
            run = await office.store.run(run_id)
            assert run is not None
            assert run.status == "done", run.error
            assert [record.path for record in run.journal if record.status == "ok"] == list(STEPS)
        assert len(set(office.keys)) == len(STEPS) * runs
        await office.close()

    try:
        run_virtual(main)
    finally:
        for file in room.glob(f"{path.name}*"):
            file.unlink()
