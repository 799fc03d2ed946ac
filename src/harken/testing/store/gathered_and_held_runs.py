"""The contract of intents: they become plain, gathered or held runs, and only one for each key."""

from __future__ import annotations

from typing import Any

from harken.event import Verdict
from harken.store import GatherInto
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["GatherContract"]

WINDOW = 60.0


async def gathers(given: Given, subject: str, key: str = "k", most: int = 0, **intent: Any) -> Verdict:
    into = GatherInto(key, given.now(WINDOW), most)
    return await given.decides(subject, gather=into, due_at=into.due_at, **intent)


class GatherContract(StoreWorld):
    async def test_an_existing_run_makes_the_verdict_a_duplicate_of_it(self, given: Given) -> None:
        first = await given.decides("s")
        committed = await given.commit(given.entry("elsewhere", given.intent("s")))
        [again] = committed.verdicts[0]
        assert (again.outcome, again.run_id) == ("duplicate", first.run_id)
        assert len(await given.claims()) == 1

    async def test_a_finished_run_is_not_run_again(self, given: Given) -> None:
        claim = await given.running("s")
        await given.settle(claim)
        [again] = (await given.commit(given.entry("elsewhere", given.intent("s")))).verdicts[0]
        assert (again.outcome, again.run_id) == ("duplicate", claim.id)

    async def test_the_run_id_depends_on_trigger_epoch_and_run_key(self, given: Given) -> None:
        epoch = given.trigger().epoch
        [a, b] = await given.fires("s", "t")
        later = await given.commit(given.entry("u", given.intent("s", epoch=epoch + 1)))
        other = await given.commit(given.entry("v", given.intent("s", trigger="other")))
        assert len({a, b, later.verdicts[0][0].run_id, other.verdicts[0][0].run_id}) == 4

    async def test_an_event_may_start_runs_of_two_triggers(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s"), given.intent("s", trigger="other")))
        assert sorted(claim.trigger for claim in await given.claims()) == ["mail", "other"]

    async def test_events_of_one_key_gather_in_one_run(self, given: Given) -> None:
        verdicts = [await gathers(given, each) for each in "abc"]
        assert [verdict.outcome for verdict in verdicts] == ["gathered", "gathered", "gathered"]
        assert len({verdict.run_id for verdict in verdicts}) == 1
        run = await given.run(verdicts[0].run_id)
        assert (run.status, len(run.event_ids)) == ("gathering", 3)

    async def test_events_gather_within_one_page_too(self, given: Given) -> None:
        into = GatherInto("k", given.now(WINDOW))
        entries = [given.entry(each, given.intent(each, gather=into, due_at=into.due_at)) for each in "ab"]
        committed = await given.commit(*entries)
        assert committed.verdicts[0][0].run_id == committed.verdicts[1][0].run_id

    async def test_a_gathering_run_is_claimed_only_when_its_window_has_closed(self, given: Given) -> None:
        verdict = await gathers(given, "a")
        await gathers(given, "b")
        assert await given.claims() == []
        given.clock.advance(WINDOW)
        [claim] = await given.claims()
        assert claim.id == verdict.run_id
        assert [event.subject for event in claim.events] == ["a", "b"]

    async def test_the_first_event_sets_the_window(self, given: Given) -> None:
        verdict = await gathers(given, "a")
        given.clock.advance(WINDOW - 1)
        await given.renew()
        await gathers(given, "b")
        given.clock.advance(1)
        assert [claim.id for claim in await given.claims()] == [verdict.run_id]

    async def test_max_closes_the_window_at_once(self, given: Given) -> None:
        verdicts = [await gathers(given, each, most=2) for each in "abc"]
        assert verdicts[0].run_id == verdicts[1].run_id != verdicts[2].run_id
        assert [len(claim.events) for claim in await given.claims()] == [2]

    async def test_a_second_window_is_a_new_run(self, given: Given) -> None:
        first = await gathers(given, "a")
        given.clock.advance(WINDOW)
        [claim] = await given.claims()
        await given.settle(claim)
        await given.renew()
        second = await gathers(given, "b")
        assert second.run_id != first.run_id
        assert await given.status(second.run_id) == "gathering"

    async def test_an_event_after_the_window_opens_a_new_run_even_if_nobody_claimed_the_first(
        self, given: Given
    ) -> None:
        first = await gathers(given, "a")
        given.clock.advance(WINDOW + 1)
        await given.renew()
        second = await gathers(given, "b")
        assert second.run_id != first.run_id
        [claim] = await given.claims()
        assert [event.subject for event in claim.events] == ["a"]

    async def test_keys_and_triggers_gather_apart(self, given: Given) -> None:
        one = await gathers(given, "a", key="x")
        two = await gathers(given, "b", key="y")
        three = await gathers(given, "c", key="x", trigger="other")
        assert len({one.run_id, two.run_id, three.run_id}) == 3

    async def test_a_window_stays_open_across_a_crash(self, given: Given, reopen: Reopen) -> None:
        first = await gathers(given, "a")
        given.store = await reopen(given.store)
        await given.renew()
        assert (await gathers(given, "b")).run_id == first.run_id

    async def test_a_gathering_run_that_was_released_is_not_held_when_its_window_closes(self, given: Given) -> None:
        verdict = await gathers(given, "a", hold="flood")
        await given.store.release("mail")
        given.clock.advance(WINDOW)
        assert [claim.id for claim in await given.claims()] == [verdict.run_id]

    async def test_a_held_run_is_not_claimed(self, given: Given) -> None:
        verdict = await given.decides("s", hold="flood")
        assert verdict.outcome == "held"
        run = await given.run(verdict.run_id)
        assert (run.status, run.hold) == ("held", "flood")
        assert await given.claims() == []

    async def test_a_flood_within_the_limit_is_released_by_the_last_page(self, given: Given) -> None:
        run_ids = await given.fires("a", "b", hold="flood")
        await given.commit(done=True, release={given.trigger().uid: 2})
        assert [claim.id for claim in await given.claims()] == run_ids

    async def test_the_last_page_counts_its_own_runs(self, given: Given) -> None:
        await given.fires("a", "b", hold="flood")
        entry = given.entry("c", given.intent("c", hold="flood"))
        await given.commit(entry, done=True, release={given.trigger().uid: 2})
        assert await given.claims() == []

    async def test_a_flood_beyond_the_limit_waits_for_a_person(self, given: Given) -> None:
        run_ids = await given.fires("a", "b", "c", hold="flood")
        await given.commit(done=True, release={given.trigger().uid: 2})
        assert await given.statuses(run_ids) == ["held", "held", "held"]
        assert await given.store.release("mail") == len(run_ids)
        assert [claim.id for claim in await given.claims()] == run_ids

    async def test_the_flood_limit_of_one_trigger_leaves_the_others_alone(self, given: Given) -> None:
        await given.fires("a", hold="flood")
        await given.commit(done=True, release={given.trigger("other").uid: 100})
        assert await given.claims() == []

    async def test_the_flood_limit_does_not_release_what_a_pause_holds(self, given: Given) -> None:
        await given.fires("a", hold="paused")
        await given.commit(done=True, release={given.trigger().uid: 100})
        assert await given.claims() == []

    async def test_what_gathered_before_a_pause_is_held_when_its_window_is_over(self, given: Given) -> None:
        verdict = await gathers(given, "a")
        await given.store.pause("mail", "holiday")
        await given.refresh()
        await gathers(given, "b", hold="paused")
        given.clock.advance(WINDOW)
        assert await given.claims() == []
        assert await given.status(verdict.run_id) == "held"
        await given.store.resume("mail")
        [claim] = await given.claims()
        assert (claim.id, [event.subject for event in claim.events]) == (verdict.run_id, ["a", "b"])

    async def test_what_still_gathers_at_the_end_of_a_pause_goes_on(self, given: Given) -> None:
        verdict = await gathers(given, "a")
        await given.store.pause("mail", "holiday")
        await given.store.resume("mail")
        assert (await given.run(verdict.run_id)).status == "gathering"
        given.clock.advance(WINDOW)
        assert [claim.id for claim in await given.claims()] == [verdict.run_id]

    async def test_dropping_held_runs_cancels_them(self, given: Given) -> None:
        run_ids = await given.fires("a", "b", hold="flood")
        assert await given.store.release("mail", drop=True) == len(run_ids)
        assert await given.statuses(run_ids) == ["cancelled", "cancelled"]

    async def test_release_may_be_for_one_kind_of_hold(self, given: Given) -> None:
        [flood] = await given.fires("a", hold="flood")
        [budget] = await given.fires("b", hold="budget")
        assert await given.store.release("mail", hold="budget") == 1
        assert await given.statuses([flood, budget]) == ["held", "ready"]

    async def test_held_runs_survive_a_crash(self, given: Given, reopen: Reopen) -> None:
        run_ids = await given.fires("a", "b", hold="flood")
        given.store = await reopen(given.store)
        assert await given.statuses(run_ids) == ["held", "held"]
