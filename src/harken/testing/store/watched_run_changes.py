"""The contract of watched runs: whoever asks is told each change of their state until it was dealt with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from harken.event import Verdict
from harken.feed import Budget
from harken.runs import Again, Cancelled, Dead, Failed, Finished, Park
from harken.store import GatherInto, MovedRun, NewRun
from harken.testing.store.world import Given, Reopen, StoreWorld, definitions, trigger

__all__ = ["MovedContract"]

DAY = 86_400.0


async def dealt_with(given: Given) -> list[MovedRun]:
    """All runs that have moved, given back."""
    moved = list(await given.store.moved_runs())
    assert await given.store.moved_runs({run.id: run.seen for run in moved}) == []
    return moved


async def states(given: Given) -> list[str]:
    """The states of the runs that have moved, which are then dealt with."""
    return [run.status for run in await dealt_with(given)]


def ids(runs: Sequence[MovedRun]) -> list[str]:
    return [run.id for run in runs]


async def fires(given: Given, *subjects: str, **intent: Any) -> list[str]:
    return await given.fires(*subjects, watched=True, **intent)


async def running(given: Given) -> Any:
    await fires(given, "s")
    claim = await given.claims_one()
    await dealt_with(given)
    return claim


class MovedContract(StoreWorld):
    async def test_a_watched_run_is_told_with_what_it_is(self, given: Given) -> None:
        [run_id] = await fires(given, "s")
        [moved] = await given.store.moved_runs()
        told = (moved.id, moved.trigger, moved.subject, moved.status, moved.since)
        assert told == (run_id, "mail", "s", "ready", given.now())

    async def test_runs_that_nobody_watches_are_not_told(self, given: Given) -> None:
        claim = await given.running()
        await given.store.start(NewRun(trigger="mail", workflow_rev="r1", id_key="by hand"))
        await given.settle(claim)
        assert await given.store.moved_runs() == []

    async def test_it_comes_again_until_it_is_given_back(self, given: Given) -> None:
        await fires(given, "s")
        first = await given.store.moved_runs()
        assert await given.store.moved_runs() == first
        assert await given.store.moved_runs({first[0].id: first[0].seen}) == []
        assert await given.store.moved_runs() == []

    async def test_what_moved_before_it_was_given_back_comes_again(self, given: Given) -> None:
        await fires(given, "s")
        [before] = await given.store.moved_runs()
        await given.claims_one()
        [after] = await given.store.moved_runs({before.id: before.seen})
        assert (after.id, after.status) == (before.id, "running")
        assert after.seen != before.seen

    async def test_a_number_that_is_given_back_late_changes_nothing(self, given: Given) -> None:
        await fires(given, "s")
        [before] = await given.store.moved_runs()
        await given.claims_one()
        await dealt_with(given)
        assert await given.store.moved_runs({before.id: before.seen}) == []

    async def test_unknown_runs_are_passed_over(self, given: Given) -> None:
        await fires(given, "s")
        assert len(await given.store.moved_runs({"00" * 16: 4, "no id": 1})) == 1

    async def test_giving_back_a_run_that_nobody_watches_changes_nothing(self, given: Given) -> None:
        claim = await given.running()
        assert await given.store.moved_runs({claim.id: claim.token * 16 + 4}) == []
        await given.settle(claim)
        assert await given.store.moved_runs() == []

    @pytest.mark.parametrize(
        ("outcome", "status"),
        [
            (Finished(), "done"),
            (Finished(output={"a": 1}), "done"),
            (Failed(error="no"), "failed"),
            (Dead(error="no"), "dead"),
            (Cancelled(reason="enough"), "cancelled"),
        ],
    )
    async def test_each_end_is_told(self, given: Given, outcome: Any, status: str) -> None:
        claim = await running(given)
        given.clock.advance(7)
        await given.settle(claim, outcome)
        [moved] = await dealt_with(given)
        assert (moved.status, moved.since) == (status, given.now())

    async def test_a_run_that_its_commit_hands_over_is_told(self, given: Given) -> None:
        entry = given.entry("s", given.intent("s", watched=True))
        [claim] = (await given.commit(entry, claim=1, holder="w")).claimed
        assert await states(given) == ["running"]
        await given.settle(claim)
        assert await states(given) == ["done"]

    async def test_each_attempt_is_told(self, given: Given) -> None:
        claim = await running(given)
        for _ in range(2):
            given.clock.advance(1)
            await given.settle(claim, Again(at=given.now(), error="busy"))
            [ready] = await dealt_with(given)
            assert (ready.status, ready.since) == ("ready", given.now())
            given.clock.advance(1)
            claim = await given.claims_one()
            [again] = await dealt_with(given)
            assert (again.status, again.since) == ("running", given.now())

    async def test_waiting_and_its_answer_are_told(self, given: Given) -> None:
        claim = await running(given)
        given.clock.advance(1)
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        [waiting] = await dealt_with(given)
        assert (waiting.status, waiting.since) == ("waiting", given.now())
        given.clock.advance(1)
        await given.store.answer(claim.id, {"approved": True})
        [ready] = await dealt_with(given)
        assert (ready.status, ready.since) == ("ready", given.now())

    async def test_the_end_of_a_wait_is_told(self, given: Given) -> None:
        claim = await running(given)
        await given.store.park(claim.id, claim.token, Park(until=given.now(300)))
        assert await states(given) == ["waiting"]
        given.clock.advance(300)
        await given.claims_one()
        [moved] = await dealt_with(given)
        assert (moved.status, moved.since) == ("running", given.now())

    async def test_the_next_run_of_a_slot_is_told(self, given: Given) -> None:
        [_, second] = await fires(given, "a", "b", overlap="queue", slot="k")
        claim = await given.claims_one()
        assert await states(given) == ["running", "blocked"]
        given.clock.advance(5)
        await given.settle(claim)
        done, ready = await dealt_with(given)
        assert (done.status, ready.id, ready.status, ready.since) == ("done", second, "ready", given.now())

    async def test_a_run_that_is_replaced_is_told(self, given: Given) -> None:
        await fires(given, "a", overlap="cancel_previous", slot="k")
        await dealt_with(given)
        await fires(given, "b", overlap="cancel_previous", slot="k")
        assert await states(given) == ["cancelled", "ready"]

    async def test_cancelling_is_told_and_asking_to_stop_is_not(self, given: Given) -> None:
        claim = await running(given)
        await given.store.cancel(claim.id)
        assert await states(given) == []
        await given.settle(claim, Cancelled(reason="asked"))
        assert await states(given) == ["cancelled"]
        [waiting] = await fires(given, "late", due_at=given.now(60))
        assert await states(given) == ["ready"]
        await given.store.cancel(waiting)
        assert await states(given) == ["cancelled"]

    async def test_a_retried_run_stays_watched(self, given: Given) -> None:
        claim = await running(given)
        await given.settle(claim, Dead(error="no"))
        assert await states(given) == ["dead"]
        given.clock.advance(30)
        await given.store.retry(claim.id)
        [moved] = await dealt_with(given)
        assert (moved.status, moved.since) == ("ready", given.now())
        await given.settle(await given.claims_one())
        assert await states(given) == ["done"]

    async def test_a_dropped_dead_letter_is_told(self, given: Given) -> None:
        claim = await running(given)
        await given.settle(claim, Dead(error="no"))
        await dealt_with(given)
        given.clock.advance(30)
        await given.store.drop_dead_letter(claim.id)
        [moved] = await dealt_with(given)
        assert (moved.status, moved.since) == ("cancelled", given.now())

    async def test_held_runs_are_told_when_they_are_released_or_dropped(self, given: Given) -> None:
        await fires(given, "a", hold="flood")
        assert await states(given) == ["held"]
        given.clock.advance(30)
        await given.store.release("mail")
        [moved] = await dealt_with(given)
        assert (moved.status, moved.since) == ("ready", given.now())
        await fires(given, "b", hold="flood")
        await dealt_with(given)
        await given.store.release("mail", drop=True)
        assert await states(given) == ["cancelled"]

    async def test_a_run_that_its_budget_holds_is_told(self, given: Given) -> None:
        thrifty = trigger("mail", budget=Budget(runs_per_hour=1))
        await given.open(definitions(triggers=(thrifty, trigger("other")), generation="g2"))
        await given.refresh()
        await fires(given, "a", "b", due_at=given.now(1))
        assert await states(given) == ["ready", "ready"]
        given.clock.advance(1)
        await given.claims()
        assert await states(given) == ["running", "held"]
        given.clock.advance(3600)
        await given.claims()
        assert "running" in await states(given)

    async def test_a_run_whose_worker_died_is_told(self, given: Given) -> None:
        await running(given)
        given.clock.advance(61)
        await given.store.requeue_expired()
        [moved] = await dealt_with(given)
        assert (moved.status, moved.since) == ("ready", given.now())

    async def test_a_gathering_run_is_told_with_its_first_event(self, given: Given) -> None:
        into = GatherInto("k", given.now(60))
        for subject in "ab":
            await fires(given, subject, gather=into, due_at=into.due_at)
        [moved] = await dealt_with(given)
        assert (moved.status, moved.subject) == ("gathering", "a")
        given.clock.advance(60)
        await given.claims_one()
        assert await states(given) == ["running"]

    async def test_a_gathering_run_is_watched_from_the_first_event_that_asks_for_it(self, given: Given) -> None:
        into = GatherInto("k", given.now(60))
        await given.fires("a", gather=into, due_at=into.due_at)
        assert await given.store.moved_runs() == []
        await fires(given, "b", gather=into, due_at=into.due_at)
        assert await states(given) == ["gathering"]
        await fires(given, "c", gather=into, due_at=into.due_at)
        assert await states(given) == []

    async def test_a_run_by_hand_is_watched_where_its_caller_wants_it(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", Verdict(trigger="mail", outcome="filtered", reason="no")))
        new = NewRun(trigger="mail", workflow_rev="r1", id_key="k", event_ids=tuple(committed.event_ids), watched=True)
        run_id = await given.store.start(new)
        [moved] = await dealt_with(given)
        assert (moved.id, moved.subject, moved.status) == (run_id, "s", "ready")
        await given.store.start(new)
        assert await states(given) == []

    async def test_a_watched_sub_run_of_a_journal_is_told(self, given: Given) -> None:
        parent = await given.running()
        child = NewRun(trigger="", workflow="triage", workflow_rev="r1", id_key="sub", parent=parent.id, watched=True)
        await given.store.journal(parent.id, parent.token, [], start=[child])
        [moved] = await dealt_with(given)
        assert (moved.trigger, moved.subject, moved.status) == ("", "", "ready")

    async def test_of_many_all_come_although_none_is_given_back(self, given: Given) -> None:
        run_ids = await fires(given, *(f"s{number:02}" for number in range(25)))
        turns = [ids(await given.store.moved_runs(limit=10)) for _ in range(5)]
        assert [len(turn) for turn in turns] == [10] * 5
        assert set(turns[0] + turns[1] + turns[2]) == set(run_ids)
        assert all(len(set(turn)) == 10 for turn in turns)

    async def test_what_cannot_be_dealt_with_does_not_hide_the_rest(self, given: Given) -> None:
        stuck = await fires(given, *(f"stuck{number}" for number in range(5)))
        others = await fires(given, *(f"s{number}" for number in range(7)))
        told: set[str] = set()
        seen: dict[str, int] = {}
        for _ in range(6):
            moved = await given.store.moved_runs(seen, limit=3)
            seen = {run.id: run.seen for run in moved if run.id not in stuck}
            told |= seen.keys()
        assert told == set(others)
        assert set(ids(await given.store.moved_runs(seen))) == set(stuck)

    async def test_what_was_not_dealt_with_survives_a_crash(self, given: Given, reopen: Reopen) -> None:
        run_ids = await fires(given, "a", "b")
        first, _ = await given.store.moved_runs()
        await given.store.moved_runs({first.id: first.seen})
        given.store = await reopen(given.store)
        assert ids(await given.store.moved_runs()) == run_ids[1:]

    async def test_whoever_dies_before_giving_back_is_told_again(self, given: Given, reopen: Reopen) -> None:
        await fires(given, "s")
        before = await given.store.moved_runs()
        given.store = await reopen(given.store)
        assert await given.store.moved_runs() == before

    async def test_moves_of_many_at_once_are_all_told(self, given: Given) -> None:
        """Workers claim and settle while another reads and gives back: what it saw last is how each run ended."""
        subjects = [f"s{number:02}" for number in range(60)]
        last: dict[str, str] = {}

        async def works(holder: str) -> None:
            while claims := await given.claims(3, holder):
                for claim in claims:
                    await given.settle(claim, Dead(error="no") if claim.events[0].subject < "s30" else None)

        async def looks() -> bool:
            moved = await given.store.moved_runs(limit=20)
            last.update((run.subject, run.status) for run in moved)
            await given.store.moved_runs({run.id: run.seen for run in moved}, limit=1)
            # a store that answers without waiting would let nobody else work
            await asyncio.sleep(0)
            return bool(moved)

        async def watches() -> None:
            while len(last) < len(subjects) or not {*last.values()} <= {"done", "dead"}:
                await looks()

        for begin in range(0, 60, 10):
            await fires(given, *subjects[begin : begin + 10])
        async with asyncio.timeout(120):
            await asyncio.gather(watches(), *(works(holder) for holder in "abc"))
            while await looks():
                pass
        assert last == {subject: "dead" if subject < "s30" else "done" for subject in subjects}

    async def test_a_deleted_run_is_no_longer_told(self, given: Given) -> None:
        claim = await running(given)
        await given.settle(claim)
        given.clock.advance(40 * DAY)
        while await given.store.prune(events=DAY, ticks=DAY, runs=DAY, pushed=DAY, audit=DAY):
            pass
        assert await given.store.run(claim.id) is None
        assert await given.store.moved_runs() == []
        assert await given.store.check() == []

    async def test_a_run_whose_event_is_gone_is_told_without_its_subject(self, given: Given) -> None:
        claim = await running(given)
        await given.settle(claim)
        given.clock.advance(2 * DAY)
        while await given.store.prune(events=DAY, ticks=DAY, runs=9 * DAY, pushed=DAY, audit=DAY):
            pass
        [moved] = await given.store.moved_runs()
        assert (moved.id, moved.subject, moved.status) == (claim.id, "", "done")
