"""The contract of claims: claim, extend, journal and settle."""

from __future__ import annotations

import pytest

from harken.errors import LeaseLost
from harken.event import Event
from harken.feed import INTERNAL
from harken.runs import Again, Cancelled, Claimed, Dead, Failed, Finished, Park, StepRecord
from harken.store import Commit, Entry, NewRun, Settlement, Stale
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["ClaimContract", "step"]


def step(path: str = "triage", **changes: object) -> StepRecord:
    return StepRecord(path=path, action="transform", status="ok", output={"of": path}, **changes)  # type: ignore[arg-type]


def caused(given: Given, subject: str, revision: int | None = None) -> Commit:
    event = Event(subject=subject, key=subject, type="harken.emit", data={"said": subject})
    current = given.opened.feeds[INTERNAL].revision
    return Commit(
        feed=INTERNAL,
        revision=current if revision is None else revision,
        entries=[Entry(event=event, memory_id=subject)],
    )


async def taken_over(given: Given) -> tuple[Claimed, Claimed]:
    """An expired claim, and the claim of the worker that has the run now."""
    late = await given.running()
    given.clock.advance(61)
    await given.store.requeue_expired()
    return late, await given.claims_one("w2")


class ClaimContract(StoreWorld):
    async def test_a_claim_has_all_that_the_run_needs(self, given: Given) -> None:
        [run_id] = await given.fires("s", input=b'{"title":"hi"}', max_attempts=5)
        claim = await given.claims_one()
        assert (claim.id, claim.trigger, claim.workflow_rev) == (run_id, "mail", "r1")
        assert (claim.attempt, claim.max_attempts, claim.input) == (1, 5, {"title": "hi"})
        assert [event.data for event in claim.events] == [{"id": "s"}]
        assert (await given.run(run_id)).status == "running"
        assert (await given.run(run_id)).started_at == given.now()

    async def test_a_run_without_input_takes_its_event(self, given: Given) -> None:
        assert (await given.running()).input is None

    async def test_a_run_is_claimed_once(self, given: Given) -> None:
        await given.fires("s")
        assert len(await given.claims(holder="w1")) == 1
        assert await given.claims(holder="w2") == []

    async def test_no_more_than_the_limit_is_claimed(self, given: Given) -> None:
        await given.fires(*"abc")
        assert [len(await given.claims(2)), len(await given.claims(2))] == [2, 1]

    async def test_higher_priority_first_then_earlier_due_then_older(self, given: Given) -> None:
        [late] = await given.fires("late", due_at=given.now(-1))
        [early] = await given.fires("early", due_at=given.now(-2))
        [tied] = await given.fires("tied", due_at=given.now(-2))
        [urgent] = await given.fires("urgent", priority=5)
        assert [claim.id for claim in await given.claims()] == [urgent, early, tied, late]

    async def test_a_run_due_later_is_claimed_later(self, given: Given) -> None:
        [run_id] = await given.fires("s", due_at=given.now(30))
        assert await given.claims() == []
        given.clock.advance(30)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_next_due_is_when_the_next_run_wakes(self, given: Given) -> None:
        assert await given.store.next_due() is None
        await given.fires("s", due_at=given.now(30))
        await given.fires("t", due_at=given.now(20))
        assert await given.store.next_due() == given.now(20)

    async def test_next_due_knows_of_parked_runs(self, given: Given) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(until=given.now(300)))
        assert await given.store.next_due() == given.now(300)

    async def test_tokens_rise_with_every_claim_of_a_run(self, given: Given) -> None:
        late, current = await taken_over(given)
        assert current.token > late.token

    async def test_a_journal_is_there_for_who_claims_next(self, given: Given) -> None:
        claim = await given.running()
        await given.store.journal(claim.id, claim.token, [step("one"), step("two")])
        await given.store.journal(claim.id, claim.token, [step("three")])
        given.clock.advance(61)
        await given.store.requeue_expired()
        again = await given.claims_one("w2")
        assert [record.path for record in again.journal] == ["one", "two", "three"]
        assert again.journal[0] == step("one")

    async def test_a_record_whose_write_was_not_answered_and_made_again_is_stored_once(self, given: Given) -> None:
        claim = await given.running()
        await given.store.journal(claim.id, claim.token, [step("one"), step("two")])
        await given.store.journal(claim.id, claim.token, [step("one"), step("two")])
        await given.store.journal(claim.id, claim.token, [step("two", attempt=2)])
        expected = (step("one"), step("two"), step("two", attempt=2))
        assert (await given.run(claim.id)).journal == expected
        given.clock.advance(61)
        await given.store.requeue_expired()
        assert (await given.claims_one("w2")).journal == expected

    async def test_a_late_writer_has_lost_and_its_journal_is_not_stored(self, given: Given) -> None:
        late, current = await taken_over(given)
        with pytest.raises(LeaseLost):
            await given.store.journal(late.id, late.token, [step("late")], caused=[caused(given, "said")])
        assert (await given.run(current.id)).journal == ()
        assert await given.subjects(feed=INTERNAL) == []

    async def test_a_requeued_run_refuses_its_old_claim_before_anyone_has_it(self, given: Given) -> None:
        late = await given.running()
        given.clock.advance(61)
        await given.store.requeue_expired()
        with pytest.raises(LeaseLost):
            await given.store.journal(late.id, late.token, [step("late")])

    async def test_a_late_settlement_is_lost(self, given: Given) -> None:
        late, current = await taken_over(given)
        assert await given.settle(late, Failed(error="late"), record=step("late")) == "lost"
        run = await given.run(current.id)
        assert (run.status, run.journal) == ("running", ())

    async def test_a_late_park_is_lost(self, given: Given) -> None:
        late, current = await taken_over(given)
        with pytest.raises(LeaseLost):
            await given.store.park(late.id, late.token, Park(waiting_for="approval"))
        assert await given.status(current.id) == "running"

    async def test_extending_a_lost_claim_says_so_and_keeps_the_others(self, given: Given) -> None:
        late, current = await taken_over(given)
        await given.renew()
        mine = await given.running("mine")
        assert await given.store.extend({late.id: late.token, mine.id: mine.token}, 60) == {
            late.id: "lost",
            mine.id: "kept",
        }
        assert await given.store.extend({current.id: current.token}, 60) == {current.id: "kept"}

    async def test_an_extended_claim_is_not_requeued(self, given: Given) -> None:
        claim = await given.running()
        given.clock.advance(50)
        await given.store.extend({claim.id: claim.token}, 60)
        given.clock.advance(50)
        assert await given.store.requeue_expired() == 0
        assert await given.status(claim.id) == "running"

    async def test_steps_and_the_events_they_cause_are_stored_together(self, given: Given) -> None:
        claim = await given.running()
        assert await given.store.journal(claim.id, claim.token, [step()], caused=[caused(given, "said")]) is None
        assert await given.subjects(feed=INTERNAL) == ["said"]
        assert (await given.run(claim.id)).journal == (step(),)

    async def test_a_stale_cause_stores_neither_step_nor_event(self, given: Given) -> None:
        claim = await given.running()
        stale = caused(given, "said", revision=given.opened.feeds[INTERNAL].revision - 1)
        answer = await given.store.journal(claim.id, claim.token, [step()], caused=[caused(given, "first"), stale])
        assert answer == Stale(given.opened.feeds[INTERNAL].revision)
        assert await given.subjects(feed=INTERNAL) == []
        assert (await given.run(claim.id)).journal == ()

    async def test_a_step_may_start_a_sub_run(self, given: Given) -> None:
        claim = await given.running()
        child = NewRun(trigger="", workflow="triage", workflow_rev="r1", id_key=f"{claim.id}/sub", parent=claim.id)
        await given.store.journal(claim.id, claim.token, [step()], start=[child])
        await given.store.journal(claim.id, claim.token, [step("again")], start=[child])
        assert [started.parent for started in await given.claims()] == [claim.id]

    async def test_finished_is_done_with_its_output(self, given: Given) -> None:
        claim = await given.running()
        given.clock.advance(5)
        assert await given.settle(claim, Finished(output={"ok": 1}), record=step()) == "settled"
        run = await given.run(claim.id)
        assert (run.status, run.output, run.finished_at, run.journal) == ("done", {"ok": 1}, given.now(), (step(),))

    async def test_failed_is_over(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Failed(error="the workflow said so"))
        run = await given.run(claim.id)
        assert (run.status, run.error) == ("failed", "the workflow said so")
        assert await given.claims() == []

    async def test_again_is_claimed_at_its_time_with_the_next_attempt_and_the_journal(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Again(at=given.now(30), error="503"), record=step())
        assert await given.claims() == []
        assert (await given.run(claim.id)).error == "503"
        given.clock.advance(30)
        again = await given.claims_one()
        assert (again.id, again.attempt, again.journal) == (claim.id, 2, (step(),))

    async def test_a_stop_of_ours_does_not_count_as_a_try(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Again(at=given.now(), error="stopping", counts=False))
        assert (await given.claims_one()).attempt == 1

    async def test_dead_is_a_dead_letter(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Dead(error="hopeless"))
        [buried] = (await given.store.dead()).items
        assert (buried.id, buried.what, buried.trigger, buried.reason) == (claim.id, "run", "mail", "hopeless")
        assert await given.status(claim.id) == "dead"

    async def test_cancelled_is_over(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Cancelled(reason="asked"))
        assert await given.status(claim.id) == "cancelled"

    async def test_settling_twice_is_lost_the_second_time(self, given: Given) -> None:
        claim = await given.running()
        assert [await given.settle(claim), await given.settle(claim, Failed(error="x"))] == ["settled", "lost"]
        assert await given.status(claim.id) == "done"

    async def test_one_lost_settlement_does_not_hinder_the_others(self, given: Given) -> None:
        await given.fires("a", "b", "c")
        one, two, three = await given.claims()
        stale = caused(given, "said", revision=given.opened.feeds[INTERNAL].revision - 1)
        answers = await given.store.settle(
            [
                Settlement(id=one.id, token=one.token + 7, outcome=Finished()),
                Settlement(id=two.id, token=two.token, outcome=Finished(), caused=(stale,)),
                Settlement(id=three.id, token=three.token, outcome=Finished(), caused=(caused(given, "done"),)),
            ]
        )
        assert list(answers) == ["lost", Stale(given.opened.feeds[INTERNAL].revision), "settled"]
        assert await given.statuses([one.id, two.id, three.id]) == ["running", "running", "done"]
        assert await given.subjects(feed=INTERNAL) == ["done"]

    async def test_a_settlement_survives_a_crash(self, given: Given, reopen: Reopen) -> None:
        claim = await given.running()
        await given.settle(claim, Finished(output=7), record=step())
        given.store = await reopen(given.store)
        run = await given.run(claim.id)
        assert (run.status, run.output, run.journal) == ("done", 7, (step(),))
