"""Shards are shared fairly, handed over at once, taken over when their holder is gone, and given up when work dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from harken.backends.sqlite import SqliteStore
from harken.errors import LeaseLost, StoreUnavailable
from harken.ingest.leases import EXPIRY_SLACK, ShardLeases
from harken.store import Definitions
from harken.task_cancellation import cancel_and_wait
from harken.testing import HandClock, VirtualClock, virtual
from harken.timings import Timings

LEASE_SECONDS = Timings().lease_seconds


@pytest.fixture
async def store(tmp_path: Path, clock: HandClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
    yield store
    await store.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


class Replica:
    """A replica that notes which shards it begins and ends to read."""

    def __init__(self, store: Any, clock: HandClock, name: str, shards: int = 6, reading: bool = True) -> None:
        self.leases = ShardLeases(
            store,
            clock,
            name,
            shards=shards,
            reading=reading,
            works=lambda: self.works,
            on_taken=self._taken,
            on_leaving=self._leaving,
        )
        self.works = True
        self.taken: list[int] = []
        self.left: list[int] = []
        self.away = False

    async def _taken(self, shards: Collection[int]) -> Callable[[], None]:
        if self.away:
            raise StoreUnavailable("the store is away")
        return lambda: self.taken.extend(sorted(shards))

    async def _leaving(self, shards: Collection[int]) -> None:
        self.left += sorted(shards)


async def test_one_replica_takes_everything(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    await one.leases.balance()
    assert sorted(one.taken) == sorted(one.leases.held) == list(range(6))


async def test_a_second_replica_gets_its_share_at_the_next_look(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    await one.leases.balance()
    one.leases.share_with(["one", "two"])
    two.leases.share_with(["one", "two"])
    await two.leases.balance()
    assert not two.leases.held
    await one.leases.balance()
    await two.leases.balance()
    assert (len(one.leases.held), len(two.leases.held)) == (3, 3)
    assert sorted([*one.leases.held, *two.leases.held]) == list(range(6))
    assert one.left == sorted(two.leases.held)


async def test_what_is_kept_is_renewed_and_its_token_stays(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    await one.leases.balance()
    before = one.leases.token(3)
    for _ in range(40):
        clock.advance(LEASE_SECONDS / 12)
        await one.leases.balance()
    assert one.leases.token(3) == before
    assert len(one.taken) == 6


async def test_a_dead_replica_is_followed_within_a_lease(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    taken_over: list[int] = []
    two.leases.on_takeover = taken_over.append
    await one.leases.balance()
    clock.advance(LEASE_SECONDS + 0.1)
    await two.leases.balance()
    assert len(two.leases.held) == 6
    assert sorted(taken_over) == list(range(6))


@virtual
async def test_it_is_followed_at_the_very_end_of_its_lease(clock: VirtualClock, tmp_path: Path) -> None:
    store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
    one, two = ShardLeases(store, clock, "one", shards=6), ShardLeases(store, clock, "two", shards=6)
    await clock.sleep(0.7)
    await one.balance()
    keeping = asyncio.create_task(two.keep())
    await clock.sleep(LEASE_SECONDS - 0.01)
    assert not two.held
    await clock.sleep(0.1)
    assert len(two.held) == 6
    await cancel_and_wait([keeping])
    await store.close()


async def test_a_lease_that_ran_out_and_came_back_is_begun_anew(store: SqliteStore, clock: HandClock) -> None:
    """Others may have moved the cursors in between, so the feeds stand where the store says."""
    one, two = Replica(store, clock, "one", shards=1), Replica(store, clock, "two", shards=1)
    await one.leases.balance()
    before = one.leases.token(0)
    clock.advance(LEASE_SECONDS + 1)
    await two.leases.balance()
    clock.advance(LEASE_SECONDS + 1)
    await one.leases.balance()
    assert one.leases.token(0) > before
    assert one.taken == [0, 0]


async def test_a_holder_that_slept_finds_its_shards_taken(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    await one.leases.balance()
    clock.advance(LEASE_SECONDS + 1)
    await two.leases.balance()
    await one.leases.verify(2)
    assert one.left == [2]
    with pytest.raises(LeaseLost):
        one.leases.token(2)
    await one.leases.balance()
    assert not one.leases.held


@virtual
async def test_a_lease_that_was_renewed_right_before_a_sleep_is_renewed_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
    leases = ShardLeases(store, clock, "one")
    await leases.balance()
    clock.sleep_laptop(7_200)
    assert leases.has_expired(0)
    await leases.verify(0)
    assert not leases.has_expired(0)
    await store.close()


async def test_giving_up_lets_another_go_on_at_once(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    await one.leases.balance()
    await one.leases.release_all()
    await two.leases.balance()
    assert len(two.leases.held) == 6


async def test_pitfall_32_leases_are_given_up_when_their_work_is_dead(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    await one.leases.balance()
    one.works = False
    await one.leases.balance()
    assert sorted(one.left) == list(range(6))
    assert await store.leases() == []


async def test_what_was_taken_but_could_not_be_begun_is_not_held(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    one.away = True
    with pytest.raises(StoreUnavailable):
        await one.leases.balance()
    assert not one.leases.held
    one.away = False
    await one.leases.balance()
    assert len(one.leases.held) == 6


async def test_another_generation_ends_what_the_others_hold(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    await store.open(Definitions(generation="old", holder="one"))
    one.leases.generation, two.leases.generation = "old", "new"
    await one.leases.balance()
    await store.open(Definitions(generation="new", holder="two"))
    clock.advance(LEASE_SECONDS / 3)
    await one.leases.balance()
    assert not one.leases.held
    await two.leases.balance()
    assert len(two.leases.held) == 6


async def test_fewer_shards_than_before_are_let_go(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    await one.leases.balance()
    one.leases.shards = 2
    await one.leases.balance()
    assert sorted(one.leases.held) == [0, 1]


class Flickering:
    """A store that is away for one request, the one with this number."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.away_at = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def lease(self, *args: Any, **more: Any) -> Any:
        self.away_at -= 1
        if self.away_at == 0:
            raise StoreUnavailable("nobody answers")
        return await self._store.lease(*args, **more)


