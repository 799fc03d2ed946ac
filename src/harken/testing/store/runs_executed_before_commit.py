"""The contract of runs that were executed before their commit: they are over with it, or are runs like any other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from harken.event import Verdict
from harken.runs import StepRecord
from harken.store import EarlyEnd, GatherInto, RateLimit, Stale
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["EarlyEndContract"]

STEPS = tuple(StepRecord(path=name, action="transform", status="ok", output={"n": name}) for name in ("a", "b"))
END = EarlyEnd(output=b'{"sum":7}', records=tuple(map(msgspec.json.encode, STEPS)))


async def counted(given: Given, trigger: str = "mail") -> tuple[int, int]:
    """How many runs of the trigger have fired, and how many are done."""
    [state] = [state for state in await given.store.triggers() if state.name == trigger]
    return state.fired, state.done


class EarlyEndContract(StoreWorld):
    async def test_a_run_with_an_end_is_done_with_its_commit(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s", end=END, reason="because")))
        [verdict] = committed.verdicts[0]
        run = await given.run(verdict.run_id)
        assert verdict == Verdict(trigger="mail", outcome="fired", reason="because", run_id=run.id)
        assert (run.status, run.output, run.journal, run.error) == ("done", {"sum": 7}, STEPS, "")
        assert (run.created_at, run.started_at, run.finished_at) == (given.now(),) * 3
        assert (run.attempt, run.event_ids, run.due_at) == (1, tuple(committed.event_ids), given.now())
        assert (await given.store.counts())["runs_done"] == 1

    async def test_it_is_told_with_its_event_and_its_end(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s", input=b'{"x":1}', end=END)))
        [(claim, end)] = committed.over
        assert (claim.id, end) == (committed.verdicts[0][0].run_id, END)
        assert (claim.trigger, claim.workflow_rev, claim.input) == ("mail", "r1", {"x": 1})
        assert [(event.id, event.subject, event.feed) for event in claim.events] == [
            (committed.event_ids[0], "s", "inbox")
        ]
        assert (await given.run(claim.id)).input == {"x": 1}

    async def test_nobody_claims_it(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s", end=END)), claim=5, holder="w")
        assert list(committed.claimed) == []
        assert await given.claims() == []
        assert await given.store.next_due() is None
        [(claim, _)] = committed.over
        assert await given.settle(claim) == "lost"
        given.clock.advance(3600)
        assert await given.store.requeue_expired() == 0
        assert await given.status(claim.id) == "done"

    async def test_a_run_without_output_and_steps_has_none(self, given: Given) -> None:
        [run_id] = await given.fires("s", end=EarlyEnd())
        run = await given.run(run_id)
        assert (run.status, run.output, run.journal) == ("done", None, ())

    async def test_it_is_counted_as_fired_and_as_done(self, given: Given) -> None:
        await given.fires("a", "b", end=END)
        await given.fires("c", end=EarlyEnd(filtered=True))
        assert await counted(given) == (3, 2)
        [state] = [state for state in await given.store.triggers() if state.name == "mail"]
        assert state.last_fired_at == given.now()

    async def test_a_stale_page_counts_nothing(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        moved = given.entry("s", given.intent("s2"), state="closed", expect=7, seq=8)
        page = given.page(given.entry("a", given.intent("a", end=END)), moved)
        assert await given.store.commit(page) == Stale(given.revision)
        await given.fires("c", end=END)
        assert await counted(given) == (1, 1)

    async def test_it_survives_a_crash(self, given: Given, reopen: Reopen) -> None:
        [run_id] = await given.fires("s", end=END)
        store = await reopen(given.store)
        run = await store.run(run_id)
        assert run is not None
        assert (run.status, run.output, run.journal) == ("done", {"sum": 7}, STEPS)
        assert await store.claim("w", 10, 60) == []
        assert await store.check() == []

    async def test_the_same_occurrence_is_over_only_once(self, given: Given) -> None:
        [run_id] = await given.fires("s", end=END)
        # another event of the same run key: the run's id is the second net behind the memory
        other = await given.commit(given.entry("t", given.intent("s", end=END)))
        assert (other.verdicts[0][0].outcome, other.verdicts[0][0].run_id) == ("duplicate", run_id)
        repeated = await given.commit(given.entry("s", given.intent("s", end=END)))
        assert (repeated.verdicts[0][0].outcome, repeated.verdicts[0][0].run_id) == ("duplicate", run_id)
        assert [*other.over, *repeated.over] == []
        assert (await given.run(run_id)).journal == STEPS
        assert await counted(given) == (1, 1)

    async def test_the_other_runs_of_a_page_are_handed_over(self, given: Given) -> None:
        both = given.entry("s", given.intent("s", end=END), given.intent("s", trigger="other"))
        committed = await given.commit(both, given.entry("t", given.intent("t")), claim=1, holder="w")
        ids = [verdict.run_id for verdicts in committed.verdicts for verdict in verdicts]
        assert await given.statuses(ids) == ["done", "running", "ready"]
        assert [claim.id for claim in committed.claimed] == [ids[1]]
        assert [claim.id for claim, _ in committed.over] == [ids[0]]

    async def test_a_long_page_is_over_as_a_whole(self, given: Given) -> None:
        names = [f"s{number}" for number in range(450)]
        committed = await given.commit(*(given.entry(name, given.intent(name, end=END)) for name in names))
        assert [claim.events[0].subject for claim, _ in committed.over] == names
        assert (await given.store.counts())["runs_done"] == 450
        assert await counted(given) == (450, 450)

    @pytest.mark.parametrize(
        ("intent", "status"),
        [
            (lambda now: {"hold": "paused"}, "held"),
            (lambda now: {"slot": "k", "overlap": "queue"}, "ready"),
            (lambda now: {"watched": True}, "ready"),
            (lambda now: {"due_at": now(60)}, "ready"),
            (lambda now: {"gather": GatherInto("k", now(60))}, "gathering"),
        ],
    )
    async def test_a_run_that_may_not_start_at_once_is_one_like_any_other(
        self, given: Given, intent: Callable[[Callable[[float], datetime]], dict[str, Any]], status: str
    ) -> None:
        committed = await given.commit(given.entry("s", given.intent("s", end=END, **intent(given.now))))
        run = await given.run(committed.verdicts[0][0].run_id)
        assert (run.status, run.output, run.journal, run.finished_at) == (status, None, (), None)
        assert list(committed.over) == []

    async def test_what_waits_is_executed_when_it_is_claimed(self, given: Given) -> None:
        [run_id] = await given.fires("s", due_at=given.now(60), end=END)
        given.clock.advance(60)
        claim = await given.claims_one()
        assert (claim.id, claim.journal, claim.attempt) == (run_id, (), 1)
        assert await given.settle(claim) == "settled"

    async def test_a_throttle_delays_it(self, given: Given) -> None:
        rate = RateLimit("k", 1, 60)
        run_ids = await given.fires("a", "b", rate=rate, end=END)
        assert await given.statuses(run_ids) == ["done", "ready"]

    async def test_a_stored_event_that_is_decided_again_starts_a_normal_run(self, given: Given) -> None:
        early = Verdict(trigger="mail", outcome="before_start", reason="early")
        [event_id] = (await given.commit(given.entry("s", early))).event_ids
        again = given.entry("s", given.intent("s", end=END), memory_id="", again=event_id)
        committed = await given.commit(again)
        assert await given.status(committed.verdicts[0][0].run_id) == "ready"
        assert list(committed.over) == []

    async def test_it_is_deleted_when_it_is_old(self, given: Given) -> None:
        [run_id] = await given.fires("s", end=END)
        given.clock.advance(100)
        while await given.store.prune(events=10, ticks=10, runs=10, pushed=10, audit=10):
            pass
        assert await given.store.run(run_id) is None
        assert await given.store.check() == []
