"""A thousand triggers on one feed: what did not fire takes little space in each store, and older rows stay readable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from harken.backends.columnar_event_history import MOST_REMEMBERED, outcome_reader
from harken.backends.encryption import PlainSeal
from harken.backends.postgres import PostgresStore
from harken.backends.redis import RedisStore
from harken.backends.redis.codec import EVENT_HEAD, encode_verdict
from harken.backends.sqlite import SqliteStore
from harken.backends.verdicts import decode_verdicts, encode_verdicts
from harken.event import Verdict
from harken.store import Intent, Lease, Store
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.event_decided_by_many_triggers import declined
from harken.testing.store.world import definitions
from tests.backends.postgres_database import server, url
from tests.servers.redis import RedisServer

__all__ = ["server", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("compact-verdicts")

THOUSAND = [declined(number) for number in range(1000)]


class Rows(Protocol):
    """The stored verdicts of the only event."""

    @property
    def store(self) -> Store: ...

    async def size(self) -> int: ...

    async def write_as_before(self, verdicts: tuple[Verdict, ...]) -> None:
        """Store them as an older Harken did."""


class SqliteRows:
    def __init__(self, store: SqliteStore, path: Path) -> None:
        self.store = store
        self._path = path

    async def size(self) -> int:
        return int(apsw.Connection(str(self._path)).execute("SELECT length(verdicts) FROM events").get)

    async def write_as_before(self, verdicts: tuple[Verdict, ...]) -> None:
        apsw.Connection(str(self._path)).execute("UPDATE events SET verdicts=?", (msgspec.json.encode(verdicts),))


class PostgresRows:
    def __init__(self, store: PostgresStore, url: str) -> None:
        self.store = store
        self._url, _, schema = url.partition("?sslmode=disable&search_path=")
        self._settings = {"search_path": schema}

    async def size(self) -> int:
        connection = await asyncpg.connect(self._url, server_settings=self._settings)
        found = await connection.fetchval("SELECT length(verdicts) FROM events")
        await connection.close()
        return int(found)

    async def write_as_before(self, verdicts: tuple[Verdict, ...]) -> None:
        connection = await asyncpg.connect(self._url, server_settings=self._settings)
        await connection.execute("UPDATE events SET verdicts=$1", msgspec.json.encode(verdicts))
        await connection.close()


class RedisRows:
    def __init__(self, store: RedisStore, url: str) -> None:
        self.store = store
        self._client = Redis.from_url(url)

    async def _head(self) -> tuple[Any, Any, Any]:
        [bucket] = [key async for key in self._client.scan_iter("*:e:0")]
        fields: dict[Any, Any] = await self._client.hgetall(bucket)
        [field] = [name for name in fields if name.startswith(b"v")]
        return bucket, field, fields[field]

    async def size(self) -> int:
        _, _, head = await self._head()
        return len(head)

    async def write_as_before(self, verdicts: tuple[Verdict, ...]) -> None:
        bucket, field, head = await self._head()
        begin = head[: EVENT_HEAD.size + EVENT_HEAD.unpack_from(head)[2]]
        frames = (encode_verdict(PlainSeal(), verdict, bytes.fromhex(verdict.run_id)) for verdict in verdicts)
        await self._client.hset(bucket, field, begin + b"".join(frames))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
async def sqlite_rows(tmp_path: Path, clock: HandClock) -> AsyncIterator[Rows]:
    store = SqliteStore.at(tmp_path / "harken.db", clock)
    yield SqliteRows(store, tmp_path / "harken.db")
    await store.close()


@pytest.fixture
async def postgres_rows(url: str, clock: HandClock) -> AsyncIterator[Rows]:
    store = PostgresStore.at(url, clock)
    yield PostgresRows(store, url)
    await store.close()


@pytest.fixture
async def redis_rows(redis: RedisServer, clock: HandClock) -> AsyncIterator[Rows]:
    async with Redis.from_url(redis.url()) as client:
        await client.flushall()
    store = RedisStore.at(redis.url(), clock)
    yield RedisRows(store, redis.url())
    await store.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=["sqlite_rows", "postgres_rows", "redis_rows"])
def rows(request: pytest.FixtureRequest) -> Rows:
    found: Rows = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def given(rows: Rows, clock: HandClock) -> Given:
    opened = await rows.store.open(definitions())
    lease = await rows.store.lease(0, "a", 30)
    assert isinstance(lease, Lease)
    return Given(rows.store, clock, opened, lease)


async def test_what_did_not_fire_of_a_thousand_triggers_is_stored_compactly(rows: Rows, given: Given) -> None:
    await given.commit(given.entry("s", *THOUSAND, given.intent("s")))
    assert await rows.size() < 12_000 < len(msgspec.json.encode(THOUSAND)) / 10


async def test_rows_of_an_older_harken_are_read_and_explained_as_before(rows: Rows, given: Given) -> None:
    decisions: list[Verdict | Intent] = [*THOUSAND[:15], given.intent("s"), *THOUSAND[15:40]]
    committed = await given.commit(given.entry("s", *decisions))
    compact = await given.events()
    await rows.write_as_before(committed.verdicts[0])
    assert await given.events() == compact
    late = given.intent("s", trigger="other")
    again = await given.commit(given.entry("s", late, memory_id="", again=committed.event_ids[0]))
    assert again.verdicts[0][:41] == committed.verdicts[0]
    assert again.verdicts[0][41].trigger == "other"
    repeated = await given.commit(given.entry("s", *decisions))
    assert repeated.verdicts[0][15].run_id == committed.verdicts[0][15].run_id


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 1000])
def test_verdicts_are_the_same_after_a_round_trip(number: int) -> None:
    verdicts = (*THOUSAND[:number], Verdict(trigger="ü", outcome="fired", run_id="ab" * 16))
    assert decode_verdicts(encode_verdicts(verdicts)) == verdicts
    assert decode_verdicts(msgspec.json.encode(verdicts)) == verdicts


def test_the_outcome_of_one_trigger_is_found_in_each_form_however_often_it_comes() -> None:
    read, wanted = outcome_reader("mine"), Verdict(trigger="mine", outcome="fired", run_id="ab" * 16)
    few, many = THOUSAND[:2], THOUSAND[:40]
    forms = [encode_verdicts(one) for one in ([wanted, *few], [*few, wanted], [*many, wanted], [wanted, *many])]
    others = [encode_verdicts(few), encode_verdicts(many), msgspec.json.encode([])]
    last = [Verdict(trigger="mine", outcome="held"), Verdict(trigger="mine", outcome="skipped")] * MOST_REMEMBERED
    different = [encode_verdicts([*many, replace(one, reason=str(n))]) for n, one in enumerate(last)]
    for _ in range(2):
        assert [read(form) for form in forms] == ["fired"] * 4
        assert [read(other) for other in others] == [""] * 3
        assert [read(one) for one in different] == ["held", "skipped"] * MOST_REMEMBERED


async def test_encrypting_a_file_keeps_the_runs_of_many_verdicts(tmp_path: Path, clock: HandClock) -> None:
    store = SqliteStore.at(tmp_path / "harken.db", clock)
    opened, lease = await store.open(definitions()), await store.lease(0, "a", 30)
    assert isinstance(lease, Lease)
    given = Given(store, clock, opened, lease)
    await given.commit(given.entry("s", *THOUSAND[:40], given.intent("s")))
    await store.close()
    sealed = SqliteStore.at(tmp_path / "harken.db", clock, key="a long key of the operator")
    [event], [run] = (await sealed.events()).items, (await sealed.runs()).items
    assert event.verdicts[:40] == tuple(THOUSAND[:40])
    assert event.verdicts[40].run_id == run.id
    await sealed.close()
