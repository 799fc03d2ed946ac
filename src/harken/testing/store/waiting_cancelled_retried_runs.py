"""The contract of `Runs`: waiting runs, and what people do with runs; joined with claims."""

from __future__ import annotations

import pytest

from harken.errors import NotFound
from harken.runs import BY_HAND, Again, Cancelled, Dead, Failed, Finished, Park, StepRecord
from harken.store import GatherInto, NewRun
from harken.testing.store.claims import ClaimContract, step
from harken.testing.store.watched_run_changes import MovedContract
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["RunsContract"]


def by_hand(key: str = "k", **changes: object) -> NewRun:
    return NewRun(trigger="mail", workflow="triage", workflow_rev="r1", id_key=key, **changes)  # type: ignore[arg-type]


class WaitingRunContract(StoreWorld):
    async def test_a_parked_run_is_claimed_when_its_wait_is_over(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(until=given.now(300)), step())
        assert await given.status(claim.id) == "waiting"
        assert await given.claims() == []
        given.clock.advance(300)
        again = await given.claims_one()
        assert (again.id, again.attempt, again.journal) == (claim.id, 1, (step(),))
        assert again.token > claim.token

    async def test_a_parked_run_is_no_longer_its_workers(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        assert await given.settle(claim) == "lost"

    async def test_a_parked_run_is_not_requeued(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        given.clock.advance(3600)
        assert await given.store.requeue_expired() == 0
        assert await given.status(claim.id) == "waiting"

    async def test_an_answer_wakes_the_run_that_waits_for_it(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval", prompt="Really?"))
        assert (await given.run(claim.id)).waiting_for == "approval"
        assert await given.store.answer(claim.id, {"approved": True})
        assert (await given.claims_one()).answer == {"approved": True}

    async def test_an_answer_counts_once(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        assert [await given.store.answer(claim.id, 1), await given.store.answer(claim.id, 2)] == [True, False]
        assert (await given.claims_one()).answer == 1

    async def test_what_does_not_wait_takes_no_answer(self, given: Given) -> None:
        claim = await given.running()
        assert not await given.store.answer(claim.id, "yes")

    async def test_a_second_approval_needs_a_second_answer(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="first"))
        await given.store.answer(claim.id, "yes")
        again = await given.claims_one()
        await given.store.park(again.id, again.token, Park(waiting_for="second"))
        assert await given.claims() == []
        assert await given.status(claim.id) == "waiting"

    async def test_an_answer_is_there_again_when_its_worker_died(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        await given.store.answer(claim.id, "yes")
        await given.claims_one()
        given.clock.advance(61)
        await given.store.requeue_expired()
        assert (await given.claims_one()).answer == "yes"

    async def test_a_run_that_waits_for_a_sub_run_wakes_when_it_ends(self, given: Given) -> None:
        parent = await given.running()
        child = NewRun(trigger="", workflow="triage", workflow_rev="r1", id_key="sub", parent=parent.id)
        await given.store.journal(parent.id, parent.token, [], start=[child])
        started = await given.claims_one()
        await given.store.park(parent.id, parent.token, Park(waiting_for=f"run:{started.id}"))
        await given.settle(started, Finished(output=7))
        woken = await given.claims_one()
        assert woken.id == parent.id
        assert (woken.answer["run"], woken.answer["status"], woken.answer["output"]) == (started.id, "done", 7)

    async def test_a_sub_run_may_end_before_its_parent_waits(self, given: Given) -> None:
        parent = await given.running()
        child = NewRun(trigger="", workflow="triage", workflow_rev="r1", id_key="sub", parent=parent.id)
        await given.store.journal(parent.id, parent.token, [], start=[child])
        started = await given.claims_one()
        await given.settle(started, Failed(error="no"))
        await given.store.park(parent.id, parent.token, Park(waiting_for=f"run:{started.id}"))
        assert (await given.claims_one()).answer["status"] == "failed"

    async def test_an_approval_with_a_deadline_wakes_by_itself(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(until=given.now(60), waiting_for="approval"))
        given.clock.advance(60)
        assert (await given.claims_one()).answer is None

    async def test_a_waiting_run_survives_a_crash(self, given: Given, reopen: Reopen) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        given.store = await reopen(given.store)
        assert await given.store.answer(claim.id, "yes")


class RunControlContract(StoreWorld):
    async def test_a_run_started_by_hand_is_claimed(self, given: Given) -> None:
        run_id = await given.store.start(by_hand(input=b'{"x":1}', max_attempts=1))
        claim = await given.claims_one()
        assert (claim.id, claim.trigger, claim.input, claim.max_attempts) == (run_id, "mail", {"x": 1}, 1)

    async def test_starting_the_same_again_is_the_same_run(self, given: Given) -> None:
        assert await given.store.start(by_hand()) == await given.store.start(by_hand())
        assert len(await given.claims()) == 1

    async def test_a_replay_is_a_run_of_its_own(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s")))
        first = committed.verdicts[0][0].run_id
        replay = by_hand("replay-1", event_ids=tuple(committed.event_ids), replay_of=first)
        run_id = await given.store.start(replay)
        run = await given.run(run_id)
        assert run_id != first
        assert (run.replay_of, run.event_ids) == (first, tuple(committed.event_ids))
        assert [claim.events[0].subject for claim in await given.claims()] == ["s", "s"]

    async def test_a_run_begins_with_the_steps_that_another_run_has_done(self, given: Given) -> None:
        done = (
            StepRecord(path="look", action="http", status="ok", output={"n": 1}, from_run="a" * 32),
            StepRecord(path="ask", action="llm", status="ok", output="yes", tokens=5, usd=0.5, from_run="a" * 32),
        )
        run_id = await given.store.start(by_hand(journal=done))
        await given.store.start(by_hand(journal=done))
        claim = await given.claims_one()
        assert (claim.id, claim.journal) == (run_id, done)
        more = StepRecord(path="post", action="http", status="ok")
        await given.store.journal(claim.id, claim.token, [more])
        assert (await given.run(run_id)).journal == (*done, more)
        assert await given.store.check() == []

    async def test_a_run_may_be_started_for_later(self, given: Given) -> None:
        await given.store.start(by_hand(due_at=given.now(60)))
        assert await given.claims() == []
        assert await given.store.next_due() == given.now(60)

    async def test_one_held_run_is_released_and_the_others_stay(self, given: Given) -> None:
        first, second = [(await given.fires(name, hold="flood"))[0] for name in ("a", "b")]
        assert await given.store.release_run(second)
        assert (await given.status(first), await given.status(second)) == ("held", "ready")
        assert not await given.store.release_run(second)
        assert (await given.claims_one()).id == second
        with pytest.raises(NotFound):
            await given.store.release_run("0" * 32)
        assert await given.store.check() == []

    async def test_what_has_not_begun_is_cancelled_at_once(self, given: Given) -> None:
        into = GatherInto("k", given.now(60))
        run_ids = [
            *await given.fires("ready"),
            *await given.fires("held", hold="flood"),
            *await given.fires("gathering", gather=into, due_at=into.due_at),
        ]
        assert [await given.store.cancel(run_id) for run_id in run_ids] == [True, True, True]
        assert await given.statuses(run_ids) == ["cancelled", "cancelled", "cancelled"]
        given.clock.advance(61)
        assert await given.claims() == []

    async def test_a_waiting_run_is_cancelled_at_once(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        assert await given.store.cancel(claim.id)
        assert await given.status(claim.id) == "cancelled"

    async def test_what_runs_is_asked_to_stop(self, given: Given) -> None:
        claim = await given.running()
        assert await given.store.cancel(claim.id)
        run = await given.run(claim.id)
        assert (run.status, run.cancel_requested) == ("running", True)
        assert await given.store.extend({claim.id: claim.token}, 60) == {claim.id: "cancel"}

    async def test_a_claim_says_whether_the_run_was_asked_to_stop(self, given: Given) -> None:
        claim = await given.running()
        await given.store.cancel(claim.id)
        given.clock.advance(61)
        await given.store.requeue_expired()
        assert [again.cancel_requested for again in await given.claims()] in ([], [True])

    async def test_what_is_over_cannot_be_cancelled(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim)
        assert not await given.store.cancel(claim.id)
        assert await given.status(claim.id) == "done"

    async def test_what_is_cancelled_before_it_runs_says_why(self, given: Given) -> None:
        into = GatherInto("k", given.now(60))
        [ready], [held] = await given.fires("ready"), await given.fires("held", hold="flood")
        [gathering] = await given.fires("gathering", gather=into, due_at=into.due_at)
        await given.store.cancel(ready, "the label was taken off")
        await given.store.cancel(held, "Über \U0001f600")
        await given.store.cancel(gathering)
        errors = [(await given.run(run_id)).error for run_id in (ready, held, gathering)]
        assert errors == ["the label was taken off", "Über \U0001f600", BY_HAND]

    async def test_a_waiting_run_that_failed_before_is_cancelled_with_the_reason(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Again(at=given.now(), error="no answer"))
        claim = await given.claims_one()
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval"))
        await given.store.cancel(claim.id, "the ticket was closed")
        run = await given.run(claim.id)
        assert (run.status, run.error) == ("cancelled", "the ticket was closed")

    @pytest.mark.parametrize("slot", ["", "k"])
    async def test_what_is_asked_to_stop_ends_with_the_reason_whatever_its_worker_says(
        self, given: Given, slot: str
    ) -> None:
        claim = await given.running(overlap="queue" if slot else "allow", slot=slot)
        await given.store.cancel(claim.id, "the ticket was closed")
        run = await given.run(claim.id)
        assert (run.status, run.error) == ("running", "the ticket was closed")
        await given.settle(claim, Cancelled(reason="asked to stop"), record=step())
        run = await given.run(claim.id)
        assert (run.status, run.error) == ("cancelled", "the ticket was closed")

    async def test_the_first_reason_stays(self, given: Given) -> None:
        claim = await given.running()
        await given.store.cancel(claim.id, "the ticket was closed")
        assert await given.store.cancel(claim.id)
        await given.settle(claim, Cancelled())
        assert (await given.run(claim.id)).error == "the ticket was closed"

    async def test_the_reason_survives_a_worker_that_gives_the_run_back(self, given: Given) -> None:
        claim = await given.running()
        await given.store.cancel(claim.id, "the ticket was closed")
        await given.settle(claim, Again(at=given.now(), error="stopped", counts=False))
        again = await given.claims_one()
        assert again.cancel_requested
        await given.settle(again, Cancelled(reason="asked to stop before it went on"))
        assert (await given.run(claim.id)).error == "the ticket was closed"

    async def test_the_reason_survives_a_worker_that_died(self, given: Given) -> None:
        claim = await given.running()
        await given.store.cancel(claim.id, "the ticket was closed")
        given.clock.advance(61)
        await given.store.requeue_expired()
        await given.settle(await given.claims_one(), Cancelled())
        assert (await given.run(claim.id)).error == "the ticket was closed"

    async def test_what_ends_otherwise_forgets_that_it_was_asked_to_stop(self, given: Given) -> None:
        done, dead = await given.running("a"), await given.running("b")
        for claim in (done, dead):
            await given.store.cancel(claim.id, "the ticket was closed")
        await given.settle(done)
        await given.settle(dead, Dead(error="broken"))
        assert [(await given.run(claim.id)).error for claim in (done, dead)] == ["", "broken"]
        await given.store.retry(dead.id)
        assert (await given.run(dead.id)).error == ""

    async def test_a_run_without_a_reason_from_outside_ends_with_its_own(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Cancelled(reason="it may not begin"))
        assert (await given.run(claim.id)).error == "it may not begin"

    async def test_the_parent_of_a_cancelled_run_is_told_the_reason(self, given: Given) -> None:
        parent = await given.running()
        child = await given.store.start(by_hand("child", parent=parent.id))
        running = await given.claims_one()
        await given.store.park(parent.id, parent.token, Park(waiting_for=f"run:{child}"))
        await given.store.cancel(child, "the ticket was closed")
        await given.settle(running, Cancelled(reason="asked to stop"))
        told = (await given.claims_one()).answer
        assert (told["status"], told["error"]) == ("cancelled", "the ticket was closed")

    async def test_a_dead_run_is_ready_again_with_its_journal(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Dead(error="x"), record=step())
        assert await given.store.retry(claim.id)
        again = await given.claims_one()
        assert (again.id, again.journal, again.workflow_rev) == (claim.id, (step(),), "r1")
        assert (await given.store.dead()).items == []

    async def test_failed_and_cancelled_runs_can_be_retried_too(self, given: Given) -> None:
        failed = await given.running("a")
        await given.settle(failed, Failed(error="x"))
        [cancelled] = await given.fires("b")
        await given.store.cancel(cancelled)
        assert [await given.store.retry(failed.id), await given.store.retry(cancelled)] == [True, True]
        assert {claim.id for claim in await given.claims()} == {failed.id, cancelled}

    async def test_retrying_on_another_revision_starts_the_steps_over(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Dead(error="x"), record=step())
        assert await given.store.retry(claim.id, workflow_rev="r2")
        again = await given.claims_one()
        assert (again.journal, again.workflow_rev) == ((), "r2")

    async def test_what_is_done_or_open_is_not_retried(self, given: Given) -> None:
        claim = await given.running()
        assert not await given.store.retry(claim.id)
        await given.settle(claim)
        assert not await given.store.retry(claim.id)

    async def test_the_same_request_retries_a_run_once(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Dead(error="x"))
        assert await given.store.retry(claim.id, request="one")
        assert await given.store.retry(claim.id, request="one")
        await given.settle(await given.claims_one(), Dead(error="y"))
        assert await given.store.retry(claim.id, request="one")
        assert (await given.run(claim.id)).status == "dead"
        assert await given.store.retry(claim.id, request="two")
        assert (await given.claims_one()).id == claim.id

    async def test_a_request_that_could_not_retry_a_run_may_do_so_later(self, given: Given) -> None:
        claim = await given.running()
        assert not await given.store.retry(claim.id, request="one")
        await given.settle(claim, Dead(error="x"))
        assert await given.store.retry(claim.id, request="one")
        assert (await given.claims_one()).id == claim.id

    async def test_a_retried_run_is_not_asked_to_stop_any_more(self, given: Given) -> None:
        claim = await given.running()
        await given.store.cancel(claim.id)
        await given.settle(claim, Dead(error="x"))
        await given.store.retry(claim.id)
        assert not (await given.claims_one()).cancel_requested

    async def test_a_retried_run_gets_its_tries_back_and_goes_on_counting_them(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Again(at=given.now(), error="x"))
        await given.settle(await given.claims_one(), Dead(error="x"))
        await given.store.retry(claim.id, tries=5)
        again = await given.claims_one()
        assert (again.attempt, again.max_attempts) == (3, 7)
        await given.settle(again, Dead(error="x"))
        await given.store.retry(claim.id, tries=5)
        assert ((await given.claims_one()).attempt, (await given.run(claim.id)).attempt) == (4, 4)

    async def test_a_run_that_never_began_is_at_its_first_try_when_it_is_retried(self, given: Given) -> None:
        [run_id] = await given.fires("a")
        await given.store.cancel(run_id)
        await given.store.retry(run_id, tries=2)
        again = await given.claims_one()
        assert (again.attempt, again.max_attempts) == (1, 2)

    async def test_a_page_of_runs_has_journals_when_they_are_asked_for(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, record=step(input={"who": "Ada"}, retries=2))
        [without], [with_them] = (await given.store.runs()).items, (await given.store.runs(journals=True)).items
        assert (without.journal, with_them.journal) == ((), (step(input={"who": "Ada"}, retries=2),))

    async def test_a_dropped_dead_letter_is_cancelled(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Dead(error="x"))
        assert await given.store.drop_dead_letter(claim.id)
        assert await given.status(claim.id) == "cancelled"
        assert (await given.store.dead()).items == []

    async def test_only_a_dead_letter_can_be_dropped(self, given: Given) -> None:
        [run_id] = await given.fires("s")
        assert not await given.store.drop_dead_letter(run_id)
        assert await given.status(run_id) == "ready"


class RunsContract(ClaimContract, WaitingRunContract, RunControlContract, MovedContract):
    """Subclass it with the fixtures `store` and `reopen`."""
