"""The worker: claims runs, executes a bounded number at once, keeps their leases alive and settles them in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Literal

import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost, StoreBusy, StoreUnavailable
from harken.run.environment import Environment
from harken.run.execute import Ended, Execution, execute
from harken.run.journal import InternalFeed, Journal, Matching, RunStore, Unwritten, park
from harken.run.plan import Plan
from harken.run.retry import patiently
from harken.run.settler import PendingSettlement, Settler
from harken.run.workflows import WorkflowCache
from harken.runs import Again, Cancelled, Claimed, Dead, Finished, Park, RunOutcome
from harken.store import Runs
from harken.tasks import end
from harken.timings import Timings

__all__ = [
    "EMPTY_PAUSE",
    "TROUBLE_PAUSE",
    "Active",
    "Due",
    "Observe",
    "Why",
    "Worker",
    "heartbeat",
    "landed",
]

log = structlog.get_logger()


TROUBLE_PAUSE = 1.0

EMPTY_PAUSE = 0.02

Why = Literal["lost", "cancel", "stopped"]


class Active:
    """A run that occupies a slot. `why` says who ended it early, if anyone did."""

    __slots__ = ("claimed", "ledger", "task", "why")

    def __init__(self, claimed: Claimed, ledger: Journal) -> None:
        self.claimed = claimed
        self.ledger = ledger
        self.task: asyncio.Task[None] | None = None
        self.why: Why | None = None

    def end(self, why: Why) -> None:
        if self.why is None and self.task is not None:
            self.why = why
            self.task.cancel()


async def landed(flights: Iterable[Active], seconds: float) -> None:
    """Wait until these have ended, but no longer than that."""
    tasks = [flight.task for flight in flights if flight.task is not None]
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


class Due:
    """How long until the store has something for us; capped, so that a jump of the wall clock is noticed.

    Runs are handed out by the store's clock. Where it has nothing yet although by ours it should, ours is ahead: each
    look that was in vain makes the next one wait longer.
    """

    def __init__(self, store: Runs, clock: Clock, longest: float = Timings().worker_sleep) -> None:
        self._store = store
        self._clock = clock
        self._longest = longest
        self._in_vain = 0

    def came(self) -> None:
        self._in_vain = 0

    async def seconds(self) -> float:
        try:
            due = await self._store.next_due()
        except (StoreBusy, StoreUnavailable):
            return TROUBLE_PAUSE
        except Exception:
            log.exception("next_due_failed")
            return self._longest
        if due is None:
            return self._longest
        wait = (due - self._clock.now()).total_seconds()
        self._in_vain = min(self._in_vain + 1, 8) if wait <= 0 else 0
        return min(max(wait, EMPTY_PAUSE * 2.0 ** max(0, self._in_vain - 1)), self._longest)


async def heartbeat(
    store: Runs,
    clock: Clock,
    lease_seconds: float,
    claims: Callable[[], Mapping[str, int]],
    interrupt: Callable[[str, int, Why], None],
) -> None:
    """Keep the claims for ever. A store that is away for a moment does not end the heartbeat."""
    failing = False
    while True:
        await clock.sleep(min(lease_seconds / 3, TROUBLE_PAUSE) if failing else lease_seconds / 3)
        held = claims()
        try:
            answers = await store.extend(held, lease_seconds) if held else {}
        except Exception as error:
            if not failing:
                log.warning("heartbeat_failed", code=getattr(error, "code", type(error).__name__))
            failing = True
            continue
        if failing:
            log.warning("heartbeat_recovered")
        failing = False
        for run_id, answer in answers.items():
            if answer != "kept":
                interrupt(run_id, held[run_id], answer)


Observe = Callable[[str, Claimed], None]

"""Hears `started`, `done`, `filtered`, `failed`, `dead`, `cancelled`, `again`, `parked` and `lost`."""

LAST_WRITES = 10.0

SPARE = 2_000

"""So many runs may be handed over beyond `parallel` while they turn out not to wait for anything."""

MOST_CLAIMED = 256

_DONE = Finished()


class Worker:
    """Executes claimed runs. `parallel` bounds those that wait for something; the others are executed on the spot.

    `internal` matches events for the internal feed, `learn` is called first when its rules have moved on, `listens`
    tells whether anybody would hear of a run's end.
    Counters are plain attributes that only grow.
    """

    def __init__(
        self,
        store: RunStore,
        clock: Clock,
        random: Random,
        *,
        library: WorkflowCache,
        reach: Environment,
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
        self._library = library
        self._reach = reach
        self.holder = holder
        self._internal = InternalFeed(internal, learn, clock, listens, on_started=self.nudge)
        self._parallel = parallel
        self._lease_seconds = timings.claim_seconds
        self._longest_sleep = timings.worker_sleep
        self.observe = observe
        self._settler = Settler(store, clock, self._internal, self._told, self._workflow_name)
        self._active: dict[str, Active] = {}
        self._queue: deque[Claimed] = deque()
        self._reserved = 0
        self._streak = 0
        self._nudged = asyncio.Event()
        self._stopping = False
        self._beating: asyncio.Task[None] | None = None
        self._claimed_nothing_at: float | None = None
        # whether the last look at the store left runs there for which we had no room
        self._short = True
        self._due = Due(store, clock, timings.worker_sleep)
        self.last_claim: datetime | None = None
        self.started = self.done = self.filtered = self.failed = self.dead = 0
        self.cancelled = self.again = self.parked = self.lost = 0

    @property
    def in_flight(self) -> int:
        """Runs that are claimed here and not over: at work, or waiting for a slot."""
        return len(self._active) + len(self._queue)

    def _room(self) -> int:
        # runs that never wait need no slot; after some of those in a row, more of them are probably coming
        spare = min(SPARE, 8 * self._streak) if not self._queue else 0
        return max(0, self._parallel - len(self._active) - len(self._queue) - self._reserved + spare)

    def reserve(self, wanted: int) -> int:
        """Set places aside for runs that a commit is about to claim; how many. `accept` or `unreserve` each of them."""
        granted = 0 if self._stopping else min(wanted, self._room())
        self._reserved += granted
        return granted

    def unreserve(self, count: int) -> None:
        self._reserved -= count

    def accept(self, claimed: Sequence[Claimed]) -> None:
        """Take over runs that a commit has claimed for us; each uses up one reservation."""
        self._reserved -= len(claimed)
        self._take(claimed)

    def use(self, reach: Environment) -> None:
        """Steps that begin from now on touch the world through this one."""
        self._reach = reach

    def nudge(self) -> None:
        """Something may be ready: look now instead of at the next timer."""
        self._nudged.set()

    async def run(self) -> None:
        """Claim and execute until `stop`."""
        beat = heartbeat(self._store, self._clock, self._lease_seconds, self._claims, self._interrupt)
        self._beating = asyncio.create_task(beat, name="heartbeat")
        while not self._stopping:
            self._nudged.clear()
            await self._rest(await self._claim())

    async def stop(self, grace_seconds: float) -> None:
        """Stop claiming, give runs in flight time to end, and hand the others back to go on from their journals."""
        self._stopping = True
        self.nudge()
        while self._queue:
            self._hand_back(self._queue.popleft(), None)
        await landed(self._active.values(), grace_seconds)
        for active in list(self._active.values()):
            active.end("stopped")
        await landed(self._active.values(), LAST_WRITES)
        if not await self._settler.drained(LAST_WRITES):
            log.warning("stop_incomplete")
        if self._beating is not None:
            await end([self._beating])

    async def _claim(self) -> bool:
        """Claim as much as there is room for; True when there may be more."""
        room = min(self._room(), self._parallel + MOST_CLAIMED)
        self._short = True
        if room == 0:
            return False
        try:
            claimed = await self._store.claim(self.holder, room, self._lease_seconds)
        except (StoreBusy, StoreUnavailable) as error:
            await self._clock.sleep(max(TROUBLE_PAUSE, error.after or 0.0))
            return True
        except Exception:
            log.exception("claim_failed")
            await self._clock.sleep(self._longest_sleep)
            return True
        self.last_claim = self._clock.now()
        self._claimed_nothing_at = None if claimed else self._clock.monotonic()
        if claimed:
            self._due.came()
        self._take(claimed)
        self._short = len(claimed) == room
        return self._short

    async def _rest(self, more: bool) -> None:
        """Wait for a nudge or for the next run to become due; capped, so that a jump of the wall clock is noticed."""
        if more or self._stopping:
            return
        seconds = await self._due.seconds() if self._room() else self._longest_sleep
        try:
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        except TimeoutError:
            return
        if self._claimed_nothing_at is not None and not self._stopping:
            # nudges come with every batch that is settled: do not ask an empty store each time
            pause = self._claimed_nothing_at + EMPTY_PAUSE - self._clock.monotonic()
            if pause > 0:
                await self._clock.sleep(pause)

    def _take(self, claimed: Sequence[Claimed]) -> None:
        for run in claimed:
            plan = self._library.peek(run.workflow_rev)
            if self._stopping:
                self._hand_back(run, None)
            elif run.cancel_requested:
                self._settler.add(run, Cancelled(reason="asked to stop before it went on"))
            elif plan is not None and plan.instant:
                self._streak += 1
                self._execute_now(run, plan)
            elif len(self._active) < self._parallel:
                self._begin(run)
            else:
                self._queue.append(run)

    def _execute_now(self, claimed: Claimed, plan: Plan) -> None:
        self.started += 1
        if self.observe is not None:
            self.observe("started", claimed)
        if plan.empty:
            self._settler.add(claimed, _DONE)
            return
        ledger = Journal(claimed, self._store, self._clock, self._internal, self._reach.discreet)
        walking = execute(self._execution(plan, claimed, ledger))
        try:
            walking.send(None)
        except StopIteration as end:
            ended: Ended = end.value
            assert not isinstance(ended.outcome, Park), "a run that never waits does not park"
            self._settler.add(claimed, ended.outcome, ended.rest)
        except Exception:
            self._settler.add(claimed, self._bug(claimed), ledger.rest())
        else:
            walking.close()
            raise AssertionError(f"workflow {plan.name!r} waits although none of its steps may")

    def _begin(self, claimed: Claimed) -> None:
        before = self._active.get(claimed.id)
        if before is not None:
            # our own claim ran out and we got the run again: whatever the old try does is void
            before.end("lost")
        active = Active(claimed, Journal(claimed, self._store, self._clock, self._internal, self._reach.discreet))
        self._active[claimed.id] = active
        self.started += 1
        if self.observe is not None:
            self.observe("started", claimed)
        active.task = asyncio.get_running_loop().create_task(self._try(active), name=f"run {claimed.id[:8]}")
        active.task.add_done_callback(lambda task: self._landed(active, task))

    def _landed(self, active: Active, task: asyncio.Task[None]) -> None:
        """A callback rather than a finally: a task that is cancelled before its first step never enters its body."""
        if self._active.get(active.claimed.id) is active:
            del self._active[active.claimed.id]
        if task.cancelled():
            self._stopped(active)
        elif isinstance(task.exception(), LeaseLost):
            self._count("lost", active.claimed)
        while self._queue and len(self._active) < self._parallel and not self._stopping:
            self._begin(self._queue.popleft())
        if self._short:
            self.nudge()

    async def _try(self, active: Active) -> None:
        claimed, ledger = active.claimed, active.ledger
        try:
            plan = await patiently(lambda: self._library.get(claimed.workflow_rev), self._clock)
            self._streak = self._streak + 1 if plan.instant else 0
            ended = await execute(self._execution(plan, claimed, ledger))
            if isinstance(ended.outcome, Park) and ended.outcome.waiting_for and claimed.answer is not None:
                # the answer that woke this try must not be taken for one to the next question
                self._settler.add(claimed, Again(at=self._clock.now(), error="", counts=False), ended.rest)
            elif isinstance(ended.outcome, Park):
                await park(self._store, self._clock, claimed, self._internal, ended.outcome, ended.rest)
                self._count("parked", claimed)
                self.nudge()
            else:
                self._settler.add(claimed, ended.outcome, ended.rest)
        except LeaseLost:
            raise
        except HarkenError as error:
            self._settler.add(claimed, Dead(error=str(error)), ledger.rest())
        except Exception:
            self._settler.add(claimed, self._bug(claimed), ledger.rest())

    def _stopped(self, active: Active) -> None:
        if active.why == "stopped":
            self._hand_back(active.claimed, active.ledger.rest())
        elif active.why == "cancel":
            self._settler.add(active.claimed, Cancelled(reason="asked to stop"), active.ledger.rest())
        else:
            self._count("lost", active.claimed)

    def _hand_back(self, claimed: Claimed, rest: Unwritten | None) -> None:
        self._settler.add(claimed, Again(at=self._clock.now(), error="stopped", counts=False), rest)

    def _execution(self, plan: Plan, claimed: Claimed, ledger: Journal) -> Execution:
        return Execution(
            plan, claimed, ledger, store=self._store, reach=self._reach, clock=self._clock, random=self._random
        )

    def _bug(self, claimed: Claimed) -> RunOutcome:
        log.exception("run_bug", run=claimed.id)
        return Dead(error="a bug in Harken ended this run; the log has the traceback")

    def _workflow_name(self, rev: str) -> str:
        plan = self._library.peek(rev)
        return plan.name if plan is not None else ""

    def _claims(self) -> dict[str, int]:
        queued = {run.id: run.token for run in self._queue}
        working = {run_id: active.claimed.token for run_id, active in self._active.items()}
        return {**self._settler.claims(), **queued, **working}

    def _interrupt(self, run_id: str, token: int, why: Why) -> None:
        active = self._active.get(run_id)
        if active is not None and active.claimed.token == token:
            active.end(why)
            return
        for run in self._queue:
            if run.id == run_id and run.token == token:
                self._queue.remove(run)
                if why == "cancel":
                    self._settler.add(run, Cancelled(reason="asked to stop before it began"))
                else:
                    self._count("lost", run)
                return

    def _told(self, closing: PendingSettlement, result: Literal["settled", "lost"]) -> None:
        self._count(closing.what if result == "settled" else "lost", closing.claimed)
        if closing.wakes or self._short:
            self.nudge()

    def _count(self, what: str, claimed: Claimed) -> None:
        setattr(self, what, getattr(self, what) + 1)
        if what == "lost":
            log.warning("run_lost", run=claimed.id)
        if self.observe is not None:
            self.observe(what, claimed)
