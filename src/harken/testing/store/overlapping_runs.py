"""The contract of slots: which run of a concurrency key may run, decided by commits and settlements."""

from __future__ import annotations

from typing import Any

from harken.runs import Again, Cancelled, Dead, Park
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["SlotContract"]


async def queues(given: Given, *subjects: str, **intent: Any) -> list[str]:
    return await given.fires(*subjects, overlap="queue", slot="k", **intent)


class SlotContract(StoreWorld):
    async def test_allow_runs_them_side_by_side(self, given: Given) -> None:
        await given.fires("a", "b", overlap="allow", slot="k")
        assert len(await given.claims()) == 2

    async def test_queue_lets_one_run_and_blocks_the_rest(self, given: Given) -> None:
        run_ids = await queues(given, "a", "b", "c")
        assert await given.statuses(run_ids) == ["ready", "blocked", "blocked"]

    async def test_two_claims_never_get_two_runs_of_one_slot(self, given: Given) -> None:
        run_ids = await queues(given, "a", "b", "c")
        first = await given.claims(holder="w1")
        second = await given.claims(holder="w2")
        assert ([claim.id for claim in first], second) == (run_ids[:1], [])

    async def test_settling_promotes_the_next_in_order(self, given: Given) -> None:
        run_ids = await queues(given, "a", "b", "c")
        order = []
        for _ in run_ids:
            [claim] = await given.claims()
            order.append(claim.id)
            await given.settle(claim)
        assert order == run_ids

    async def test_a_dead_run_lets_the_next_go(self, given: Given) -> None:
        [_, second] = await queues(given, "a", "b")
        await given.settle(await given.claims_one(), Dead(error="no"))
        assert await given.status(second) == "ready"

    async def test_a_run_that_is_tried_again_keeps_its_slot(self, given: Given) -> None:
        [first, second] = await queues(given, "a", "b")
        await given.settle(await given.claims_one(), Again(at=given.now(5), error="later"))
        assert await given.statuses([first, second]) == ["ready", "blocked"]
        assert await given.claims() == []

    async def test_a_parked_run_keeps_its_slot(self, given: Given) -> None:
        [first, second] = await queues(given, "a", "b")
        claim = await given.claims_one()
        await given.store.park(claim.id, claim.token, Park(until=given.now(60)))
        assert await given.statuses([first, second]) == ["waiting", "blocked"]

    async def test_cancelling_the_first_promotes_the_next(self, given: Given) -> None:
        [first, second] = await queues(given, "a", "b")
        await given.store.cancel(first)
        assert await given.statuses([first, second]) == ["cancelled", "ready"]

    async def test_cancelling_a_blocked_run_takes_it_out_of_the_queue(self, given: Given) -> None:
        [_, second, third] = await queues(given, "a", "b", "c")
        await given.store.cancel(second)
        await given.settle(await given.claims_one())
        assert await given.statuses([second, third]) == ["cancelled", "ready"]

    async def test_skip_starts_nothing_while_one_is_open(self, given: Given) -> None:
        first = await given.decides("a", overlap="skip", slot="k")
        second = await given.decides("b", overlap="skip", slot="k")
        assert (first.outcome, second.outcome) == ("fired", "skipped")
        assert second.reason != ""
        assert [claim.id for claim in await given.claims()] == [first.run_id]

    async def test_skip_fires_again_when_the_slot_is_free(self, given: Given) -> None:
        await given.decides("a", overlap="skip", slot="k")
        await given.settle(await given.claims_one())
        assert (await given.decides("b", overlap="skip", slot="k")).outcome == "fired"

    async def test_cancel_previous_replaces_what_has_not_begun(self, given: Given) -> None:
        [first] = await given.fires("a", overlap="cancel_previous", slot="k")
        [second] = await given.fires("b", overlap="cancel_previous", slot="k")
        assert await given.statuses([first, second]) == ["cancelled", "ready"]

    async def test_cancel_previous_asks_what_runs_to_stop_and_waits_for_it(self, given: Given) -> None:
        [first] = await given.fires("a", overlap="cancel_previous", slot="k")
        claim = await given.claims_one()
        [second] = await given.fires("b", overlap="cancel_previous", slot="k")
        assert await given.store.extend({claim.id: claim.token}, 60) == {first: "cancel"}
        assert await given.status(second) == "blocked"
        await given.settle(claim)
        assert await given.status(second) == "ready"

    async def test_a_running_run_that_is_replaced_says_so(self, given: Given) -> None:
        [first] = await given.fires("a", overlap="cancel_previous", slot="k")
        claim = await given.claims_one()
        await given.fires("b", overlap="cancel_previous", slot="k")
        await given.settle(claim, Cancelled(reason="asked to stop"))
        run = await given.run(first)
        assert (run.status, run.error) == ("cancelled", "a newer run of this key took its place")

    async def test_cancel_previous_leaves_only_the_newest_waiting(self, given: Given) -> None:
        await given.fires("a", overlap="cancel_previous", slot="k")
        await given.claims_one()
        [second] = await given.fires("b", overlap="cancel_previous", slot="k")
        [third] = await given.fires("c", overlap="cancel_previous", slot="k")
        assert await given.statuses([second, third]) == ["cancelled", "blocked"]

    async def test_slots_of_different_keys_do_not_meet(self, given: Given) -> None:
        await given.fires("a", overlap="queue", slot="x")
        await given.fires("b", overlap="queue", slot="y")
        assert len(await given.claims()) == 2

    async def test_a_released_run_waits_for_its_slot(self, given: Given) -> None:
        [held] = await queues(given, "a", hold="flood")
        [first] = await queues(given, "b")
        await given.store.release("mail")
        assert await given.statuses([first, held]) == ["ready", "blocked"]

    async def test_a_held_run_does_not_take_the_slot(self, given: Given) -> None:
        await queues(given, "a", hold="flood")
        [second] = await queues(given, "b")
        assert await given.status(second) == "ready"

    async def test_a_retried_run_waits_for_its_slot(self, given: Given) -> None:
        [first, second] = await queues(given, "a", "b")
        await given.settle(await given.claims_one(), Dead(error="no"))
        await given.claims_one()
        assert await given.store.retry(first)
        assert await given.statuses([first, second]) == ["blocked", "running"]

    async def test_a_requeued_run_keeps_its_slot(self, given: Given) -> None:
        [first, second] = await queues(given, "a", "b")
        await given.claims_one()
        given.clock.advance(61)
        await given.store.requeue_expired()
        assert await given.statuses([first, second]) == ["ready", "blocked"]

    async def test_slots_survive_a_crash(self, given: Given, reopen: Reopen) -> None:
        [first, second] = await queues(given, "a", "b")
        given.store = await reopen(given.store)
        [claim] = await given.claims()
        await given.settle(claim)
        assert (claim.id, await given.status(second)) == (first, "ready")
