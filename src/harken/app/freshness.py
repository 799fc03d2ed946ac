"""Says once that nothing came for longer than a trigger's `stale_after`, and once that it goes again.

Both are events on the feed `harken`. Which silence was told is kept in the store, so that a restart does not repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from harken.app.factory import Factory
from harken.app.fleet import HousekeepingLease
from harken.clock import Clock
from harken.errors import HarkenError
from harken.event import Event
from harken.feed import INTERNAL, Trigger, TriggerState
from harken.ingest.intake import Intake
from harken.match import Read
from harken.operate.trigger_status import last_sign
from harken.store import Store
from harken.store.documents import STALE_REPORT
from harken.timings import Timings

__all__ = ["GRACE", "RECOVERED", "STALE", "Freshness"]

log = structlog.get_logger("harken.app")

STALE, RECOVERED = "trigger.stale", "trigger.recovered"
GRACE = 120.0
"""After a start everything looks silent: let the reads come first."""


class Freshness:
    """Compares the age of each trigger's last sign of life with what it allows. A silence is named by when it began."""

    def __init__(self, store: Store, intake: Intake, clock: Clock, round: float = Timings().freshness_round) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._round = round
        self._began = clock.monotonic()
        self._told: dict[str, str] | None = None

    @property
    def stale(self) -> Sequence[str]:
        """The triggers whose silence was told and has not ended."""
        return sorted(self._told or ())

    async def watch(self, factory: Factory, housekeeping_lease: HousekeepingLease) -> None:
        """Look every few seconds, where we keep the house. After a sleep nothing is judged until reads could come."""
        scheduler = self._intake.scheduler
        while True:
            await self._clock.sleep(self._round)
            if scheduler.jumped_at is not None and self._clock.time() - scheduler.jumped_at < GRACE:
                continue
            if not housekeeping_lease.kept:
                # another tells, and writes down what it told
                self._told = None
                continue
            try:
                await self.look(factory.loaded.triggers)
            except HarkenError as error:
                log.warning("store.trouble", reason=str(error))
            except Exception:
                log.exception("freshness.failed")

    async def look(self, triggers: Sequence[Trigger]) -> None:
        """Tell what changed since the last look; whatever fails is told at the next."""
        watched = {trigger.name: trigger for trigger in triggers if trigger.stale_after}
        if self._told is None:
            self._told = {
                document.name: document.value["since"] for document in await self._store.documents(STALE_REPORT)
            }
        if not (watched or self._told) or self._clock.monotonic() - self._began < GRACE:
            return
        # reads that found nothing new are written a little late
        await self._intake.idle_reads.flush()
        feeds = {state.name: state for state in await self._store.feeds()}
        states = {state.name: state for state in await self._store.triggers()}
        for name in sorted(watched.keys() & states.keys()):
            await self._judge(watched[name], states[name], last_sign(states[name], feeds.get(watched[name].feed)))
        for name in [name for name in self._told if name not in watched]:
            await self._forget(name)

    async def _judge(self, trigger: Trigger, state: TriggerState, last: datetime) -> None:
        assert self._told is not None
        told, since = self._told.get(trigger.name), last.isoformat()
        stale = (self._clock.now() - last).total_seconds() > trigger.stale_after
        if state.paused:
            # a person knows why nothing comes
            stale = False
        elif told is not None and told != since:
            await self._tell(trigger, RECOVERED, told)
        if told is not None and (told != since or not stale):
            await self._forget(trigger.name)
        if stale and told != since:
            await self._tell(trigger, STALE, since)
            await self._store.put(STALE_REPORT, trigger.name, {"since": since})
            self._told[trigger.name] = since

    async def _forget(self, name: str) -> None:
        assert self._told is not None
        await self._store.delete(STALE_REPORT, name)
        del self._told[name]

    async def _tell(self, trigger: Trigger, type: str, since: str) -> None:
        now, what = self._clock.now(), f"{type}:{trigger.name}@{since}"
        data = {
            "trigger": trigger.name,
            "workflow": trigger.workflow,
            "feed": trigger.feed,
            "since": since,
            "stale_after_seconds": trigger.stale_after,
        }
        # the same silence has the same key, so telling it again after a crash starts nothing
        event = Event(subject=trigger.name, type=type, key=what, state=what, occurred_at=now, data=data)
        await self._intake.committer.push(INTERNAL, [event], Read(now=now))
        (log.warning if type == STALE else log.info)(type, trigger=trigger.name, feed=trigger.feed, since=since)
