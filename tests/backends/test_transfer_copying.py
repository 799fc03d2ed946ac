"""The copy command: no process uses the store meanwhile, the counts agree, and the old store names the new one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import apsw
import pytest

from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.transfer import SqliteTransfer
from harken.errors import LeaseLost, Refused
from harken.operate.store_copy_restore import copy_store
from harken.store import HOUSEKEEPING, Store
from harken.store.transfer_protocol_and_exclusive_access import Counts, StoreTransfer, refuse_marked
from harken.store.transfer_rows import Chunk, ExportedEvent
from harken.testing import HandClock
from harken.testing.store.world import LEASE_SECONDS, Given, definitions
from tests.backends.postgres_database import server, url
from tests.backends.test_copy_encryption_and_exclusive_access import (
    PostgresPlace,
    RedisPlace,
    SqlitePlace,
    redis_server,
    redis_url,
)

__all__ = ["redis_server", "redis_url", "server", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("transfer-copying")


class Notes:
    """Collects progress, and acts when the copy waits for other processes."""

    def __init__(self, *when_waiting: object) -> None:
        self.waited: list[Sequence[str]] = []
        self.counts: list[dict[str, int]] = []
        self._then = list(when_waiting)

    def waits(self, writers: Sequence[str]) -> None:
        self.waited.append(writers)
        self._then.pop(0)()  # type: ignore[operator]

    def copied(self, counts: Counts) -> None:
        self.counts.append(dict(counts))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def file(tmp_path: Path, clock: HandClock) -> SqlitePlace:
    return SqlitePlace(tmp_path / "old.db", clock, "")


@pytest.fixture
def goal(tmp_path: Path, clock: HandClock) -> SqlitePlace:
    return SqlitePlace(tmp_path / "new.db", clock, "")


async def with_an_event(store: Store, clock: HandClock) -> Given:
    opened = await store.open(definitions())
    lease = await store.lease(0, "a", LEASE_SECONDS)
    assert lease is not None
    given = Given(store, clock, opened, lease)
    await given.fires("s")
    return given


async def test_progress_and_the_answer_count_each_kind(file: SqlitePlace, goal: SqlitePlace, clock: HandClock) -> None:
    store = await file.open()
    await with_an_event(store, clock)
    await store.close()
    notes = Notes()
    answer = await copy_store(file.transfer(), goal.transfer(), clock, notes)
    assert answer["counts"] == notes.counts[-1]
    assert {kind: number for kind, number in answer["counts"].items() if number} == {
        "feeds": 2,
        "triggers": 2,
        "documents": 1,
        "events": 1,
        "seen keys": 1,
        "runs": 1,
    }
    assert (answer["moved"], notes.waited) == (False, [])


async def test_a_file_that_a_controller_writes_is_not_copied(
    file: SqlitePlace, goal: SqlitePlace, clock: HandClock
) -> None:
    store = await file.open()
    await with_an_event(store, clock)
    with pytest.raises(Refused, match="in use: another Harken process writes"):
        await copy_store(file.transfer(), goal.transfer(), clock, Notes())
    await store.close()


async def test_a_live_copy_waits_until_the_controller_is_gone_and_the_old_file_says_where_it_went(
    file: SqlitePlace, goal: SqlitePlace, clock: HandClock
) -> None:
    store = SqliteStore.at(**file.where, inline=True)
    given = await with_an_event(store, clock)
    notes = Notes(store.abandon)
    source, target = file.transfer(), goal.transfer()
    answer = await copy_store(source, target, clock, notes, live=True)
    assert (answer["moved"], len(notes.waited)) == (True, 1)
    await source.close()
    await target.close()
    given.store = await file.open()
    with pytest.raises(Refused, match=r"moved to .*new\.db"):
        await refuse_marked(given.store)
    await given.store.close()
    given.store = await goal.open()
    await refuse_marked(given.store)
    assert len(await given.claims()) == 1
    await given.store.close()


@pytest.fixture(params=["postgres", "redis"])
def shared(request: pytest.FixtureRequest, url: str, redis_url: str, clock: HandClock) -> PostgresPlace | RedisPlace:
    return PostgresPlace(url, clock, "") if request.param == "postgres" else RedisPlace(redis_url, clock, "")


async def test_a_fleet_is_waited_for_lease_by_lease(shared: PostgresPlace, goal: SqlitePlace, clock: HandClock) -> None:
    store = await shared.open()
    given = await with_an_event(store, clock)
    await given.claims(1, "worker", 20.0)
    await store.put("replica", "r1", {"role": "api"})
    source, target = shared.transfer(), goal.transfer()
    notes = Notes(lambda: clock.advance(31), lambda: clock.advance(31))
    answer = await copy_store(source, target, clock, notes, live=True)
    assert notes.waited[0] == ["a holds leases of it", "workers have 1 of its runs"]
    assert notes.waited[1] == ["replica r1 uses it"]
    assert answer["counts"]["runs"] == 1
    await source.close()
    await target.close()
    assert await store.leases() == []
    with pytest.raises(Refused, match=r"moved to .*new\.db"):
        await refuse_marked(store)
    await store.close()


async def test_who_comes_in_while_it_is_copied_ends_the_copy(
    shared: PostgresPlace, goal: SqlitePlace, clock: HandClock
) -> None:
    store = await shared.open()
    await with_an_event(store, clock)
    clock.advance(3600)
    source, target = shared.transfer(), goal.transfer()
    assert await source.writers() == []
    clock.advance(31)
    assert await store.lease(HOUSEKEEPING, "somebody", LEASE_SECONDS) is not None
    with pytest.raises(LeaseLost):
        await source.stay()
    await source.close()
    await target.close()
    assert [held.holder for held in await store.leases()] == ["somebody"]
    await store.close()


async def test_whoever_died_while_copying_leaves_nothing_in_the_way(shared: PostgresPlace, clock: HandClock) -> None:
    store = await shared.open()
    await with_an_event(store, clock)
    clock.advance(3600)
    source = shared.transfer()
    assert await source.writers() == []
    with pytest.raises(Refused, match="is being copied"):
        await refuse_marked(store)
    clock.advance(31)
    await refuse_marked(store)
    assert await store.lease(0, "b", LEASE_SECONDS) is not None
    await source.close()
    await store.close()


class Losing(SqliteTransfer):
    """A store that loses an event while it is copied."""

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        await super().take(_without_events(rows), origin, force=force)


async def _without_events(rows: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    async for chunk in rows:
        if not isinstance(chunk[0], ExportedEvent):
            yield chunk


async def test_a_copy_that_is_not_complete_is_found_out_and_never_started(
    file: SqlitePlace, goal: SqlitePlace, clock: HandClock
) -> None:
    store = await file.open()
    await with_an_event(store, clock)
    await store.close()
    target: StoreTransfer = Losing.at(**goal.where)
    with pytest.raises(Refused, match="0 of 1 events"):
        await copy_store(file.transfer(), target, clock, Notes())
    await target.close()
    store = await goal.open()
    with pytest.raises(Refused, match="not complete"):
        await refuse_marked(store)
    await store.close()


async def test_a_store_that_is_not_sound_is_not_copied(file: SqlitePlace, goal: SqlitePlace, clock: HandClock) -> None:
    store = await file.open()
    await with_an_event(store, clock)
    await store.close()
    hand = apsw.Connection(str(file.where["path"]))
    hand.execute("DELETE FROM feeds WHERE name='inbox'")
    hand.close()
    target = goal.transfer()
    with pytest.raises(Refused, match="harken store check"):
        await copy_store(file.transfer(), target, clock, Notes())
    assert not any((await target.counts()).values())
    await target.close()
