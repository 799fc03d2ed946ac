"""The past of one trigger once more: its events go through the same matching and the same commit, into a store that is
thrown away afterwards. Runs start and end there when they did, so that overlap, digests, budgets and quiet hours decide
as they did.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

import msgspec

from harken.event import Recorded, Verdict
from harken.feed import Feed, Trigger, TriggerState
from harken.match import Read, Rule, Rules, Sighting, match
from harken.operate.backtest_clock import PastClock
from harken.operate.event_from_record import event_of
from harken.runs import Claimed, Finished, Run, StepRecord
from harken.store import Commit, Committed, Definitions, Records, Settlement, Store

__all__ = ["Past", "PastRun", "commit_of", "orders_between", "position_in_run", "runs_between"]

ALWAYS = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
HOLDER = "backtest"
FOR_EVER = 3650 * 86_400.0
CLAIMED_AT_ONCE = 200
GATHERED = re.compile(r"event (\d+) of the run that is gathering")
PAUSED, FLOOD = "the trigger is paused", "the flood guard"
RUNS_PER_PAGE = 500
AUDITS_PER_PAGE = 500
ORDERS = {
    "triggers.resume": "paused",
    "triggers.reset": "paused",
    "pollers.resume": "paused",
    "pollers.reset": "paused",
    "triggers.release": "",
    "triggers.drop": "drop",
}
"""What people do to held runs: which holds it ends."""


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """When a run started and ended, and what it used."""

    started_at: datetime | None
    finished_at: datetime | None
    over: bool
    tokens: int = 0
    usd: float = 0.0


def commit_of(event: Recorded, verdict: Verdict | None) -> tuple[str, datetime, bool, bool]:
    """What events of one commit have in common: feed, time, and whether the trigger was paused or guarded then."""
    reason = verdict.reason if verdict is not None else ""
    return event.feed, event.recorded_at, PAUSED in reason, FLOOD in reason


def position_in_run(reason: str) -> int:
    """Which event of its run a gathered one was; 0 if the reason does not say so."""
    found = GATHERED.search(reason)
    return int(found[1]) if found else 0


async def runs_between(store: Records, trigger: str, begin: datetime, *, journals: bool) -> Mapping[str, PastRun]:
    """The stored runs of the trigger that were created since, or were not over then, by id."""
    found: dict[str, PastRun] = {}
    before: int | None = None
    while True:
        page = await store.runs(trigger=trigger, before=before, limit=RUNS_PER_PAGE, journals=journals)
        for run in page.items:
            if run.created_at >= begin or run.finished_at is None or run.finished_at >= begin:
                found[run.id] = past_run(run)
        if page.next is None or all(run.created_at < begin for run in page.items):
            return found
        before = page.next


async def orders_between(store: Records, trigger: str, begin: datetime) -> list[tuple[datetime, str]]:
    """When people released the trigger's held runs since then, and which holds that ended."""
    found: list[tuple[datetime, str]] = []
    before: int | None = None
    while True:
        page = await store.audits(before=before, limit=AUDITS_PER_PAGE)
        for row in page.items:
            if row["what"] == trigger and row["did"] in ORDERS and row["at"] >= begin:
                found.append((row["at"], ORDERS[row["did"]]))
        if page.next is None or (page.items and page.items[-1]["at"] < begin):
            return found[::-1]
        before = page.next


def past_run(run: Run) -> PastRun:
    return PastRun(
        started_at=run.started_at,
        finished_at=run.finished_at,
        over=run.finished_at is not None,
        tokens=sum(record.tokens for record in run.journal),
        usd=sum(record.usd for record in run.journal),
    )


