"""Ends of tries on their way to the store: in batches, each resolved exactly once, whatever the store says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from harken.errors import HarkenError, LeaseLost, StoreUnavailable
from harken.event import Event, Recorded
from harken.feed import INTERNAL
from harken.run.journal import InternalFeed, Unwritten
from harken.run.settlement_batches import PendingSettlement, Settler, announcement
from harken.runs import Again, Cancelled, Claimed, Dead, Failed, Finished, RunOutcome, StepRecord
from harken.store import Commit, Settlement, Stale
from harken.testing.clock import START, HandClock, VirtualClock, virtual

DONE = Finished(output=1)
AGAIN = Again(at=START, error="busy")


def run(name: str = "r1", **more: Any) -> Claimed:
    fields: dict[str, Any] = {"token": 1, "trigger": "main", "workflow_rev": "main@1", "attempt": 1, "max_attempts": 3}
    return Claimed(**{"id": name, **fields, "events": (), "created_at": START, **more})


def records(*paths: str) -> list[StepRecord]:
    return [StepRecord(path=path, action="x", status="ok") for path in paths]


class Ends:
    """A store that settles; `refuses` names runs it will not take unless they are dead, `cursed` not even then."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.settled: dict[str, Settlement] = {}
        self.journaled: list[tuple[str, list[str]]] = []
        self.answered: list[tuple[str, Any]] = []
        self.refuses: set[str] = set()
        self.cursed: set[str] = set()
        self.lost: set[str] = set()
        self.stale: Counter[str] = Counter()
        self.errors: list[Exception] = []
        self.seconds = 0.0

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Any]:
        await asyncio.sleep(self.seconds)
        self.batches.append([one.id for one in settlements])
        if self.errors:
            raise self.errors.pop(0)
        for one in settlements:
            if one.id in self.cursed or (one.id in self.refuses and not isinstance(one.outcome, Dead)):
                raise HarkenError("too large")
        return [self._settle(one) for one in settlements]

    def _settle(self, one: Settlement) -> Any:
        if self.stale[one.id] > 0:
            self.stale[one.id] -= 1
            return Stale(revision=2)
        if one.id in self.lost:
            return "lost"
        assert one.id not in self.settled, "settled twice"
        self.settled[one.id] = one
        return "settled"

    async def journal(self, run_id: str, token: int, given: Sequence[StepRecord], *more: Any) -> Stale | None:
        if run_id in self.lost:
            raise LeaseLost("another worker has it")
        self.journaled.append((run_id, [record.path for record in given]))
        return None

    async def answer(self, run_id: str, answer: Any) -> bool:
        self.answered.append((run_id, answer["status"]))
        return True


class Bench:
    """A settler, its store, and what it reported of each run."""

    def __init__(self, clock: VirtualClock) -> None:
        store: Any = Ends()
        self.store = store
        self.reported: list[tuple[str, str]] = []
        self.learnt = 0
        self.bugs: list[Exception] = []
        internal = InternalFeed(self._match, self._learn, clock)
        self.settler = Settler(store, clock, internal, self._report, lambda rev: "flow")

    def _report(self, one: PendingSettlement, result: str) -> None:
        if self.bugs:
            raise self.bugs.pop()
        self.reported.append((one.claimed.id, result))

    def _match(self, events: Sequence[Event]) -> Commit:
        return Commit(feed=INTERNAL, revision=1)

    async def _learn(self) -> None:
        self.learnt += 1

    async def settle(self, *names: str, outcome: RunOutcome = DONE) -> None:
        for name in names:
            self.settler.add(run(name), outcome)
        assert await self.settler.drain(3_600)


@virtual
async def test_ends_that_come_together_are_written_together_up_to_a_limit(clock: VirtualClock) -> None:
    bench = Bench(clock)
    await bench.settle(*(f"r{n}" for n in range(1_100)))
    assert [len(batch) for batch in bench.store.batches] == [500, 500, 100]
    assert len(bench.reported) == 1_100


