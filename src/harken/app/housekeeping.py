"""Housekeeping: requeues runs whose worker is gone, deletes old records, saves what was counted, alerts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from harken.app.event_and_run_counts_over_time import ActivityLog
from harken.app.feed_alerts import Alerts
from harken.app.fleet import HousekeepingLease, drop_dead_replicas
from harken.app.lost_event_alerts import LedgerAlerts
from harken.app.run_alerts import RunAlerts
from harken.app.source_and_action_factory import Factory
from harken.app.store import OpenedStore
from harken.app.trigger_outcome_counts_over_time import TriggerActivityLog
from harken.clock import Clock
from harken.errors import HarkenError, StoreUnavailable
from harken.ingest.refused_webhooks import Refusals
from harken.ingest.scheduler import Scheduler
from harken.operate.idempotency import forget_old
from harken.run.worker import Worker
from harken.store import Store
from harken.timings import Timings

__all__ = ["audit_unverified", "do_housekeeping", "repeat_slices"]

log = structlog.get_logger("harken.app")

PRUNE_EVERY = 12
AFTER_A_JUMP = 120.0
"""After the machine was suspended every claim looks expired: give live workers time to renew theirs."""


async def do_housekeeping(
    opened: OpenedStore,
    factory: Factory,
    alerts: Alerts,
    run_alerts: RunAlerts,
    ledger_alerts: LedgerAlerts,
    scheduler: Scheduler,
    worker: Worker,
    clock: Clock,
    housekeeping_lease: HousekeepingLease,
    refusals: Refusals,
    activity: ActivityLog,
    trigger_activity: TriggerActivityLog,
    round: float = Timings().housekeeping_round,
) -> None:
    """Do what concerns this replica, and with the housekeeping lease what concerns the whole store, until cancelled."""
    store, rounds = opened.store, 0
    while True:
        await clock.sleep(round)
        rounds += 1
        try:
            await factory.save_rate_limits(store)
            await alerts.check()
            await audit_unverified(refusals, store)
            await activity.save()
            await trigger_activity.save()
            await factory.tickets.save_deliveries()
            if rounds % PRUNE_EVERY == 0:
                # a server may have been configured anew, and may be less durable than before
                await opened.connect()
            jumped = scheduler.jumped_at is not None and clock.time() - scheduler.jumped_at < AFTER_A_JUMP
            if jumped and opened.shared:
                # a replica whose clock did not jump need not wait
                await housekeeping_lease.leave()
                continue
            if not await housekeeping_lease.keep():
                run_alerts.forget()
                ledger_alerts.forget()
                continue
            # first what runs wait for: no alert that fails may keep them waiting
            if not jumped and await store.requeue_expired():
                worker.nudge()
            await run_alerts.check()
            await ledger_alerts.check()
            await repeat_slices(store.index_objects, clock)
            if rounds % PRUNE_EVERY == 0:
                await _retain(store, factory, clock)
                await drop_dead_replicas(store)
                await forget_old(store, clock.now())
        except HarkenError as error:
            # what could not be done now is done in a later round
            away = isinstance(error, StoreUnavailable)
            (log.debug if away else log.warning)("housekeeping.trouble", reason=str(error))
        except Exception:
            log.exception("housekeeping.failed")


async def audit_unverified(refusals: Refusals, store: Store, *, ending: bool = False) -> None:
    """Write one line a minute for each path that got requests with a missing or wrong signature, however many."""
    for count in refusals.unverified(ending=ending):
        detail = {
            "number": count.number,
            "since": count.first_at.isoformat(),
            "senders": list(count.senders),
            "message": count.message,
        }
        await store.audit("unverified sender", "webhook.refused", count.path, detail)
        refusals.audited(count)


async def _retain(store: Store, factory: Factory, clock: Clock) -> None:
    keep = factory.loaded.settings.retention
    pushed = max((feed.memory_seconds for feed in factory.loaded.feeds if feed.way != "poll"), default=259_200.0)
    ages = {"events": keep.events, "ticks": keep.ticks, "runs": keep.runs, "pushed": pushed, "audit": keep.audit}
    await repeat_slices(lambda: store.bank_events(keep.keep_last), clock)
    await repeat_slices(lambda: store.prune(**ages), clock)
    await repeat_slices(store.shrink, clock)


async def repeat_slices(slice: Callable[[], Awaitable[int]], clock: Clock) -> int:
    """Call it until it returns 0, and rest after each call as long as it took: others wait for the store as well.

    Return the sum."""
    total = 0
    while True:
        began = clock.monotonic()
        done = await slice()
        if not done:
            return total
        total += done
        await clock.sleep(clock.monotonic() - began)
