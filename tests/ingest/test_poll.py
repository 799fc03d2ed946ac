"""One tick: what a page amounts to, what is written of it, and that the feed moves only behind the store."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest

from harken.circuit_breaker import Health
from harken.errors import CursorExpired, LeaseLost, NeedsAttention, RetryLater, StoreBusy
from harken.event import Known, Span
from harken.feed import Spacing
from harken.http import ServiceClock
from harken.ingest.batched_idle_poll_writes import IdleReads
from harken.ingest.feed_runtime_state import LiveFeed, TickReport
from harken.ingest.partly_committed_page import stored_cap, stored_position
from harken.ingest.poll import Poller, since, sum_up, watermark
from harken.source import Batch
from harken.store import Commit
from harken.testing import START, HandClock, VirtualClock, virtual
from tests.ingest.noted_store import FEED, HOUR, NotedStore, Pages, committer_on, event, listener, live, rules

NOW = START.timestamp()
MINUTE = timedelta(minutes=1)
TOKEN = 5
FAILING = Health(failures=3, since=NOW - 60, message="it answered 503")


class Reader:
    """One feed with its poller, on a store that notes what is written."""

    def __init__(self, clock: Any, store: NotedStore, *pages: Batch | Exception, **state: Any) -> None:
        self.clock, self.store = clock, store
        anything: Any = store
        self.source = Pages(*pages)
        self.live = live(self.source, **state)
        self.idle_reads = IdleReads(anything)
        self.committer = committer_on(store, clock)
        self.poller = Poller(anything, self.committer, self.idle_reads, clock, Random(1), lambda shard: TOKEN)

    async def tick(self) -> TickReport:
        return await self.poller.tick(self.live, await self.committer.rule_cache.rules("inbox"))


@pytest.mark.parametrize(
    ("mark", "listeners", "expected"),
    [
        (None, [listener()], START - HOUR),
        (START, [listener()], START - timedelta(seconds=FEED.lookback)),
        (START - HOUR, [listener()], START - HOUR),
        (START, [listener(start_line=START, reads_from=START - MINUTE)], START - MINUTE),
        (START, [listener(), listener("old", start_line=START - 9 * HOUR, backfilling=True)], START - 9 * HOUR),
        (None, [], START - HOUR),
        (None, [listener(start_line=START - timedelta(seconds=0.3))], START - timedelta(seconds=1)),
    ],
    ids=[
        "nothing dated was seen yet",
        "a little before the newest item",
        "never before the first start line",
        "from where a trigger wants its feed read",
        "from where a trigger looks back to",
        "no trigger: from the creation of the feed",
        "from the beginning of the second, as services round down",
    ],
)
def test_a_read_begins_early_enough_for_every_trigger(
    mark: datetime | None, listeners: list[Any], expected: datetime
) -> None:
    assert since(live(watermark=mark), rules(*listeners)) == expected


@pytest.mark.parametrize(
    ("before", "dates", "expected"),
    [
        (None, [], None),
        (START, [], START),
        (None, [None], None),
        (START - HOUR, [START - MINUTE, START - 2 * MINUTE], START - MINUTE),
        (START - MINUTE, [START - HOUR], START - MINUTE),
        (START - MINUTE, [START + MINUTE], START - MINUTE),
        (None, [START], START),
    ],
    ids=["nothing", "no items", "undated", "newer items", "older items", "an item of the future", "an item of now"],
)
def test_the_watermark_is_the_newest_time_that_is_not_in_the_future(
    before: datetime | None, dates: list[datetime | None], expected: datetime | None
) -> None:
    batch = Batch(events=[event(f"e{n}", occurred_at=date) for n, date in enumerate(dates)])
    assert watermark(live(watermark=before), batch, NOW) == expected


def page(feed: LiveFeed, batch: Batch, *, new: int = 0, listeners: Any = None, before: Any = None) -> Any:
    sightings: Any = [object()] * new
    found = rules(*(listeners or [listener()]))
    return sum_up(feed, batch, sightings, found, started=NOW - 2, now=NOW, next_due=NOW + 60, before=before)


@pytest.mark.parametrize(
    ("batch", "new", "state", "idle"),
    [
        (Batch(cursor="c"), 0, {}, True),
        (Batch(events=[event("a")], cursor="c"), 0, {}, True),
        (Batch(events=[event("a")], cursor="c"), 1, {}, False),
        (Batch(cursor="c", more=True), 0, {}, False),
        (Batch(cursor="c"), 0, {"baselined": False}, False),
    ],
    ids=["nothing", "only known items", "a new item", "more pages", "the first read"],
)
def test_a_tick_is_idle_when_one_page_of_it_had_nothing_new(batch: Batch, new: int, state: Any, idle: bool) -> None:
    assert page(live(**state), batch, new=new).idle is idle


def test_the_last_page_of_several_is_never_idle() -> None:
    feed = live()
    feed.page = 1
    assert not page(feed, Batch(cursor="c")).idle


@pytest.mark.parametrize("looks_back", [True, False])
def test_a_tick_is_not_idle_while_a_trigger_looks_back(looks_back: bool) -> None:
    assert page(live(), Batch(cursor="c"), listeners=[listener(backfilling=looks_back)]).idle is not looks_back


def test_seen_and_new_are_counted_over_all_pages_of_a_tick() -> None:
    first = page(live(), Batch(events=[event("a"), event("b")], more=True), new=1)
    last = page(live(), Batch(events=[event("c")]), new=1, before=first)
    assert [(one.seen, one.new, one.done) for one in (first, last)] == [(2, 1, False), (3, 2, True)]


PROVEN = Span(START - 5 * MINUTE, START - MINUTE)


@pytest.mark.parametrize(
    ("batch", "covered"),
    [
        (Batch(), Span(START - HOUR, START - timedelta(seconds=2))),
        (Batch(complete=False), None),
        (Batch(more=True), None),
        (Batch(covered=PROVEN, more=True), PROVEN),
        (Batch(covered=PROVEN, complete=False), PROVEN),
    ],
    ids=["a whole read", "items were left out", "not at its end", "the source knows it", "it knows it of a part"],
)
def test_coverage_is_what_the_source_says_or_a_whole_read_from_its_beginning(batch: Batch, covered: Any) -> None:
    assert page(live(), batch).covered == covered


@pytest.mark.parametrize(
    ("health", "more", "recovers"),
    [
        (Health(), False, False),
        (FAILING, False, True),
        (FAILING, True, False),
        (Health(state="paused"), False, False),
    ],
    ids=["healthy", "failing", "failing, and not at its end", "paused by a person"],
)
def test_the_end_of_a_read_ends_the_failures(health: Health, more: bool, recovers: bool) -> None:
    recovery = page(live(health=health), Batch(more=more)).recovery
    assert (recovery is not None and recovery.health.clean) is recovers


@pytest.mark.parametrize(
    ("between_reads", "reading_since", "more", "backfilled"),
    [
        (True, START - 9 * HOUR, False, ["u-old"]),
        (True, START - 8 * HOUR, False, []),
        (False, START - 9 * HOUR, False, []),
        (True, START - 9 * HOUR, True, []),
    ],
    ids=["a whole read", "begun too late", "begun within an earlier read", "not at its end"],
)
def test_a_trigger_has_looked_back_after_one_whole_read_from_its_start_line(
    between_reads: bool, reading_since: datetime, more: bool, backfilled: list[str]
) -> None:
    feed = live()
    feed.between_reads, feed.reading_since = between_reads, reading_since
    listeners = [listener(), listener("old", start_line=START - 9 * HOUR, backfilling=True)]
    assert list(page(feed, Batch(more=more), listeners=listeners).backfilled) == backfilled


async def test_the_cursor_moves_only_after_the_commit_has_returned() -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, Batch(events=[event("a")], cursor="new"))
    during: list[Any] = []
    store.refuses = lambda commit: during.append((reader.live.cursor, reader.live.watermark, reader.live.next_due))
    report = await reader.tick()
    assert during == [("old", None, None)]
    assert (reader.live.cursor, reader.live.watermark) == ("new", START - MINUTE)
    assert (report.result, report.seen, report.new) == ("events", 1, 1)
    assert (store.commits[0].cursor, store.commits[0].token) == ("new", TOKEN)


def fails_once(store: NotedStore, error: Exception) -> None:
    """The next commit fails with this error, those after it do not."""

    def refuses(commit: Commit) -> None:
        store.refuses = lambda commit: None
        raise error

    store.refuses = refuses


@pytest.mark.parametrize("error", [StoreBusy("too much waits"), RetryLater("later"), ValueError("a bug")])
async def test_a_page_that_could_not_be_committed_is_read_again_from_the_same_cursor(error: Exception) -> None:
    store = NotedStore(listener())
    one = Batch(cursor="new")
    reader = Reader(HandClock(), store, one, one, baselined=False)
    fails_once(store, error)
    assert (await reader.tick()).result == "error"
    assert (reader.live.cursor, reader.live.baselined, store.commits) == ("old", False, [])
    assert (await reader.tick()).result == "nothing_new"
    assert reader.source.cursors == ["old", "old"]
    assert [commit.cursor for commit in store.commits] == ["new"]


async def test_the_watermark_does_not_pass_the_time_at_which_a_read_reached_the_present() -> None:
    """What becomes visible between two pages that are days apart is dated before that, and the next read finds it."""
    clock, store = HandClock(), NotedStore(listener())
    began, later = clock.now(), clock.now() + timedelta(hours=4)
    pages: list[Batch | Exception] = [
        Batch(events=[event("a", occurred_at=began)], cursor="c0", more=True),
        RetryLater("it is away"),
        Batch(events=[event("b", occurred_at=later)], cursor="c1"),
    ]
    reader = Reader(clock, store, *pages)
    await reader.tick()
    assert stored_cap(store.commits[0].cursor) == began.timestamp()
    clock.advance(300_000.0)
    await reader.tick()
    assert (store.commits[1].cursor, store.commits[1].watermark, reader.live.capped) == ("c1", began, None)


async def test_a_lost_lease_ends_the_tick_and_moves_nothing() -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, Batch(events=[event("a")], cursor="new"))
    fails_once(store, LeaseLost("another replica has it"))
    with pytest.raises(LeaseLost):
        await reader.tick()
    assert (reader.live.cursor, store.commits, store.failures) == ("old", [], [])


async def test_each_page_is_committed_before_the_next_is_requested() -> None:
    store = NotedStore(listener())
    pages = [Batch(events=[event(f"e{n}")], cursor=f"c{n}", more=n < 2) for n in range(3)]
    reader = Reader(HandClock(), store, *pages)
    report = await reader.tick()
    assert reader.source.cursors == ["old", "c0", "c1"]
    stored = [stored_position(commit.cursor)[0] for commit in store.commits]
    assert [(at, one.done, one.tick is not None) for at, one in zip(stored, store.commits, strict=True)] == [
        ("c0", False, False), ("c1", False, False), ("c2", True, True),
    ]  # fmt: skip
    assert (report.seen, report.new, reader.live.page) == (3, 3, 0)


async def test_a_tick_that_fails_at_its_second_page_keeps_the_first() -> None:
    store = NotedStore(listener())
    first = Batch(events=[event("a")], cursor="c0", more=True)
    reader = Reader(HandClock(), store, first, RetryLater("it answered 503"))
    assert (await reader.tick()).result == "error"
    assert (reader.live.cursor, reader.live.page) == ("c0", 1)
    assert [failure.error for failure in store.failures] == ["it answered 503"]


async def test_a_page_that_failed_in_a_long_listing_is_no_failed_read_when_pages_before_it_were_committed() -> None:
    clock, store = HandClock(), NotedStore(listener())
    trouble = RetryLater("it answered 503")
    pages = [Batch(events=[event(f"e{n}")], cursor=f"c{n}", more=True) for n in range(12)]
    reader = Reader(clock, store, *(one for page in pages for one in (page, trouble)), health=FAILING)
    for _ in pages:
        report = await reader.tick()
        assert (report.result, report.error, reader.live.health.failures) == ("error", "it answered 503", 0)
        assert reader.live.next_due == pytest.approx(clock.time() + FEED.interval, rel=0.2)
    assert [failure.health.state for failure in store.failures] == ["closed"] * 12


async def test_a_page_that_fails_again_and_again_is_a_failed_read() -> None:
    store = NotedStore(listener())
    first = Batch(events=[event("a")], cursor="c0", more=True)
    reader = Reader(HandClock(), store, first, *[RetryLater("it answered 503")] * 3)
    for failures in range(3):
        await reader.tick()
        assert reader.live.health.failures == failures


async def test_a_wrong_token_after_committed_pages_still_pauses() -> None:
    store = NotedStore(listener())
    first = Batch(events=[event("a")], cursor="c0", more=True)
    reader = Reader(HandClock(), store, first, NeedsAttention("the token is wrong", fix="Make a new one"))
    await reader.tick()
    assert (reader.live.health.state, reader.live.health.failures) == ("paused", 1)


async def test_a_tick_that_takes_too_long_stops_after_a_page_and_goes_on_at_once() -> None:
    clock = HandClock()
    store = NotedStore(listener())
    reader = Reader(clock, store, *(Batch(events=[event(f"e{n}")], cursor=f"c{n}", more=True) for n in range(9)))
    store.refuses = lambda commit: clock.advance(FEED.tick_timeout - 1)
    await reader.tick()
    assert len(reader.source.cursors) == 3
    assert reader.live.next_due == store.commits[-1].next_due.timestamp()  # type: ignore[union-attr]
    assert (reader.live.cursor, reader.live.page) == ("c2", 3)


async def test_a_quiet_tick_is_recorded_as_idle_and_not_committed() -> None:
    store = NotedStore(listener())
    store.known = {"a": Known(None, 1)}
    reader = Reader(HandClock(), store, Batch(events=[event("a")], cursor="new"), Batch(cursor="new", unchanged=True))
    assert [(await reader.tick()).result for _ in range(2)] == ["nothing_new", "unchanged"]
    await reader.idle_reads.flush()
    assert store.sent == []
    [idle] = store.idle
    assert (idle.count, idle.cursor, idle.token, idle.revision, idle.watermark) == (2, "new", TOKEN, 1, START - MINUTE)
    assert reader.live.cursor == "new"


async def test_idle_reads_are_written_before_a_commit_of_the_same_feed() -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, Batch(cursor="c0"), Batch(events=[event("a")], cursor="c1"))
    await reader.tick()
    idle_at_commit: list[int] = []
    store.refuses = lambda commit: idle_at_commit.append(len(store.idle))
    await reader.tick()
    assert idle_at_commit == [1]


async def test_an_idle_read_that_comes_back_unwritten_during_a_commit_of_its_feed_is_not_written_after_it() -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, Batch(cursor="c0"), Batch(events=[event("a")], cursor="c1"))
    await reader.tick()
    store.refuses = lambda commit: reader.idle_reads.add(store.idle[0])
    await reader.tick()
    await reader.idle_reads.flush()
    assert ([one.cursor for one in store.idle], [one.cursor for one in store.commits]) == (["c0"], ["c1"])


async def test_an_event_of_a_trigger_that_came_during_the_read_fires_for_it() -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, Batch(events=[event("a")], cursor="new"))
    await reader.committer.rule_cache.learn("inbox")
    store.change(listener(), listener("late"))
    await reader.tick()
    assert [commit.revision for commit in store.sent] == [1, 2]
    assert len(store.commits[0].entries[0].decisions) == 2


async def test_a_trigger_that_began_to_look_back_between_two_pages_has_not_yet_looked_back() -> None:
    """The first page was committed without it, so its events have to be decided again first."""
    store = NotedStore(listener())
    pages = Batch(events=[event("a")], cursor="c0", more=True), Batch(events=[event("b")], cursor="c1")
    reader = Reader(HandClock(), store, *pages, cursor=None)

    rules_now = await reader.committer.rule_cache.rules("inbox")
    poll = reader.source.poll

    async def meanwhile(cursor: Any, since: datetime) -> Batch:
        batch = await poll(cursor, since)
        if cursor == "c0":
            store.change(listener(), listener("late", backfilling=True))
            await reader.committer.rule_cache.learn("inbox")
        return batch

    reader.live.poll = meanwhile
    await reader.poller.tick(reader.live, rules_now)
    assert [(commit.revision, list(commit.backfilled)) for commit in store.commits] == [(1, []), (2, [])]


async def test_a_reset_during_the_read_ends_it() -> None:
    store = NotedStore(listener(epoch=1))
    reader = Reader(HandClock(), store, Batch(events=[event("a")], cursor="new"))
    await reader.committer.rule_cache.learn("inbox")
    store.change(listener(epoch=2))
    with pytest.raises(LeaseLost, match="reset"):
        await reader.tick()
    assert (reader.live.cursor, store.commits) == ("old", [])


@pytest.mark.parametrize(
    ("error", "result", "state", "again"),
    [
        (RetryLater("it answered 503"), "error", "closed", True),
        (RetryLater("slow down", reason="rate_limited", after=90), "rate_limited", "closed", True),
        (NeedsAttention("the token is wrong", fix="Make a new one"), "error", "paused", True),
        (CursorExpired("it no longer knows the cursor"), "error", "paused", False),
        (KeyError("token=secret"), "error", "closed", True),
    ],
    ids=["trouble", "a rate limit", "a wrong token", "a lost cursor", "a bug"],
)
async def test_a_failure_is_recorded_with_what_follows_from_it(
    error: Exception, result: str, state: str, again: bool
) -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, error)
    report = await reader.tick()
    [failure] = store.failures
    assert (report.result, failure.result, failure.health.state) == (result, result, state)
    assert (reader.live.next_due is not None, failure.next_due is not None) == (again, again)
    assert reader.live.health == failure.health
    assert "secret" not in failure.error


async def test_a_store_in_trouble_is_not_the_fault_of_the_feed() -> None:
    store = NotedStore(listener())
    reader = Reader(HandClock(), store, Batch(events=[event("a")], cursor="new"))
    fails_once(store, StoreBusy("too much waits"))
    await reader.tick()
    assert (reader.live.health.clean, store.failures) == (True, [])


@virtual
async def test_a_page_that_never_comes_is_a_timeout(clock: VirtualClock) -> None:
    store = NotedStore(listener())
    reader = Reader(clock, store)

    async def hangs(cursor: Any, since: datetime) -> Batch:
        await asyncio.sleep(3_600)
        return Batch()

    reader.live.poll = hangs
    report = await reader.tick()
    assert (report.result, report.error) == ("error", "inbox gave no page within 10 s")
    assert (clock.monotonic(), store.failures[0].health.code) == (FEED.page_timeout, "timeout")


async def test_runs_of_later_pages_and_ticks_are_due_behind_those_before_until_their_time_is_over() -> None:
    clock = HandClock()
    store = NotedStore(listener(spec={"spacing": Spacing(delay=10.0)}))
    reader = Reader(
        clock,
        store,
        Batch(events=[event("a"), event("b")], cursor="c0", more=True),
        Batch(events=[event("c")], cursor="c1"),
        Batch(events=[event("d")], cursor="c2"),
        Batch(events=[event("e")], cursor="c3"),
    )
    await reader.tick()
    await reader.tick()
    clock.advance(60)
    await reader.tick()
    due = [one.due_at for commit in store.commits for entry in commit.entries for one in entry.decisions]  # type: ignore[union-attr]
    assert [(at - START).total_seconds() for at in due] == [0, 10, 20, 30, 60]


class Behind:
    """A service whose clock is five minutes behind ours, which its first answer tells."""

    def __init__(self) -> None:
        self.service_clock = ServiceClock()
        self.asked: list[datetime] = []

    async def poll(self, cursor: Any, since: datetime) -> Batch:
        self.asked.append(since)
        theirs = format_datetime(START - 5 * MINUTE, usegmt=True)
        self.service_clock.learn({"Date": theirs}, START.timestamp(), START.timestamp())
        return Batch(events=[event("new", occurred_at=START - 4 * MINUTE)], cursor="next")


async def test_a_read_that_learns_of_a_clock_that_is_behind_asks_again_from_earlier() -> None:
    source = Behind()
    reader = Reader(HandClock(), NotedStore(listener(start_line=START - MINUTE)))
    reader.live.use(source)
    await reader.tick()
    assert source.asked == [START - MINUTE, START - 6 * MINUTE]
    await reader.tick()
    assert len(source.asked) == 3
