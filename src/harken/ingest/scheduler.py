"""When each feed is due: one heap, one timer. A jump of the wall clock is noticed within seconds."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from harken import backoff
from harken.clock import Clock, from_unix
from harken.feed import Feed, FeedState
from harken.ingest.live import LiveFeed
from harken.match import Rules
from harken.schedule import At, Cron, Every, is_over, next_due
from harken.source import Batch

__all__ = ["Scheduler", "due_after", "first_due", "interval", "since", "watermark"]


SHORTEST_REST = 0.2


def interval(feed: Feed) -> float:
    return feed.schedule.seconds if isinstance(feed.schedule, Every) else 60.0


def first_due(live: LiveFeed, state: FeedState, now: float, random: Random) -> float | None:
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


def due_after(
    live: LiveFeed, now: float, started: float, random: Random, next_at: datetime | None = None
) -> float | None:
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


def since(live: LiveFeed, rules: Rules) -> datetime:
    """Everything after this has to be read: what is new, and what a trigger looks back for."""
    start = rules.reads_from or live.created_at
    if live.watermark is None:
        return start
    ordinary = max(start, live.watermark - timedelta(seconds=live.feed.lookback))
    return min([ordinary, *(rule.start_line for rule in rules.backfilling)])


def watermark(live: LiveFeed, batch: Batch, now: float) -> datetime | None:
    """The newest time seen, but never one that has not come yet."""
    limit = datetime.fromtimestamp(now, UTC)
    seen = [event.occurred_at for event in batch.events if event.occurred_at is not None and event.occurred_at <= limit]
    if live.watermark is not None:
        seen.append(live.watermark)
    return max(seen, default=None)


LONGEST_NAP = 5.0

SHORTEST_NAP = 0.002

JUMP = 2.0

SPREAD = 30.0

DEAD = 60.0


class Scheduler:
    """Calls `begin(live)` when a feed is due. A feed is in the heap at most once that counts: `live.due` says which."""

    def __init__(self, clock: Clock, random: Random, begin: Callable[[LiveFeed], None]) -> None:
        self._clock = clock
        self._random = random
        self._begin = begin
        self._heap: list[tuple[float, int, LiveFeed]] = []
        self._order = count()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._wall = clock.time()
        self._mono = clock.monotonic()
        self._running = False
        self.jumped_at: float | None = None
        self.lag = 0.0

    def start(self) -> None:
        self._running = True
        self._wall, self._mono = self._clock.time(), self._clock.monotonic()
        self._arm(0.0)

    def stop(self) -> None:
        self._running = False
        if self._handle is not None:
            self._handle.cancel()

    def works(self) -> bool:
        """Whether it still looks at the clock, as it does every few seconds."""
        return not self._running or self._clock.monotonic() - self._mono < DEAD

    def put(self, live: LiveFeed, due: float | None) -> None:
        """Make the feed due at a wall time; None takes it off the schedule."""
        live.due = due
        if due is None:
            return
        heapq.heappush(self._heap, (due, next(self._order), live))
        if self._running and due < self._wakes_at:
            self._arm(due - self._clock.time())

    def _arm(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        nap = min(max(seconds, SHORTEST_NAP), LONGEST_NAP)
        self._wakes_at = self._clock.time() + nap
        self._handle = asyncio.get_running_loop().call_later(nap, self._ring)

    def _ring(self) -> None:
        now = self._clock.time()
        self._notice_jump(now)
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, _, live = heapq.heappop(heap)
            if live.due != due:
                continue
            self.lag = now - due
            live.due = None
            self._begin(live)
        self._handle = None
        if self._running:
            self._arm(heap[0][0] - now if heap else LONGEST_NAP)

    def _notice_jump(self, now: float) -> None:
        mono = self._clock.monotonic()
        jump = (now - self._wall) - (mono - self._mono)
        self._wall, self._mono = now, mono
        if abs(jump) > JUMP:
            self.jumped_at = now
            self._spread(now, forward=jump > 0)

    def _spread(self, now: float, *, forward: bool) -> None:
        """After a sleep all feeds are due at once: spread them. After a step back none may wait for the old time."""
        entries, self._heap[:] = list(self._heap), []
        for due, order, live in entries:
            if live.due != due:
                continue
            if forward and due < now and not _is_punctual(live):
                live.due = now + self._random.random() * min(SPREAD, _interval(live) / 2)
            elif not forward:
                live.due = min(due, _latest(live, now))
            heapq.heappush(self._heap, (live.due, order, live))


def _is_punctual(live: LiveFeed) -> bool:
    return live.feed.kind == "cron" or isinstance(live.feed.schedule, At)


def _latest(live: LiveFeed, now: float) -> float:
    """How long a feed may wait at most after the clock was set back. What has its own time keeps to it."""
    schedule = live.feed.schedule
    if isinstance(schedule, At):
        return max(schedule.instant.timestamp(), now + _interval(live))
    following = next_due(schedule, from_unix(now)) if isinstance(schedule, Cron) and live.feed.kind != "cron" else None
    return now + _interval(live) if following is None else following.timestamp()


def _interval(live: LiveFeed) -> float:
    schedule = live.feed.schedule
    return schedule.seconds if isinstance(schedule, Every) else 2 * SPREAD
