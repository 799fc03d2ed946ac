"""The contract of shards: each has its own lease, and a new generation of the configuration ends all others' leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from harken.circuit_breaker import Health
from harken.errors import LeaseLost
from harken.feed import Feed
from harken.store import (
    HOUSEKEEPING,
    Commit,
    Committed,
    Definitions,
    Failure,
    Generation,
    HeldLease,
    IdleRead,
    Lease,
    Store,
)
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, Reopen, StoreWorld, definitions, feed

__all__ = ["ShardContract"]

NEWS = feed("news", shard=1)


def configured(generation: str = "g1", holder: str = "", news: Feed = NEWS) -> Definitions:
    """The inbox on shard 0 and the news on shard 1."""
    plain = definitions(feeds=(INBOX, news, INTERNAL_FEED), generation=generation)
    return msgspec.structs.replace(plain, holder=holder)


async def take(store: Store, shard: int, holder: str, **changes: str) -> Lease:
    lease = await store.lease(shard, holder, 30.0, **changes)
    assert lease is not None
    return lease


async def holders(store: Store) -> dict[int, str]:
    return {held.shard: held.holder for held in await store.leases()}


def page(given: Given, name: str, token: int | None) -> Commit:
    revision = given.opened.feeds[name].revision
    return Commit(feed=name, revision=revision, token=token, entries=(given.entry("s"),), cursor=[1])


def failure(given: Given, name: str, token: int) -> Failure:
    health = Health(failures=1, code="retry", message="it broke")
    return Failure(
        feed=name,
        token=token,
        health=health,
        next_due=given.now(60),
        result="error",
        error="it broke",
        started_at=given.now(),
    )


def rest(given: Given, name: str, token: int) -> IdleRead:
    now = given.now()
    return IdleRead(
        feed=name, token=token, count=1, result="nothing_new", seen=3, first_at=now, last_at=now, next_due=given.now(60)
    )


class ShardContract(StoreWorld):
    @pytest.fixture
    async def news(self, given: Given) -> Lease:
        """The lease of `b`, who reads `news` on shard 1, while `a` reads `inbox` on shard 0."""
        await given.open(configured())
        return await take(given.store, 1, "b")

    async def test_two_holders_read_two_shards_at_once(self, given: Given, news: Lease) -> None:
        assert isinstance(await given.store.commit(page(given, "inbox", given.lease.token)), Committed)
        assert isinstance(await given.store.commit(page(given, "news", news.token)), Committed)
        assert {event.feed for event in await given.events()} == {"inbox", "news"}

    async def test_the_token_of_another_shard_moves_no_cursor(self, given: Given, news: Lease) -> None:
        with pytest.raises(LeaseLost):
            await given.store.commit(page(given, "inbox", news.token))
        with pytest.raises(LeaseLost):
            await given.store.commit(page(given, "news", given.lease.token))
        assert await given.events() == []
        assert ((await given.feed()).cursor, (await given.feed("news")).cursor) == (None, None)

    async def test_the_token_of_another_shard_records_no_failure(self, given: Given, news: Lease) -> None:
        with pytest.raises(LeaseLost):
            await given.store.fail(failure(given, "news", given.lease.token))
        assert (await given.feed("news")).health == Health()
        await given.store.fail(failure(given, "news", news.token))
        assert (await given.feed("news")).health.failures == 1

    async def test_idle_reads_of_two_shards_are_written_together(self, given: Given, news: Lease) -> None:
        await given.store.record_idle([rest(given, "inbox", given.lease.token), rest(given, "news", news.token)])
        assert [(await given.feed(name)).reads for name in ("inbox", "news")] == [1, 1]

    async def test_an_idle_read_with_the_token_of_another_shard_is_lost_and_so_are_those_beside_it(
        self, given: Given, news: Lease
    ) -> None:
        with pytest.raises(LeaseLost):
            await given.store.record_idle([rest(given, "news", news.token), rest(given, "inbox", news.token)])
        assert [(await given.feed(name)).reads for name in ("inbox", "news")] == [0, 0]

    async def test_the_token_of_another_shard_forgets_nothing(self, given: Given, news: Lease) -> None:
        await given.store.commit(page(given, "news", news.token))
        given.clock.advance(10)
        with pytest.raises(LeaseLost):
            await given.store.forget("news", given.lease.token, [], given.now())
        assert "s" in await given.store.recall("news", ["s"])
        assert await given.store.forget("news", news.token, [], given.now()) == 1

    async def test_what_is_pushed_needs_the_lease_of_no_shard(self, given: Given) -> None:
        await given.open(configured(news=feed("news", shard=7, way="push")))
        pushed = msgspec.structs.replace(page(given, "news", None), cursor=msgspec.UNSET)
        assert isinstance(await given.store.commit(pushed), Committed)

    async def test_tokens_rise_over_all_shards(self, given: Given, news: Lease) -> None:
        given.clock.advance(31)
        again = await take(given.store, 0, "c")
        assert given.lease.token < news.token < again.token

    async def test_shards_that_are_taken_at_once_have_tokens_of_their_own(self, given: Given) -> None:
        taken = await asyncio.gather(*(take(given.store, shard, "a") for shard in range(1, 13)))
        assert len({lease.token for lease in (given.lease, *taken)}) == 13

    async def test_a_feed_that_moved_is_read_by_the_other_shard(self, given: Given, news: Lease) -> None:
        await given.store.commit(page(given, "news", news.token))
        await given.open(configured(generation="g2", news=feed("news")))
        with pytest.raises(LeaseLost):
            await given.store.commit(page(given, "news", news.token))
        assert (await given.feed("news")).cursor == [1]
        assert isinstance(await given.store.commit(page(given, "news", given.lease.token)), Committed)

    async def test_a_feed_that_moved_is_lost_also_for_who_holds_both_shards(self, given: Given) -> None:
        await given.open(configured())
        news = await take(given.store, 1, "a")
        await given.open(configured(generation="g2", holder="a", news=feed("news")))
        with pytest.raises(LeaseLost):
            await given.store.commit(page(given, "news", news.token))

    async def test_a_feed_may_move_to_a_shard_that_nobody_holds_yet(self, given: Given, news: Lease) -> None:
        await given.open(configured(generation="g2", news=feed("news", shard=5)))
        with pytest.raises(LeaseLost):
            await given.store.commit(page(given, "news", news.token))
        taken = await take(given.store, 5, "b")
        assert isinstance(await given.store.commit(page(given, "news", taken.token)), Committed)

    async def test_shards_survive_a_crash(self, given: Given, reopen: Reopen) -> None:
        await given.open(configured())
        store = await reopen(given.store)
        given.clock.advance(31)
        inbox, news = await take(store, 0, "c"), await take(store, 1, "d")
        with pytest.raises(LeaseLost):
            await store.commit(page(given, "news", inbox.token))
        assert isinstance(await store.commit(page(given, "news", news.token)), Committed)

    async def test_leases_are_listed_by_shard_while_they_live(self, given: Given, news: Lease) -> None:
        housekeeping = await take(given.store, HOUSEKEEPING, "a")
        expected = [(HOUSEKEEPING, "a", housekeeping), (0, "a", given.lease), (1, "b", news)]
        assert await given.store.leases() == held(expected)

    async def test_leases_that_ended_are_not_listed(self, given: Given, news: Lease) -> None:
        given.clock.advance(20)
        renewed = await given.renew()
        given.clock.advance(11)
        assert await given.store.leases() == held([(0, "a", renewed)])
        await given.store.release_lease(renewed, "a")
        assert await given.store.leases() == []

    async def test_a_new_store_is_at_no_generation(self, store: Store) -> None:
        assert await store.generation() == Generation()

    async def test_the_first_generation_begins_the_first_epoch(self, given: Given) -> None:
        assert given.opened.epoch == 1
        assert await given.store.generation() == Generation(epoch=1, name="g1", since=given.now())

    async def test_the_epoch_rises_once_with_each_new_generation(self, given: Given) -> None:
        began = given.now()
        given.clock.advance(60)
        assert (await given.open(configured("g1", "b"))).epoch == 1
        assert (await given.store.generation()).since == began
        assert (await given.open(configured("g2", "a"))).epoch == 2
        assert (await given.open(configured("g2", "b"))).epoch == 2
        assert await given.store.generation() == Generation(epoch=2, name="g2", since=given.now())

    async def test_many_who_open_the_same_generation_at_once_begin_one_epoch(self, given: Given) -> None:
        opened = await asyncio.gather(*(given.store.open(configured("g2", holder)) for holder in "abcd"))
        assert {each.epoch for each in opened} == {2}

    async def test_an_earlier_generation_that_comes_back_is_a_new_one(self, given: Given) -> None:
        await given.open(configured("g2"))
        assert (await given.open(configured("g1"))).epoch == 3

    async def test_generation_and_epoch_survive_a_crash(self, given: Given, reopen: Reopen) -> None:
        await given.open(configured("g2"))
        store = await reopen(given.store)
        assert await store.generation() == Generation(epoch=2, name="g2", since=given.now())
        assert (await store.open(configured("g2"))).epoch == 2
        assert (await store.open(configured("g3"))).epoch == 3

    async def test_a_new_generation_ends_the_leases_of_others_but_neither_ours_nor_housekeeping(
        self, given: Given, news: Lease
    ) -> None:
        await take(given.store, HOUSEKEEPING, "b")
        await given.open(configured("g2", "a"))
        assert await holders(given.store) == {HOUSEKEEPING: "b", 0: "a"}
        assert isinstance(await given.store.commit(page(given, "inbox", given.lease.token)), Committed)

    async def test_who_reads_by_an_old_generation_is_lost_and_writes_nothing(self, given: Given, news: Lease) -> None:
        late = page(given, "news", news.token)
        await given.open(configured("g2", "a"))
        with pytest.raises(LeaseLost):
            await given.store.commit(late)
        with pytest.raises(LeaseLost):
            await given.store.record_idle([rest(given, "news", news.token)])
        assert await given.events() == []
        assert (await given.feed("news")).reads == 0

    async def test_a_lease_that_a_new_generation_ended_was_given_up(self, given: Given, news: Lease) -> None:
        await given.open(configured("g2", "a"))
        taken = await take(given.store, 1, "a")
        assert taken.token > news.token
        assert not taken.taken_over

    async def test_a_lease_that_had_run_out_is_still_taken_over_after_a_new_generation(
        self, given: Given, news: Lease
    ) -> None:
        given.clock.advance(31)
        await given.open(configured("g2", "a"))
        assert (await take(given.store, 1, "a")).taken_over

    async def test_the_same_generation_opened_by_another_ends_nothing(self, given: Given, news: Lease) -> None:
        await given.open(configured("g1", "c"))
        assert await holders(given.store) == {0: "a", 1: "b"}

    async def test_a_new_generation_without_a_holder_ends_nothing(self, given: Given, news: Lease) -> None:
        await given.open(configured("g2"))
        assert await holders(given.store) == {0: "a", 1: "b"}

    async def test_a_lease_is_given_for_the_current_generation(self, given: Given) -> None:
        renewed = await take(given.store, 0, "a", generation="g1")
        assert renewed.token == given.lease.token
        await take(given.store, HOUSEKEEPING, "a", generation="g1")
        assert await given.store.lease(0, "b", 30.0, generation="g1") is None

    @pytest.mark.parametrize("shard", [0, HOUSEKEEPING])
    async def test_asking_with_an_old_generation_loses_the_lease_at_once(self, given: Given, shard: int) -> None:
        mine = await take(given.store, shard, "a", generation="g1")
        await given.open(configured("g2"))
        assert await given.store.lease(shard, "a", 30.0, generation="g1") is None
        assert await holders(given.store) == ({0: "a"} if shard == HOUSEKEEPING else {})
        taken = await take(given.store, shard, "b", generation="g2")
        assert taken.token > mine.token
        assert not taken.taken_over

    async def test_a_page_of_who_asked_with_an_old_generation_is_lost(self, given: Given) -> None:
        await given.open(configured("g2"))
        await given.store.lease(0, "a", 30.0, generation="g1")
        with pytest.raises(LeaseLost):
            await given.store.commit(page(given, "inbox", given.lease.token))

    async def test_asking_with_an_old_generation_takes_nothing_from_others(self, given: Given, news: Lease) -> None:
        assert await given.store.lease(1, "a", 30.0, generation="g0") is None
        assert await given.store.lease(2, "a", 30.0, generation="g0") is None
        assert await holders(given.store) == {0: "a", 1: "b"}

    async def test_a_lease_without_a_generation_is_given_at_any(self, given: Given) -> None:
        await given.open(configured("g2", "a"))
        assert (await given.renew()).token == given.lease.token


def held(expected: Sequence[tuple[int, str, Lease]]) -> list[HeldLease]:
    return [
        HeldLease(shard=shard, holder=holder, token=lease.token, until=lease.until) for shard, holder, lease in expected
    ]
