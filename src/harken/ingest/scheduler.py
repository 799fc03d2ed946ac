"""One heap, one timer for every feed. It looks at the wall clock every few seconds, so that a jump is noticed."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from harken.clock import Clock, from_unix
from harken.ingest.live import Live
from harken.schedule import At, Cron, Every, next_due

__all__ = ["Timer"]

LONGEST_NAP = 5.0
SHORTEST_NAP = 0.002
JUMP = 2.0
SPREAD = 30.0
DEAD = 60.0


class Timer:
    """Calls `begin(live)` when a feed is due. A feed is in the heap at most once that counts: `live.due` says which."""

    def __init__(self, clock: Clock, random: Random, begin: Callable[[Live], None]) -> None:
        self._clock = clock
        self._random = random
        self._begin = begin
        self._heap: list[tuple[float, int, Live]] = []
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

    def put(self, live: Live, due: float | None) -> None:
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


def _is_punctual(live: Live) -> bool:
    return live.feed.kind == "cron" or isinstance(live.feed.schedule, At)


def _latest(live: Live, now: float) -> float:
    """How long a feed may wait at most after the clock was set back. What has its own time keeps to it."""
    schedule = live.feed.schedule
    if isinstance(schedule, At):
        return max(schedule.instant.timestamp(), now + _interval(live))
    following = next_due(schedule, from_unix(now)) if isinstance(schedule, Cron) and live.feed.kind != "cron" else None
    return now + _interval(live) if following is None else following.timestamp()


def _interval(live: Live) -> float:
    schedule = live.feed.schedule
    return schedule.seconds if isinstance(schedule, Every) else 2 * SPREAD
