"""What became of webhooks that were refused: counted by reason, logged at a bounded rate, the last ones of each path.

Kept in memory: strangers send these, and must not be able to fill a store. Only of those whose signature was missing or
wrong, a line a minute for each path goes to the audit log. Never the body, the query or a signature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Literal, get_args

import msgspec
import structlog

from harken.clock import Clock

__all__ = ["REASONS", "UNKNOWN", "Reason", "Refusal", "Refusals", "UnverifiedCount"]

Reason = Literal[
    "not_found", "method", "signature", "malformed", "too_large", "too_many", "timeout", "unavailable", "failed"
]
REASONS: tuple[Reason, ...] = get_args(Reason)

KEPT = 20
LONGEST = 200
LOG_SECONDS = 60.0
AUDIT_SECONDS = 60.0
MAX_SENDERS = 10
UNKNOWN = ""
"""Stands for all paths that are not there, as strangers may ask for any number of them."""

log = structlog.get_logger("harken.ingest")


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One refused request. `sender` is the address that connected, which may be a proxy's."""

    at: datetime
    sender: str
    reason: Reason
    message: str


class UnverifiedCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests with a missing or wrong signature a path got since `first_at`.

    `senders` are the first addresses, `message` is about the last request."""

    path: str
    first_at: datetime
    began: float
    number: int = 0
    senders: tuple[str, ...] = ()
    message: str = ""

    def plus(self, refusal: Refusal) -> UnverifiedCount:
        known = refusal.sender in self.senders or len(self.senders) >= MAX_SENDERS
        senders = self.senders if known else (*self.senders, refusal.sender)
        return msgspec.structs.replace(self, number=self.number + 1, senders=senders, message=refusal.message)


class Refusals:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, deque[Refusal]] = {}
        self._counts: dict[str, int] = {}
        self._logged: dict[tuple[str, Reason], float] = {}
        self._unlogged: dict[tuple[str, Reason], int] = {}
        self._unverified: dict[str, UnverifiedCount] = {}
        self.on_refused: Callable[[Reason], None] = lambda reason: None

    def note(self, path: str, sender: str, reason: Reason, message: str) -> None:
        """Keep, count and log a refusal; `path` is that of a configured webhook, or UNKNOWN."""
        refusal = Refusal(at=self._clock.now(), sender=sender, reason=reason, message=message[:LONGEST])
        if path != UNKNOWN:
            self._kept.setdefault(path, deque(maxlen=KEPT)).append(refusal)
            self._counts[path] = self._counts.get(path, 0) + 1
        if reason == "signature":
            counted = self._unverified.get(path) or self._new_count(path)
            self._unverified[path] = counted.plus(refusal)
        self.on_refused(reason)
        self._log(path, refusal)

    def last(self, path: str) -> Sequence[Refusal]:
        """The last refusals at this path, newest first."""
        return tuple(reversed(self._kept.get(path, ())))

    def count(self, path: str) -> int:
        """How many requests to this path were refused since the start."""
        return self._counts.get(path, 0)

    def unverified(self, *, ending: bool = False) -> Sequence[UnverifiedCount]:
        """What the audit log has to learn: counts that began a minute ago, or all of them when we are ending."""
        now = self._clock.monotonic()
        return [one for one in self._unverified.values() if ending or now - one.began >= AUDIT_SECONDS]

    def audited(self, count: UnverifiedCount) -> None:
        """Forget what was written; requests that came meanwhile begin a count of their own."""
        more = self._unverified.pop(count.path).number - count.number
        if more:
            kept = msgspec.structs.replace(self._new_count(count.path), message=count.message, senders=count.senders)
            self._unverified[count.path] = msgspec.structs.replace(kept, number=more)

    def _new_count(self, path: str) -> UnverifiedCount:
        return UnverifiedCount(path=path, first_at=self._clock.now(), began=self._clock.monotonic())

    def keep(self, paths: Collection[str]) -> None:
        """Forget paths that are not configured any more."""
        for path in [path for path in self._kept if path not in paths]:
            del self._kept[path], self._counts[path]
        for key in [key for key in self._logged if key[0] != UNKNOWN and key[0] not in paths]:
            del self._logged[key]
            self._unlogged.pop(key, None)

    def forget(self, path: str) -> None:
        """The path is not configured any more."""
        if self._kept.pop(path, None) is not None:
            del self._counts[path]
        for reason in REASONS:
            self._logged.pop((path, reason), None)
            self._unlogged.pop((path, reason), None)

    def _log(self, path: str, refusal: Refusal) -> None:
        """One line a minute for each path and reason, with how many there were since the last."""
        key, now = (path, refusal.reason), self._clock.monotonic()
        if key in self._logged and now - self._logged[key] < LOG_SECONDS:
            self._unlogged[key] = self._unlogged.get(key, 0) + 1
            return
        self._logged[key] = now
        log.warning(
            "webhook.refused",
            path=path or "(unknown)",
            sender=refusal.sender,
            reason=refusal.reason,
            message=refusal.message,
            unlogged=self._unlogged.pop(key, 0),
        )
