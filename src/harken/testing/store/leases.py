"""The contract of leases: one holder per shard, and its token is checked with every write."""

from __future__ import annotations

from typing import Literal

import pytest

from harken.circuit_breaker import Health
from harken.errors import LeaseLost
from harken.store import Failure, IdleRead
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["LeaseContract"]


def failure(given: Given) -> Failure:
    health = Health(failures=1, code="retry", message="it broke")
    return Failure(
        feed="inbox",
        token=given.lease.token,
        health=health,
        next_due=given.now(60),
        result="error",
        error="it broke",
        started_at=given.now(),
    )


def rest(given: Given, result: Literal["nothing_new", "unchanged"] = "nothing_new") -> IdleRead:
    return IdleRead(
        feed="inbox",
        token=given.lease.token,
        count=1,
        result=result,
        seen=3,
        first_at=given.now(),
        last_at=given.now(),
        next_due=given.now(60),
    )


class LeaseContract(StoreWorld):
    async def test_only_one_holder_at_a_time(self, given: Given) -> None:
        assert await given.store.lease(0, "b", 30) is None

    async def test_renewing_keeps_the_token_and_moves_the_end(self, given: Given) -> None:
        first = given.lease
        given.clock.advance(10)
        renewed = await given.renew()
        assert renewed.token == first.token
        assert renewed.until > first.until

    async def test_another_holder_takes_over_once_it_has_run_out(self, given: Given) -> None:
        given.clock.advance(31)
        taken = await given.store.lease(0, "b", 30)
        assert taken is not None
        assert taken.token > given.lease.token

    async def test_an_expired_lease_that_nobody_took_keeps_its_token(self, given: Given) -> None:
        """After a laptop's sleep, for example: nobody else has written, so what was read is still valid."""
        first = given.lease.token
        given.clock.advance(3600)
        assert (await given.renew()).token == first
        await given.store.release_lease(given.lease, "a")
        assert (await given.renew()).token > first

    async def test_tokens_rise_when_a_holder_comes_back(self, given: Given) -> None:
        given.clock.advance(31)
        taken = await given.store.lease(0, "b", 30)
        given.clock.advance(31)
        back = await given.store.lease(0, "a", 30)
        assert taken is not None
        assert back is not None
        assert back.token > taken.token

    async def test_tokens_rise_across_a_crash(self, given: Given, reopen: Reopen) -> None:
        store = await reopen(given.store)
        given.clock.advance(31)
        taken = await store.lease(0, "b", 30)
        assert taken is not None
        assert taken.token > given.lease.token

    async def test_a_crash_of_the_store_never_gives_a_token_twice(self, given: Given, reopen: Reopen) -> None:
        """The lease may survive, or end if the store knows that its holder died."""
        store = await reopen(given.store)
        after = await store.lease(0, "b", 30)
        assert after is None or after.token > given.lease.token

    async def test_a_released_lease_can_be_taken_at_once(self, given: Given) -> None:
        await given.store.release_lease(given.lease, "a")
        taken = await given.store.lease(0, "b", 30)
        assert taken is not None
        assert taken.token > given.lease.token

    async def test_a_lease_is_taken_over_only_from_another_who_never_gave_it_up(self, given: Given) -> None:
        assert not given.lease.taken_over
        assert not (await given.renew()).taken_over
        given.clock.advance(31)
        assert not (await given.renew()).taken_over
        given.clock.advance(31)
        taken = await given.renew("b")
        assert taken.taken_over
        assert not (await given.renew("b")).taken_over
        await given.store.release_lease(given.lease, "b")
        assert not (await given.renew("c")).taken_over

    async def test_a_lease_is_taken_over_from_one_who_crashed(self, given: Given, reopen: Reopen) -> None:
        store = await reopen(given.store)
        given.clock.advance(31)
        taken = await store.lease(0, "b", 30)
        assert taken is not None
        assert taken.taken_over

    async def test_pitfall_27_releasing_a_lost_lease_does_nothing(self, given: Given) -> None:
        given.clock.advance(31)
        await given.store.lease(0, "b", 30)
        await given.store.release_lease(given.lease, "a")
        assert await given.store.lease(0, "c", 30) is None

    async def test_shards_are_leased_apart(self, given: Given) -> None:
        other = await given.store.lease(1, "b", 30)
        assert other is not None
        assert await given.store.lease(1, "a", 30) is None

    async def test_a_commit_after_the_lease_ran_out_is_lost_and_writes_nothing(self, given: Given) -> None:
        given.clock.advance(31)
        with pytest.raises(LeaseLost):
            await given.commit(given.entry("s", given.intent("s")), cursor=[1])
        assert await given.events() == []
        assert (await given.feed()).cursor is None
        assert await given.claims() == []

    async def test_a_commit_with_the_token_of_an_earlier_holder_is_lost(self, given: Given) -> None:
        given.clock.advance(31)
        await given.store.lease(0, "b", 30)
        with pytest.raises(LeaseLost):
            await given.commit(given.entry("s"), cursor=[1])
        assert await given.store.recall("inbox", ["s"]) == {}

    async def test_a_commit_after_giving_up_is_lost(self, given: Given) -> None:
        await given.store.release_lease(given.lease, "a")
        with pytest.raises(LeaseLost):
            await given.commit(given.entry("s"))

    async def test_a_failure_of_an_earlier_holder_is_lost(self, given: Given) -> None:
        given.clock.advance(31)
        await given.store.lease(0, "b", 30)
        with pytest.raises(LeaseLost):
            await given.store.fail(failure(given))
        assert (await given.feed()).health == Health()

    async def test_an_idle_read_of_an_earlier_holder_is_lost(self, given: Given) -> None:
        given.clock.advance(31)
        await given.store.lease(0, "b", 30)
        with pytest.raises(LeaseLost):
            await given.store.record_idle([rest(given)])
        assert await given.store.ticks("inbox") == []

    async def test_forgetting_needs_the_lease(self, given: Given) -> None:
        await given.commit(given.entry("s"))
        given.clock.advance(31)
        with pytest.raises(LeaseLost):
            await given.store.forget("inbox", given.lease.token, [], given.now())
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_a_wall_clock_set_back_does_not_bring_an_old_token_to_life(self, given: Given) -> None:
        given.clock.advance(31)
        await given.store.lease(0, "b", 30)
        given.clock.jump(-25)
        with pytest.raises(LeaseLost):
            await given.commit(given.entry("s"))
