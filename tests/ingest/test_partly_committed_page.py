"""A long page is committed in parts that bound the loop, and its cursor moves with the last one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from harken.errors import StoreBusy
from harken.event import Known
from harken.feed import Feed, Spacing
from harken.ingest import poll
from harken.ingest.partly_committed_page import PageDigest, Progress, stored_position, with_progress
from harken.match.compiled_rules import PART_EVENTS
from harken.schedule import Every
from harken.source import Batch
from harken.store import Commit, Intent
from harken.testing import START, HandClock
from tests.ingest.noted_store import FEED, NotedStore, event, listener, live, rules
from tests.ingest.test_poll import Reader

LONG = 5 * PART_EVENTS + 7


def long_page(count: int = LONG, **batch: Any) -> Batch:
    events = [event(f"e{n}", occurred_at=START - timedelta(hours=1, seconds=-n / 100)) for n in range(count)]
    return Batch(events=events, cursor="new", **batch)


class MemoryStore(NotedStore):
    """Remembers what is committed, as a real store does."""

    async def commit(self, commit: Commit) -> Any:
        answer = await super().commit(commit)
        if commit in self.commits:
            self.known |= {entry.memory_id: Known(entry.event.state, entry.seq) for entry in commit.entries}
        return answer


@pytest.mark.parametrize(
    ("triggers", "size"), [(0, 200), (1, 200), (25, 200), (50, 100), (1_000, 5), (9_000, 1)], ids=str
)
def test_a_part_is_smaller_the_more_triggers_decide_about_each_event(triggers: int, size: int) -> None:
    assert rules(*(listener(f"t{n}") for n in range(triggers))).part_size == size


@pytest.mark.parametrize("cursor", [None, "c", {"at": 3}, {"harken.page": 1, "own": 2}])
def test_the_position_of_the_source_comes_back_out_of_what_is_stored(cursor: Any) -> None:
    progress = Progress(events=200, digest="d")
    assert stored_position(cursor) == (cursor, None)
    assert stored_position(with_progress(cursor, progress)) == (cursor, progress)


def test_the_digest_of_a_page_depends_on_order_state_and_identity() -> None:
    def digest(*names: str, identity: Any = "once", state: str | None = None) -> Progress:
        made = PageDigest(identity)
        made.add([event(name, state=state) for name in names])
        return made.progress

    others = [digest("b", "a"), digest("a"), digest("a", "b", identity="change"), digest("a", "b", state="x")]
    assert digest("a", "b") not in others
    assert len({one.digest for one in others}) == 4
    made = PageDigest("once")
    made.add([event("a")])
    made.add([event("b\ud800")])
    assert made.progress == digest("a", "b\ud800")


async def test_a_page_is_committed_in_parts_that_bound_the_loop() -> None:
    store = MemoryStore(listener())
    reader = Reader(HandClock(), store, long_page())
    during: list[tuple[Any, Any]] = []
    store.refuses = lambda commit: during.append((reader.live.cursor, reader.live.watermark))
    report = await reader.tick()
    assert [len(commit.entries) for commit in store.commits] == [200] * 5 + [7]
    assert [entry.event.subject for commit in store.commits for entry in commit.entries] == [
        f"e{n}" for n in range(LONG)
    ]
    assert during == [("old", None)] * 6
    assert (report.seen, report.new, reader.live.cursor) == (LONG, LONG, "new")


async def test_only_the_last_part_moves_cursor_and_watermark_and_ends_the_read() -> None:
    store = MemoryStore(listener())
    page = long_page()
    reader = Reader(HandClock(), store, page, baselined=False)
    await reader.tick()
    *first, last = store.commits
    assert [stored_position(commit.cursor)[0] for commit in first] == ["old"] * 5
    assert {(commit.watermark, commit.tick, commit.done, commit.next_due) for commit in first} == {
        (None, None, False, None)
    }
    assert all(not commit.release and commit.token == last.token for commit in first)
    assert (last.cursor, last.watermark, last.done) == ("new", page.events[-1].occurred_at, True)
    assert last.tick is not None
    assert (last.tick.seen, last.tick.new, dict(last.release)) == (LONG, LONG, {"u-t": 100})


async def test_the_newest_time_of_any_part_is_the_watermark() -> None:
    store = MemoryStore(listener())
    page = long_page()
    newest = START - timedelta(seconds=5)
    page.events[3] = event("e3", occurred_at=newest)  # type: ignore[index]
    reader = Reader(HandClock(), store, page)
    await reader.tick()
    assert (reader.live.watermark, store.commits[-1].watermark) == (newest, newest)


async def test_a_long_page_of_known_items_is_an_idle_read() -> None:
    store = MemoryStore(listener())
    page = long_page()
    store.known = {one.subject: Known(None, 1) for one in page.events}
    reader = Reader(HandClock(), store, page)
    assert (await reader.tick()).result == "nothing_new"
    await reader.idle_reads.flush()
    [idle] = store.idle
    assert (store.sent, idle.seen, idle.cursor) == ([], LONG, "new")
    assert idle.watermark == page.events[-1].occurred_at


async def test_a_page_that_broke_off_goes_on_behind_the_parts_that_are_committed() -> None:
    store = MemoryStore(listener())
    reader = Reader(HandClock(), store, long_page(), long_page())

    def fails_at_the_third_part(commit: Commit) -> None:
        if len(store.commits) == 2:
            raise StoreBusy("too much waits")

    store.refuses = fails_at_the_third_part
    assert (await reader.tick()).result == "error"
    assert (reader.live.cursor, reader.live.progress.events) == ("old", 400)  # type: ignore[union-attr]
    store.refuses = lambda commit: None
    store.recalls = 0
    assert (await reader.tick()).new == LONG - 400
    assert store.recalls == 4
    assert [entry.event.subject for commit in store.commits for entry in commit.entries] == [
        f"e{n}" for n in range(LONG)
    ]
    assert (reader.live.cursor, reader.live.progress) == ("new", None)


async def test_an_idle_read_behind_a_page_that_broke_off_clears_its_mark() -> None:
    store = MemoryStore(listener())
    reader = Reader(
        HandClock(), store, Batch(cursor="old"), cursor=with_progress("old", Progress(events=9, digest="d"))
    )
    assert reader.live.cursor == "old"
    await reader.tick()
    await reader.idle_reads.flush()
    assert store.idle[0].cursor == "old"


TRANSITION = Feed(name="inbox", kind="world", integration="world", schedule=Every(seconds=60), identity="transition")


async def test_states_that_a_page_shows_twice_do_not_fire_again_when_the_rest_of_it_is_read_again() -> None:
    """The memory says closed, so without the mark the first state of the page would count as a change."""
    page = long_page()
    page.events[1] = event("x", state="open")  # type: ignore[index]
    page.events[300] = event("x", state="closed")  # type: ignore[index]
    store = MemoryStore(listener(), feed=TRANSITION)
    reader = Reader(HandClock(), store, page, page)
    reader.live.feed = TRANSITION

    def fails_at_the_third_part(commit: Commit) -> None:
        if len(store.commits) == 2:
            raise StoreBusy("too much waits")

    store.refuses = fails_at_the_third_part
    await reader.tick()
    store.refuses = lambda commit: None
    await reader.tick()
    of_x = [e.event.key for commit in store.commits for e in commit.entries if e.event.subject == "x"]
    assert of_x == ["x@open", "x@closed#2"]


async def test_a_trigger_that_comes_between_two_parts_gets_the_rest() -> None:
    store = MemoryStore(listener())
    reader = Reader(HandClock(), store, long_page())

    def another_comes(commit: Commit) -> None:
        if len(store.commits) == 2 and store.revision == 1:
            store.change(listener(), listener("late"))

    store.refuses = another_comes
    await reader.tick()
    assert [len(commit.entries[0].decisions) for commit in store.commits] == [1, 1, 2, 2, 2, 2]


async def test_the_newest_items_of_a_first_page_are_delivered_whichever_part_they_are_in() -> None:
    feed = Feed(name="inbox", kind="world", integration="world", schedule=Every(seconds=60), first="deliver")
    spacing = {"spacing": Spacing(per_tick=10)}
    store = MemoryStore(listener(spec=spacing, start_line=START), feed=feed)
    reader = Reader(HandClock(), store, long_page(), baselined=False, cursor=None)
    await reader.tick()
    fired = [
        entry.event.subject
        for commit in store.commits
        for entry in commit.entries
        if isinstance(entry.decisions[0], Intent)
    ]
    assert fired == [f"e{n}" for n in range(LONG - 10, LONG)]


async def test_spaced_runs_go_on_behind_those_of_the_part_before() -> None:
    spacing = {"spacing": Spacing(per_tick=150)}
    store = MemoryStore(listener(spec=spacing))
    reader = Reader(HandClock(), store, long_page(500))
    await reader.tick()
    due: list[datetime] = [
        decision.due_at for commit in store.commits for entry in commit.entries for decision in entry.decisions
        if isinstance(decision, Intent)
    ]  # fmt: skip
    at_once = [due.count(START + n * timedelta(seconds=FEED.interval)) for n in range(4)]
    assert at_once == [150, 150, 150, 50]


async def test_what_a_long_listing_shows_is_noted_in_portions_while_a_sweep_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll, "MOST_LISTED", 300)
    clock, store = HandClock(), MemoryStore(listener())
    noted: list[tuple[int, bool]] = []

    async def forget(feed: str, token: int, listed: Any, before: Any) -> int:
        noted.append((len(listed), before is None))
        return 0

    store.forget = forget  # type: ignore[method-assign]
    reader = Reader(clock, store, *(long_page() for _ in range(3)))
    reader.live.swept_at = clock.time() - poll.SWEEP_SECONDS
    for _ in range(3):
        await reader.tick()
    assert noted == [(400, True), (400, True), (407, True), (400, True), (400, True), (7, False)]


def test_a_feed_starts_at_the_sources_own_position_after_a_restart() -> None:
    progress = Progress(events=200, digest="d")
    restored = live(cursor=with_progress(None, progress))
    assert (restored.cursor, restored.progress, restored.between_reads) == (None, progress, True)
