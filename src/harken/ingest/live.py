"""A feed in the hands of this process: its source, and where it stands as of the last commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from harken.backoff import Health, Policy
from harken.feed import Feed, FeedState
from harken.source import PollSource, Source, StreamSource

__all__ = ["LiveFeed", "TickReport"]


class TickReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick amounted to."""

    feed: str
    result: str
    seen: int = 0
    new: int = 0
    error: str = ""


class LiveFeed:
    """Mutable on purpose: the reader moves it forward only after the store has."""

    __slots__ = (
        "baselined",
        "begun",
        "busy",
        "by_hand",
        "created_at",
        "cursor",
        "due",
        "feed",
        "fired",
        "health",
        "left",
        "listed",
        "moved",
        "next_due",
        "page",
        "policy",
        "poll",
        "reading_since",
        "resumed",
        "source",
        "sweeps",
        "swept_at",
        "token",
        "watermark",
        "whole",
    )

    def __init__(self, feed: Feed, source: Source, state: FeedState, *, swept_at: float) -> None:
        self.feed = feed
        self.source = source
        # sources that are read no more, and have to be closed
        self.left: list[Source] = []
        # looked up once: asking whether something follows a protocol costs as much as a query
        self.poll = source.poll if isinstance(source, PollSource) else None
        self.due: float | None = None
        self.next_due: float | None = None
        self.busy = False
        # the trigger for which a person asked for the read under way
        self.by_hand = ""
        # not read to its end yet since this process began
        self.resumed = False
        # a person moved the feed in the store while it was being read, or others had it
        self.moved = False
        # the lease under which the read under way began
        self.token = 0
        self.swept_at = swept_at
        self.listed: set[str] | None = None
        self.sweeps = 0
        self.policy = Policy.workflow() if feed.breaker is None else Policy.poller(feed.breaker)
        if feed.backoff is not None:
            first, cap = feed.backoff
            self.policy = msgspec.structs.replace(self.policy, limited_first=first, limited_cap=cap)
        self.place(state)

    def use(self, source: Source) -> bool:
        """Read with this source from the next tick on; False for a stream, which has to begin anew."""
        if isinstance(source, StreamSource) or isinstance(self.source, StreamSource):
            return False
        self.left.append(self.source)
        self.source = source
        self.poll = source.poll if isinstance(source, PollSource) else None
        return True

    def place(self, state: FeedState) -> None:
        """Stand where the store says."""
        self.cursor: Any = state.cursor
        self.watermark: datetime | None = state.watermark
        self.health: Health = state.health
        self.baselined: bool = state.baselined
        self.created_at: datetime = state.created_at
        # the cursor is known to stand between two reads, and not within one
        self.whole: bool = state.cursor is None
        # a read that is under way counts its pages, and knows from where it began
        self.reading_since: datetime = state.created_at
        self.page = 0
        # runs that go out one after the other, by trigger: how many there are, and when the first was due
        self.fired: dict[str, int] = {}
        self.begun: dict[str, datetime] = {}
