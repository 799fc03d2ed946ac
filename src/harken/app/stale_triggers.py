"""Announces once that a trigger got nothing for longer than its `stale_after`, and once that it recovered.

Both are events on the feed `harken`. What was announced is kept in the store, so that a restart does not repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from harken.app.fleet import HousekeepingLease
from harken.app.source_and_action_factory import Factory
from harken.clock import Clock
from harken.errors import HarkenError
from harken.event import Event
from harken.feed import INTERNAL, Trigger, TriggerState
from harken.ingest.intake import Intake
from harken.match import Read
from harken.operate.trigger_status import last_sign
from harken.store import Store
from harken.store.document_kinds import STALE_REPORT
from harken.timings import Timings

__all__ = ["GRACE", "RECOVERED", "STALE", "Freshness"]

log = structlog.get_logger("harken.app")

STALE, RECOVERED = "trigger.stale", "trigger.recovered"
GRACE = 120.0
"""After a start or a suspension every trigger looks silent: wait for the first reads."""


class Freshness:
    """Compares each trigger's last sign of life with its `stale_after`. A silence is identified by its start."""

    def __init__(self, store: Store, intake: Intake, clock: Clock, round: float = Timings().freshness_round) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._round = round
        self._began = clock.monotonic()
        self._announced: dict[str, str] | None = None

    @property
    def stale(self) -> Sequence[str]:
        """The triggers whose silence was announced and has not ended."""
        return sorted(self._announced or ())

    async def watch(self, factory: Factory, housekeeping_lease: HousekeepingLease) -> None:
        """Check every few seconds while we hold the housekeeping lease, but not soon after a suspension."""
        scheduler = self._intake.scheduler
        while True:
            await self._clock.sleep(self._round)
            if scheduler.jumped_at is not None and self._clock.time() - scheduler.jumped_at < GRACE:
                continue
            if not housekeeping_lease.kept:
                # another replica announces, and stores what it announced
                self._announced = None
                continue
            try:
                await self.check(factory.loaded.triggers)
            except HarkenError as error:
                log.warning("store.trouble", reason=str(error))
            except Exception:
                log.exception("freshness.failed")

    async def check(self, triggers: Sequence[Trigger]) -> None:
        """Announce what changed since the last check; whatever fails is announced by the next."""
        watched = {trigger.name: trigger for trigger in triggers if trigger.stale_after}
        if self._announced is None:
            self._announced = {
                document.name: document.value["since"] for document in await self._store.documents(STALE_REPORT)
            }
        if not (watched or self._announced) or self._clock.monotonic() - self._began < GRACE:
            return
        # reads that found nothing new are written with a delay
        await self._intake.idle_reads.flush()
        feeds = {state.name: state for state in await self._store.feeds()}
        states = {state.name: state for state in await self._store.triggers()}
        for name in sorted(watched.keys() & states.keys()):
            # a trigger that listens to several feeds is as stale as the stalest of them
            last = min(last_sign(states[name], feeds.get(feed)) for feed in watched[name].feeds)
            await self._check_trigger(watched[name], states[name], last)
        for name in [name for name in self._announced if name not in watched]:
            await self._forget(name)

    async def _check_trigger(self, trigger: Trigger, state: TriggerState, last: datetime) -> None:
        assert self._announced is not None
        announced, since = self._announced.get(trigger.name), last.isoformat()
        stale = (self._clock.now() - last).total_seconds() > trigger.stale_after
        if state.paused:
            # a person knows why nothing comes
            stale = False
        elif announced is not None and announced != since:
            await self._announce(trigger, RECOVERED, announced)
        if announced is not None and (announced != since or not stale):
            await self._forget(trigger.name)
        if stale and announced != since:
            await self._announce(trigger, STALE, since)
            await self._store.put(STALE_REPORT, trigger.name, {"since": since})
            self._announced[trigger.name] = since

    async def _forget(self, name: str) -> None:
        assert self._announced is not None
        await self._store.delete(STALE_REPORT, name)
        del self._announced[name]

    async def _announce(self, trigger: Trigger, type: str, since: str) -> None:
        now, key = self._clock.now(), f"{type}:{trigger.name}@{since}"
        data = {
            "trigger": trigger.name,
            "workflow": trigger.workflow,
            "feed": self._intake.display_name(trigger.feed),
            "feed_id": trigger.feed,
            "since": since,
            "stale_after_seconds": trigger.stale_after,
            "alert": True,
            "text": _text(trigger, type, since),
        }
        # the same silence has the same key, so that a repeat after a crash starts nothing
        event = Event(subject=trigger.name, type=type, key=key, state=key, occurred_at=now, data=data)
        await self._intake.committer.push(INTERNAL, [event], Read(now=now))
        (log.warning if type == STALE else log.info)(type, trigger=trigger.name, feed=data["feed"], since=since)


def _text(trigger: Trigger, type: str, since: str) -> str:
    if type == RECOVERED:
        return f"{trigger.name} goes again; nothing came since {since}"
    return f"Nothing came for {trigger.name} since {since}. See why: harken explain {trigger.name}"