async def test_what_was_taken_before_the_store_went_away_is_read(store: SqliteStore, clock: HandClock) -> None:
    """A lease that is held and renewed for ever while nobody reads its feeds would be a silent loss."""
    flickering = Flickering(store)
    one = Replica(flickering, clock, "one")
    flickering.away_at = 3
    with pytest.raises(StoreUnavailable):
        await one.leases.balance()
    assert len(one.taken) == len(one.leases.held) == 2
    await one.leases.balance()
    assert sorted(one.taken) == list(range(6))


async def test_a_new_token_is_noticed_although_the_store_went_away_then(store: SqliteStore, clock: HandClock) -> None:
    flickering = Flickering(store)
    one = Replica(flickering, clock, "one")
    await one.leases.balance()
    before = {shard: one.leases.token(shard) for shard in range(6)}
    clock.advance(LEASE_SECONDS + 1)
    for shard in range(6):
        # somebody else had it for a moment
        lease = await store.lease(shard, "two", LEASE_SECONDS)
        assert lease is not None
        await store.release_lease(lease, "two")
    flickering.away_at = 3
    with pytest.raises(StoreUnavailable):
        await one.leases.balance()
    await one.leases.balance()
    assert all(one.leases.token(shard) > before[shard] for shard in range(6))
    assert sorted(one.taken) == sorted([*range(6), *range(6)])


async def test_no_token_is_given_out_before_the_feeds_stand_where_they_should(
    store: SqliteStore, clock: HandClock
) -> None:
    seen: list[bool] = []

    async def taken(shards: Collection[int]) -> Callable[[], None]:
        seen.append(0 in leases.held)
        return lambda: seen.append(0 in leases.held)

    leases = ShardLeases(store, clock, "one", on_taken=taken)
    await leases.balance()
    assert seen == [False, True]


