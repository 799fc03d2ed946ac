"""When feeds are due: after a start, after a read, and after the clock has jumped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.circuit_breaker import Health
from harken.feed import Feed, FeedState
from harken.ingest.feed_runtime_state import LiveFeed
from harken.ingest.scheduler import AT_ONCE, JUMP, SHORTEST_PAUSE, SPREAD, DueQueue, Scheduler, due_after, first_due
from harken.schedule import At, Cron, Every, Schedule
from harken.testing import START, HandClock, VirtualClock, virtual
from harken.timings import Timings
from tests.ingest.noted_store import FEED, Pages

NOW = START.timestamp()
MINUTELY = Every(seconds=60)
HOURLY = Cron(expression="0 * * * *")
NOON = At(instant=START + timedelta(hours=3))
FAILED = Health(failures=2)


class Dice(Random):
    """Always rolls the same."""

    def __init__(self, roll: float = 0.5) -> None:
        super().__init__()
        self._roll = roll

    def random(self) -> float:
        return self._roll


def feed(schedule: Schedule | None = MINUTELY, **changes: Any) -> Feed:
    return msgspec.structs.replace(FEED, schedule=schedule, **changes)


def live(of: Feed, name: str = "inbox", **state: Any) -> LiveFeed:
    known = {"revision": 1, "created_at": START, **state}
    return LiveFeed(msgspec.structs.replace(of, name=name), Pages(), FeedState(name=name, **known), swept_at=0.0)


def after(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [(Every(seconds=5), 5), (HOURLY, 60), (NOON, 60), (None, 60)],
    ids=["every", "cron", "at", "none"],
)
def test_a_feed_without_a_fixed_interval_counts_as_read_every_minute(schedule: Schedule | None, seconds: float) -> None:
    assert feed(schedule).interval == seconds


@pytest.mark.parametrize(
    ("of", "state", "seconds"),
    [
        (feed(), {}, 0),
        (feed(added_jitter=10), {}, 5),
        (feed(HOURLY), {}, 3600),
        (feed(HOURLY, added_jitter=10), {}, 3605),
        (feed(None), {}, 0),
        (feed(), {"baselined": True}, 60),
        (feed(), {"next_due": after(40)}, 40),
        (feed(), {"next_due": after(-900)}, 1),
        (feed(Every(seconds=10)), {"next_due": after(-900)}, 0.5),
        (feed(kind="cron"), {"next_due": after(-900)}, -900),
        (feed(), {"next_due": after(121)}, 0),
        (feed(), {"next_due": after(121), "health": FAILED}, 121),
        (feed(HOURLY), {"next_due": after(7200)}, 7200),
        (feed(NOON), {}, 3 * 3600),
        (feed(NOON), {"next_due": after(-60)}, 3 * 3600),
        (feed(NOON), {"next_due": after(4 * 3600)}, 4 * 3600),
        (feed(NOON), {"last_success": after(3600)}, 3 * 3600),
        (feed(NOON), {"last_success": after(3 * 3600)}, None),
    ],
    ids=[
        "new: at once",
        "new with jitter",
        "new with a cron line: at its time",
        "and its jitter",
        "new without a schedule: at once",
        "read before, without a time",
        "its stored time",
        "overdue: soon, but not all in the same second",
        "overdue with a short interval: sooner",
        "an overdue cron feed catches up at once",
        "a time that only a wrong clock can have written",
        "a failed feed may wait long",
        "a cron line may wait long",
        "one-shot: at its time",
        "one-shot: not earlier although it was resumed",
        "one-shot: a retry after its time",
        "one-shot: a read by hand before its time does not count",
        "one-shot: over",
    ],
)
def test_when_a_feed_is_due_that_was_just_opened(of: Feed, state: Any, seconds: float | None) -> None:
    one = live(of, **state)
    found = FeedState(name="inbox", revision=1, **{"created_at": START, **state})
    due = first_due(one, found, NOW, Dice())
    assert due == (None if seconds is None else NOW + seconds)


@pytest.mark.parametrize(
    ("of", "roll", "took", "next_at", "seconds"),
    [
        (feed(), 0.5, 1, None, 59),
        (feed(jitter=0.1), 0.0, 0, None, 54),
        (feed(jitter=0.1), 1.0, 0, None, 66),
        (feed(Every(seconds=11), jitter=0.5), 0.0, 0, None, 10),
        (feed(added_jitter=8), 0.5, 0, None, 64),
        (feed(), 0.5, 300, None, SHORTEST_PAUSE),
        (feed(), 0.5, 0, after(7), 7),
        (feed(), 0.5, 0, after(-7), 0),
        (feed(HOURLY), 0.5, 1, None, 3600),
        (feed(NOON), 0.5, 1, None, 3 * 3600),
        (feed(At(instant=START)), 0.5, 0, None, None),
        (feed(At(instant=START)), 0.5, 1, None, 0),
        (feed(None), 0.5, 0, None, None),
    ],
    ids=[
        "an interval from the beginning of the read",
        "earlier by its jitter",
        "later by its jitter",
        "never below ten seconds by jitter",
        "added jitter",
        "a read that took longer than its interval is followed by a pause",
        "the source knows when",
        "and that may be over already",
        "cron: its next time",
        "one-shot that was read by hand before",
        "one-shot: over",
        "one-shot that came due while it was read by hand",
        "no schedule",
    ],
)
def test_when_a_feed_is_due_after_a_read(
    of: Feed, roll: float, took: float, next_at: Any, seconds: float | None
) -> None:
    due = due_after(live(of), NOW, NOW - took, Dice(roll), next_at)
    assert due == (None if seconds is None else pytest.approx(NOW + seconds, abs=0.001))


TIMES = st.floats(min_value=NOW - 100, max_value=NOW + 100) | st.integers(-3, 3).map(lambda n: NOW + n / 2)


@given(st.lists(TIMES | st.none()))
def test_the_earliest_entry_comes_first_and_of_the_same_time_the_one_that_was_put_first(puts: list[Any]) -> None:
    """None takes one; what is put afterwards may be due before it."""
    queue, waiting, one = DueQueue(), [], live(feed())
    for number, due in enumerate(puts):
        if due is not None:
            queue.put(due, one)
            waiting.append((due, number))
        elif waiting:
            waiting.sort()
            first = queue.first()
            assert first is not None
            assert queue.take_first() == first
            assert first[0] == waiting.pop(0)[0]
    left = [queue.take_first()[:2] for _ in iter(queue.first, None)]
    assert [due for due, _ in left] == [due for due, _ in sorted(waiting)]
    assert left == sorted(left)


@given(st.lists(TIMES), st.integers(0, 20))
def test_entries_that_are_moved_are_taken_in_their_new_order_and_others_are_gone(puts: list[float], taken: int) -> None:
    queue = DueQueue()
    for due in puts:
        queue.put(due, live(feed()))
    left = sorted(puts)[min(taken, len(puts)) :]
    for _ in range(len(puts) - len(left)):
        queue.first()
        queue.take_first()
    queue.move(lambda entry: None if entry[0] < NOW else 2 * NOW - entry[0])
    moved = [queue.take_first()[0] for _ in iter(queue.first, None)]
    assert moved == sorted(2 * NOW - due for due in left if due >= NOW)


class Begun:
    """A scheduler that notes which feed it began, and when."""

    def __init__(self, clock: Any, roll: float = 0.5, **timings: float) -> None:
        self.clock = clock
        self.seen: list[tuple[str, float]] = []
        self.scheduler = Scheduler(clock, Dice(roll), self._begin, msgspec.structs.replace(Timings(), **timings))

    def _begin(self, one: LiveFeed) -> None:
        self.seen.append((one.feed.name, round(self.clock.time() - NOW, 1)))


@virtual
async def test_feeds_begin_in_the_order_in_which_they_are_due(clock: VirtualClock) -> None:
    begun = Begun(clock)
    begun.scheduler.put(live(feed(), "b"), NOW + 20)
    begun.scheduler.start()
    begun.scheduler.put(live(feed(), "a"), NOW + 10)
    begun.scheduler.put(live(feed(), "c"), NOW - 10)
    await clock.sleep(60)
    assert begun.seen == [("c", 0.0), ("a", 10.0), ("b", 20.0)]
    begun.scheduler.stop()


@virtual
async def test_of_very_many_feeds_that_are_due_some_begin_and_others_have_their_turn_before_the_rest(
    clock: VirtualClock,
) -> None:
    begun: list[str] = []
    scheduler = Scheduler(clock, Random(1), lambda one: begun.append(one.feed.name))
    for number in range(AT_ONCE + 1):
        scheduler.put(live(feed(), str(number)), NOW)
    scheduler.start()
    await clock.sleep(0.003)
    assert begun == [str(number) for number in range(AT_ONCE)]
    await clock.sleep(0.003)
    assert begun[-1] == str(AT_ONCE)
    scheduler.stop()


@virtual
async def test_only_the_last_time_of_a_feed_counts_and_none_takes_it_off(clock: VirtualClock) -> None:
    begun = Begun(clock)
    begun.scheduler.start()
    moved, gone = live(feed(), "moved"), live(feed(), "gone")
    for due in (10, 30, 20):
        begun.scheduler.put(moved, NOW + due)
    begun.scheduler.put(gone, NOW + 10)
    begun.scheduler.put(gone, None)
    await clock.sleep(60)
    assert begun.seen == [("moved", 20.0)]
    assert (moved.due, gone.due) == (None, None)
    begun.scheduler.stop()


@virtual
async def test_a_stopped_scheduler_begins_nothing(clock: VirtualClock) -> None:
    begun = Begun(clock)
    begun.scheduler.start()
    begun.scheduler.put(live(feed()), NOW + 10)
    begun.scheduler.stop()
    await clock.sleep(60)
    assert begun.seen == []


@pytest.mark.parametrize(
    ("of", "due", "jump", "begins"),
    [
        (feed(Every(seconds=600)), 60, 7200, 7200 + SPREAD / 2),
        (feed(Every(seconds=20)), 60, 7200, 7200 + 5),
        (feed(kind="cron"), 60, 7200, 7200),
        (feed(NOON), 60, 7200, 7200),
        (feed(Every(seconds=20)), 10, -5, 10),
        (feed(Every(seconds=20)), 600, -7200, -7200 + 20),
        (feed(HOURLY), 3600, -7200, -3600),
    ],
    ids=[
        "many are due after a sleep: spread",
        "a short interval is spread less",
        "cron feeds are punctual",
        "one-shots are punctual",
        "set back a little: at its time",
        "set back: an interval at most",
        "set back: a cron line keeps to its times",
    ],
)
@virtual
async def test_what_a_jump_of_the_clock_does_to_the_schedule(
    clock: VirtualClock, of: Feed, due: float, jump: float, begins: float
) -> None:
    begun = Begun(clock)
    begun.scheduler.start()
    begun.scheduler.put(live(of), NOW + due)
    clock.jump(jump)
    await clock.sleep(4_000)
    assert begun.scheduler.jumped_at is not None
    assert [seconds for _, seconds in begun.seen] == [pytest.approx(begins, abs=Timings().scheduler_nap + 0.1)]
    begun.scheduler.stop()


@virtual
async def test_a_clock_that_drifts_a_little_has_not_jumped(clock: VirtualClock) -> None:
    begun = Begun(clock)
    begun.scheduler.start()
    clock.jump(JUMP / 2)
    await clock.sleep(30)
    assert begun.scheduler.jumped_at is None
    begun.scheduler.stop()


@pytest.mark.parametrize(
    ("act", "seconds", "works"),
    [
        (lambda scheduler: None, 600, True),
        (lambda scheduler: scheduler.start(), 59, True),
        (lambda scheduler: scheduler.start(), 61, False),
    ],
    ids=["not started", "it woke up lately", "it has not woken up for a minute"],
)
async def test_a_scheduler_that_wakes_up_no_more_is_known_to_be_dead(
    act: Callable[[Scheduler], None], seconds: float, works: bool
) -> None:
    clock = HandClock()
    scheduler = Begun(clock).scheduler
    act(scheduler)
    clock.advance(seconds)
    assert scheduler.works() is works
    scheduler.stop()
