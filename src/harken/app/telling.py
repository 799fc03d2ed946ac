"""What is said of feeds in trouble, and whether it is time to say it: pure, so that every case fits in a line."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.backoff import Health
from harken.clock import from_unix
from harken.config.jobs import Job
from harken.ingest.live import Live
from harken.operate.wording import count, duration

__all__ = ["OPENED", "PAUSED", "RECOVERED", "Memo", "facts", "is_due", "pause_before", "text", "trouble"]

OPENED, PAUSED, RECOVERED = "feed.opened", "feed.paused", "feed.recovered"
RETRY_FIRST, RETRY_CAP = 60.0, 3_600.0


class Memo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was told of a feed, as it is kept in the store.

    `since` and `type` name the trouble that was noted last, `told` says that an alert of it was sent.
    `at` is when the last alert was sent, `about` the trouble it told of, `event` the event that started it while
    nobody knows whether it arrived; then `tries` and `again_at` are for sending it again.
    `down`: somebody was told that the feed is down since then, and not yet that it goes again.
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


def trouble(health: Health) -> str:
    """The type of event that says how bad it is; empty when it is not, or not yet."""
    if health.state == "paused":
        return PAUSED
    return OPENED if health.state in ("open", "half_open") else ""


def is_due(last: float, cooldown: float, now: float) -> bool:
    """Whether an alert may be sent. One that was sent in the future was sent by a wrong clock."""
    return not 0 <= now - last < cooldown


def pause_before(tries: int) -> float:
    """How long an alert that did not arrive waits before it is sent again."""
    return float(min(RETRY_CAP, RETRY_FIRST * 2 ** min(tries, 10)))


def facts(live: Live, job: Job | None, type: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": live.feed.kind, "integration": live.feed.integration}
    if job is not None:
        found |= {"job": job.id, "agent": job.agent}
    if type != RECOVERED:
        health = live.health
        found |= {"code": health.code, "reason": health.message, "failures": health.failures}
    return found


def text(live: Live, job: Job | None, type: str, triggers: list[str], since: float, now: float) -> str:
    """One message for a person: who, what, since when, and what to do."""
    health, began = live.health, f"{from_unix(since):%Y-%m-%d %H:%M} UTC"
    whose = f" for {job.agent}" if job else ""
    who = f"{job.id if job else live.feed.name} ({live.feed.kind}{whose})"
    what = f"pollers {{}} {job.id}" if job else f"triggers {{}} {triggers[0] if triggers else 'NAME'}"
    if type == RECOVERED:
        return f"{who} works again after {duration(now - since)} (it was down since {began})."
    if type == PAUSED:
        mend = f"When it is mended: harken {what.format('resume')}"
        return f"{who} has stopped and needs you: {health.message} (failing since {began}). {mend}"
    failed = f"{count(health.failures, 'read')} in a row since {began}, the last with: {health.message}"
    return f"{who} is failing: {failed} (it is tried again by itself). See: harken {what.format('show')}"
