"""A store is copied in a ring: from a file to PostgreSQL, to Redis, and back into a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from harken.errors import Misconfigured, Refused
from harken.event import Verdict
from harken.store import Entry
from harken.store.transfer_rows import Chunk, ExportedEvent
from harken.testing import HandClock
from harken.testing.store.transfer import comparable, copy_store
from harken.testing.store.transfer_world import BEFORE, WORLD, Place, fill, snapshot
from harken.testing.store.world import LEASE_SECONDS, Given, definitions
from tests.backends.postgres_database import server, url
from tests.backends.quick_keys import quick_keys
from tests.backends.test_copy_encryption_and_exclusive_access import (
    KEY,
    PostgresPlace,
    RedisPlace,
    SqlitePlace,
    redis_server,
    redis_url,
)
from tests.soak import larger

__all__ = ["quick_keys", "redis_server", "redis_url", "server", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("transfer-ring")

LARGE = larger(__file__, 8_000)
MB = 1_000_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


class Ring:
    """The places of one test; each may have its own key."""

    def __init__(self, folder: Path, url: str, redis_url: str, clock: HandClock) -> None:
        self._folder = folder
        self._urls = (url, redis_url)
        self.clock = clock

    def around(self, key: str = "") -> Sequence[Place]:
        url, redis_url = self._urls
        return (
            SqlitePlace(self._folder / "first.db", self.clock, key),
            PostgresPlace(url, self.clock, key),
            RedisPlace(redis_url, self.clock, key),
            SqlitePlace(self._folder / "last.db", self.clock, key),
        )

    async def filled(self, place: Place) -> dict[str, object]:
        """Fill the store at this place and return a snapshot of it."""
        store = await place.open()
        await store.open(BEFORE)
        opened = await store.open(WORLD)
        lease = await store.lease(0, "a", LEASE_SECONDS)
        assert lease is not None
        await fill(Given(store, self.clock, opened, lease))
        found = await snapshot(store)
        await store.close()
        return found


@pytest.fixture
def ring(tmp_path: Path, url: str, redis_url: str, clock: HandClock) -> Ring:
    return Ring(tmp_path, url, redis_url, clock)


async def snapshot_at(place: Place) -> dict[str, object]:
    store = await place.open()
    found = await snapshot(store)
    assert await store.check() == []
    await store.close()
    return found


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "sealed"])
async def test_once_around_nothing_has_changed(ring: Ring, key: str) -> None:
    places = ring.around(key)
    before = await ring.filled(places[0])
    for origin, goal in pairwise(places):
        await copy_store(origin, goal)
    assert await snapshot_at(places[-1]) == before


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["sqlite", "postgres", "redis"])
async def test_a_plain_store_becomes_an_encrypted_one_on_its_way(ring: Ring, kind: int) -> None:
    origin, goal = ring.around()[kind], ring.around(KEY)[(kind + 1) % 4]
    before = await ring.filled(origin)
    await copy_store(_with_key(origin), goal)
    after = await snapshot_at(goal)
    assert comparable(after) == comparable(before)
    assert after["runs"] != before["runs"]


def _with_key(place: Place) -> Place:
    """The same plain store, opened by a process that has a key."""
    where = place.where  # type: ignore[attr-defined]
    where["key"] = KEY
    return place


async def test_an_encrypted_store_does_not_become_a_plain_one(ring: Ring) -> None:
    sealed, plain = ring.around(KEY), ring.around()
    await ring.filled(sealed[0])
    with pytest.raises(Misconfigured, match="is encrypted"):
        await copy_store(plain[0], plain[1])
    with pytest.raises(Refused, match="HARKEN_ENCRYPTION_KEY"):
        await copy_store(sealed[0], plain[3])


class Measured:
    """Counts exported rows, and measures by how much the process grows meanwhile."""

    def __init__(self, rows: AsyncIterator[Chunk]) -> None:
        self._rows = rows
        self._first = _in_use()
        self.grown = 0
        self.passed = 0

    async def passing(self) -> AsyncIterator[Chunk]:
        async for chunk in self._rows:
            self.passed += sum(len(row.data) for row in chunk if isinstance(row, ExportedEvent))
            yield chunk
            self.grown = max(self.grown, _in_use() - self._first)


def _in_use() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _with_body(entry: Entry, text: str) -> Entry:
    event = msgspec.structs.replace(entry.event, data={"text": text})
    return msgspec.structs.replace(entry, event=event)


async def _many_events(ring: Ring, place: Place) -> None:
    store = await place.open()
    opened = await store.open(definitions())
    lease = await store.lease(0, "a", LEASE_SECONDS)
    assert lease is not None
    given = Given(store, ring.clock, opened, lease)
    for begin in range(0, LARGE, 500):
        subjects = [f"s{number}" for number in range(begin, begin + 500)]
        entries = [given.entry(each, Verdict(trigger="mail", outcome="filtered", reason="no")) for each in subjects]
        await given.commit(*(_with_body(entry, "x" * 4_000) for entry in entries))
    await store.close()


async def test_a_large_store_takes_little_memory_on_its_way(ring: Ring) -> None:
    places = ring.around()
    await _many_events(ring, places[0])
    for origin, goal in pairwise(places):
        source, target = origin.transfer(), goal.transfer()
        measured = Measured(source.rows())
        await target.take(measured.passing(), source.place)
        assert measured.passed > LARGE * 4_000
        assert measured.grown < 20 * MB
        assert await target.counts() == await source.counts()
        assert (await target.counts())["events"] == (await target.counts())["seen keys"] == LARGE
        await source.close()
        await target.close()
