"""Where a read begins and ends, and when the next one is due: pure functions of what is known of the feed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from harken import backoff
from harken.clock import from_unix
from harken.feed import Feed, FeedState
from harken.ingest.live import Live
from harken.match import Rules
from harken.schedule import At, Every, is_over, next_due
from harken.source import Batch

__all__ = ["due_after", "first_due", "interval", "since", "watermark"]

SHORTEST_REST = 0.2


def interval(feed: Feed) -> float:
    return feed.schedule.seconds if isinstance(feed.schedule, Every) else 60.0


def first_due(live: Live, state: FeedState, now: float, random: Random) -> float | None:
    """When a feed is read that was just opened, or that a person has moved."""
    feed, schedule = live.feed, live.feed.schedule
    if isinstance(schedule, At):
        return _at(schedule, state)
    if state.next_due is not None:
        due = state.next_due.timestamp()
        if live.health.clean and due > now + 2 * interval(feed) and isinstance(schedule, Every):
            # written while the clock was wrong: nothing that is due after one interval waits longer
            return now
        if feed.kind != "cron" and due < now:
            # after a long stop everything is due: don't ask every service in the same second
            return now + random.random() * min(2.0, interval(feed) / 10)
        return due
    if state.baselined:
        return due_after(live, now, now, random)
    extra = random.random() * feed.added_jitter if feed.added_jitter else 0.0
    if schedule is None or isinstance(schedule, Every):
        return now + extra
    following = next_due(schedule, state.created_at)
    return (following.timestamp() if following is not None else now) + extra


def _at(schedule: At, state: FeedState) -> float | None:
    if is_over(schedule, state.last_success):
        return None
    instant = schedule.instant.timestamp()
    # a try that waits after a failure is later; that somebody resumed it does not make it earlier
    return instant if state.next_due is None else max(instant, state.next_due.timestamp())


def due_after(live: Live, now: float, started: float, random: Random, next_at: datetime | None = None) -> float | None:
    """When the feed is read next, which is `next_at` if its source knows that; a one-shot is not."""
    feed: Feed = live.feed
    schedule = feed.schedule
    if schedule is None:
        return None
    extra = random.random() * feed.added_jitter
    if next_at is not None:
        return max(next_at.timestamp() + extra, now)
    if isinstance(schedule, Every):
        floor = min(schedule.seconds, 10.0)
        wait = backoff.jittered(schedule.seconds, feed.jitter, floor, random.random())
        return max(started + wait + extra, now + SHORTEST_REST)
    if isinstance(schedule, At):
        # a person may have asked for a read just before
        following = next_due(schedule, from_unix(started))
        return None if following is None else following.timestamp()
    following = next_due(schedule, from_unix(now))
    return None if following is None else following.timestamp() + extra


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
