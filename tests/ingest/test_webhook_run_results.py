"""What a sender that waits for its run is told, however the run ends and wherever it is executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.errors import StoreUnavailable
from harken.event import Recorded, Verdict
from harken.ingest.webhook_run_results import RunAnswer, RunAnswers
from harken.runs import Run, RunState
from harken.store import Committed
from harken.testing import START, HandClock

FIRED = Verdict(trigger="t", outcome="fired", run_id="r1")
REPEATED = Verdict(trigger="t", outcome="duplicate")
LOOK = "/api/runs/r1"


def run(status: RunState = "running", id: str = "r1", **more: Any) -> Run:
    given = {"due_at": START, "created_at": START, **more}
    return Run(id=id, trigger="t", workflow="w", workflow_rev="v", status=status, **given)


def event(*verdicts: Verdict) -> Recorded:
    return Recorded(
        id=7,
        feed="f",
        key="k",
        subject="s",
        state=None,
        type="x",
        occurred_at=None,
        recorded_at=START,
        data={},
        verdicts=verdicts,
    )


class Records:
    """The runs as they are; `before_look` is called before each time that one is looked at."""

    def __init__(self, *runs: Run, first: Recorded | None = None) -> None:
        self.runs = {one.id: one for one in runs}
        self.first = first
        self.looks = 0
        self.before_look: Callable[[int], object] = lambda look: None

    async def run(self, run_id: str) -> Run | None:
        self.looks += 1
        self.before_look(self.looks)
        return self.runs.get(run_id)

    async def event(self, event_id: int) -> Recorded | None:
        assert event_id == 7
        return self.first


def committed(*verdicts: Verdict) -> Committed:
    return Committed(event_ids=[7], verdicts=[verdicts])


async def told(records: Records, *verdicts: Verdict, clock: HandClock | None = None) -> RunAnswer:
    return await RunAnswers(records, clock or HandClock()).answer(committed(*verdicts or (FIRED,)), 10)


@pytest.mark.parametrize(
    ("found", "status", "content"),
    [
        (run("done", output={"text": "hi"}), 200, {"text": "hi"}),
        (run("done"), 200, {"run": "r1", "status": "done", "look": LOOK}),
        (
            run("failed", error="db.internal said no"),
            500,
            {"error": "the run did not succeed", "run": "r1", "status": "failed", "look": LOOK},
        ),
        (
            run("dead", error="db.internal said no"),
            500,
            {"error": "the run did not succeed", "run": "r1", "status": "dead", "look": LOOK},
        ),
        (run("cancelled", error="by hand"), 409, {"run": "r1", "status": "cancelled", "look": LOOK}),
    ],
    ids=["with outputs", "without outputs", "failed", "dead", "cancelled"],
)
async def test_the_end_of_a_run_is_the_answer(found: Run, status: int, content: Any) -> None:
    assert await told(Records(found)) == RunAnswer(status=status, content=content, runs=("r1",))


@pytest.mark.parametrize("status", ["running", "blocked", "ready", "waiting", "gathering"])
async def test_a_run_that_takes_longer_is_named_when_the_time_is_over(status: RunState) -> None:
    clock = HandClock()
    answer = await told(Records(run(status)), clock=clock)
    assert (answer.status, answer.content) == (202, {"run": "r1", "status": status, "look": LOOK})
    assert clock.monotonic() == pytest.approx(10)


@pytest.mark.parametrize(
    ("found", "more"),
    [
        (run("held", hold="budget"), {"held": "budget"}),
        (run("ready", due_at=START + timedelta(hours=1)), {}),
        (run("gathering", due_at=START + timedelta(seconds=11)), {}),
        (run("waiting", due_at=START + timedelta(hours=1)), {}),
    ],
    ids=["held", "quiet hours", "a long window", "a wait step"],
)
async def test_nobody_waits_for_what_cannot_come_in_time(found: Run, more: dict[str, str]) -> None:
    clock = HandClock()
    answer = await told(Records(found), clock=clock)
    assert (answer.status, answer.content) == (202, {"run": "r1", "status": found.status, **more, "look": LOOK})
    assert clock.monotonic() == 0


async def test_an_approval_may_come_in_time() -> None:
    records = Records(run("waiting", waiting_for="approval", due_at=START + timedelta(days=1)))
    records.before_look = lambda look: look == 3 and records.runs.update(r1=run("done", output=1))
    assert (await told(records)).content == 1


async def test_a_run_that_another_replica_ends_is_found_in_the_store() -> None:
    records, clock = Records(run()), HandClock()
    records.before_look = lambda look: look == 4 and records.runs.update(r1=run("done", output={"text": "hi"}))
    answer = await told(records, clock=clock)
    assert (answer.status, answer.content) == (200, {"text": "hi"})
    assert 0 < clock.monotonic() < 2


class StillClock(HandClock):
    """Whoever sleeps is not woken."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["note_end", "close"])
