"""Housekeeping: runs whose worker is gone, records that are old, budgets that changed, feeds that stopped."""

from __future__ import annotations

import structlog

from harken.app.alerts import Alerts
from harken.app.factory import Factory
from harken.app.fleet import HousekeepingLease, drop_dead_replicas
from harken.app.store import OpenedStore
from harken.clock import Clock
from harken.errors import HarkenError, StoreUnavailable
from harken.ingest.scheduler import Scheduler
from harken.run.worker import Worker
from harken.store import Store
from harken.timings import Timings

__all__ = ["do_housekeeping"]

log = structlog.get_logger("harken.app")

RETAIN_EVERY = 12
AFTER_A_JUMP = 120.0
"""After a sleep every claim looks stale: let the living ones renew before anyone judges them."""


async def do_housekeeping(
    home: OpenedStore,
    factory: Factory,
    alerts: Alerts,
    scheduler: Scheduler,
    worker: Worker,
    clock: Clock,
    housekeeping_lease: HousekeepingLease,
    round: float = Timings().housekeeping_round,
) -> None:
    """Each replica looks after what it reads; what concerns all of it is done by the one that keeps the house."""
    store, rounds = home.store, 0
    while True:
        await clock.sleep(round)
        rounds += 1
        try:
            await factory.save_budgets(store)
            await alerts.look()
            if rounds % RETAIN_EVERY == 0:
                # a server may have been set up anew, and may keep less than it did
                await home.connect()
            jumped = scheduler.jumped_at is not None and clock.time() - scheduler.jumped_at < AFTER_A_JUMP
            if jumped and home.shared:
                # one whose clock did not jump may judge at once
                await housekeeping_lease.leave()
                continue
            if not await housekeeping_lease.keep():
                continue
            if not jumped and await store.requeue_expired():
                worker.nudge()
            if rounds % RETAIN_EVERY == 0:
                await _retain(store, factory)
                await drop_dead_replicas(store)
        except HarkenError as error:
            # whatever could not be done now is done in a later round
            away = isinstance(error, StoreUnavailable)
            (log.debug if away else log.warning)("upkeep.trouble", reason=str(error))
        except Exception:
            log.exception("upkeep.failed")


async def _retain(store: Store, factory: Factory) -> None:
    keep = factory.loaded.settings.retention
    pushed = max((feed.memory_seconds for feed in factory.loaded.feeds if feed.way != "poll"), default=259_200.0)
    while await store.prune(events=keep.events, ticks=keep.ticks, runs=keep.runs, pushed=pushed):
        pass
