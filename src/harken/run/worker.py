"""The worker: claims runs, executes a bounded number at once, keeps their leases and settles them in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Literal

import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost, StoreBusy, StoreUnavailable
from harken.event import Event
from harken.run.compiled_workflows import WorkflowCache
from harken.run.execute import Execution, TryResult, execute
from harken.run.journal import InternalFeed, Journal, Matching, RunStore, Unwritten, park
from harken.run.plan import Plan
from harken.run.retry import retry_store
from harken.run.services_given_to_steps import Environment
from harken.run.settlement_batches import PendingSettlement, Settler
from harken.run.single_commit_runs import DONE, as_claimed, find_end, may_end_early
from harken.runs import Again, Cancelled, Claimed, Dead, Finished, Park, RunOutcome
from harken.store import EarlyEnd, Intent, Runs
from harken.task_cancellation import cancel_and_wait
from harken.timings import Timings
from harken.tracing import NO_TRACER, Tracer

__all__ = ["EMPTY_PAUSE", "TROUBLE_PAUSE", "NextDue", "Observe", "RunEnd", "Worker", "heartbeat"]

TROUBLE_PAUSE = 1.0
EMPTY_PAUSE = 0.02
LAST_WRITES = 10.0
"""Seconds that a stop waits for interrupted runs and for their settlements."""
MAX_SPARE = 2_000
"""How many runs beyond `parallel` may be claimed at once while runs turn out not to wait for anything."""
MAX_CLAIM = 256

Observe = Callable[[str, Claimed], None]
"""Called with `started`, `done`, `filtered`, `failed`, `dead`, `cancelled`, `again`, `parked` or `lost`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """A try of a run has ended: `outcome` is done, filtered, failed, dead, cancelled, again or waiting."""

    claimed: Claimed
    outcome: str
    error: str
    seconds: float


Interruption = Literal["lost", "cancel", "stopped"]
"""Why a run is ended early: its lease is lost, a person cancelled it, or this worker stops."""

Interrupt = Callable[[str, int, Interruption, str], None]
"""Called with the id of a run, the token of its claim, and why it is ended early: in a word, and for people."""

_DONE = Finished()

log = structlog.get_logger("harken.run")


