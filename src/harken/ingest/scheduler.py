"""When each feed is due, by one queue and one timer; and which ticks run at the same time, when many are due."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from datetime import datetime
from itertools import count
from random import Random

import msgspec

from harken import circuit_breaker
from harken.clock import Clock, from_unix
from harken.feed import FeedState
from harken.ingest.feed_runtime_state import LiveFeed
from harken.schedule import At, Cron, Every, is_over, next_due
from harken.timings import Timings

__all__ = ["DueQueue", "Scheduler", "TickSlots", "due_after", "first_due"]

SHORTEST_NAP = 0.002
SHORTEST_PAUSE = 0.2
"""The least time between the end of a tick and the next one."""

JUMP = 2.0
"""The wall clock jumped when it moved so many seconds more or less than the monotonic clock."""

SPREAD = 30.0
"""After a jump, feeds that are due are read at random times within so many seconds."""

AT_ONCE = 200
"""So many ticks begin at the same moment: after a start 100,000 may be due, and others have their turn in between."""

PARALLEL = 64
"""So many ticks run at the same time, without those that hang."""
PER_KEY = 32
"""So many of them may be of one credential or host."""
HANGS_AFTER = 1.0
"""A tick that has run for so many seconds hangs."""
HANGING_PER_KEY = 4
"""While so many ticks of one credential or host hang, no further one is begun."""
HANGING = 400
"""While so many ticks hang in all, no further one is begun: each of them may have a connection open."""


Entry = tuple[float, int, LiveFeed]
"""When a feed is due, the number of the entry, and the feed."""


class DueQueue:
    """Feeds with the times at which they are due: the earliest first, and those of the same time as they were put.

    Only what is due within the next second that has any is in a heap; all else is in a list for each second. A heap of
    100,000 feeds would compare entries all over the memory for each feed that is put and taken.
    """

    def __init__(self) -> None:
        self._order = count()
        # a heap of all entries before this second
        self._soon: list[Entry] = []
        self._border = -math.inf
        # the entries of each later second, and a heap of these seconds
        self._later: dict[int, list[Entry]] = {}
        self._seconds: list[int] = []

    def put(self, due: float, live: LiveFeed) -> None:
        self._add((due, next(self._order), live))

    def first(self) -> Entry | None:
        """The entry that is due before all others; None if there is none."""
        if not self._soon:
            if not self._seconds:
                return None
            second = heapq.heappop(self._seconds)
            self._soon, self._border = self._later.pop(second), second + 1
            heapq.heapify(self._soon)
        return self._soon[0]

    def take_first(self) -> Entry:
        """Take the entry that `first` has just told."""
        return heapq.heappop(self._soon)

    def move(self, due: Callable[[Entry], float | None]) -> None:
        """Give each entry, in the order in which they are due, another time; without one it is dropped."""
        entries = sorted([*self._soon, *(entry for later in self._later.values() for entry in later)])
        self._soon, self._border = [], -math.inf
        self._later.clear()
        self._seconds.clear()
        for entry in entries:
            moved = due(entry)
            if moved is not None:
                self._add((moved, entry[1], entry[2]))

    def _add(self, entry: Entry) -> None:
        second = math.floor(entry[0])
        if second < self._border:
            heapq.heappush(self._soon, entry)
            return
        later = self._later.get(second)
        if later is not None:
            later.append(entry)
        else:
            self._later[second] = [entry]
            heapq.heappush(self._seconds, second)


class Scheduler:
    """Calls `begin(live)` when a feed is due.

    A feed may have several entries in the queue; only the one with the time of `live.due` counts. The timer never
    sleeps longer than a few seconds, so that a jump of the wall clock (sleep, NTP, daylight saving) is noticed.
    """

    def __init__(
        self, clock: Clock, random: Random, begin: Callable[[LiveFeed], None], timings: Timings = Timings()
    ) -> None:
        self._clock = clock
        self._random = random
        self._begin = begin
        self._longest_nap = timings.scheduler_nap
        self._dead_after = timings.scheduler_dead
        self._queue = DueQueue()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._wall = clock.time()
        self._mono = clock.monotonic()
        self._running = False
        self.jumped_at: float | None = None
        # called with how many seconds the wall clock jumped
        self.on_jump: Callable[[float], None] = lambda seconds: None
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
        """Whether the timer still wakes up, as it does every few seconds."""
        return not self._running or self._clock.monotonic() - self._mono < self._dead_after

    def put(self, live: LiveFeed, due: float | None) -> None:
        """Make the feed due at a wall time; None takes it off the schedule."""
        live.due = due
        if due is None:
            return
        self._queue.put(due, live)
        if self._running and due < self._wakes_at:
            self._arm(due - self._clock.time())

    def _arm(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        nap = min(max(seconds, SHORTEST_NAP), self._longest_nap)
        self._wakes_at = self._clock.time() + nap
        self._handle = asyncio.get_running_loop().call_later(nap, self._wake)

    def _wake(self) -> None:
        now = self._clock.time()
        self._notice_jump(now)
        queue, begun = self._queue, 0
        while (first := queue.first()) is not None and first[0] <= now and begun < AT_ONCE:
            due, _, live = queue.take_first()
            if live.due != due:
                continue
            begun += 1
            self.lag = now - due
            live.due = None
            self._begin(live)
        self._handle = None
        if self._running:
            self._arm(first[0] - now if first is not None else self._longest_nap)

    def _notice_jump(self, now: float) -> None:
        mono = self._clock.monotonic()
        jump = (now - self._wall) - (mono - self._mono)
        self._wall, self._mono = now, mono
        if abs(jump) > JUMP:
            self.jumped_at = now
            self._spread(now, forward=jump > 0)
            self.on_jump(jump)

    def _spread(self, now: float, *, forward: bool) -> None:
        """Many feeds are due at once after a jump forward: spread them. After one back none waits for the old time."""

        def moved(entry: Entry) -> float | None:
            due, _, live = entry
            if live.due != due:
                return None
            if forward and due < now and not _is_punctual(live):
                live.due = now + self._random.random() * min(SPREAD, live.feed.interval / 2)
            elif not forward:
                live.due = min(due, _latest(live, now))
            return live.due

        self._queue.move(moved)


def _is_punctual(live: LiveFeed) -> bool:
    return live.feed.kind == "cron" or isinstance(live.feed.schedule, At)


def _latest(live: LiveFeed, now: float) -> float:
    """The latest time at which a feed is due after the clock was set back; At and Cron keep to their own times."""
    schedule = live.feed.schedule
    if isinstance(schedule, At):
        return max(schedule.instant.timestamp(), now + live.feed.interval)
    following = next_due(schedule, from_unix(now)) if isinstance(schedule, Cron) and live.feed.kind != "cron" else None
    return now + live.feed.interval if following is None else following.timestamp()


def first_due(live: LiveFeed, state: FeedState, now: float, random: Random) -> float | None:
    """When a feed is due that was just opened, or whose state a person has changed."""
    feed, schedule = live.feed, live.feed.schedule
    if isinstance(schedule, At):
        return _at(schedule, state)
    if state.next_due is not None:
        due = state.next_due.timestamp()
        if live.health.clean and due > now + 2 * feed.interval and isinstance(schedule, Every):
            # it was written while the clock was wrong: no healthy feed waits for more than two intervals
            return now
        if feed.kind != "cron" and due < now:
            # after a long stop everything is due: do not call every service in the same second
            return now + random.random() * min(2.0, feed.interval / 10)
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
    # a retry after a failure comes later than the instant; resuming the feed must not make it come earlier
    return instant if state.next_due is None else max(instant, state.next_due.timestamp())


def due_after(
    live: LiveFeed, now: float, started: float, random: Random, next_at: datetime | None = None
) -> float | None:
    """When the feed is due after a read: at `next_at` if the source gave one; None for a one-shot that was read."""
    feed, schedule = live.feed, live.feed.schedule
    if schedule is None:
        return None
    extra = random.random() * feed.added_jitter
    if next_at is not None:
        return max(next_at.timestamp() + extra, now)
    if isinstance(schedule, Every):
        floor = min(schedule.seconds, 10.0)
        wait = circuit_breaker.jittered(schedule.seconds, feed.jitter, floor, random.random())
        return max(started + wait + extra, now + SHORTEST_PAUSE)
    if isinstance(schedule, At):
        # a person may have requested this read just before the instant: then it is still to come
        following = next_due(schedule, from_unix(started))
        return None if following is None else following.timestamp()
    following = next_due(schedule, from_unix(now))
    return None if following is None else following.timestamp() + extra


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that waits for a slot since this monotonic time, and why it has to."""

    since: float
    reason: str


