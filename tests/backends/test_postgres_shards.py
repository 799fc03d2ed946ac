"""Shards and generations on one PostgreSQL, where several replicas write at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
import pytest

from harken.backends.postgres import PostgresStore, Settings
from harken.errors import LeaseLost
from harken.store import Definitions, IdleRead, Lease
from harken.testing import HandClock
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, definitions, feed
from tests.backends.postgres_database import server, session, url

__all__ = ["server", "session", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("postgres-shards")

MOMENT = 0.3
"""Seconds that are enough for a call that waits for no lock."""


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(clock: HandClock, url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.at(url, clock, settings=Settings(pool=4))
    yield store
    await store.close()


@pytest.fixture
async def given(store: PostgresStore, clock: HandClock) -> Given:
    return Given(store, clock, await store.open(configured("g1")), await take_lease(store, 0, "a"))


@pytest.fixture
async def news(given: Given, store: PostgresStore) -> Lease:
    """The lease of `b` on shard 1, which has the feed `news`."""
    return await take_lease(store, 1, "b")


def configured(generation: str, holder: str = "") -> Definitions:
    plain = definitions(feeds=(INBOX, feed("news", shard=1), INTERNAL_FEED), generation=generation)
    return msgspec.structs.replace(plain, holder=holder)


async def take_lease(store: PostgresStore, shard: int, holder: str) -> Lease:
    lease = await store.lease(shard, holder, 30)
    assert lease is not None
    return lease


async def start_blocked(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a call, and check that it waits for a lock."""
    task = asyncio.create_task(call)
    assert await asyncio.wait([task], timeout=MOMENT) == (set(), {task})
    return task


def idle_reads(given: Given, news: Lease) -> list[IdleRead]:
    return [
        IdleRead(
            feed=name,
            token=token,
            count=1,
            result="nothing_new",
            seen=0,
            first_at=given.now(),
            last_at=given.now(),
            next_due=given.now(60),
        )
        for name, token in (("inbox", given.lease.token), ("news", news.token))
    ]


async def test_a_new_generation_begins_after_transactions_that_write_under_the_leases_that_it_ends(
    given: Given, news: Lease, session: Any
) -> None:
    await session.execute("BEGIN; SELECT 1 FROM leases WHERE shard=1 FOR KEY SHARE")
    opening = await start_blocked(given.store.open(configured("g2", "a")))
    assert (await given.store.generation()).name == "g1"
    await session.execute("COMMIT")
    assert (await opening).epoch == 2
    assert [held.shard for held in await given.store.leases()] == [0]


async def test_a_page_that_came_while_its_lease_was_ended_is_lost(given: Given, session: Any) -> None:
    await session.execute("BEGIN; SELECT 1 FROM leases FOR UPDATE; UPDATE leases SET until=0")
    late = await start_blocked(given.store.commit(given.page(given.entry("s"), cursor=[1])))
    await session.execute("COMMIT")
    with pytest.raises(LeaseLost):
        await late
    assert await given.subjects() == []


async def test_a_page_that_came_while_its_feed_moved_is_lost(given: Given, news: Lease, session: Any) -> None:
    await session.execute("BEGIN; SELECT 1 FROM feeds FOR UPDATE; UPDATE feeds SET shard=1")
    late = await start_blocked(given.store.commit(given.page(given.entry("s"), cursor=[1])))
    await session.execute("COMMIT")
    with pytest.raises(LeaseLost):
        await late


async def test_an_idle_read_that_came_while_its_feed_moved_is_lost(given: Given, news: Lease, session: Any) -> None:
    await given.store.record_idle(idle_reads(given, news))
    await session.execute("BEGIN; SELECT 1 FROM feeds FOR UPDATE; UPDATE feeds SET shard=1")
    late = await start_blocked(given.store.record_idle(idle_reads(given, news)))
    await session.execute("COMMIT")
    with pytest.raises(LeaseLost):
        await late
    assert [(await given.feed(name)).reads for name in ("inbox", "news")] == [1, 1]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("name", ["inbox", "news"])
async def test_idle_reads_that_wait_for_a_reload_do_not_block_it(
    given: Given, news: Lease, session: Any, before: int, name: str
) -> None:
    """A reload locks the feeds, then the leases: a transaction that locked them the other way round would deadlock."""
    for _ in range(before):
        await given.store.record_idle(idle_reads(given, news))
    await session.execute(f"BEGIN; SELECT 1 FROM feeds WHERE name='{name}' FOR UPDATE")
    recording = await start_blocked(given.store.record_idle(idle_reads(given, news)))
    await session.execute("SELECT 1 FROM leases FOR UPDATE NOWAIT; COMMIT")
    await recording
    assert [(await given.feed(name)).reads for name in ("inbox", "news")] == [before + 1] * 2


async def test_a_lease_call_while_a_generation_begins_is_judged_by_the_new_one(given: Given, session: Any) -> None:
    await session.execute("BEGIN; UPDATE generation SET name='g2', epoch=2")
    leasing = await start_blocked(given.store.lease(0, "a", 30, generation="g1"))
    await session.execute("COMMIT")
    assert await leasing is None
    assert await given.store.leases() == []


async def test_a_lease_that_was_taken_while_a_generation_began_is_ended_too(given: Given, session: Any) -> None:
    await session.execute("BEGIN; SELECT 1 FROM generation FOR SHARE")
    opening = await start_blocked(given.store.open(configured("g2", "a")))
    await session.execute(
        "INSERT INTO leases SELECT 9, 'late', nextval('lease_tokens'), until FROM leases WHERE shard=0; COMMIT"
    )
    await opening
    assert [held.shard for held in await given.store.leases()] == [0]
