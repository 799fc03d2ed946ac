"""The contract of budgets: which runs are held, and when they are released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from harken.feed import Budget
from harken.runs import Again, Claimed, Dead, Finished, StepRecord
from harken.store import EarlyEnd, GatherInto, NewRun, Store
from harken.testing.clock import HandClock
from harken.testing.store.world import MAIL, OTHER, Given, Reopen, StoreWorld, definitions

__all__ = ["BudgetContract"]

HOUR, DAY = 3600.0, 86_400.0
WINDOW = 60.0


def spending(budget: Budget) -> Any:
    return definitions(triggers=(msgspec.structs.replace(MAIL, budget=budget), OTHER))


def answered(path: str = "ask", tokens: int = 60, usd: float = 0.0) -> StepRecord:
    return StepRecord(path=path, action="llm", status="ok", tokens=tokens, usd=usd)


class BudgetContract(StoreWorld):
    """The trigger `mail` has a budget of two runs per hour, 100 tokens and one dollar per day. It is 09:00."""

    @pytest.fixture
    async def given(self, store: Store, clock: HandClock) -> Given:
        opened = await store.open(spending(Budget(runs_per_hour=2, tokens_per_day=100, usd_per_day=1.0)))
        lease = await store.lease(0, "a", 30 * DAY)
        assert lease is not None
        return Given(store, clock, opened, lease)

    async def test_a_burst_in_one_commit_starts_no_more_than_the_hour_allows(self, given: Given) -> None:
        run_ids = await given.fires(*"abcd")
        assert [claim.id for claim in await given.claims()] == run_ids[:2]
        assert await given.claims() == []
        assert [(await given.run(run_id)).hold for run_id in run_ids] == ["", "", "budget", "budget"]

    async def test_runs_that_a_commit_hands_over_count_too(self, given: Given) -> None:
        entries = [given.entry(name, given.intent(name)) for name in "abc"]
        committed = await given.commit(*entries, claim=3, holder="w")
        assert len(committed.claimed) == 2
        assert [verdicts[0].outcome for verdicts in committed.verdicts] == ["fired", "fired", "held"]
        assert "budget" in committed.verdicts[2][0].reason
        assert await given.claims() == []

    async def test_runs_that_are_over_with_their_commit_count_too(self, given: Given) -> None:
        committed = await given.commit(*(given.entry(name, given.intent(name, end=EarlyEnd())) for name in "abc"))
        assert [verdicts[0].outcome for verdicts in committed.verdicts] == ["fired", "fired", "held"]
        run_ids = [verdicts[0].run_id for verdicts in committed.verdicts]
        assert await given.statuses(run_ids) == ["done", "done", "held"]
        assert [claim.id for claim, _ in committed.over] == run_ids[:2]
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == run_ids[2:]

    async def test_two_workers_share_one_budget(self, given: Given) -> None:
        await given.fires(*"abcd")
        assert [len(await given.claims(1, holder)) for holder in ("w1", "w2", "w1", "w2")] == [1, 1, 0, 0]

    async def test_held_runs_are_released_in_the_next_hour_oldest_first(self, given: Given) -> None:
        run_ids = await given.fires(*"abcde")
        await given.claims()
        assert await given.store.next_due() == given.now(HOUR)
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == run_ids[2:4]
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == run_ids[4:]

    async def test_what_comes_later_waits_behind_what_is_held(self, given: Given) -> None:
        run_ids = await given.fires(*"abc")
        await given.claims()
        given.clock.advance(HOUR)
        late = await given.decides("d")
        assert late.outcome == "held"
        assert [claim.id for claim in await given.claims()] == [run_ids[2], late.run_id]

    async def test_held_runs_survive_a_crash_and_go_when_there_is_room(self, given: Given, reopen: Reopen) -> None:
        run_ids = await given.fires(*"abc")
        await given.claims()
        given.store = await reopen(given.store)
        assert [claim.id for claim in await given.claims()] == run_ids[:2]
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == run_ids[2:]

    async def test_other_triggers_have_budgets_of_their_own(self, given: Given) -> None:
        await given.fires(*"abc")
        await given.fires("x", "y", "z", trigger="other")
        claimed = [claim.trigger for claim in await given.claims()]
        assert (claimed.count("mail"), claimed.count("other")) == (2, 3)

    async def test_a_run_counts_once_however_often_it_is_tried(self, given: Given) -> None:
        [first] = await given.fires("a")
        for _ in range(3):
            await given.settle(await given.claims_one(), Again(at=given.now(), error="x"))
        await given.settle(await given.claims_one(), Dead(error="x"))
        await given.store.retry(first)
        await given.settle(await given.claims_one())
        await given.fires("b", "c")
        assert len(await given.claims()) == 1

    async def test_a_person_releases_held_runs_whatever_the_budget(self, given: Given) -> None:
        run_ids = await given.fires(*"abcd")
        await given.claims()
        assert await given.store.release("mail") == 2
        assert [claim.id for claim in await given.claims()] == run_ids[2:]
        [state, _] = await given.store.triggers()
        assert state.runs_this_hour == len(run_ids)

    async def test_a_person_may_drop_what_the_budget_holds_and_the_slot_goes_on(self, given: Given) -> None:
        for name in "abc":
            await given.fires(name, overlap="queue", slot="k")
            await _settle_all(given, await given.claims())
        assert await given.store.release("mail", drop=True) == 1
        [following] = await given.fires("d", overlap="queue", slot="k")
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [following]
        assert await given.store.check() == []

    async def test_a_run_that_the_budget_holds_keeps_its_slot(self, given: Given) -> None:
        run_ids = [(await given.fires(name, overlap="queue", slot="k"))[0] for name in "abcd"]
        for _ in range(3):
            await _settle_all(given, await given.claims())
        assert await given.statuses(run_ids) == ["done", "done", "held", "blocked"]
        assert await given.store.check() == []
        given.clock.advance(HOUR)
        await _settle_all(given, await given.claims())
        assert await given.statuses(run_ids[2:]) == ["done", "ready"]

    async def test_a_newer_run_takes_the_place_of_one_that_the_budget_holds(self, given: Given) -> None:
        await given.fires("a", "b")
        await given.claims()
        [held] = await given.fires("c", overlap="cancel_previous", slot="k")
        [newer] = await given.fires("d", overlap="cancel_previous", slot="k")
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [newer]
        assert await given.status(held) == "cancelled"

    async def test_a_digest_counts_as_one_run(self, given: Given) -> None:
        await given.fires(*"abcde", gather=GatherInto("k", given.now(WINDOW)))
        await given.fires("x", "y")
        given.clock.advance(WINDOW)
        claims = await given.claims()
        assert sorted(len(claim.events) for claim in claims) == [1, 1]
        given.clock.advance(HOUR)
        assert [len(claim.events) for claim in await given.claims()] == [5]

    async def test_what_people_start_is_not_held(self, given: Given) -> None:
        await given.fires("a", "b")
        await given.claims()
        run_id = await given.store.start(NewRun(trigger="mail", workflow_rev="r1", id_key="by hand"))
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_tokens_are_charged_with_the_journal_and_hold_the_next_run(self, given: Given) -> None:
        claim = await given.running("a")
        await given.store.journal(claim.id, claim.token, [answered("one"), answered("two", usd=0.25)])
        [held] = await given.fires("b")
        assert await given.claims() == []
        [state, _] = await given.store.triggers()
        assert (state.tokens_today, state.usd_today, state.runs_this_hour) == (120, 0.25, 1)
        given.clock.advance(DAY)
        assert [later.id for later in await given.claims()] == [held]

    async def test_tokens_are_charged_with_the_end_of_a_run(self, given: Given, reopen: Reopen) -> None:
        await given.settle(await given.running("a"), Finished(), record=answered(usd=1.5))
        store = await reopen(given.store)
        [state, _] = await store.triggers()
        assert (state.tokens_today, state.usd_today) == (60, 1.5)

    async def test_dollars_hold_runs_too(self, given: Given) -> None:
        await given.settle(await given.running("a"), Finished(), record=answered(tokens=1, usd=1.0))
        await given.fires("b")
        assert await given.claims() == []

    async def test_a_record_that_is_written_twice_is_charged_once(self, given: Given) -> None:
        claim = await given.running("a")
        for _ in range(2):
            await given.store.journal(claim.id, claim.token, [answered()])
        [state, _] = await given.store.triggers()
        assert state.tokens_today == 60

    async def test_a_write_that_is_refused_charges_nothing(self, given: Given) -> None:
        claim = await given.running("a")
        assert await given.settle(msgspec.structs.replace(claim, token=claim.token + 1), record=answered()) == "lost"
        [state, _] = await given.store.triggers()
        assert state.tokens_today == 0

    async def test_a_sub_run_spends_the_budget_of_its_parents_trigger(self, given: Given) -> None:
        parent = await given.running("a")
        child = NewRun(trigger="", workflow="triage", workflow_rev="r1", id_key="sub", parent=parent.id)
        await given.store.journal(parent.id, parent.token, [], start=[child])
        await given.settle(await given.claims_one(), Finished(), record=answered())
        [state, _] = await given.store.triggers()
        assert state.tokens_today == 60

    async def test_a_larger_budget_releases_held_runs_at_once(self, given: Given) -> None:
        run_ids = await given.fires(*"abc")
        await given.claims()
        await given.open(spending(Budget(runs_per_hour=3)))
        assert [claim.id for claim in await given.claims()] == run_ids[2:]

    async def test_removing_the_budget_releases_its_runs(self, given: Given) -> None:
        run_ids = await given.fires(*"abcd")
        await given.claims()
        await given.open(definitions())
        assert [claim.id for claim in await given.claims()] == run_ids[2:]

    async def test_nothing_is_released_while_the_trigger_is_paused(self, given: Given) -> None:
        run_ids = await given.fires(*"abc")
        await given.claims()
        await given.store.pause("mail", "holiday")
        given.clock.advance(HOUR)
        assert await given.claims() == []
        await given.store.resume("mail")
        assert [claim.id for claim in await given.claims()] == run_ids[2:]


async def _settle_all(given: Given, claims: Sequence[Claimed]) -> None:
    for claim in claims:
        await given.settle(claim)
