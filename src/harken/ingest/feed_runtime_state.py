"""A feed as this process has it: its source, and its position as of the last commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from harken.circuit_breaker import Health, Policy
from harken.feed import Feed, FeedState
from harken.http import ServiceClock
from harken.ingest.partly_committed_page import Progress, stored_cap, stored_position
from harken.source import Batch, ClockedSource, Cursor, PollSource, Source, StreamSource

__all__ = ["UNBUILT", "Late", "LiveFeed", "TickReport", "later"]


# there may be 100,000 feeds: what is the same for nearly all of them is shared
NOTHING: Mapping[str, Any] = {}
UNKNOWN_CLOCK = ServiceClock()
"""The clock of every source that is not read by HTTP: nothing is learnt about it."""


class TickReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one tick, for its caller and for metrics."""

    feed: str
    result: str
    seen: int = 0
    new: int = 0
    error: str = ""


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """A read that is due for so many seconds and has not begun, and why."""

    seconds: float
    reason: str


class UnbuiltSource:
    """Stands for a source until it is needed: there may be 100,000 that are read once a day."""

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        raise AssertionError("the registry builds the source before it is read")


UNBUILT = UnbuiltSource()


class LiveFeed:
    """Mutable on purpose: the poller or streamer moves it forward, and only after the store has committed."""

    __slots__ = (
        "baselined",
        "between_reads",
        "busy",
        "by_hand",
        "capped",
        "created_at",
        "cursor",
        "due",
        "failed_at",
        "feed",
        "health",
        "listed",
        "listed_before",
        "newest",
        "next_due",
        "outdated",
        "page",
        "policy",
        "poll",
        "progress",
        "reading_since",
        "resumed",
        "retired",
        "ring_floor",
        "rung",
        "service_clock",
        "slot_key",
        "source",
        "spaced",
        "spaced_from",
        "sweeps",
        "swept_at",
        "token",
        "watermark",
    )

    def __init__(self, feed: Feed, source: Source, state: FeedState, *, swept_at: float) -> None:
        self.feed = feed
        # sources that are not read any more and have to be closed
        self.retired: tuple[Source, ...] = ()
        self._have(source)
        # when the scheduler will begin the next tick, and when it should after the tick under way
        self.due: float | None = None
        self.next_due: float | None = None
        self.busy = False
        # the trigger for which a person requested the tick under way
        self.by_hand = ""
        # no read has come to its end since this process started
        self.resumed = False
        # the feed's state in the store was changed by another process or person: restore it before the next read
        self.outdated = False
        # the lease under which the read under way began
        self.token = 0
        # its source heard of a change that no read has begun after; and when rings may make it due again
        self.rung = False
        self.ring_floor = 0.0
        self.swept_at = swept_at
        # when a failure of this feed was last written to the store
        self.failed_at = 0.0
        # while a sweep is due: what its reads list and the store has not noted yet, and how many it has noted
        self.listed: set[str] | None = None
        self.listed_before = 0
        self.sweeps = 0
        self.policy = _policy(feed.breaker, feed.backoff)
        self.newest: datetime | None = None
        # empty until it is worked out
        self.slot_key = ""
        self.restore(state)

    def use(self, source: Source) -> bool:
        """Read with this source from the next tick on. Returns False for streams, which have to be restarted."""
        if isinstance(source, StreamSource) or isinstance(self.source, StreamSource):
            return False
        if self.source is not UNBUILT:
            self.retired += (self.source,)
        self.slot_key = ""
        self._have(source)
        return True

    def _have(self, source: Source) -> None:
        self.source = source
        # looked up once: testing whether an object follows a protocol costs as much as a query
        self.poll: Callable[[Cursor, datetime], Awaitable[Batch]] | None
        if source is UNBUILT:
            self.poll = UNBUILT.poll if self.feed.way == "poll" else None
            self.service_clock = UNKNOWN_CLOCK
            return
        self.poll = source.poll if isinstance(source, PollSource) else None
        self.service_clock = _clock_of(source)

    def restore(self, state: FeedState) -> None:
        """Continue from the position that the store has."""
        # how much of the page at the cursor is committed, if a read ended within it
        self.progress: Progress | None
        self.cursor: Any
        stored = state.cursor
        self.cursor, self.progress = stored_position(stored) if stored is not None else (None, None)
        self.watermark: datetime | None = state.watermark
        # the newest watermark that this process has known: if it is in the future, our clock was set back
        self.newest = later(state.watermark, self.newest)
        self.health: Health = state.health
        self.baselined: bool = state.baselined
        self.created_at: datetime = state.created_at
        # when a page of the read under way was taken that reached the present: what comes after that, dated a little
        # before, is found by the next read only if the watermark does not pass this time
        self.capped: float | None = stored_cap(stored) if stored is not None else None
        # whether the cursor is known to be at the end of a read, and not at a page within one
        self.between_reads: bool = self.cursor is None
        # pages of the read under way that are committed, and the `since` it began with
        self.page = 0
        self.reading_since: datetime = state.created_at
        # spaced runs that are not all due yet, by trigger uid: how many, and when the first was due
        self.spaced: Mapping[str, int] = NOTHING
        self.spaced_from: Mapping[str, datetime] = NOTHING


def later(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later of two times, of which either may be unknown."""
    if one is None or other is None:
        return one or other
    return max(one, other)


def _clock_of(source: Source) -> ServiceClock:
    return source.service_clock if isinstance(source, ClockedSource) else UNKNOWN_CLOCK


@lru_cache(maxsize=64)
def _policy(breaker: int | None, waits: tuple[float, float] | None) -> Policy:
    policy = Policy.workflow() if breaker is None else Policy.poller(breaker)
    if waits is None:
        return policy
    first, cap = waits
    return msgspec.structs.replace(policy, limited_first=first, limited_cap=cap)