async def test_who_waits_is_woken_when_the_run_ends_here_or_everything_does(how: str) -> None:
    records = Records(run())
    answers = RunAnswers(records, StillClock())
    waiting = [asyncio.ensure_future(answers.answer(committed(FIRED), 10)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if how == "note_end":
        answers.note_end("another")
        records.runs["r1"] = run("done", output=1)
        answers.note_end("r1")
    else:
        answers.close()
    found = [await one for one in waiting]
    assert [one.status for one in found] == ([200, 200] if how == "note_end" else [202, 202])
    assert answers._ends == {}


async def test_who_hangs_up_is_not_waited_for() -> None:
    answers = RunAnswers(Records(run()), StillClock())
    waiting = asyncio.ensure_future(answers.answer(committed(FIRED), 10))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert answers._ends == {}


@pytest.mark.parametrize("outcome", ["filtered", "skipped", "before_start", "error"])
async def test_without_a_run_the_verdict_is_the_answer(outcome: Any) -> None:
    answer = await told(Records(), Verdict(trigger="t", outcome=outcome))
    assert answer == RunAnswer(status=202, content={"run": None, "status": outcome})


async def test_a_repeat_is_answered_with_the_run_of_the_first() -> None:
    answer = await told(Records(run("done", output=3), first=event(FIRED)), REPEATED)
    assert (answer.status, answer.content) == (200, 3)


@pytest.mark.parametrize(("first", "status"), [(None, "duplicate"), (event(), "unmatched")])
async def test_a_repeat_of_what_is_gone_or_started_nothing_has_no_run(first: Recorded | None, status: str) -> None:
    answer = await told(Records(first=first), REPEATED)
    assert (answer.status, answer.content) == (202, {"run": None, "status": status})


async def test_what_was_known_and_not_even_committed_is_a_repeat() -> None:
    answer = await RunAnswers(Records(), HandClock()).answer(Committed(event_ids=[], verdicts=[]), 10)
    assert (answer.status, answer.content) == (200, {"run": None, "status": "duplicate"})


async def test_trouble_of_the_store_after_the_commit_is_no_refusal() -> None:
    records = Records(run("done", output=1))

    def fail(look: int) -> None:
        raise StoreUnavailable("the disk is full")

    records.before_look = fail
    answer = await told(records)
    assert (answer.status, answer.content) == (202, {"run": "r1", "status": "unknown"})


@pytest.mark.parametrize(
    ("second", "status"), [("done", 200), ("running", 202), ("cancelled", 409), ("dead", 500), ("failed", 500)]
)
async def test_several_runs_are_listed_and_the_worst_of_them_counts(second: RunState, status: int) -> None:
    records = Records(run("done", output=1), run(second, id="r2", output=2))
    answer = await told(records, FIRED, msgspec.structs.replace(FIRED, run_id="r2"), FIRED)
    assert (answer.status, answer.runs) == (status, ("r1", "r2"))
    assert [one["status"] for one in answer.content["runs"]] == ["done", second]
    assert answer.content["runs"][0] == {"run": "r1", "status": "done", "outputs": 1, "look": LOOK}