class Past:
    """Decides events in their order. Runs that never were take as long as the others usually do."""

    def __init__(
        self,
        store: Store,
        clock: PastClock,
        runs: Mapping[str, PastRun],
        orders: Sequence[tuple[datetime, str]] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._runs = runs
        self._usual = _usual(runs.values())
        # ends of runs, and of holds: when, a number that keeps equal times apart, run and claim or hold
        self._coming: list[tuple[datetime, int, Claimed | None, str]] = []
        self._number = 0
        self._run_of: dict[str, str] = {}
        self.blind = False
        for at, hold in orders:
            self._push(at, None, hold)

    async def open(
        self, feeds: Sequence[Feed], trigger: Trigger, was: TriggerState, workflows: Mapping[str, str]
    ) -> None:
        """Begin with the trigger and the feeds that it listens to. `was`: its state where it is tested."""
        made = {name: (rev, b"{}") for name, rev in workflows.items()}
        opened = Definitions(generation="backtest", feeds=tuple(feeds), triggers=(trigger,), workflows=made)
        await self._store.open(opened)
        self._trigger = trigger.name
        self._rules: dict[str, Rules] = {}
        self._paused: dict[str, Rules] = {}
        for feed in feeds:
            listeners = await self._store.listeners(feed.name)
            [(stored, state)] = listeners.triggers
            awake = msgspec.structs.replace(state, start_line=ALWAYS, created_at=was.created_at, paused="")
            asleep = msgspec.structs.replace(awake, paused="paused")
            self._rules[feed.name] = Rules(listeners.revision, listeners.feed, (Rule(stored, awake, feed.name),))
            self._paused[feed.name] = Rules(listeners.revision, listeners.feed, (Rule(stored, asleep, feed.name),))

    async def decide(self, group: Sequence[tuple[Recorded, Verdict | None]]) -> list[Verdict | None]:
        """What is decided about events of one commit at the time at which they were recorded; None if the trigger has
        no say.

        Beside each event is the recorded verdict: it tells whether the trigger was paused then, and which run is which.
        """
        (event, verdict), *_ = group
        feed, recorded_at, paused, flood = commit_of(event, verdict)
        await self._advance(recorded_at)
        rules = (self._paused if paused else self._rules)[feed]
        for event, verdict in group:
            if verdict is not None and verdict.run_id:
                self._run_of[event.key] = verdict.run_id
        read = Read(now=self._clock.now(), first=flood)
        entries = match([Sighting(event_of(event), "", 0, 1) for event, _ in group], rules, read)
        answer = await self._store.commit(Commit(feed=feed, revision=rules.revision, entries=entries))
        assert isinstance(answer, Committed), answer
        decided = [verdicts[0] if verdicts else None for verdicts in answer.verdicts]
        for (event, _), found in zip(group, decided, strict=True):
            if flood and found is not None and found.outcome == "held":
                self._release_later(self._run_of.get(event.key, ""), "flood")
        await self._claim()
        # others want to be served too
        await asyncio.sleep(0)
        return decided

    async def _advance(self, until: datetime) -> None:
        """Let time pass: windows close, runs start and end."""
        while True:
            due = await self._store.next_due()
            ends = self._coming[0][0] if self._coming else None
            following = min((at for at in (due, ends) if at is not None), default=None)
            # a run that ended in the microsecond of the event ended after it
            if following is None or following > until or (following == until and following == ends):
                break
            before = self._clock.now()
            self._clock.set(following)
            ended = await self._end_due()
            started = await self._claim()
            if not ended and not started and self._clock.now() == before:
                # it waits for something that only a person or another day brings
                break
        self._clock.set(until)

    async def _end_due(self) -> int:
        ended = 0
        while self._coming and self._coming[0][0] <= self._clock.now():
            _, _, claimed, hold = heapq.heappop(self._coming)
            ended += 1
            if claimed is None:
                drop = hold == "drop"
                await self._store.release(self._trigger, drop=drop, hold="" if drop else hold)
                continue
            run = self._runs.get(self._run_of.get(claimed.events[0].key if claimed.events else "", ""))
            if run is not None and (run.tokens or run.usd):
                spent = StepRecord(path="all", action="llm", status="ok", tokens=run.tokens, usd=run.usd)
                await self._store.journal(claimed.id, claimed.token, [spent])
            await self._store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Finished())])
        return ended

    async def _claim(self) -> int:
        claimed = await self._store.claim(HOLDER, CLAIMED_AT_ONCE, FOR_EVER)
        for one in claimed:
            end = self._end_of(one)
            if end is not None:
                self._push(end, one, "")
        return len(claimed)

    def _end_of(self, claimed: Claimed) -> datetime | None:
        """When the run ended; None for one that has not."""
        known = self._run_of.get(claimed.events[0].key if claimed.events else "", "")
        run = self._runs.get(known)
        if run is not None:
            return run.finished_at if run.over else None
        if known:
            # it ran, but its end is no longer stored
            self.blind = True
        return self._clock.now() + self._usual

    def _release_later(self, run_id: str, hold: str) -> None:
        run = self._runs.get(run_id)
        if run is not None and run.started_at is not None:
            self._push(run.started_at, None, hold)

    def _push(self, at: datetime, claimed: Claimed | None, hold: str) -> None:
        self._number += 1
        heapq.heappush(self._coming, (at, self._number, claimed, hold))


def _usual(runs: Iterable[PastRun]) -> timedelta:
    took = [
        (run.finished_at - run.started_at).total_seconds()
        for run in runs
        if run.started_at is not None and run.finished_at is not None
    ]
    return timedelta(seconds=median(took)) if took else timedelta(seconds=1)
