"""A store that an earlier version wrote opens, is migrated, keeps every row, and the engine goes on with it.

The files and dumps were written by `make_earlier_store.py` with the code of commits b7ac51a (schema 4 of SQLite, 2 of
PostgreSQL) and 935deac (schemas 8 and 6). Redis has one layout of keys so far; its rows have got more fields.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest
from redis.asyncio import Redis

from harken.app import App
from harken.backends.postgres import PostgresStore, Settings
from harken.backends.postgres.transfer import PostgresTransfer
from harken.backends.redis import RedisStore
from harken.backends.redis.transfer import RedisTransfer
from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.transfer import SqliteTransfer
from harken.errors import Misconfigured
from harken.store import Store
from harken.store.transfer_protocol_and_exclusive_access import StoreTransfer
from harken.testing import HandClock
from harken.testing.store.transfer_world import WORLD
from tests.backends.earlier_store_files import dump_postgres, dump_redis, load_postgres, load_redis
from tests.backends.make_earlier_store import PAUSED, RUNS, STORES, hook, new_order, read_back, write_directory
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.system.fleet.replica_processes import until

# its servers are started once, and not by each worker
pytestmark = pytest.mark.worker_group("earlier-servers")

FILL_SECONDS = 1.5
COMMITS = sorted(path.name for path in STORES.iterdir() if path.is_dir())


class Earlier(Protocol):
    """A store that was loaded from a dump; `written` is what the earlier code read back from it."""

    url: str
    written: Any

    def store(self, clock: HandClock | None = None, *, readonly: bool = False) -> Store: ...

    def transfer(self, clock: HandClock | None = None) -> StoreTransfer: ...

    async def dump(self) -> bytes: ...

    async def make_newer(self) -> None:
        """Let it say that its schema is 99."""
        ...


class EarlierPostgres:
    def __init__(self, server: PostgresServer, database: str, written: Any) -> None:
        self._server, self._database, self.written = server, database, written
        self.url = f"{server.url(database)}?sslmode=disable"

    @classmethod
    async def loaded(cls, server: PostgresServer, path: Path, content: str) -> EarlierPostgres:
        database = await server.database()
        await load_postgres(server, database, unpacked(path / f"postgres-{content}.sql.xz"))
        return cls(server, database, json.loads(unpacked(path / f"postgres-{content}.json.xz")))

    def store(self, clock: HandClock | None = None, *, readonly: bool = False) -> Store:
        return PostgresStore.at(self.url, clock, readonly=readonly, settings=Settings(pool=2))

    def transfer(self, clock: HandClock | None = None) -> StoreTransfer:
        return PostgresTransfer.at(self.url, clock)

    async def dump(self) -> bytes:
        return dump_postgres(self._server, self._database)

    async def make_newer(self) -> None:
        connection = await self._server.connect(self._database)
        await connection.execute("INSERT INTO harken_migrations (number, name) VALUES (99, 'later')")
        await connection.close()


class EarlierSqlite:
    def __init__(self, path: Path, written: Any) -> None:
        self.url, self.written = str(path), written

    @classmethod
    async def loaded(cls, file: Path, path: Path, content: str) -> EarlierSqlite:
        file.write_bytes(unpacked(path / f"sqlite-{content}.db.xz"))
        return cls(file, json.loads(unpacked(path / f"sqlite-{content}.json.xz")))

    def store(self, clock: HandClock | None = None, *, readonly: bool = False) -> Store:
        return SqliteStore.at(self.url, clock, readonly=readonly)

    def transfer(self, clock: HandClock | None = None) -> StoreTransfer:
        return SqliteTransfer.at(self.url, clock)

    async def dump(self) -> bytes:
        with closing(sqlite3.connect(f"file:{self.url}?mode=ro", uri=True)) as file:
            return "\n".join([str(file.execute("PRAGMA user_version").fetchone()), *file.iterdump()]).encode()

    async def make_newer(self) -> None:
        with closing(sqlite3.connect(self.url)) as file:
            file.execute("PRAGMA user_version=99")


class EarlierRedis:
    def __init__(self, url: str, written: Any) -> None:
        self.url, self.written = url, written

    @classmethod
    async def loaded(cls, server: RedisServer, path: Path, content: str) -> EarlierRedis:
        async with Redis.from_url(server.url()) as client:
            await client.flushall()
        await load_redis(server.url(), unpacked(path / f"redis-{content}.keys.json.xz"))
        return cls(server.url(), json.loads(unpacked(path / f"redis-{content}.json.xz")))

    def store(self, clock: HandClock | None = None, *, readonly: bool = False) -> Store:
        return RedisStore.at(self.url, clock, readonly=readonly)

    def transfer(self, clock: HandClock | None = None) -> StoreTransfer:
        return RedisTransfer.at(self.url, clock)

    async def dump(self) -> bytes:
        return await dump_redis(self.url)

    async def make_newer(self) -> None:
        async with Redis.from_url(self.url) as client:
            await client.set("{harken:0}:schema", 99)


def unpacked(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes())


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer(appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
def content() -> str:
    return "engine"


@pytest.fixture(params=[f"{kind}-{commit}" for commit in COMMITS for kind in ("sqlite", "postgres", "redis")])
async def earlier(request: pytest.FixtureRequest, tmp_path: Path, content: str) -> Earlier:
    kind, commit = request.param.split("-")
    if kind == "sqlite":
        return await EarlierSqlite.loaded(tmp_path / "harken.db", STORES / commit, content)
    server = request.getfixturevalue(kind)
    if kind == "postgres":
        return await EarlierPostgres.loaded(server, STORES / commit, content)
    return await EarlierRedis.loaded(server, STORES / commit, content)


@pytest.fixture
def clock(content: str) -> HandClock | None:
    """The time at which the store was full; what the engine wrote has the server's.

    Who opens a file frees what its last user had claimed, at this time.
    """
    full = HandClock()
    full.advance(FILL_SECONDS)
    return full if content == "filled" else None


async def opened(earlier: Earlier, clock: HandClock | None) -> Any:
    """Open the store, which migrates it, and read everything."""
    store, transfer = earlier.store(clock), earlier.transfer(clock)
    await store.connect()
    found = await read_back(store, transfer)
    found["faults"] = await store.check()
    await transfer.close()
    await store.close()
    return found


def in_order(found: Any) -> Any:
    """Rows that have no order in Redis get one."""
    names = {"ExportedMemory": ("feed", "mid"), "ExportedDocument": ("kind", "name")}

    def place(row: Any) -> Any:
        return row[0], [row[1][name] for name in names.get(row[0], ())]

    return {**found, "rows": sorted(found["rows"], key=place)}


def differences(was: Any, now: Any, where: str = "") -> Iterator[str]:
    """What is not as it was. New fields do not count."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name, value in was.items():
            yield from differences(value, now.get(name, "is gone"), f"{where}.{name}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, one, other in zip(count(), was, now, strict=False):
            yield from differences(one, other, f"{where}[{place}]")
    elif was != now:
        yield f"{where}: {was!r} -> {now!r}"


@pytest.mark.parametrize("content", ["engine", "filled"])
async def test_every_row_is_read_back_as_it_was_written(earlier: Earlier, clock: HandClock | None) -> None:
    found = await opened(earlier, clock)
    assert len({kind for kind, _ in earlier.written["rows"]}) >= 8
    assert list(differences(in_order(earlier.written), in_order(found))) == []
    assert found["faults"] == []


@pytest.mark.parametrize("content", ["engine", "filled"])
async def test_the_second_opening_changes_nothing(earlier: Earlier, clock: HandClock | None) -> None:
    first = await opened(earlier, clock)
    migrated = await earlier.dump()
    assert await opened(earlier, clock) == first
    assert await earlier.dump() == migrated


@pytest.mark.parametrize("content", ["filled"])
async def test_the_same_configuration_leaves_feeds_and_triggers_as_they_were(
    earlier: Earlier, clock: HandClock
) -> None:
    store = earlier.store(clock)
    again = await store.open(WORLD)
    await store.close()
    was = {each["name"]: (each["uid"], each["epoch"]) for each in earlier.written["answers"]["triggers"]}
    assert again.feeds["inbox"].cursor == {"page": 7}
    assert {name: (state.uid, state.epoch) for name, state in again.triggers.items()}.items() <= was.items()


async def counted(app: App) -> Counter[tuple[str, str]]:
    return Counter((run.trigger, run.status) for run in (await app.store.runs(limit=100)).items)


async def test_the_engine_goes_on_where_the_earlier_one_stopped(
    earlier: Earlier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_directory(tmp_path, earlier.url)
    for number in (3, 4, 5):
        new_order(tmp_path, number)
    monkeypatch.chdir(tmp_path)
    written = {each["id"]: each["status"] for each in earlier.written["answers"]["runs"]}
    async with App.start(tmp_path, port=0) as app, aiohttp.ClientSession(app.url) as session:
        await hook(app, "d", 40)

        async def has(expected: dict[tuple[str, str], int]) -> None:
            async def comes() -> bool:
                return await counted(app) == expected

            await until(comes, 20, lambda: f"there are not the runs {expected}")

        # one more of each, by the row 5 and the hook d: rows 3 and 4 are not fired again
        await has({each: number + 1 for each, number in RUNS.items()})
        for run_id, status in written.items():
            found = await app.store.run(run_id)
            assert found is not None
            assert found.status == status
        [waiting, *_] = [run_id for run_id, status in written.items() if status == "waiting"]
        await session.post(f"/api/runs/{waiting}/approve", json={"approved": True})
        [state] = [state for state in await app.store.triggers() if state.name == "resting"]
        assert state.paused == PAUSED
        await session.post("/api/triggers/resting/resume", json={})
        after = {each: number + 1 for each, number in RUNS.items() if each[0] not in ("waiting", "resting")}
        await has({**after, ("waiting", "waiting"): 2, ("waiting", "done"): 1, ("resting", "done"): 3})
        events = (await app.store.events(trigger="rows", limit=100)).items
        runs = [run for event in events for run in (await app.store.runs(event_id=event.id)).items]
        assert len(runs) == len({run.id for run in runs}) == 3
        assert await app.store.check() == []


async def connected(earlier: Earlier, *, readonly: bool) -> None:
    store = earlier.store(readonly=readonly)
    try:
        await store.connect()
    finally:
        await store.close()


@pytest.mark.parametrize("readonly", [False, True])
async def test_a_store_of_a_newer_version_is_refused_and_stays_as_it_is(earlier: Earlier, readonly: bool) -> None:
    await earlier.make_newer()
    before = await earlier.dump()
    with pytest.raises(Misconfigured, match=r"written by a newer Harken \(schema 99, ours \d+\)"):
        await connected(earlier, readonly=readonly)
    assert await earlier.dump() == before
