"""The contract of quiet hours: runs wait for their end; and of windows that gather events."""

from __future__ import annotations

import pytest

from harken.event import Span
from harken.feed import Budget
from harken.runs import Again
from harken.schedule import Quiet, quiet_hours
from harken.store import GatherInto
from harken.testing.store.world import Given, StoreWorld, definitions, trigger

__all__ = ["QuietHoursContract"]

HOUR = 3600.0
WINDOW = 60.0
NIGHT = Quiet(start="22:00", end="07:00")


class QuietHoursContract(StoreWorld):
    """The next hour is quiet."""

    @pytest.fixture
    def quiet(self, given: Given) -> Span:
        return Span(given.now(), given.now(HOUR))

    async def test_a_digest_that_is_full_waits_for_the_end(self, given: Given, quiet: Span) -> None:
        into = GatherInto("k", given.now(10 * HOUR), 2)
        [run_id, _] = await given.fires("a", "b", gather=into, quiet=quiet)
        assert await given.claims() == []
        assert (await given.run(run_id)).due_at == quiet.end
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_a_digest_keeps_its_quiet_hours_when_an_event_without_any_joins(
        self, given: Given, quiet: Span
    ) -> None:
        limited = trigger("mail", budget=Budget(runs_per_hour=5))
        await given.open(definitions(triggers=(limited,), generation="g2"))
        await given.refresh()
        into = GatherInto("k", given.now(10 * HOUR), 2)
        [run_id] = await given.fires("a", gather=into, quiet=quiet)
        await given.fires("b", gather=into)
        assert await given.claims() == []
        assert (await given.run(run_id)).due_at == quiet.end
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_a_run_whose_turn_comes_waits_for_the_end(self, given: Given, quiet: Span) -> None:
        first = await given.running("a", overlap="queue", slot="k")
        [second] = await given.fires("b", overlap="queue", slot="k", quiet=quiet)
        await given.settle(first)
        assert await given.claims() == []
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [second]

    async def test_a_released_run_waits_for_the_end(self, given: Given, quiet: Span) -> None:
        [run_id] = await given.fires("a", hold="flood", quiet=quiet)
        await given.store.release("mail")
        assert await given.claims() == []
        assert await given.store.next_due() == quiet.end
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_a_run_that_a_person_retries_does_not_wait(self, given: Given, quiet: Span) -> None:
        [run_id] = await given.fires("a", quiet=quiet)
        await given.store.cancel(run_id)
        await given.store.retry(run_id)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_a_run_that_is_claimed_days_later_waits_for_the_quiet_hours_of_that_day(self, given: Given) -> None:
        tonight = quiet_hours(NIGHT, given.now())
        await given.open(definitions(triggers=(trigger("mail", quiet=NIGHT),), generation="g2"))
        await given.refresh()
        [run_id] = await given.fires("a", quiet=Span(*tonight))
        given.clock.advance((tonight[1] - given.now()).total_seconds() + 5 * 24 * HOUR - 60)
        assert await given.claims() == []
        given.clock.advance(60)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_a_run_that_was_ready_before_the_quiet_hours_does_not_start_in_them(self, given: Given) -> None:
        [run_id] = await given.fires("a", quiet=Span(given.now(60), given.now(HOUR)))
        given.clock.advance(60)
        assert await given.claims() == []
        assert await given.store.next_due() == given.now(HOUR - 60)
        given.clock.advance(HOUR)
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_a_run_that_has_begun_goes_on_in_the_quiet_hours(self, given: Given) -> None:
        claim = await given.running("a", quiet=Span(given.now(60), given.now(HOUR)))
        await given.settle(claim, Again(at=given.now(90), error="x"))
        given.clock.advance(90)
        assert [again.id for again in await given.claims()] == [claim.id]

    async def test_a_commit_hands_nothing_over_in_the_quiet_hours(self, given: Given, quiet: Span) -> None:
        committed = await given.commit(given.entry("a", given.intent("a", quiet=quiet)), claim=1, holder="w")
        assert committed.claimed == []

    async def test_before_the_quiet_hours_nothing_waits(self, given: Given) -> None:
        later = Span(given.now(60), given.now(HOUR))
        [run_id] = await given.fires("a", hold="flood", quiet=later)
        await given.store.release("mail")
        assert [claim.id for claim in await given.claims()] == [run_id]

    async def test_the_reason_of_an_intent_is_in_its_verdict(self, given: Given) -> None:
        fired = await given.decides("a", reason="waits until 07:00")
        gathered = await given.decides("b", reason="too old", gather=GatherInto("k", given.now(WINDOW)))
        assert (fired.outcome, fired.reason) == ("fired", "waits until 07:00")
        assert gathered.reason == "event 1 of the run that is gathering: too old"

    async def test_an_occurrence_that_had_a_run_of_its_own_is_not_gathered(self, given: Given) -> None:
        [alone] = await given.fires("s")
        into = GatherInto("k", given.now(WINDOW))
        [again] = (await given.commit(given.entry("elsewhere", given.intent("s", gather=into)))).verdicts[0]
        assert (again.outcome, again.run_id) == ("duplicate", alone)

    async def test_a_window_may_be_extended_by_who_joins(self, given: Given) -> None:
        for name in "ab":
            await given.decides(name, gather=GatherInto("k", given.now(WINDOW), extends=True))
            given.clock.advance(WINDOW - 20)
            await given.renew()
        assert await given.claims() == []
        given.clock.advance(20)
        assert [len(claim.events) for claim in await given.claims()] == [2]

    async def test_a_gathered_run_has_the_input_of_its_first_event(self, given: Given) -> None:
        into = GatherInto("k", given.now(), 2)
        for name in (b'"a"', b'"b"'):
            entry = given.entry(name.decode(), given.intent(name.decode(), gather=into, input=name))
            await given.commit(entry)
        given.clock.advance(1)
        assert (await given.claims_one()).input == "a"
