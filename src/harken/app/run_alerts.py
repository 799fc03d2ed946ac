"""Announces once that runs of a trigger are held for a person or keep dying, and once that they succeed again.

These are events on the feed `harken`, as those about feeds are (feed_alerts.py). What was announced is kept in the
store, so that neither a restart nor a crash repeats or loses it. Jobs have the cooldown of their other alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from harken.app.feed_alerts import is_due
from harken.clock import Clock, from_unix
from harken.config.loaded import Loaded
from harken.config.on_failure import ON_FAILURE
from harken.event import Event
from harken.feed import INTERNAL, Trigger
from harken.ingest.intake import Intake
from harken.match import Read
from harken.operate.wording import count
from harken.runs import Run
from harken.store import Backlog, Store
from harken.store.document_kinds import RUN_ALERT

__all__ = ["DEAD", "HELD", "RECOVERED", "RunAlerts", "deaths_in_a_row"]

HELD, DEAD, RECOVERED = "runs.held", "runs.dead", "runs.recovered"
RECENT = 100

log = structlog.get_logger("harken.app")

_change = msgspec.structs.replace


class RunMemo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was announced about a trigger: since when runs are held or die, and when it was last alerted."""

    held: float = 0.0
    held_told: bool = False
    dead: float = 0.0
    dead_told: bool = False
    at: float = 0.0


_NOTHING = RunMemo()


