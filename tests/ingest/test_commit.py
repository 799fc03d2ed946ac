"""A batch is committed by the rules that hold at that moment, whole, and what the store refuses is set aside alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harken.errors import LeaseLost, RetryLater, StoreBusy
from harken.event import Event, Known
from harken.ingest.commit import MOST_REMATCHES, CommitRequest
from harken.match import Read
from harken.runs import Claimed
from harken.store import Commit, Intent
from harken.testing import START, HandClock
from tests.ingest.noted_store import FEED, NotedStore, Slots, committer_on, event, listener, rules


def page(*events: Event, **changes: Any) -> CommitRequest:
    commit = Commit(feed="inbox", revision=0, token=1, cursor="new", watermark=START, done=True)
    return CommitRequest(events=events, read=Read(now=START), commit=commit, **changes)


def triggers_of(commit: Commit) -> list[list[str]]:
    """For each event, the uids of the triggers that want a run of it."""
    return [[one.trigger for one in entry.decisions if isinstance(one, Intent)] for entry in commit.entries]


def claimed(run_id: str) -> Claimed:
    return Claimed(
        id=run_id, token=1, trigger="t", workflow_rev="r", attempt=1, max_attempts=3, events=(), created_at=START
    )


async def test_events_memory_and_cursor_go_into_one_commit() -> None:
    store = NotedStore(listener())
    store.known = {"old": Known(None, 1)}
    await committer_on(store, HandClock()).take(page(event("old"), event("new")), rules(listener()))
    [commit] = store.commits
    assert [entry.event.subject for entry in commit.entries] == ["new"]
    assert (commit.cursor, commit.watermark, commit.token, commit.done) == ("new", START, 1, True)


async def test_a_trigger_that_was_created_during_the_read_gets_its_events() -> None:
    store = NotedStore(listener())
    before = rules(listener())
    store.change(listener(), listener("late"))
    await committer_on(store, HandClock()).take(page(event("a")), before)
    assert [(commit.revision, triggers_of(commit)) for commit in store.sent] == [
        (1, [["u-t"]]),
        (2, [["u-t", "u-late"]]),
    ]
    assert len(store.commits) == 1


async def test_memory_is_recalled_again_before_a_batch_is_matched_again() -> None:
    store = NotedStore(listener())
    committer, before = committer_on(store, HandClock()), rules(listener())
    sightings = await committer.recognise(before, [event("a"), event("b")])
    store.change(listener())
    store.known = {"a": Known(None, 1)}
    await committer.take(page(event("a"), event("b")), before, sightings)
    assert [entry.event.subject for entry in store.commits[0].entries] == ["b"]
    assert store.recalls == 2


async def test_sightings_are_not_recalled_twice_when_the_rules_still_hold() -> None:
    store = NotedStore(listener())
    committer, now = committer_on(store, HandClock()), rules(listener())
    await committer.take(page(event("a")), now, await committer.recognise(now, [event("a")]))
    assert store.recalls == 1


async def test_a_reset_during_the_read_ends_it_and_nothing_is_committed() -> None:
    store = NotedStore(listener(epoch=1))
    before = rules(listener(epoch=1))
    store.change(listener(epoch=2))
    with pytest.raises(LeaseLost, match="inbox was reset"):
        await committer_on(store, HandClock()).take(page(event("a"), starts=before.starts), before)
    assert store.commits == []


async def test_rules_that_change_with_every_commit_are_given_up_on_after_a_while() -> None:
    store = NotedStore(listener())
    store.refuses = lambda commit: store.change(listener())
    committer = committer_on(store, HandClock())
    with pytest.raises(RetryLater, match=f"changed {MOST_REMATCHES} times"):
        await committer.take(page(event("a")), rules(listener()))
    assert (len(store.sent), store.commits) == (MOST_REMATCHES, [])
    with pytest.raises(RetryLater, match=f"changed {MOST_REMATCHES} times"):
        await committer.push("inbox", [event("b")], Read(now=START))
    assert (len(store.sent), store.commits) == (2 * MOST_REMATCHES, [])


@pytest.mark.parametrize(
    ("ends_first", "released"),
    [(False, {}), (True, {"u-t": 100, "u-late": 5})],
    ids=["within a first read", "at its end"],
)
async def test_the_flood_guard_releases_at_the_end_of_a_first_read(ends_first: bool, released: dict[str, int]) -> None:
    store = NotedStore()
    store.change(listener(), listener("late", spec={"flood_limit": 5}), listener("none", spec={"flood_limit": 0}))
    await committer_on(store, HandClock()).take(page(event("a"), ends_first=ends_first), rules(listener()))
    assert store.commits[0].release == released


@pytest.mark.parametrize(("identity", "recalls"), [("once", 0), ("change", 0), ("transition", 1)])
async def test_pushed_events_are_recalled_only_where_their_last_state_counts(identity: Any, recalls: int) -> None:
    store = NotedStore(listener(), feed=msgspec.structs.replace(FEED, identity=identity))
    store.known = {"a": Known("open", 4)}
    await committer_on(store, HandClock()).push("inbox", [event("a", state="closed")], Read(now=START))
    assert store.recalls == recalls
    assert [entry.seq for entry in store.commits[0].entries] == [5 if recalls else 1]


def refuse(*subjects: str) -> Any:
    def refuses(commit: Commit) -> None:
        if any(entry.event.subject in subjects for entry in commit.entries):
            raise ValueError("this cannot be stored")

    return refuses


@pytest.mark.parametrize("bad", [("e0",), ("e3",), ("e1", "e4"), ("e0", "e1", "e2", "e3", "e4")])
async def test_only_what_the_store_refuses_is_dead_lettered_and_the_cursor_comes_last(bad: tuple[str, ...]) -> None:
    store = NotedStore(listener())
    store.refuses = refuse(*bad)
    names = [f"e{number}" for number in range(5)]
    committed = await committer_on(store, HandClock()).take(page(*map(event, names)), rules(listener()))
    assert store.dead_letters == list(bad)
    stored = [entry.event.subject for commit in store.commits for entry in commit.entries]
    assert stored == [name for name in names if name not in bad]
    *parts, last = store.commits
    assert all(part.cursor is msgspec.UNSET and part.tick is None and not part.done for part in parts)
    assert (last.cursor, last.done, list(last.entries)) == ("new", True, [])
    assert [id == 0 for id in committed.event_ids] == [name in bad for name in names]


async def test_a_store_that_is_full_dead_letters_nothing_and_no_cursor_is_committed() -> None:
    store = NotedStore(listener())

    def full(commit: Commit) -> None:
        raise StoreBusy("too much waits")

    store.refuses = full
    with pytest.raises(StoreBusy):
        await committer_on(store, HandClock()).take(page(event("a"), event("b")), rules(listener()))
    assert (store.commits, store.dead_letters, len(store.sent)) == ([], [], 1)


async def test_a_rule_change_while_the_refused_event_is_looked_for_begins_again_and_loses_nothing() -> None:
    store = NotedStore(listener())

    def refuses(commit: Commit) -> None:
        if len(store.sent) == 3:
            store.change(listener(), listener("late"))
        refuse("e1")(commit)

    store.refuses = refuses
    await committer_on(store, HandClock()).take(page(event("e0"), event("e1"), event("e2")), rules(listener()))
    assert {entry.event.subject for commit in store.commits for entry in commit.entries} == {"e0", "e2"}
    assert store.commits[-1].cursor == "new"
    assert set(store.dead_letters) == {"e1"}


@pytest.mark.parametrize(
    ("free", "handed", "left", "nudges"),
    [(0, 0, 0, 1), (1, 1, 0, 1), (5, 2, 3, 0), (5, 1, 4, 1)],
    ids=["no place", "one place", "places for all", "the store hands over fewer"],
)
async def test_runs_are_handed_over_where_there_is_room(free: int, handed: int, left: int, nudges: int) -> None:
    store, slots = NotedStore(listener()), Slots(free)
    store.claimed = [claimed(f"r{number}") for number in range(handed)]
    await committer_on(store, HandClock(), slots).take(page(event("a"), event("b")), rules(listener()))
    assert ([one.id for one in slots.accepted], slots.free, slots.nudges) == (
        [f"r{number}" for number in range(handed)], left, nudges,
    )  # fmt: skip
    assert store.commits[0].claim == min(free, 2)


async def test_a_commit_that_fails_gives_its_places_back() -> None:
    store, slots = NotedStore(listener()), Slots(3)

    def full(commit: Commit) -> None:
        raise StoreBusy("too much waits")

    store.refuses = full
    with pytest.raises(StoreBusy):
        await committer_on(store, HandClock(), slots).push("inbox", [event("a")], Read(now=START))
    assert (slots.free, slots.accepted) == (3, [])
