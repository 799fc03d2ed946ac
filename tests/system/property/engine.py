"""The real engine on virtual time, with a hand that plays a scenario on it and a store that may die at any verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from pydantic import BaseModel

from harken.backends.sqlite import SqliteStore
from harken.clock import from_unix
from harken.errors import StoreUnavailable
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_event_matcher import internal_matcher
from harken.match import Read
from harken.run.compiled_workflows import WorkflowCache
from harken.run.services_given_to_steps import Environment
from harken.run.worker import Worker
from harken.runs import OPEN, Run
from harken.source import Act
from harken.store import Definitions
from harken.testing import Change, Fault, VirtualClock, World
from harken.testing.crashing import Crash, CrashingStore
from harken.testing.store.record_queries import all_pages
from tests.system.property import scenarios as p
from tests.system.property.model import Model
from tests.system.property.scenario_config import definitions_of, sources_of, trigger_of
from tests.system.property.scenarios import RARE_LOOKS

TIMINGS = msgspec.structs.replace(RARE_LOOKS, lease_seconds=400 * 86_400.0, claim_seconds=600.0)
SHOW = ("open", "acked", "closed")


class Nothing(BaseModel):
    """An act that takes no parameters."""


class Stage:
    """`clock` is ours and may be set wrong; `true` is the time of the world outside."""

    def __init__(self, clock: VirtualClock, true: VirtualClock, path: Path, scenario: p.Scenario) -> None:
        self.clock, self.true, self.path, self.scenario = clock, true, path, scenario
        self.worlds = [World(true, latency=feed.latency) for feed in scenario.feeds]
        self.sources = sources_of(scenario, self.worlds, clock)
        self.model = Model(clock, self.sources)
        self.wanted = {f"t{n}": trigger_of(scenario, n) for n, one in enumerate(scenario.triggers) if one.early}
        self.did: list[tuple[str, str]] = []
        self.accepted: set[str] = set()
        self.generation = 0
        self._down = 0.0
        self._again: int | None = None
        self._random = Random(scenario.seed)

    def definitions(self, *, starting: bool = False) -> Definitions:
        self.generation += 1
        return definitions_of(self.scenario, self.wanted.values(), str(self.generation), starting=starting)

    async def up(self) -> None:
        """Start the engine on the file, again and again while it dies in the middle of that."""
        while True:
            self.store = CrashingStore(SqliteStore.at(self.path, self.clock, inline=True), self.model.heard)
            store: Any = self.store
            rule_cache = RuleCache(store)
            self.worker = Worker(
                store,
                self.clock,
                self._random,
                workflows=WorkflowCache(store),
                environment=self._environment(),
                holder="w",
                internal=internal_matcher(rule_cache, self.clock),
                learn=lambda: rule_cache.learn(INTERNAL),  # noqa: B023
                timings=TIMINGS,
            )
            engine: Any = (store, self.clock, self._random, self.worker, lambda feed: self.sources.get(feed.name))
            self.intake = Intake(*engine, holder="i", rule_cache=rule_cache, timings=TIMINGS)
            if self._again is not None:
                self.store.crash(self._again, after=bool(self._again % 2))
                self._again = None
            try:
                await self.intake.start(self.definitions(starting=True))
            except Crash:
                await self.die()
                continue
            self.working = asyncio.create_task(self.worker.run())
            return

    def _environment(self) -> Environment:
        nothing: Any = None
        return Environment(
            http=nothing,
            clock=self.clock,
            random=self._random,
            models=nothing,
            destination=nothing,
            action=lambda name: (Act(params=Nothing, run=self._act), None, nothing),
            workflow_rev=lambda name: f"{name}@1",
        )

    async def _act(self, call: Any) -> Any:
        await self.clock.sleep(2.0)
        self.did.append(("desk", call.idempotency_key))
        return {"ok": True}

    def kill(self) -> list[asyncio.Task[Any]]:
        tasks = [task for task in asyncio.all_tasks() if task not in (asyncio.current_task(), self._main)]
        for task in tasks:
            task.cancel()
        return tasks

    async def die(self) -> None:
        """As kill -9 does: nothing is flushed, nobody is told."""
        self.store.crashed.set()
        # a timer's handle is no task: it would go on in an engine that is gone
        self.intake.scheduler.stop()
        self.intake._stopping = True
        await asyncio.gather(*self.kill(), return_exceptions=True)
        self.store.inner.abandon()
        down, self._down = self._down, 0.0
        await self.clock.sleep(down)

    async def stop(self) -> None:
        await self.intake.stop()
        await self.worker.stop(0.0)
        self.working.cancel()
        await asyncio.gather(self.working, return_exceptions=True)
        await self.store.close()

    async def play(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_unless_planned)
        self._main = asyncio.current_task()
        await self.up()
        for happening in self.scenario.script:
            await self.surviving(lambda: self._do(happening))  # noqa: B023
        await self._drain()

    async def surviving(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it; when the store dies meanwhile, start again from the file (the act is not repeated)."""
        doing = asyncio.ensure_future(act())
        dying = asyncio.create_task(self.store.crashed.wait())
        await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done() and not self.store.crashed.is_set():
            dying.cancel()
            doing.result()
            return
        await self.die()
        with suppress(Crash):
            if doing.done() and not doing.cancelled():
                doing.result()
        await self.up()

    async def wait(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            left = end - self.clock.monotonic()
            await self.surviving(lambda: self.clock.sleep(left))  # noqa: B023

    async def _do(self, it: p.Happening) -> None:
        if isinstance(it, p.Wait):
            await self.clock.sleep(it.seconds)
        elif isinstance(it, p.Crashing):
            self.store.crash(it.verbs, after=it.after, only=it.only)
            self._down, self._again = it.down, it.again
        elif isinstance(it, p.Locked):
            self.store.lock(it.verbs, after=it.after, only=it.only)
        elif isinstance(it, p.Restart):
            await self.stop()
            await self.clock.sleep(it.down)
            await self.up()
        elif isinstance(it, p.Jump):
            self.clock.jump(it.seconds)
        elif isinstance(it, p.Lid):
            self.clock.sleep_laptop(it.seconds)
            self.true.sleep_laptop(it.seconds)
        elif isinstance(it, p.Turn):
            await self._turn(it)
        elif isinstance(it, p.Push):
            await self._push(it.numbers)
        elif isinstance(it, p.Tidy):
            await self._tidy()
        elif isinstance(it, p.Meanwhile):
            self.store.meanwhile.setdefault("commit", []).append(lambda: self._do(it.what))
        else:
            self._change(it)

    def _change(self, it: p.Happening) -> None:
        """Something happens in the world outside."""
        now = self.true.time()
        if isinstance(it, p.Put):
            stamp = None if it.late is None else now - it.late
            self._script(it.feed, Change(at=now, id=f"i{it.item}", state=SHOW[it.state], stamp=stamp))
        elif isinstance(it, p.Burst):
            for number in range(it.count):
                stamp = now if it.tied else now - (it.count - number) * 3.0
                self._script(it.feed, Change(at=now, id=f"i{it.first + number}", state="open", stamp=stamp))
        elif isinstance(it, p.Remove):
            self._script(it.feed, Change(at=now, id=f"i{it.item}", state=None))
        elif isinstance(it, p.Flap):
            for step, state in enumerate(("open", "acked", "open")):
                at = now + step * it.gap
                self._script(it.feed, Change(at=at, id=f"i{it.item}", state=state, stamp=at))
        elif isinstance(it, p.Trouble):
            fault = Fault(begin=now, end=now + it.seconds, kind=it.kind, after=it.after)  # type: ignore[arg-type]
            self.worlds[it.feed].faults.append(fault)

    def _script(self, feed: int, change: Change) -> None:
        self.worlds[feed].script([change])

    async def _insist(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it again while the database is locked, as people and senders of webhooks do."""
        while True:
            try:
                await act()
            except StoreUnavailable:
                await self.clock.sleep(5.0)
            else:
                return

    async def _turn(self, it: p.Turn) -> None:
        if it.trigger >= len(self.scenario.triggers):
            return
        name = f"t{it.trigger}"
        definition = self.wanted.get(name)
        if it.what == "add":
            self.wanted.setdefault(name, trigger_of(self.scenario, it.trigger))
        elif definition is None:
            return
        elif it.what == "drop":
            del self.wanted[name]
        elif it.what == "edit":
            following = p.CONDITIONS[(p.CONDITIONS.index(definition.condition) + 1) % len(p.CONDITIONS)]
            self.wanted[name] = msgspec.structs.replace(definition, condition=following)
        else:
            await self._operate(it.what, name, definition.feed)
            return
        await self._insist(lambda: self.intake.apply(self.definitions()))

    async def _operate(self, what: str, name: str, feed: str) -> None:
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "pause": lambda: self.store.pause(name, "a test"),
            "resume": lambda: self.store.resume(name),
            "reset": lambda: self.store.reset(name, cursor=False),
            "reset_cursor": lambda: self.store.reset(name, cursor=True),
        }
        await self._insist(acts[what])
        await self._insist(lambda: self.intake.refresh(feed))
        self.worker.nudge()

    async def _push(self, numbers: tuple[int, ...]) -> None:
        """Deliver webhooks; each number is one occurrence, dated when it was first sent."""
        for number in numbers:
            key = f"hook-{number}"
            event = Event(subject=key, key=key, type="hook", data={"state": "open"}, occurred_at=self._dated(number))
            await self._insist(lambda: self.intake.committer.push("push", [event], Read(now=self.clock.now())))  # noqa: B023
            self.accepted.add(key)

    def _dated(self, number: int) -> Any:
        dates: dict[int, float] = self.__dict__.setdefault("_dates", {})
        return from_unix(dates.setdefault(number, self.clock.time()))

    async def _tidy(self) -> None:
        day = 86_400.0
        ages = {"events": 90 * day, "ticks": 7 * day, "runs": 90 * day, "pushed": 3 * day, "audit": 90 * day}
        await self._insist(lambda: self.store.prune(**ages))
        await self._insist(self.store.requeue_expired)

    async def _drain(self) -> None:
        """Let everything that is under way come to its end."""
        self.store.spare()
        self.store.meanwhile.clear()
        self._again = None
        await self.wait(900.0)
        await self.store.requeue_expired()
        for world in self.worlds:
            world.faults.clear()
        for number in range(len(self.scenario.triggers)):
            self.wanted.setdefault(f"t{number}", trigger_of(self.scenario, number))
        await self.intake.apply(self.definitions())
        for definition in list(self.wanted.values()):
            await self._operate("resume", definition.name, definition.feed)
        marks = {name: source.reads + 2 for name, source in self.sources.items() if name != "cron"}
        for _ in range(400):
            await self.clock.sleep(130.0)
            # as housekeeping does every minute: runs that a commit handed over to nobody, because its answer was lost;
            # a clock that was set back makes their claims end later
            await self.store.requeue_expired()
            if await self._quiet(marks):
                break

    async def _quiet(self, marks: dict[str, int]) -> bool:
        counts = await self.store.counts()
        still = sum(counts.get(f"runs_{state}", 0) for state in OPEN)
        # who looks back does so with the next read
        looking = any(state.backfilling for state in await self.store.triggers() if state.removed_at is None)
        return not (still or looking) and all(self.sources[name].reads >= mark for name, mark in marks.items())

    async def runs(self) -> list[Run]:
        return await all_pages(self.store.runs, limit=500)


def _unless_planned(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tasks that died with the store have nobody left to tell."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)