async def test_a_replica_that_does_not_read_takes_nothing(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one", reading=False)
    await one.leases.balance()
    assert not one.leases.held
    assert await store.leases() == []


async def test_after_closing_nothing_is_taken_again(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    await one.leases.balance()
    await one.leases.close()
    await one.leases.balance()
    assert await store.leases() == []


async def test_what_nobody_takes_is_read_beyond_the_fair_share_and_kept(store: SqliteStore, clock: HandClock) -> None:
    """A peer that lives but cannot take its part must not leave it unread for ever."""
    one = Replica(store, clock, "one")
    one.leases.share_with(["one", "two"])
    await one.leases.balance()
    assert len(one.leases.held) == 3
    for _ in range(3):
        clock.advance(LEASE_SECONDS)
        await one.leases.balance()
    assert len(one.leases.held) == 6
    clock.advance(2)
    await one.leases.balance()
    assert len(one.leases.held) == 6
    one.leases.share_with(["one", "two", "three"])
    await one.leases.balance()
    assert len(one.leases.held) == 2


async def test_a_replica_that_comes_for_one_that_left_gets_its_share(store: SqliteStore, clock: HandClock) -> None:
    """There are as many as before, and what was read for the one that was gone has to be given back."""
    one, three = Replica(store, clock, "one"), Replica(store, clock, "three")
    one.leases.share_with(["one", "two"])
    for _ in range(3):
        clock.advance(LEASE_SECONDS)
        await one.leases.balance()
    assert len(one.leases.held) == 6
    for replica in (one, three):
        replica.leases.share_with(["one", "three"])
    await one.leases.balance()
    await three.leases.balance()
    assert (len(one.leases.held), len(three.leases.held)) == (3, 3)


async def test_what_was_leased_meanwhile_did_not_stay_unleased(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    for replica in (one, two):
        replica.leases.share_with(["one", "two"])
    clock.advance(LEASE_SECONDS)
    await one.leases.balance()
    # it was free at that look and is at the next ones, but not in between
    await two.leases.balance()
    clock.advance(LEASE_SECONDS / 2)
    await one.leases.balance()
    await two.leases.release_all()
    clock.advance(LEASE_SECONDS / 2)
    await one.leases.balance()
    assert len(one.leases.held) == 3
    await two.leases.balance()
    assert len(two.leases.held) == 3


async def test_a_new_generation_leaves_time_to_take_what_it_has_freed(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    for replica in (one, two):
        replica.leases.share_with(["one", "two"])
    clock.advance(LEASE_SECONDS)
    await one.leases.balance()
    await two.leases.balance()
    clock.advance(LEASE_SECONDS)
    await one.leases.open_definitions(store.open, Definitions(generation="new", holder="one"))
    two.leases.generation = "new"
    await one.leases.balance()
    await two.leases.balance()
    assert (len(one.leases.held), len(two.leases.held)) == (3, 3)


async def test_a_shard_that_was_given_up_is_not_renewed(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    await one.leases.balance()
    one.leases.share_with(["one", "two"])
    await one.leases.balance()
    clock.advance(LEASE_SECONDS / 2)
    await one.leases.balance()
    assert len(one.leases.held) == len(await store.leases()) == 3


async def test_what_nobody_takes_is_watched_anew_when_the_replicas_change(store: SqliteStore, clock: HandClock) -> None:
    one = Replica(store, clock, "one")
    one.leases.share_with(["one", "two"])
    clock.advance(LEASE_SECONDS)
    await one.leases.balance()
    one.leases.share_with(["one", "two", "three"])
    for _ in range(2):
        clock.advance(LEASE_SECONDS / 2)
        await one.leases.balance()
    assert len(one.leases.held) == 2


async def test_the_next_look_is_when_the_lease_of_another_ends(store: SqliteStore, clock: HandClock) -> None:
    one, two = Replica(store, clock, "one"), Replica(store, clock, "two")
    await one.leases.balance()
    clock.advance(LEASE_SECONDS - 0.5)
    await two.leases.balance()
    assert two.leases._pause() == pytest.approx(0.5 + EXPIRY_SLACK)
