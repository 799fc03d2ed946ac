"""Ends of runs on their way to the store: while one batch is being written, the next one gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost
from harken.event import Event
from harken.feed import INTERNAL
from harken.run.journal import InternalFeed, RunStore, Unwritten, journal
from harken.run.retry import patiently
from harken.runs import Again, Cancelled, Claimed, Dead, Failed, Finished, RunOutcome
from harken.store import Settlement, Stale

__all__ = ["PendingSettlement", "Settler", "announcement"]

MOST = 500
DEEPEST_CHAIN = 8
"""A run that another run's end started may end in an announcement of its own, but not for ever."""

Result: TypeAlias = Literal["settled", "lost"]

log = structlog.get_logger()


class PendingSettlement:
    """One end of a try that the store has not taken yet."""

    __slots__ = ("claimed", "outcome", "rest", "wakes")

    @property
    def what(self) -> str:
        """The name of the outcome in counters and metrics."""
        outcome = self.outcome
        if type(outcome) is Finished:
            return "filtered" if outcome.filtered else "done"
        return "again" if type(outcome) is Again else _words(outcome)[0]

    def __init__(self, claimed: Claimed, outcome: RunOutcome, rest: Unwritten | None) -> None:
        self.claimed = claimed
        self.outcome = outcome
        self.rest = rest
        # whether its end may have made a run ready
        self.wakes = not claimed.alone or type(outcome) is Again


class Settler:
    """`told` hears of every closing once: whether the store took it, or the run was no longer ours."""

    def __init__(
        self,
        store: RunStore,
        clock: Clock,
        internal: InternalFeed,
        told: Callable[[PendingSettlement, Result], None],
        named: Callable[[str], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._internal = internal
        self._told = told
        self._named = named
        self._waiting: list[PendingSettlement] = []
        self._writing: Sequence[PendingSettlement] = ()
        self._task: asyncio.Task[None] | None = None
        self.stale = 0

    def add(self, claimed: Claimed, outcome: RunOutcome, rest: Unwritten | None = None) -> None:
        self._waiting.append(PendingSettlement(claimed, outcome, rest))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name="settle")

    def claims(self) -> dict[str, int]:
        """What is still ours until the store has taken it."""
        return {one.claimed.id: one.claimed.token for one in (*self._writing, *self._waiting)}

    async def drained(self, seconds: float) -> bool:
        """Wait until everything is written; False when that takes longer."""
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
        return self._task is None

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                self._writing, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                try:
                    await self._write(self._writing)
                except Exception:
                    # their claims run out and another try is made; the ends that come after must not wait for that
                    log.exception("settle_failed", runs=len(self._writing))
                self._writing = ()
        finally:
            self._task = None

    async def _write(self, batch: Sequence[PendingSettlement]) -> None:
        for one in batch:
            if one.rest is not None and len(one.rest.records) > 1:
                batch = await self._write_journals(batch)
                break
        while batch:
            settlements = [self._settlement(one) for one in batch]
            results = await self._settle(settlements, batch)
            again: list[PendingSettlement] = []
            for one, result in zip(batch, results, strict=True):
                if isinstance(result, Stale):
                    again.append(one)
                else:
                    self._told(one, result)
            await self._follow_up(batch, results)
            batch = again
            if again:
                self.stale += len(again)
                await self._internal.relearn()
            else:
                self._internal.settled()

    async def _settle(
        self, settlements: Sequence[Settlement], batch: Sequence[PendingSettlement]
    ) -> Sequence[Result | Stale]:
        try:
            return await patiently(lambda: self._store.settle(settlements), self._clock)
        except Exception as error:
            if len(settlements) > 1:
                # one of them is at fault: the others must not suffer
                return [(await self._settle([one], [it]))[0] for one, it in zip(settlements, batch, strict=True)]
            return [await self._settle_dead(settlements[0], error)]

    async def _settle_dead(self, settlement: Settlement, error: Exception) -> Result:
        """The store will not have this end: the run becomes a dead letter, or, failing that, is left to its lease."""
        told = str(error) if isinstance(error, HarkenError) else type(error).__name__
        log.error("settle_refused", run=settlement.id, error=told)
        dead = Settlement(id=settlement.id, token=settlement.token, outcome=Dead(error=f"its end was refused: {told}"))
        try:
            result = (await patiently(lambda: self._store.settle([dead]), self._clock))[0]
        except Exception:
            log.exception("settle_abandoned", run=settlement.id)
            return "lost"
        return "lost" if isinstance(result, Stale) else result

    async def _write_journals(self, batch: Sequence[PendingSettlement]) -> Sequence[PendingSettlement]:
        """A settlement carries one record: write what comes before it. A run that is lost drops out."""
        kept = await asyncio.gather(*(self._write_journal(one) for one in batch))
        return [one for one, ours in zip(batch, kept, strict=True) if ours]

    async def _write_journal(self, one: PendingSettlement) -> bool:
        rest = one.rest
        if rest is None or len(rest.records) <= 1:
            return True
        # an emitted event goes with its record, which may be any of them
        now, last = (rest.records, []) if rest.events else (rest.records[:-1], rest.records[-1:])
        try:
            await journal(self._store, self._clock, one.claimed, self._internal, now, rest.events)
        except LeaseLost:
            self._told(one, "lost")
            return False
        one.rest = Unwritten(last, [])
        return True

    def _settlement(self, one: PendingSettlement) -> Settlement:
        claimed, rest = one.claimed, one.rest
        told = None
        if self._internal.listens(f"run.{_words(one.outcome)[0]}"):
            told = announcement(claimed, one.outcome, self._clock, self._named(claimed.workflow_rev))
        events = [] if told is None else [told]
        record = None
        if rest is not None:
            record = rest.records[0] if rest.records else None
            events.extend(rest.events)
        commit = self._internal.match(events) if events else None
        one.wakes = one.wakes or commit is not None
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
                run, trigger = one.claimed.id, one.claimed.trigger
                log.warning("run_dead", run=run, trigger=trigger, error=one.outcome.error)
            if one.claimed.parent and result == "settled" and not isinstance(one.outcome, Again):
                await self._wake(one)

    async def _wake(self, one: PendingSettlement) -> None:
        status, output, error = _words(one.outcome)
        answer = {"run": one.claimed.id, "status": status, "output": output, "error": error}
        await patiently(lambda: self._store.answer(one.claimed.parent, answer), self._clock)


def announcement(claimed: Claimed, outcome: RunOutcome, clock: Clock, workflow: str = "") -> Event | None:
    """The internal event that tells of a run's end: `run.done`, `run.failed`, `run.dead`, `run.cancelled`."""
    if type(outcome) is Again:
        return None
    depth = 1
    if claimed.events and claimed.events[0].feed == INTERNAL:
        depth = 1 + int(claimed.events[0].data.get("depth", 0))
        if depth > DEEPEST_CHAIN:
            return None
    status, output, error = _words(outcome)
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
    # a run that is retried by hand ends again: the claim's token tells its ends apart
    key = f"{claimed.id}:{claimed.token}"
    return Event(
        subject=claimed.id,
        type=f"run.{status}",
        data=data,
        key=key,
        state=f"{status}:{claimed.token}",
        occurred_at=clock.now(),
    )


def _words(outcome: RunOutcome) -> tuple[str, Any, str]:
    if isinstance(outcome, Finished):
        return "done", outcome.output, ""
    if isinstance(outcome, Failed):
        return "failed", None, outcome.error
    if isinstance(outcome, Cancelled):
        return "cancelled", None, outcome.reason
    return "dead", None, outcome.error