class RunAlerts:
    """Compares the backlogs of triggers with what was announced. Only the replica that keeps house may check."""

    def __init__(self, store: Store, intake: Intake, clock: Clock, loaded: Callable[[], Loaded]) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._loaded = loaded
        self._memos: dict[str, RunMemo] | None = None
        self._done: dict[str, int] = {}
        self._looked_at: dict[str, tuple[int, int]] = {}

    def forget(self) -> None:
        """Another replica keeps house, and stores what it announces."""
        self._memos = None
        self._looked_at.clear()

    async def check(self) -> None:
        """Announce what changed since the last check; whatever fails is announced by the next."""
        if self._memos is None:
            found = await self._store.documents(RUN_ALERT)
            self._memos = {document.name: msgspec.convert(document.value, RunMemo) for document in found}
        backlogs, triggers = await self._store.backlogs(), self._watched()
        if not backlogs and not self._memos:
            return
        self._done = {state.name: state.done for state in await self._store.triggers()}
        reading = {state.name for state in await self._store.feeds() if not state.baselined}
        for name in sorted(backlogs.keys() | self._memos.keys()):
            memo, trigger = self._memos.get(name, _NOTHING), triggers.get(name)
            if trigger is None:
                await self._save(name, memo, _NOTHING)
                continue
            backlog = backlogs.get(name, Backlog())
            if reading.isdisjoint(trigger.feeds):
                # the first read decides at its end whether the flood guard holds its runs
                memo = await self._check_held(trigger, backlog.held.get("flood", 0), memo)
            memo = await self._check_dead(trigger, backlog.dead, memo)
            over = is_due(memo.at, self._cooldown(name), self._clock.time())
            await self._save(name, self._memos.get(name, _NOTHING), RunMemo() if _is_over(memo) and over else memo)

    def _watched(self) -> dict[str, Trigger]:
        """All triggers but those that deliver alerts: an alert about an alert that died would die as well."""
        loaded = self._loaded()
        alerting = {ON_FAILURE, *(job.alert for job in loaded.jobs.values())}
        return {trigger.name: trigger for trigger in loaded.triggers if trigger.name not in alerting}

    async def _save(self, name: str, before: RunMemo, after: RunMemo) -> None:
        assert self._memos is not None
        if after == _NOTHING:
            if before != _NOTHING or name in self._memos:
                await self._store.delete(RUN_ALERT, name)
                self._memos.pop(name, None)
        elif after != before:
            await self._store.put(RUN_ALERT, name, msgspec.to_builtins(after))
            self._memos[name] = after

    async def _check_held(self, trigger: Trigger, flood: int, memo: RunMemo) -> RunMemo:
        if not flood:
            return _change(memo, held=0.0, held_told=False)
        if not memo.held:
            memo = await self._begin(trigger.name, memo, held=self._clock.time())
            log.warning(
                HELD, trigger=trigger.name, runs=flood, hold="flood", fix=f"harken triggers release {trigger.name}"
            )
        if memo.held_told or not self._may_tell(trigger.name, memo):
            return memo
        text = (
            f"{count(flood, 'run')} of {trigger.name} held by the flood guard: the first read brought more than "
            f"{trigger.flood_limit}. Let them go: harken triggers release {trigger.name}; "
            f"or cancel them: harken triggers drop {trigger.name}"
        )
        await self._announce(trigger, HELD, memo.held, text, runs=flood)
        return _change(memo, held_told=True, at=self._clock.time())

    async def _check_dead(self, trigger: Trigger, dead: int, memo: RunMemo) -> RunMemo:
        most = self._loaded().settings.on_failure.dead_in_a_row
        if dead < most and not memo.dead:
            return memo
        counts = dead, self._done.get(trigger.name, 0)
        if self._looked_at.get(trigger.name) == counts and (memo.dead_told or not memo.dead):
            # nothing has ended since, so the runs need not be read again
            return memo
        recent = (await self._store.runs(trigger=trigger.name, limit=RECENT)).items
        row = deaths_in_a_row(recent)
        self._looked_at[trigger.name] = counts
        if not row:
            if memo.dead_told and _succeeded_since(recent, memo.dead):
                text = f"Runs of {trigger.name} succeed again"
                await self._announce(trigger, RECOVERED, memo.dead, text, runs=0)
                log.info(RECOVERED, trigger=trigger.name)
            return _change(memo, dead=0.0, dead_told=False)
        if not memo.dead and len(row) < most:
            return memo
        if not memo.dead:
            memo = await self._begin(trigger.name, memo, dead=self._clock.time())
            fix = f"harken dead retry --trigger {trigger.name}"
            log.warning(DEAD, trigger=trigger.name, in_a_row=len(row), fix=fix)
        if memo.dead_told or not self._may_tell(trigger.name, memo):
            return memo
        text = (
            f"{count(len(row), 'run')} of {trigger.name} died in a row, the last with: {row[0].error}. "
            f"When it is mended: harken dead retry --trigger {trigger.name}"
        )
        await self._announce(trigger, DEAD, memo.dead, text, runs=len(row), reason=row[0].error)
        return _change(memo, dead_told=True, at=self._clock.time())

    async def _begin(self, name: str, memo: RunMemo, **since: float) -> RunMemo:
        """Store when the trouble began before it is announced: after a crash the event has the same key."""
        begun = _change(memo, **since)
        await self._save(name, memo, begun)
        return begun

    def _may_tell(self, name: str, memo: RunMemo) -> bool:
        return is_due(memo.at, self._cooldown(name), self._clock.time())

    def _cooldown(self, name: str) -> float:
        loaded = self._loaded()
        return loaded.pollers.failure_alert_cooldown_secs if name in loaded.jobs and loaded.pollers else 0.0

    async def _announce(self, trigger: Trigger, type: str, since: float, text: str, **facts: Any) -> None:
        job, now = self._loaded().jobs.get(trigger.name), self._clock.now()
        data: dict[str, Any] = {
            "trigger": trigger.name,
            "workflow": trigger.workflow,
            "feed": self._intake.display_name(trigger.feed),
            "feed_id": trigger.feed,
            **({"job": job.id, "agent": job.agent} if job else {}),
            **facts,
            "since": from_unix(since).isoformat(),
            "alert": True,
            "text": text,
        }
        key = f"{type}:{trigger.name}@{since:.6f}"
        event = Event(subject=trigger.name, type=type, key=key, state=key, occurred_at=now, data=data)
        await self._intake.committer.push(INTERNAL, [event], Read(now=now))


def deaths_in_a_row(newest_first: Sequence[Run]) -> list[Run]:
    """The dead runs since the last one that ended otherwise; runs that are not over or were cancelled do not count."""
    row: list[Run] = []
    for run in newest_first:
        if run.status in ("done", "failed"):
            break
        if run.status == "dead":
            row.append(run)
    return row


def _succeeded_since(runs: Sequence[Run], since: float) -> bool:
    """Whether it works again; without a success, somebody only dropped what was dead."""
    return any(run.status == "done" and run.finished_at and run.finished_at.timestamp() >= since for run in runs)


def _is_over(memo: RunMemo) -> bool:
    return not memo.held and not memo.dead
