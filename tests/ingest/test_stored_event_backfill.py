"""A trigger that looks back gets the stored events that it has not decided yet: each once, oldest first."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from harken.errors import RetryLater
from harken.event import Recorded, Verdict
from harken.feed import Feed, FeedState, Spacing
from harken.ingest.commit import MOST_REMATCHES
from harken.ingest.stored_event_backfill import PAGE, Backfill
from harken.store import Commit, Definitions, Intent, Opened
from harken.testing import START, HandClock
from tests.ingest.noted_store import HOUR, NotedStore, committer_on, listener, trigger

LOOKING: dict[str, Any] = {"start_line": START - 5 * HOUR, "backfilling": True}


def stored(number: int, *verdicts: Verdict, at: datetime | None = START - HOUR) -> Recorded:
    return Recorded(
        id=number,
        feed="inbox",
        key=f"k{number}",
        subject=f"s{number}",
        state=None,
        type="x",
        occurred_at=at,
        recorded_at=START,
        data={},
        verdicts=verdicts,
    )


def verdict(outcome: Any, name: str = "t") -> Verdict:
    return Verdict(trigger=name, outcome=outcome)


def backfill_on(store: NotedStore) -> Backfill:
    anything: Any = store
    return Backfill(anything, committer_on(store, HandClock()), HandClock())


def decided_again(store: NotedStore) -> list[int]:
    return [entry.again for commit in store.commits for entry in commit.entries]


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (stored(1), True),
        (stored(1, verdict("before_start")), True),
        (stored(1, verdict("fired", "other")), True),
        (stored(1, verdict("fired")), False),
        (stored(1, verdict("filtered")), False),
        (stored(1, at=None), False),
        (stored(1, at=START - 5 * HOUR), True),
        (stored(1, at=START - 5 * HOUR - timedelta(seconds=1)), False),
    ],
    ids=[
        "it was not there",
        "it was before its start line",
        "only another has decided",
        "it has fired",
        "it did not want it",
        "undated",
        "at its start line",
        "before its start line",
    ],
)
async def test_what_is_decided_again(event: Recorded, wanted: bool) -> None:
    store = NotedStore(listener(**LOOKING))
    store.stored = [event]
    await backfill_on(store).decide_again("inbox", 5)
    assert decided_again(store) == [1] * wanted
    assert [commit.token for commit in store.commits] == [5] * wanted


async def test_only_triggers_that_look_back_decide_again() -> None:
    store = NotedStore(listener(**LOOKING), listener("other"))
    store.stored = [stored(1)]
    await backfill_on(store).decide_again("inbox", 5)
    [entry] = store.commits[0].entries
    assert [one.trigger for one in entry.decisions if isinstance(one, Intent)] == ["u-t"]


async def test_many_are_decided_again_page_by_page_oldest_first_and_spaced_over_all_pages() -> None:
    store = NotedStore(listener(spec={"spacing": Spacing(delay=1.0)}, **LOOKING))
    store.stored = [stored(number) for number in range(1, PAGE + 31)]
    await backfill_on(store).decide_again("inbox", 5)
    assert [len(commit.entries) for commit in store.commits] == [PAGE, 30]
    assert decided_again(store) == list(range(1, PAGE + 31))
    due = [one.due_at for commit in store.commits for entry in commit.entries for one in entry.decisions]  # type: ignore[union-attr]
    assert [(at - START).total_seconds() for at in due] == list(range(PAGE + 30))


async def test_no_cursor_moves_while_stored_events_are_decided_again() -> None:
    store = NotedStore(listener(**LOOKING))
    store.stored = [stored(1)]
    await backfill_on(store).decide_again("inbox", 5)
    plain = Commit(feed="inbox", revision=1)
    assert [(one.cursor, one.done, one.tick) for one in store.commits] == [(plain.cursor, False, None)]


async def test_a_trigger_that_begins_to_look_back_meanwhile_is_matched_and_none_is_counted_twice() -> None:
    spaced = {"spacing": Spacing(delay=1.0)}
    store = NotedStore(listener(spec=spaced, **LOOKING))
    store.stored = [stored(1), stored(2)]

    def refuses(commit: Commit) -> None:
        if len(store.sent) == 1:
            store.change(listener(spec=spaced, **LOOKING), listener("late", **LOOKING))

    store.refuses = refuses
    await backfill_on(store).decide_again("inbox", 5)
    [commit] = store.commits
    due = {(one.trigger, one.due_at) for entry in commit.entries for one in entry.decisions if isinstance(one, Intent)}
    assert due == {("u-t", START), ("u-t", START + timedelta(seconds=1)), ("u-late", START)}


async def test_rules_that_change_with_every_commit_are_given_up_on_after_a_while() -> None:
    store = NotedStore(listener(**LOOKING))
    store.stored = [stored(1)]
    store.refuses = lambda commit: store.change(listener(**LOOKING))
    with pytest.raises(RetryLater, match="the rules of inbox changed"):
        await backfill_on(store).decide_again("inbox", 5)
    assert (len(store.sent), store.commits) == (MOST_REMATCHES, [])


@pytest.mark.parametrize(("way", "commits"), [("push", 2), ("poll", 0)])
async def test_what_was_pushed_is_all_there_is_so_it_is_over_at_once(way: Any, commits: int) -> None:
    feed = Feed(name="inbox", kind="x", integration="x", way=way)
    definition, state = listener(**LOOKING)
    store = NotedStore((definition, state), feed=feed)
    store.stored = [stored(1)]
    definitions = Definitions(generation="g", feeds=(feed,), triggers=(trigger(),), workflows={})
    opened = Opened(
        feeds={"inbox": FeedState(name="inbox", revision=1, created_at=START)}, triggers={definition.name: state}
    )
    await backfill_on(store).of_pushed(definitions, opened)
    assert len(store.commits) == commits
    assert [list(commit.backfilled) for commit in store.commits][1:] == [["u-t"]] * (commits > 1)


async def test_a_trigger_that_came_while_stored_events_were_decided_has_not_looked_back_yet() -> None:
    feed = Feed(name="inbox", kind="x", integration="x", way="push")
    store = NotedStore(listener(**LOOKING), feed=feed)
    store.stored = [stored(1)]

    def refuses(commit: Commit) -> None:
        if commit.backfilled and len(store.sent) == 2:
            moved = {**LOOKING, "start_line": START - 2 * HOUR}
            store.change(listener(**LOOKING), listener("late", **LOOKING), listener("moved", **moved))

    store.refuses = refuses
    definitions = Definitions(generation="g", feeds=(feed,), triggers=(trigger(),), workflows={})
    opened = Opened(feeds={}, triggers={"t": listener(**LOOKING)[1]})
    await backfill_on(store).of_pushed(definitions, opened)
    assert [(commit.revision, list(commit.backfilled)) for commit in store.sent] == [
        (1, []), (1, ["u-t"]), (2, ["u-t"]),
    ]  # fmt: skip
