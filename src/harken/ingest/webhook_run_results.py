"""What a sender of webhooks is told of the runs that it started, once they are over or its patience is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from harken.clock import Clock
from harken.errors import RetryLater
from harken.event import Recorded, Verdict
from harken.runs import FINAL, Run
from harken.store import Committed
from harken.task_cancellation import cancel_and_wait

__all__ = ["RUNS", "RunAnswer", "RunAnswers", "RunRecords"]

FIRST_LOOK, LONGEST_LOOK = 0.1, 1.0
"""Another replica may end the run, so the store is looked at after so many seconds, doubling."""
STATUSES: Mapping[str, int] = {"done": 200, "failed": 500, "dead": 500, "cancelled": 409}
"""What a run that is over is answered with; any other is 202."""
WORST = (500, 409, 202, 200)
RUNS = "/api/runs/"
"""Where the API shows a run."""


class RunRecords(Protocol):
    """The part of a store that answers need."""

    async def run(self, run_id: str) -> Run | None: ...

    async def event(self, event_id: int) -> Recorded | None: ...


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to the sender, and the runs that it is about."""

    status: int
    content: Any
    runs: tuple[str, ...] = ()


class RunAnswers:
    """Waits for runs, those of this process and of other replicas alike."""

    def __init__(self, store: RunRecords, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._ends: dict[str, list[asyncio.Event]] = {}
        self._closing = False

    def note_end(self, run_id: str) -> None:
        """A try of this run has ended here, and is in the store."""
        for end in self._ends.get(run_id, ()):
            end.set()

    def close(self) -> None:
        """Let everybody who waits be answered now: this process stops, and the runs go on elsewhere or later."""
        self._closing = True
        for ends in self._ends.values():
            for end in ends:
                end.set()

    async def answer(self, committed: Committed, seconds: float) -> RunAnswer:
        """Wait at most so long for the runs of these events. A repeated event is answered with its first run."""
        if not committed.event_ids:
            # of a feed that tells transitions, what it knew already is not even committed
            return RunAnswer(status=200, content={"run": None, "status": "duplicate"})
        verdicts = [
            verdict
            for event_id, found in zip(committed.event_ids, committed.verdicts, strict=True)
            for verdict in await self._first_verdicts(event_id, found)
        ]
        until = self._clock.monotonic() + seconds
        ids = list(dict.fromkeys(verdict.run_id for verdict in verdicts if verdict.run_id))
        runs = await asyncio.gather(*(self._wait(run_id, until) for run_id in ids))
        return summarise([run for run in runs if run is not None], verdicts)

    async def _first_verdicts(self, event_id: int, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        if not (verdicts and verdicts[0].outcome == "duplicate"):
            return verdicts
        first = await self._store.event(event_id)
        return first.verdicts if first is not None else verdicts

    async def _wait(self, run_id: str, until: float) -> Run | None:
        """The run when it is over, or as it is when waiting for it is over or would be in vain."""
        end = asyncio.Event()
        self._ends.setdefault(run_id, []).append(end)
        try:
            pause = FIRST_LOOK
            while True:
                end.clear()
                run = await self._look(run_id)
                left = until - self._clock.monotonic()
                if run is not None and self._is_settled(run, left):
                    return run
                if left <= 0 or self._closing:
                    return run
                await self._either(end, min(pause, left))
                pause = min(2 * pause, LONGEST_LOOK)
        finally:
            self._ends[run_id].remove(end)
            if not self._ends[run_id]:
                del self._ends[run_id]

    async def _look(self, run_id: str) -> Run | None:
        try:
            return await self._store.run(run_id)
        except RetryLater:
            # the event is committed: trouble of the store now is no reason to have it sent again
            return None

    def _is_settled(self, run: Run, seconds: float) -> bool:
        """Whether nothing that is worth waiting for happens within so many seconds."""
        if run.status in FINAL or run.status == "held":
            return True
        waits = run.status in ("ready", "gathering", "waiting") and not run.waiting_for
        return waits and (run.due_at - self._clock.now()).total_seconds() > seconds

    async def _either(self, end: asyncio.Event, seconds: float) -> None:
        tasks = [asyncio.ensure_future(end.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(tasks)


def summarise(runs: Sequence[Run], verdicts: Sequence[Verdict]) -> RunAnswer:
    """One run is answered with its outputs, several with a list, none with what was decided instead."""
    if not runs:
        # a run that could not be read: the store is in trouble, or has forgotten it
        unread = tuple(verdict.run_id for verdict in verdicts if verdict.run_id)
        outcome = "unknown" if unread else verdicts[0].outcome if verdicts else "unmatched"
        return RunAnswer(status=202, content={"run": unread[0] if unread else None, "status": outcome}, runs=unread)
    if len(runs) > 1:
        statuses = {STATUSES.get(run.status, 202) for run in runs}
        worst = next(status for status in WORST if status in statuses)
        content = {"runs": [_describe(run, whole=True) for run in runs]}
        return RunAnswer(status=worst, content=content, runs=tuple(run.id for run in runs))
    [run] = runs
    status = STATUSES.get(run.status, 202)
    is_told = run.status == "done" and run.output is not None
    return RunAnswer(status=status, content=run.output if is_told else _describe(run), runs=(run.id,))


def _describe(run: Run, *, whole: bool = False) -> dict[str, Any]:
    # why it failed is for those who may see runs: it names hosts and steps
    failed = {"error": "the run did not succeed"} if run.status in ("failed", "dead") else {}
    held = {"held": run.hold} if run.status == "held" and run.hold else {}
    outputs = {"outputs": run.output} if whole and run.status == "done" else {}
    return {**failed, "run": run.id, "status": run.status, **held, **outputs, "look": RUNS + run.id}
