"""Announces that a feed has stopped, keeps failing or works again, as events on the feed `harken`.

What was announced is kept in the store, so that neither a restart nor a crash repeats or loses an alert. Jobs have a
cooldown: an event within it is recorded with `alert: false`, and trouble that lasts longer is alerted at its end. An
alert that was not delivered is sent again and starts no cooldown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from harken.circuit_breaker import Health, doubled
from harken.clock import Clock, from_unix
from harken.config.loaded import Loaded
from harken.config.pollers.schema import Job
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.feed_runtime_state import LiveFeed
from harken.ingest.intake import Intake
from harken.match import Read
from harken.operate.trigger_status import mend_advice
from harken.operate.wording import count, duration
from harken.runs import Run
from harken.store import Store
from harken.store.document_kinds import ALERT

__all__ = ["Alerts", "is_due", "resend_pause"]

OPENED, PAUSED, RECOVERED = "feed.opened", "feed.paused", "feed.recovered"
RESEND_FIRST, RESEND_CAP = 60.0, 3_600.0

log = structlog.get_logger("harken.app")

_change = msgspec.structs.replace


class AlertMemo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was announced about a feed, as the store keeps it.

    `since` and `type` name the trouble that was seen last; `told`: an alert about it was sent.
    `at` is when the last alert was sent, and `about` when its trouble began. `event` is the alert's event until its
    delivery is known; meanwhile `tries` and `again_at` are for sending it again.
    `down`: an alert that the feed is down since then was delivered, and none that it works again.
    """

    since: float = 0.0
    type: str = ""
    told: bool = False
    at: float = 0.0
    about: float = 0.0
    event: int = 0
    tries: int = 0
    again_at: float = 0.0
    down: float = 0.0


_NOTHING = AlertMemo()


class Alerts:
    """Compares the health of the feeds with what was announced. Trouble is identified by the moment it began."""

    def __init__(
        self, store: Store, intake: Intake, clock: Clock, loaded: Callable[[], Loaded], nudge: Callable[[], None]
    ) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._loaded = loaded
        self._nudge = nudge
        self._memos: dict[str, AlertMemo] | None = None
        self._held: frozenset[int] = frozenset()

    async def check(self) -> None:
        """Announce what changed since the last check; whatever fails is announced by the next."""
        held = frozenset(self._intake.leases.held)
        if held != self._held:
            # other replicas read these feeds, or did until now, and stored what they announced
            self._held, self._memos = held, None
        if not held:
            return
        if self._memos is None:
            found = await self._store.documents(ALERT)
            self._memos = {document.name: msgspec.convert(document.value, AlertMemo) for document in found}
        jobs = {job.feed: job for job in self._loaded().jobs.values()}
        for name, live in list(self._intake.feeds.items()):
            if not self._intake.registry.reads(live):
                continue
            memo = self._memos.get(name, _NOTHING)
            if memo is not _NOTHING or _alert_type(live.health):
                await self._save(name, memo, await self._check_feed(live, jobs.get(name), memo))
        for name in [name for name in self._memos if name not in self._intake.registry.defined]:
            # the feed left the configuration
            await self._save(name, self._memos[name], _NOTHING)

    async def _save(self, name: str, before: AlertMemo, after: AlertMemo) -> None:
        assert self._memos is not None
        if after == _NOTHING:
            await self._store.delete(ALERT, name)
            self._memos.pop(name, None)
        elif after != before:
            await self._store.put(ALERT, name, msgspec.to_builtins(after))
            self._memos[name] = after

    async def _check_feed(self, live: LiveFeed, job: Job | None, memo: AlertMemo) -> AlertMemo:
        if memo.event:
            memo = await self._check_delivery(live, job, memo)
        if _alert_type(live.health):
            return await self._check_trouble(live, job, memo)
        if memo.since and not memo.event and await self._has_recovered(live, memo.since):
            since = memo.down or memo.since
            await self._announce(live, job, RECOVERED, since, alert=memo.down > 0)
            log.info("feed.recovered", feed=live.feed.display_name, stopped_at=from_unix(since).isoformat())
            memo = AlertMemo(at=memo.at)
        over = not memo.since and is_due(memo.at, self._cooldown(job), self._clock.time())
        return _NOTHING if over else memo

    async def _check_trouble(self, live: LiveFeed, job: Job | None, memo: AlertMemo) -> AlertMemo:
        type, since, now = _alert_type(live.health), live.health.since or 0.0, self._clock.time()
        new = (memo.type, memo.since) != (type, since)
        if new:
            memo = _change(memo, type=type, since=since, told=False)
        if memo.told:
            return memo
        if not is_due(memo.at, self._cooldown(job), now):
            if new:
                await self._announce(live, job, type, since, alert=False)
            return memo
        event = await self._announce(live, job, type, since, alert=True)
        sent = _change(memo, told=True, at=now, about=since, event=event, tries=0, again_at=0.0)
        # without failure_to there is no delivery to wait for
        return sent if job is not None and job.failure_to is not None else _delivered(sent)

    async def _check_delivery(self, live: LiveFeed, job: Job | None, memo: AlertMemo) -> AlertMemo:
        """Whether the last alert was delivered; if it failed, send it again."""
        found = await self._store.runs(trigger=job.alert, event_id=memo.event, limit=1) if job else None
        run: Run | None = found.items[0] if found and found.items else None
        if run is None or run.status in ("done", "cancelled"):
            return _delivered(memo)
        if run.status not in ("dead", "failed"):
            return memo
        if not memo.told or (_alert_type(live.health), live.health.since or 0.0) != (memo.type, memo.since):
            return _change(memo, event=0, at=0.0)
        return await self._resend(run, memo)

    async def _resend(self, run: Run, memo: AlertMemo) -> AlertMemo:
        workflow = self._loaded().workflows.get(run.trigger)
        rev = workflow.rev if workflow is not None and workflow.rev != run.workflow_rev else ""
        now = self._clock.time()
        if now < memo.again_at and not rev:
            return memo
        await self._store.retry(run.id, workflow_rev=rev)
        self._nudge()
        return _change(memo, tries=memo.tries + 1, again_at=now + resend_pause(memo.tries))

    async def _has_recovered(self, live: LiveFeed, since: float) -> bool:
        if not live.health.clean:
            return False
        last = (await self._store.state(live.feed.name)).last_success
        # a person may have resumed it, but it must have been read since
        return last is not None and last.timestamp() > since

    def _cooldown(self, job: Job | None) -> float:
        settings = self._loaded().pollers
        return settings.failure_alert_cooldown_secs if job is not None and settings is not None else 0.0

    async def _announce(self, live: LiveFeed, job: Job | None, type: str, since: float, *, alert: bool) -> int:
        name, now = live.feed.name, self._clock.now()
        rules = self._intake.rule_cache.get(name)
        triggers = sorted(rule.name for rule in rules.rules) if rules else []
        data: dict[str, Any] = {
            "feed": live.feed.display_name,
            "feed_id": name,
            **_alert_facts(live, job, type),
            "triggers": triggers,
            "since": from_unix(since).isoformat(),
            "alert": alert,
            "text": _alert_text(live, job, type, triggers, since, now.timestamp()),
        }
        # the same trouble has the same key, so that a repeat after a crash starts nothing; without an alert the key
        # differs, so that the alert can follow
        key = f"{type}:{name}@{since:.6f}{'' if alert else ' (not told)'}"
        event = Event(subject=name, type=type, key=key, state=key, occurred_at=now, data=data)
        return (await self._intake.committer.push(INTERNAL, [event], Read(now=now))).event_ids[0]


