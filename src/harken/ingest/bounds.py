"""Where a read begins and ends, and when the next one is due: pure functions of what is known of the feed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from harken import pace
from harken.clock import from_unix
from harken.feed import Feed
from harken.ingest.live import Live
from harken.match import Rules
from harken.schedule import At, Every, next_due
from harken.source import Batch

__all__ = ["due_after", "since", "watermark"]

SHORTEST_REST = 0.2


def due_after(live: Live, now: float, started: float, random: Random) -> float | None:
    """When the feed is read next; a one-shot is not."""
    feed: Feed = live.feed
    schedule = feed.schedule
    if schedule is None:
        return None
    extra = random.random() * feed.added_jitter
    if isinstance(schedule, Every):
        floor = min(schedule.seconds, 10.0)
        wait = pace.jittered(schedule.seconds, feed.jitter, floor, random.random())
        return max(started + wait + extra, now + SHORTEST_REST)
    following = next_due(schedule, from_unix(now))
    if following is None:
        return None
    return following.timestamp() + (extra if not isinstance(schedule, At) else 0.0)


def since(live: Live, rules: Rules) -> datetime:
    """Everything after this has to be read: what is new, and what a trigger looks back for."""
    start = rules.reads_from or live.created_at
    if live.watermark is None:
        return start
    ordinary = max(start, live.watermark - timedelta(seconds=live.feed.lookback))
    return min([ordinary, *(rule.start_line for rule in rules.backfilling)])


def watermark(live: Live, batch: Batch, now: float) -> datetime | None:
    """The newest time seen, but never one that has not come yet."""
    limit = datetime.fromtimestamp(now, UTC)
    seen = [event.occurred_at for event in batch.events if event.occurred_at is not None and event.occurred_at <= limit]
    if live.watermark is not None:
        seen.append(live.watermark)
    return max(seen, default=None)