@virtual
async def test_all_of_a_batch_are_resolved_when_the_store_refuses_one(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.refuses = {"r2"}
    await bench.settle("r1", "r2", "r3")
    assert sorted(bench.reported) == [("r1", "settled"), ("r2", "settled"), ("r3", "settled")]
    assert bench.settler.claims() == {}
    assert [bench.store.settled[name].outcome for name in ("r1", "r3")] == [DONE, DONE]
    assert bench.store.settled["r2"].outcome == Dead(error="its end was refused: too large")


@virtual
async def test_a_run_that_the_store_refuses_even_as_dead_is_lost_and_the_others_are_not(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.cursed = {"r2"}
    await bench.settle("r1", "r2", "r3")
    assert sorted(bench.reported) == [("r1", "settled"), ("r2", "lost"), ("r3", "settled")]
    assert bench.settler.claims() == {}


@virtual
async def test_a_run_that_another_worker_has_is_lost(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.lost = {"r2"}
    await bench.settle("r1", "r2")
    assert sorted(bench.reported) == [("r1", "settled"), ("r2", "lost")]


@virtual
async def test_only_stale_ends_are_matched_and_written_again(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.stale = Counter({"r2": 2})
    await bench.settle("r1", "r2", "r3")
    assert bench.store.batches == [["r1", "r2", "r3"], ["r2"], ["r2"]]
    assert (Counter(bench.reported).most_common(1)[0][1], len(bench.reported)) == (1, 3)
    assert (bench.learnt, bench.settler.stale) == (2, 2)


@virtual
async def test_a_store_that_is_away_is_waited_for(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.errors = [StoreUnavailable("away", after=60)] * 3
    await bench.settle("r1", "r2")
    assert sorted(bench.reported) == [("r1", "settled"), ("r2", "settled")]


@virtual
async def test_an_end_that_is_not_written_yet_keeps_its_claim(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.seconds = 5
    bench.settler.add(run("r1", token=4), DONE)
    await asyncio.sleep(1)
    bench.settler.add(run("r2", token=5), DONE)
    assert bench.settler.claims() == {"r1": 4, "r2": 5}
    assert [await bench.settler.drain(1), await bench.settler.drain(60)] == [False, True]
    assert bench.settler.claims() == {}


@virtual
async def test_the_next_batch_is_written_after_one_that_met_a_bug(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.seconds, bench.bugs = 1, [KeyError("a bug")]
    bench.settler.add(run("r1"), DONE)
    await asyncio.sleep(0.5)
    await bench.settle("r2")
    assert (bench.reported, bench.settler.claims()) == ([("r2", "settled")], {})


@pytest.mark.parametrize(
    ("paths", "events", "before", "within"),
    [
        ([], [], [], None),
        (["a"], [], [], "a"),
        (["a", "b", "c"], [], [("r1", ["a", "b"])], "c"),
        (["a", "b"], ["e"], [("r1", ["a", "b"])], None),
    ],
    ids=["no record", "one goes with the end", "the others go before", "events go with their records"],
)
@virtual
async def test_where_the_last_records_are_written(
    clock: VirtualClock, paths: list[str], events: list[str], before: list[Any], within: str | None
) -> None:
    bench = Bench(clock)
    caused = [Event(subject=key, type="t", key=key, data={}) for key in events]
    bench.settler.add(run("r1"), DONE, Unwritten(records(*paths), caused))
    await bench.settler.drain(60)
    record = bench.store.settled["r1"].record
    assert (bench.store.journaled, record.path if record else None) == (before, within)


@virtual
async def test_a_run_that_is_lost_before_its_last_records_is_not_settled(clock: VirtualClock) -> None:
    bench = Bench(clock)
    bench.store.lost = {"r1"}
    bench.settler.add(run("r1"), DONE, Unwritten(records("a", "b"), []))
    await bench.settle("r2")
    assert (sorted(bench.reported), bench.store.batches) == ([("r1", "lost"), ("r2", "settled")], [["r2"]])


@pytest.mark.parametrize(
    ("outcome", "answered"),
    [
        (DONE, [("p", "done")]),
        (Failed(error="no"), [("p", "failed")]),
        (Dead(error="no"), [("p", "dead")]),
        (AGAIN, []),
    ],
)
@virtual
async def test_the_final_end_of_a_sub_run_wakes_its_parent(
    clock: VirtualClock, outcome: RunOutcome, answered: list[Any]
) -> None:
    bench = Bench(clock)
    bench.settler.add(run(parent="p"), outcome)
    await bench.settler.drain(60)
    assert bench.store.answered == answered


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (DONE, "done"),
        (Finished(filtered=True), "filtered"),
        (Failed(error="x"), "failed"),
        (Dead(error="x"), "dead"),
        (Cancelled(), "cancelled"),
        (AGAIN, "again"),
    ],
)
def test_the_name_of_an_outcome(outcome: RunOutcome, name: str) -> None:
    assert PendingSettlement(run(), outcome, None).outcome_name == name


@pytest.mark.parametrize(("alone", "outcome", "frees"), [(True, DONE, False), (False, DONE, True), (True, AGAIN, True)])
def test_whether_an_end_may_make_other_runs_ready(alone: bool, outcome: RunOutcome, frees: bool) -> None:
    assert PendingSettlement(run(alone=alone), outcome, None).may_free_runs is frees


def caused_by_a_run(depth: int) -> Recorded:
    data = {"depth": depth}
    return Recorded(
        id=1,
        feed=INTERNAL,
        key="k",
        subject="s",
        state="",
        type="run.done",
        occurred_at=None,
        recorded_at=START,
        data=data,
    )


@pytest.mark.parametrize(
    ("outcome", "type", "error"),
    [
        (DONE, "run.done", ""),
        (Failed(error="no"), "run.failed", "no"),
        (Dead(error="no"), "run.dead", "no"),
        (Cancelled(reason="by ana"), "run.cancelled", "by ana"),
    ],
)
def test_an_end_is_announced_with_its_reason(outcome: RunOutcome, type: str, error: str) -> None:
    event = announcement(run(), outcome, HandClock(), "flow")
    assert event is not None
    assert (event.type, event.data["error"], event.data["workflow"], event.data["depth"]) == (type, error, "flow", 1)


def test_a_retry_is_not_announced() -> None:
    assert announcement(run(), AGAIN, HandClock()) is None


def test_two_ends_of_a_run_that_is_retried_by_hand_have_different_keys() -> None:
    ends = [announcement(run(token=token), DONE, HandClock()) for token in (1, 2)]
    assert len({end.key for end in ends if end is not None}) == 2


@pytest.mark.parametrize(("depth", "announced"), [(0, 1), (7, 8), (8, None)])
def test_runs_that_start_each_other_are_announced_up_to_a_depth(depth: int, announced: int | None) -> None:
    event = announcement(run(events=(caused_by_a_run(depth),)), DONE, HandClock())
    assert (event.data["depth"] if event else None) == announced