class _Waiter:
    __slots__ = ("name", "since", "turn")

    def __init__(self, name: str, since: float, turn: asyncio.Future[None]) -> None:
        self.name, self.since, self.turn = name, since, turn


class TickSlots:
    """Services that hang do not keep the feeds of others waiting. `key` is the credential or host of a tick.

    A tick that has run for a while waits for its service, and costs next to nothing: it leaves its slot to others. Of
    one key only a few may hang at a time, and keys of which one hangs come after all others.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # those who wait by key; the key that had the last turn is at the end
        self._waiting: dict[str, deque[_Waiter]] = {}
        self._running, self._hanging = _Tally(), _Tally()
        # those that run and do not hang yet, the oldest first; one timer for all of them
        self._begun: dict[Slot, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, name: str, key: str) -> Slot:
        """Wait until there is room for a tick of this feed: `with await slots.enter(name, key):`."""
        if key in self._waiting or not self._has_room(key):
            await self._wait(name, key)
        else:
            self._running.add(key)
        slot, loop = Slot(self, key), asyncio.get_running_loop()
        hangs_at = self._begun[slot] = loop.time() + HANGS_AFTER
        if self._timer is None:
            self._timer = loop.call_at(hangs_at, self._begin_to_hang, hangs_at)
        return slot

    def leave(self, slot: Slot) -> None:
        running = self._begun.pop(slot, None) is not None
        (self._running if running else self._hanging).remove(slot.key)
        self._admit()

    def waiting(self) -> dict[str, Waiting]:
        """The feeds whose ticks wait for a slot, by name."""
        return {
            waiter.name: Waiting(since=waiter.since, reason=self._why(key))
            for key, waiters in self._waiting.items()
            for waiter in waiters
        }

    async def _wait(self, name: str, key: str) -> None:
        """Wait for a slot, which is counted as running when this returns."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(name, self._clock.monotonic(), turn)
        self._waiting.setdefault(key, deque()).append(waiter)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # it was cancelled just when it had got its slot
                self._running.remove(key)
                self._admit()
            else:
                self._give_up(key, waiter)
            raise

    def _give_up(self, key: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(key)
        if waiters and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[key]

    def _begin_to_hang(self, now: float) -> None:
        loop = asyncio.get_running_loop()
        now, self._timer = max(now, loop.time()), None
        for slot, hangs_at in list(self._begun.items()):
            if hangs_at > now:
                self._timer = loop.call_at(hangs_at, self._begin_to_hang, hangs_at)
                break
            del self._begun[slot]
            self._running.remove(slot.key)
            self._hanging.add(slot.key)
        self._admit()

    def _admit(self) -> None:
        """Give free slots to those who wait, one key after the other: first keys of which nothing hangs."""
        while self._waiting and (key := self._next_key()) is not None:
            waiters = self._waiting.pop(key)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[key] = waiters
            # one that was cancelled is still in its place until its task goes on
            if not waiter.turn.done():
                self._running.add(key)
                waiter.turn.set_result(None)

    def _next_key(self) -> str | None:
        if self._running.all >= PARALLEL:
            return None
        second: str | None = None
        for key in self._waiting:
            if self._has_room(key):
                if key not in self._hanging.by_key:
                    return key
                second = second or key
        return second

    def _has_room(self, key: str) -> bool:
        running, hanging = self._running, self._hanging
        return (
            running.all < PARALLEL
            and hanging.all < HANGING
            and running.by_key.get(key, 0) < PER_KEY
            and hanging.by_key.get(key, 0) < HANGING_PER_KEY
        )

    def _why(self, key: str) -> str:
        """Why no tick of this key may begin now."""
        running, hanging = self._running, self._hanging
        if (number := hanging.by_key.get(key, 0)) >= HANGING_PER_KEY:
            return f"{number} reads of {key} hang"
        if (number := running.by_key.get(key, 0)) >= PER_KEY:
            return f"{number} reads of {key} are under way"
        return f"{hanging.all} reads hang" if hanging.all >= HANGING else f"{running.all} reads are under way"


class Slot:
    """The place of one tick among those that run; it is left at the end of the block."""

    __slots__ = ("_slots", "key")

    def __init__(self, slots: TickSlots, key: str) -> None:
        self._slots, self.key = slots, key

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._slots.leave(self)


class _Tally:
    """Ticks, counted in all and by key."""

    def __init__(self) -> None:
        self.all = 0
        self.by_key: dict[str, int] = {}

    def add(self, key: str) -> None:
        self.all += 1
        self.by_key[key] = self.by_key.get(key, 0) + 1

    def remove(self, key: str) -> None:
        self.all -= 1
        self.by_key[key] -= 1
        if not self.by_key[key]:
            del self.by_key[key]