def _alert_type(health: Health) -> str:
    """The type of event that announces this health; empty while there is nothing to announce."""
    if health.state == "paused":
        return PAUSED
    return OPENED if health.state in ("open", "half_open") else ""


def is_due(last: float, cooldown: float, now: float) -> bool:
    """Whether the cooldown is over. A last alert in the future was dated by a wrong clock, and does not count."""
    return not 0 <= now - last < cooldown


def resend_pause(tries: int) -> float:
    """Seconds before an alert that was not delivered is sent again."""
    return doubled(RESEND_FIRST, tries, RESEND_CAP)


def _alert_facts(live: LiveFeed, job: Job | None, type: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": job.kind if job else live.feed.kind, "integration": live.feed.integration}
    if job is not None:
        found |= {"job": job.id, "agent": job.agent}
    if type != RECOVERED:
        health = live.health
        found |= {"code": health.code, "reason": health.message, "failures": health.failures}
    return found


def _alert_text(live: LiveFeed, job: Job | None, type: str, triggers: list[str], since: float, now: float) -> str:
    """A message for people: which feed, what happened, since when, and what to do."""
    health, began = live.health, f"{from_unix(since):%Y-%m-%d %H:%M} UTC"
    whose = f" for {job.agent}" if job else ""
    who = f"{job.id if job else live.feed.display_name} ({job.kind if job else live.feed.kind}{whose})"
    name = job.id if job else triggers[0] if triggers else "NAME"
    show = f"harken {'pollers' if job else 'triggers'} show {name}"
    if type == RECOVERED:
        return f"{who} works again after {duration(now - since)} (it was down since {began})."
    if type == PAUSED:
        mend = mend_advice(name, health, from_unix(now), is_job=job is not None)
        return f"{who} has stopped and needs you: {health.message} (failing since {began}). {mend}"
    failed = f"{count(health.failures, 'read')} in a row since {began}, the last with: {health.message}"
    return f"{who} is failing: {failed} (it is tried again by itself). See: {show}"


def _delivered(memo: AlertMemo) -> AlertMemo:
    return _change(memo, event=0, down=memo.down or memo.about)