class Worker:
    """Executes claimed runs. `parallel` bounds those that wait for something; the others are executed as they come.

    `internal` matches events for the internal feed, `learn` fetches its rules when they are stale, `listens` tells
    whether any trigger wants this type of internal event.
    `on_end`, if set, is called when a try has ended, `on_settled` with the id of its run once that is written.
    The counters are plain attributes that only grow.
    """

    def __init__(
        self,
        store: RunStore,
        clock: Clock,
        random: Random,
        *,
        workflows: WorkflowCache,
        environment: Environment,
        holder: str,
        internal: Matching,
        learn: Callable[[], Awaitable[object]] | None = None,
        listens: Callable[[str], bool] | None = None,
        parallel: int = 4,
        timings: Timings = Timings(),
        observe: Observe | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._workflows = workflows
        self._environment = environment
        self.holder = holder
        self._internal = InternalFeed(internal, learn, clock, listens, on_started=self.nudge)
        self._parallel = parallel
        self._timings = timings
        self._lease_seconds = timings.claim_seconds
        self._longest_sleep = timings.worker_sleep
        self.observe = observe
        self.tracer: Tracer = NO_TRACER
        self.on_end: Callable[[RunEnd], None] | None = None
        self.on_settled: Callable[[str], None] | None = None
        self._began: dict[str, float] = {}
        # whether runs of events of this feed have a bracket
        self._bracketed: dict[str, bool] = {}
        self._settler = Settler(store, clock, self._internal, self._on_settled, self.workflow_name)
        self._active: dict[str, _ActiveRun] = {}
        self._queue: deque[Claimed] = deque()
        self._reserved = 0
        # instant runs in a row
        self._streak = 0
        self._nudged = asyncio.Event()
        self._stopping = False
        self._beating: asyncio.Task[None] | None = None
        self._claimed_nothing_at: float | None = None
        # the last claim took as many runs as there was room for, so the store may have more
        self._may_be_more = True
        self._next_due = NextDue(store, clock, timings.worker_sleep)
        self.last_claim: datetime | None = None
        self.started = self.done = self.filtered = self.failed = self.dead = 0
        self.cancelled = self.again = self.parked = self.lost = 0

    @property
    def in_flight(self) -> int:
        """Claimed runs that have not ended: executing, or waiting for a slot."""
        return len(self._active) + len(self._queue)

    def _room(self) -> int:
        # instant runs need no slot; after several of them in a row, more are likely
        spare = min(MAX_SPARE, 8 * self._streak) if not self._queue else 0
        return max(0, self._parallel - len(self._active) - len(self._queue) - self._reserved + spare)

    def reserve(self, wanted: int) -> int:
        """Reserve room for runs that a commit is about to claim and return how much. `accept` or `unreserve` each."""
        granted = 0 if self._stopping else min(wanted, self._room())
        self._reserved += granted
        return granted

    def unreserve(self, count: int) -> None:
        self._reserved -= count

    def accept(self, claimed: Sequence[Claimed]) -> None:
        """Execute runs that a commit has claimed for us; each uses one reservation."""
        self._reserved -= len(claimed)
        self._take(claimed)

    def find_end(self, feed: str, trigger: str, event: Event, intent: Intent) -> EarlyEnd | None:
        """Execute the run of this intent before it is committed, if nothing stands against it, and return its end.

        Whoever listens to ends of runs, or traces them, wants the normal way.
        """
        plan = self._workflows.peek(intent.workflow_rev)
        if plan is None or not plan.early or self._stopping or self.tracer.on or self._internal.listens("run.done"):
            return None
        if not may_end_early(intent) or self._has_bracket(feed, trigger, event, intent):
            return None
        if plan.empty:
            return DONE
        claimed = as_claimed(intent, trigger, feed, event, self._clock.now())
        return find_end(self._execution(plan, claimed, self._journal(claimed)))

    def _has_bracket(self, feed: str, trigger: str, event: Event, intent: Intent) -> bool:
        known = self._bracketed.get(feed)
        if known is None:
            claimed = as_claimed(intent, trigger, feed, event, self._clock.now())
            known = self._bracketed[feed] = self._environment.bracket(claimed) is not None
        return known

    def note_over(self, claimed: Claimed, end: EarlyEnd) -> None:
        """A commit has inserted a run as over, of which `find_end` found the end."""
        outcome = "filtered" if end.filtered else "done"
        self.started += 1
        if end.filtered:
            self.filtered += 1
        else:
            self.done += 1
        if self.observe is not None:
            self.observe("started", claimed)
            self.observe(outcome, claimed)
        self._note_end(claimed, outcome, "")
        if self.on_settled is not None:
            self.on_settled(claimed.id)

    def use(self, environment: Environment) -> None:
        """Use this environment for steps that begin from now on."""
        self._environment = environment
        self._bracketed.clear()

    def resize(self, parallel: int, longest_sleep: float) -> None:
        """Bound the runs that are executed at one time by another number. Those beyond it come to their end."""
        self._parallel = parallel
        self._longest_sleep = self._next_due.longest = longest_sleep
        self._begin_queued()
        self.nudge()

    def nudge(self) -> None:
        """A run may be ready: look for it now instead of at the next timer."""
        self._nudged.set()

    async def run(self) -> None:
        """Claim and execute until `stop`."""
        beat = heartbeat(self._store, self._clock, self._lease_seconds, self._claims, self._interrupt)
        self._beating = asyncio.create_task(beat, name="heartbeat")
        while not self._stopping:
            self._nudged.clear()
            if not await self._claim():
                await self._wait_for_work()

    async def stop(self, grace_seconds: float) -> None:
        """Stop claiming, give runs in flight time to end, and give the others back: they resume from their journals."""
        self._stopping = True
        self.nudge()
        while self._queue:
            self._give_back(self._queue.popleft(), None)
        await _wait_for(self._active.values(), grace_seconds)
        for active in list(self._active.values()):
            active.interrupt("stopped")
        # an agent has its own grace to end
        await _wait_for(self._active.values(), LAST_WRITES + self._timings.agent_grace)
        if not await self._settler.drain(LAST_WRITES):
            log.warning("worker.stop_incomplete", unsettled=len(self._settler.claims()))
        if self._beating is not None:
            await cancel_and_wait([self._beating])

    async def _claim(self) -> bool:
        """Claim as many runs as there is room for; True when the store may have more, or should be asked again."""
        room = min(self._room(), self._parallel + MAX_CLAIM)
        self._may_be_more = True
        if room == 0:
            return False
        try:
            claimed = await self._store.claim(self.holder, room, self._lease_seconds)
        except (StoreBusy, StoreUnavailable) as error:
            await self._clock.sleep(max(TROUBLE_PAUSE, error.after or 0.0))
            return True
        except Exception:
            log.exception("worker.claim_failed")
            await self._clock.sleep(self._longest_sleep)
            return True
        self.last_claim = self._clock.now()
        self._claimed_nothing_at = None if claimed else self._clock.monotonic()
        if claimed:
            self._next_due.reset()
        self._take(claimed)
        self._may_be_more = len(claimed) == room
        return self._may_be_more

    async def _wait_for_work(self) -> None:
        """Wait for a nudge, or until the next run is due."""
        if self._stopping:
            return
        seconds = await self._next_due.seconds() if self._room() else self._longest_sleep
        try:
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        except TimeoutError:
            return
        if self._claimed_nothing_at is not None and not self._stopping:
            # every settled batch may nudge: do not ask an empty store each time
            pause = self._claimed_nothing_at + EMPTY_PAUSE - self._clock.monotonic()
            if pause > 0:
                await self._clock.sleep(pause)

    def _take(self, claimed: Sequence[Claimed]) -> None:
        for run in claimed:
            plan = self._workflows.peek(run.workflow_rev)
            if self._stopping:
                self._give_back(run, None)
            elif run.cancel_requested:
                self._settler.add(run, Cancelled(reason="asked to stop before it went on"))
            elif plan is not None and plan.instant and self._environment.bracket(run) is None:
                self._streak += 1
                self._execute_now(run, plan)
            elif len(self._active) < self._parallel:
                self._begin(run)
            else:
                self._queue.append(run)

    def _execute_now(self, claimed: Claimed, plan: Plan) -> None:
        self._note_start(claimed)
        if plan.empty:
            self._settler.add(claimed, _DONE)
            return
        journal = self._journal(claimed)
        # no step of it ever waits, so the coroutine ends at its first step without a task of its own
        executing = execute(self._execution(plan, claimed, journal))
        try:
            executing.send(None)
        except StopIteration as stop:
            ended: TryResult = stop.value
            assert not isinstance(ended.outcome, Park), "an instant run does not park"
            self._settler.add(claimed, ended.outcome, ended.unwritten)
        except Exception:
            self._settler.add(claimed, self._dead_by_bug(claimed), journal.take_unwritten())
        else:
            executing.close()
            raise AssertionError(f"workflow {plan.name!r} waits although none of its steps may")

    def _begin(self, claimed: Claimed) -> None:
        before = self._active.get(claimed.id)
        if before is not None:
            # our lease expired and we claimed the run again: the old try must not go on
            before.interrupt("lost")
        active = _ActiveRun(claimed, self._journal(claimed))
        self._active[claimed.id] = active
        self._note_start(claimed)
        active.task = asyncio.get_running_loop().create_task(self._try(active), name=f"run {claimed.id[:8]}")
        active.task.add_done_callback(lambda task: self._on_done(active, task))

    def _note_start(self, claimed: Claimed) -> None:
        self.started += 1
        if self.on_end is not None:
            self._began[claimed.id] = self._clock.monotonic()
        if self.observe is not None:
            self.observe("started", claimed)

    def _on_done(self, active: _ActiveRun, task: asyncio.Task[None]) -> None:
        # a callback and not a `finally`: a task that is cancelled before its first step never enters its body
        if self._active.get(active.claimed.id) is active:
            del self._active[active.claimed.id]
        if task.cancelled():
            self._on_interrupted(active)
        elif isinstance(task.exception(), LeaseLost):
            self._count("lost", active.claimed)
        self._begin_queued()
        if self._may_be_more:
            self.nudge()

    def _begin_queued(self) -> None:
        while self._queue and len(self._active) < self._parallel and not self._stopping:
            self._begin(self._queue.popleft())

    async def _try(self, active: _ActiveRun) -> None:
        claimed, journal = active.claimed, active.journal
        try:
            plan = await retry_store(lambda: self._workflows.get(claimed.workflow_rev), self._clock)
            self._streak = self._streak + 1 if plan.instant and self._environment.bracket(claimed) is None else 0
            ended = await execute(self._execution(plan, claimed, journal))
            if isinstance(ended.outcome, Park) and ended.outcome.waiting_for and claimed.answer is not None:
                # try again without the answer that woke this try: it must not answer the next question
                self._settler.add(claimed, Again(at=self._clock.now(), error="", counts=False), ended.unwritten)
            elif isinstance(ended.outcome, Park):
                await park(self._store, self._clock, claimed, self._internal, ended.outcome, ended.unwritten)
                self._count("parked", claimed)
                self._note_end(claimed, "waiting", ended.outcome.prompt)
                self.nudge()
            else:
                self._settler.add(claimed, ended.outcome, ended.unwritten)
        except LeaseLost:
            raise
        except HarkenError as error:
            self._settler.add(claimed, Dead(error=str(error)), journal.take_unwritten())
        except Exception:
            self._settler.add(claimed, self._dead_by_bug(claimed), journal.take_unwritten())

    def _on_interrupted(self, active: _ActiveRun) -> None:
        if active.interruption == "stopped":
            self._give_back(active.claimed, active.journal.take_unwritten())
        elif active.interruption == "cancel":
            cancelled = Cancelled(reason=active.reason or "asked to stop")
            self._settler.add(active.claimed, cancelled, active.journal.take_unwritten())
        else:
            self._count("lost", active.claimed)

    def _give_back(self, claimed: Claimed, unwritten: Unwritten | None) -> None:
        self._settler.add(claimed, Again(at=self._clock.now(), error="stopped", counts=False), unwritten)

    def _execution(self, plan: Plan, claimed: Claimed, journal: Journal) -> Execution:
        return Execution(
            plan,
            claimed,
            journal,
            store=self._store,
            environment=self._environment,
            clock=self._clock,
            random=self._random,
            timings=self._timings,
            tracer=self.tracer,
        )

    def _journal(self, claimed: Claimed) -> Journal:
        return Journal(claimed, self._store, self._clock, self._internal, self._environment.redact)

    def _dead_by_bug(self, claimed: Claimed) -> RunOutcome:
        log.exception("run.crashed", run=claimed.id)
        return Dead(error="a bug in Harken ended this run; the log has the traceback")

    def workflow_name(self, rev: str) -> str:
        """The name of a workflow that was used lately, by its revision; else empty."""
        plan = self._workflows.peek(rev)
        return plan.name if plan is not None else ""

    async def check_claims(self) -> None:
        """Ask the store now, instead of at the next heartbeat, which of our runs are to be cancelled or are lost."""
        await renew(self._store, self._lease_seconds, self._claims(), self._interrupt)

    def _claims(self) -> dict[str, int]:
        queued = {run.id: run.token for run in self._queue}
        working = {run_id: active.claimed.token for run_id, active in self._active.items()}
        return {**self._settler.claims(), **queued, **working}

    def _interrupt(self, run_id: str, token: int, why: Interruption, reason: str = "") -> None:
        active = self._active.get(run_id)
        if active is not None and active.claimed.token == token:
            active.interrupt(why, reason)
            return
        for run in self._queue:
            if run.id == run_id and run.token == token:
                self._queue.remove(run)
                if why == "cancel":
                    self._settler.add(run, Cancelled(reason=reason or "asked to stop before it began"))
                else:
                    self._count("lost", run)
                return

    def _on_settled(self, settlement: PendingSettlement, result: Literal["settled", "lost"]) -> None:
        self._count(settlement.outcome_name if result == "settled" else "lost", settlement.claimed)
        if result == "settled":
            self._note_end(settlement.claimed, settlement.outcome_name, settlement.reason)
            if self.on_settled is not None:
                self.on_settled(settlement.claimed.id)
        if settlement.may_free_runs or self._may_be_more:
            self.nudge()

    def _note_end(self, claimed: Claimed, outcome: str, error: str) -> None:
        if self.on_end is None:
            return
        now = self._clock.monotonic()
        self.on_end(
            RunEnd(claimed=claimed, outcome=outcome, error=error, seconds=now - self._began.pop(claimed.id, now))
        )

    def _count(self, what: str, claimed: Claimed) -> None:
        setattr(self, what, getattr(self, what) + 1)
        if what == "lost":
            self._began.pop(claimed.id, None)
            log.warning("run.lost", run=claimed.id)
        if self.observe is not None:
            self.observe(what, claimed)


class _ActiveRun:
    """A run that occupies a slot. `interruption` is None unless it is being ended early, for this `reason`."""

    __slots__ = ("claimed", "interruption", "journal", "reason", "task")

    def __init__(self, claimed: Claimed, journal: Journal) -> None:
        self.claimed = claimed
        self.journal = journal
        self.task: asyncio.Task[None] | None = None
        self.interruption: Interruption | None = None
        self.reason = ""

    def interrupt(self, why: Interruption, reason: str = "") -> None:
        if self.interruption is None and self.task is not None:
            self.interruption, self.reason = why, reason
            self.task.cancel()


async def _wait_for(runs: Iterable[_ActiveRun], seconds: float) -> None:
    """Wait until these runs have ended, but at most so long."""
    tasks = [run.task for run in runs if run.task is not None]
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


class NextDue:
    """How long to wait before looking for runs; capped, so that a jump of the wall clock is noticed.

    The store decides by its own clock which runs are due. If a run is due by our clock and the store does not give it
    out, our clock is ahead: each such look doubles the wait before the next.
    """

    def __init__(self, store: Runs, clock: Clock, longest: float = Timings().worker_sleep) -> None:
        self._store = store
        self._clock = clock
        self.longest = longest
        self._too_early = 0

    def reset(self) -> None:
        """Runs were claimed: our clock and the store's agree well enough."""
        self._too_early = 0

    async def seconds(self) -> float:
        try:
            due = await self._store.next_due()
        except (StoreBusy, StoreUnavailable):
            return TROUBLE_PAUSE
        except Exception:
            log.exception("worker.due_failed")
            return self.longest
        if due is None:
            return self.longest
        wait = (due - self._clock.now()).total_seconds()
        self._too_early = min(self._too_early + 1, 8) if wait <= 0 else 0
        return min(max(wait, EMPTY_PAUSE * 2.0 ** max(0, self._too_early - 1)), self.longest)


async def heartbeat(
    store: RunStore,
    clock: Clock,
    lease_seconds: float,
    claims: Callable[[], Mapping[str, int]],
    interrupt: Interrupt,
) -> None:
    """Renew the leases of all claimed runs until cancelled; a failed renewal is repeated sooner than usual."""
    failing = False
    while True:
        await clock.sleep(min(lease_seconds / 3, TROUBLE_PAUSE) if failing else lease_seconds / 3)
        try:
            await renew(store, lease_seconds, claims(), interrupt)
        except Exception as error:
            if not failing:
                log.warning("heartbeat.failed", code=getattr(error, "code", type(error).__name__))
            failing = True
            continue
        if failing:
            log.warning("heartbeat.recovered")
        failing = False


async def renew(store: RunStore, lease_seconds: float, held: Mapping[str, int], interrupt: Interrupt) -> None:
    """Renew these leases (tokens by run id), and interrupt the runs that are lost or to be cancelled."""
    answers = await store.extend(held, lease_seconds) if held else {}
    for run_id, answer in answers.items():
        if answer == "lost":
            interrupt(run_id, held[run_id], answer, "")
    for run_id in [run_id for run_id, answer in answers.items() if answer == "cancel"]:
        run = await store.run(run_id)
        interrupt(run_id, held[run_id], "cancel", run.error if run is not None else "")
