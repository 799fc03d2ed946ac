"""One rate limit per credential, learnt from the server's own headers: calls wait for their turn, none is dropped."""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

import msgspec

from harken.clock import Clock
from harken.errors import Deferred

__all__ = ["Level", "RateLimit", "is_rate_limited", "requested_wait"]

SLICE = 5.0
"""Waits are slept in slices of this length, so that a jump of the wall clock or a raised limit is noticed."""
SCARCE = 0.1
"""Calls are spaced once less than this part of the quota is left."""
LONGEST = 366 * 86400.0
"""A server that wants a longer wait is broken; besides, the sum must stay a valid date."""
NOTED_EVERY = 60.0
"""The remaining quota changes with every call: it is worth storing only so often."""
_EPOCH, _EPOCH_MS = 1e9, 1e11
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?")
_FAMILIES = ("X-RateLimit-", "RateLimit-", "X-Rate-Limit-")
_REMAINING = tuple(family + "Remaining" for family in _FAMILIES)
_LIMIT = tuple(family + "Limit" for family in _FAMILIES)
_RESET = tuple(family + "Reset" for family in _FAMILIES)


def is_rate_limited(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer means "too many calls"; some services answer 403 then. `headers` must ignore case."""
    if status == 429:
        return True
    return status == 403 and ("Retry-After" in headers or _number(_first(headers, _REMAINING)) == 0)


def requested_wait(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds the server wants us to wait: its Retry-After, or its reset time when we are limited."""
    wait = _seconds(headers.get("Retry-After"), now)
    if wait is None and is_rate_limited(status, headers):
        wait = _seconds(_first(headers, _RESET), now)
    return wait


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a rate limit now. Times are wall time; `waiting` counts the calls in the queue, by caller.

    `why` it is blocked: `asked` by the server (Retry-After), or the quota is `used up`.
    """

    limit: float | None = None
    remaining: float | None = None
    resets_at: float | None = None
    blocked_until: float | None = None
    why: Literal["", "asked", "used up"] = ""
    rate: float | None = None
    waiting: Mapping[str, int] = {}


class RateLimit:
    """The calls one credential may still make. `rate` is calls per second; `state` is an earlier `to_doc()`."""

    def __init__(self, clock: Clock, *, rate: float | None = None, state: Mapping[str, object] | None = None) -> None:
        doc = state or {}
        self.revision = 0
        self._clock = clock
        self._rate = rate or None
        self._blocked_until = _stored(doc, "blocked_until") or 0.0
        self._limit = _stored(doc, "limit")
        self._remaining = _stored(doc, "remaining")
        self._reset_at = _stored(doc, "reset_at") or 0.0
        self._scarce_below = SCARCE * (self._limit or 0.0)
        self._next_at = -math.inf
        self._last = ""
        self._head: asyncio.Future[None] | None = None
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._noted_at = -math.inf
        self._unlimited = self._is_unlimited()

    @property
    def rate(self) -> float | None:
        """The configured calls per second; it may be changed at any time."""
        return self._rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        self._rate = rate or None
        self._unlimited = self._is_unlimited()

    @property
    def level(self) -> Level:
        ahead = self._reset_at > self._clock.time()
        until = self.blocked_until
        asked = until is not None and until == self._blocked_until
        return Level(
            limit=self._limit,
            remaining=self._remaining if ahead else None,
            resets_at=self._reset_at if ahead else None,
            blocked_until=until,
            why="" if until is None else "asked" if asked else "used up",
            rate=self._rate,
            waiting=dict(self._queue_lengths()),
        )

    @property
    def blocked_until(self) -> float | None:
        """The wall time until which no call may be made; None if one may be made now."""
        until = self._blocked_until
        if self._remaining is not None and self._remaining <= 0:
            until = max(until, self._reset_at)
        return until if until > self._clock.time() else None

    async def take(self, caller: str = "", cost: int = 1, *, patience: float | None = None) -> None:
        """Wait until the call may be made: round robin between callers, first come first served within one.

        Raise Deferred instead if that would take more than `patience` seconds.
        """
        if self._unlimited:
            if self._remaining is not None:
                self._remaining -= cost
                self._unlimited = self._remaining > self._scarce_below
            return
        self._raise_if_too_long(caller, patience)
        if self._head is None and self._wait() <= 0:
            self.spend(cost)
            return
        await self._wait_for_turn(caller, cost)

    def spend(self, cost: int = 1) -> None:
        """Count calls that are being made now, here or elsewhere on the same credential."""
        now = self._clock.time()
        if now >= self._reset_at:
            self._remaining = None
        gap = self._gap(now)
        if self._remaining is not None:
            self._remaining -= cost
        self._next_at = self._clock.monotonic() + gap * cost
        self._unlimited = self._is_unlimited()

    def learn(self, headers: Mapping[str, str], status: int) -> None:
        """Learn the limits from an answer of the server. `headers` must ignore case, as aiohttp's do."""
        remaining = _first(headers, _REMAINING)
        if remaining is None and status not in (403, 429):
            return
        now = self._clock.time()
        if headers.get("X-RateLimit-Resource", "core") == "core":
            # GitHub counts searches and GraphQL apart from everything else
            self._learn_quota(headers, remaining, now)
        # a success that has Retry-After beside its quota: Azure DevOps delays our calls, and will until we pause
        limited = is_rate_limited(status, headers) or (status == 200 and "Retry-After" in headers)
        if limited and (wait := requested_wait(status, headers, now)):
            until = now + wait
            if until > self._blocked_until:
                self._blocked_until = until
                self.revision += 1
        self._unlimited = self._is_unlimited()

    def to_doc(self) -> dict[str, object]:
        """What must survive a restart; it is worth storing when `revision` rose."""
        return {
            "blocked_until": self._blocked_until or None,
            "limit": self._limit,
            "remaining": self._remaining,
            "reset_at": self._reset_at or None,
        }

    def _learn_quota(self, headers: Mapping[str, str], remaining: str | None, now: float) -> None:
        left, reset = _number(remaining), _seconds(_first(headers, _RESET), now)
        if left is None or reset is None:
            return
        if left <= 0 < reset or abs(now - self._noted_at) >= NOTED_EVERY:
            self.revision += 1
            self._noted_at = now
        self._remaining, self._reset_at = left, now + reset
        self._limit = _number(_first(headers, _LIMIT)) or self._limit
        self._scarce_below = SCARCE * (self._limit or 0.0)

    async def _wait_for_turn(self, caller: str, cost: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        if self._head is None:
            self._promote()
        try:
            await turn
            while (wait := self._wait()) > 0:
                await self._clock.sleep(min(wait, SLICE))
            self.spend(cost)
        finally:
            self._leave(caller, turn)

    def _promote(self) -> None:
        self._head = None
        while self._waiting and self._head is None:
            # the caller that had the last turn comes after the others, even those that came while it waited
            caller = self._last = next((name for name in self._waiting if name != self._last), self._last)
            queue = self._waiting.pop(caller)
            turn = queue.popleft()
            if queue:
                # to the back of the dict, behind callers that have waited longer
                self._waiting[caller] = queue
            if not turn.done():
                turn.set_result(None)
                self._head = turn

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        if self._head is turn:
            self._promote()
            return
        queue = self._waiting.get(caller)
        if queue and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[caller]

    def _wait(self) -> float:
        until = self.blocked_until
        blocked = 0.0 if until is None else until - self._clock.time()
        return max(blocked, self._next_at - self._clock.monotonic())

    def _raise_if_too_long(self, caller: str, patience: float | None) -> None:
        if patience is None:
            return
        # each waiting caller has one turn before a new caller, which also waits for its own earlier calls
        ahead = len(self._waiting) + (self._head is not None) + max(0, len(self._waiting.get(caller, ())) - 1)
        wait = max(self._wait(), 0.0) + ahead * self._gap(self._clock.time())
        if wait <= patience:
            return
        if self.blocked_until is None:
            message = f"the calls of this credential are spaced; the next turn is in {wait:.0f} s"
        else:
            message = f"the service's rate limit for this credential is used up for another {wait:.0f} s"
        raise Deferred(message, after=wait)

    def _queue_lengths(self) -> dict[str, int]:
        lengths = {caller: len(queue) for caller, queue in self._waiting.items()}
        if self._head is not None:
            lengths[self._last] = lengths.get(self._last, 0) + 1
        return lengths

    def _gap(self, now: float) -> float:
        """Seconds between two calls: by the configured rate, and by the remaining quota once that is scarce."""
        gap = 1 / self._rate if self._rate else 0.0
        if self._remaining is None or self._remaining > self._scarce_below or now >= self._reset_at:
            return gap
        return max(gap, (self._reset_at - now) / max(self._remaining, 1))

    def _is_unlimited(self) -> bool:
        plenty = self._remaining is None or self._remaining > self._scarce_below
        return plenty and self._rate is None and self._head is None and self._blocked_until <= self._clock.time()


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            return value
    return None


def _number(text: str | None) -> float | None:
    # "100, 100;w=60": the quota comes first, the policy after it
    match = _NUMBER.match(text.strip()) if text else None
    return float(match.group()) if match else None


def _seconds(text: str | None, now: float) -> float | None:
    """The seconds from now that a header means: a delay, an epoch in seconds or milliseconds, an HTTP or ISO date."""
    if not text:
        return None
    text = text.strip()
    if _NUMBER.fullmatch(text):
        value = float(text)
        if value > _EPOCH_MS:
            value /= 1000
        wait = value - now if value > _EPOCH else value
    else:
        moment = _moment(text)
        if moment is None:
            return None
        wait = moment - now
    return min(max(wait, 0.0), LONGEST)


def _moment(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def _stored(doc: Mapping[str, object], name: str) -> float | None:
    value = doc.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
