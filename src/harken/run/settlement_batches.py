"""Settles runs in batches: while one batch is written to the store, the next one gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost
from harken.event import Event
from harken.feed import INTERNAL
from harken.run.journal import InternalFeed, RunStore, Unwritten, append_records
from harken.run.retry import retry_store
from harken.runs import Again, Cancelled, Claimed, Dead, Failed, Finished, RunOutcome
from harken.store import Settlement, Stale

__all__ = ["PendingSettlement", "Settler", "announcement"]

MAX_BATCH = 500
MAX_CHAIN = 8
"""How deep runs may be started by the ends of other runs; a deeper end is not announced, so that loops stop."""

Result: TypeAlias = Literal["settled", "lost"]

log = structlog.get_logger("harken.run")


class PendingSettlement:
    """The end of a try that is not in the store yet. `may_free_runs`: other runs may become ready by it."""

    __slots__ = ("claimed", "may_free_runs", "outcome", "unwritten")

    def __init__(self, claimed: Claimed, outcome: RunOutcome, unwritten: Unwritten | None) -> None:
        self.claimed = claimed
        self.outcome = outcome
        self.unwritten = unwritten
        self.may_free_runs = not claimed.alone or type(outcome) is Again

    @property
    def outcome_name(self) -> str:
        """The outcome as counters and metrics name it."""
        outcome = self.outcome
        if type(outcome) is Finished:
            return "filtered" if outcome.filtered else "done"
        return "again" if type(outcome) is Again else _status_of(outcome)[0]

    @property
    def reason(self) -> str:
        """Why the try did not end well; empty if it did."""
        return self.outcome.error if type(self.outcome) is Again else _status_of(self.outcome)[2]


class Settler:
    """Writes the ends of tries. `on_settled` is called once for each: with `lost` when the run was no longer ours."""

    def __init__(
        self,
        store: RunStore,
        clock: Clock,
        internal: InternalFeed,
        on_settled: Callable[[PendingSettlement, Result], None],
        workflow_name: Callable[[str], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._internal = internal
        self._on_settled = on_settled
        self._workflow_name = workflow_name
        self._waiting: list[PendingSettlement] = []
        self._writing: Sequence[PendingSettlement] = ()
        self._task: asyncio.Task[None] | None = None
        self.stale = 0

    def add(self, claimed: Claimed, outcome: RunOutcome, unwritten: Unwritten | None = None) -> None:
        self._waiting.append(PendingSettlement(claimed, outcome, unwritten))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name="settle")

    def claims(self) -> dict[str, int]:
        """Runs and tokens that are not settled yet, so their leases must be kept."""
        return {one.claimed.id: one.claimed.token for one in (*self._writing, *self._waiting)}

    async def drain(self, seconds: float) -> bool:
        """Wait until everything is written; False when that takes longer."""
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
        return self._task is None

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                self._writing, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                try:
                    await self._write(self._writing)
                except Exception:
                    # their leases expire and the runs are tried again; later batches must not wait for that
                    log.exception("settlement.failed", runs=len(self._writing))
                self._writing = ()
        finally:
            self._task = None

    async def _write(self, batch: Sequence[PendingSettlement]) -> None:
        if any(one.unwritten is not None and len(one.unwritten.records) > 1 for one in batch):
            batch = await self._write_journals(batch)
        while batch:
            results = await self._settle([self._settlement(one) for one in batch])
            stale: list[PendingSettlement] = []
            for one, result in zip(batch, results, strict=True):
                if isinstance(result, Stale):
                    stale.append(one)
                else:
                    self._on_settled(one, result)
            await self._follow_up(batch, results)
            batch = stale
            if stale:
                self.stale += len(stale)
                await self._internal.refresh_rules()
            else:
                self._internal.rules_accepted()

    async def _settle(self, settlements: Sequence[Settlement]) -> Sequence[Result | Stale]:
        try:
            return await retry_store(lambda: self._store.settle(settlements), self._clock)
        except Exception as error:
            if len(settlements) > 1:
                # one of them is invalid: settle each alone, so that the others are not affected
                return [(await self._settle([one]))[0] for one in settlements]
            return [await self._settle_dead(settlements[0], error)]

    async def _settle_dead(self, settlement: Settlement, error: Exception) -> Result:
        """The store refuses this outcome: make the run a dead letter. If that fails too, its lease expires."""
        reason = str(error) if isinstance(error, HarkenError) else type(error).__name__
        log.error("settlement.refused", run=settlement.id, reason=reason)
        outcome = Dead(error=f"its end was refused: {reason}")
        dead = Settlement(id=settlement.id, token=settlement.token, outcome=outcome)
        try:
            result = (await retry_store(lambda: self._store.settle([dead]), self._clock))[0]
        except Exception:
            log.exception("settlement.abandoned", run=settlement.id)
            return "lost"
        return "lost" if isinstance(result, Stale) else result

    async def _write_journals(self, batch: Sequence[PendingSettlement]) -> Sequence[PendingSettlement]:
        """A settlement carries one record: write those before it. Returns the batch without runs that were lost."""
        ours = await asyncio.gather(*(self._write_journal(one) for one in batch))
        return [one for one, is_ours in zip(batch, ours, strict=True) if is_ours]

    async def _write_journal(self, one: PendingSettlement) -> bool:
        unwritten = one.unwritten
        if unwritten is None or len(unwritten.records) <= 1:
            return True
        # an emitted event is written with its record, which may be any of them
        records = unwritten.records
        now, last = (records, []) if unwritten.events else (records[:-1], records[-1:])
        try:
            await append_records(self._store, self._clock, one.claimed, self._internal, now, unwritten.events)
        except LeaseLost:
            self._on_settled(one, "lost")
            return False
        one.unwritten = Unwritten(last, [])
        return True

    def _settlement(self, one: PendingSettlement) -> Settlement:
        claimed, unwritten = one.claimed, one.unwritten
        announced = None
        if self._internal.listens(f"run.{_status_of(one.outcome)[0]}"):
            announced = announcement(claimed, one.outcome, self._clock, self._workflow_name(claimed.workflow_rev))
        events = [] if announced is None else [announced]
        record = None
        if unwritten is not None:
            record = unwritten.records[0] if unwritten.records else None
            events.extend(unwritten.events)
        commit = self._internal.match(events) if events else None
        one.may_free_runs = one.may_free_runs or commit is not None
        return Settlement(
            id=claimed.id,
            token=claimed.token,
            outcome=one.outcome,
            record=record,
            caused=() if commit is None else (commit,),
            trigger=claimed.trigger,
        )

    async def _follow_up(self, batch: Sequence[PendingSettlement], results: Sequence[Result | Stale]) -> None:
        for one, result in zip(batch, results, strict=True):
            if type(one.outcome) is Dead and result == "settled":
                log.warning("run.dead", run=one.claimed.id, trigger=one.claimed.trigger, reason=one.outcome.error)
            if one.claimed.parent and result == "settled" and not isinstance(one.outcome, Again):
                await self._wake_parent(one)

    async def _wake_parent(self, one: PendingSettlement) -> None:
        status, output, error = _status_of(one.outcome)
        answer = {"run": one.claimed.id, "status": status, "output": output, "error": error}
        await retry_store(lambda: self._store.answer(one.claimed.parent, answer), self._clock)


def announcement(claimed: Claimed, outcome: RunOutcome, clock: Clock, workflow: str = "") -> Event | None:
    """The internal event about a run's end: `run.done`, `run.failed`, `run.dead`, `run.cancelled`; None for a retry."""
    if type(outcome) is Again:
        return None
    depth = 1
    if claimed.events and claimed.events[0].feed == INTERNAL:
        depth = 1 + int(claimed.events[0].data.get("depth", 0))
        if depth > MAX_CHAIN:
            return None
    status, output, error = _status_of(outcome)
    data = {
        "run": claimed.id,
        "trigger": claimed.trigger,
        "workflow": workflow or claimed.trigger,
        "status": status,
        "filtered": type(outcome) is Finished and outcome.filtered,
        "output": output,
        "error": error,
        "attempt": claimed.attempt,
        "depth": depth,
    }
    # a run that a person retries ends twice: the claim's token makes the keys differ
    return Event(
        subject=claimed.id,
        type=f"run.{status}",
        data=data,
        key=f"{claimed.id}:{claimed.token}",
        state=f"{status}:{claimed.token}",
        occurred_at=clock.now(),
    )


def _status_of(outcome: RunOutcome) -> tuple[str, Any, str]:
    """The final status, the output and the error."""
    if isinstance(outcome, Finished):
        return "done", outcome.output, ""
    if isinstance(outcome, Failed):
        return "failed", None, outcome.error
    if isinstance(outcome, Cancelled):
        return "cancelled", None, outcome.reason
    return "dead", None, outcome.error
