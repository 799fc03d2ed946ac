"""Writes stores with the code of an earlier commit, for `test_earlier_stores.py`.

    git worktree add --detach /tmp/earlier COMMIT
    python -m tests.backends.make_earlier_store /tmp/earlier

It starts a PostgreSQL and a Redis. A process that imports the earlier code writes two stores in each, and two files of
SQLite: `engine`, by a start of Harken on a few workflows, and `filled`, by the verbs of the store, with rows of every
kind and state. What that code then reads back is written beside the dump. `--only sqlite` leaves the servers out.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import msgspec

__all__ = ["PAUSED", "RUNS", "STORES", "hook", "is_read", "new_order", "read_back", "write_directory"]

STORES = Path(__file__).parent / "earlier_stores"
ROOT = Path(__file__).parents[2]
SETTINGS = """models: {default: echo}
store: STORE
retention: {events: 36500d, runs: 36500d, ticks: 36500d}
integrations:
  shop: {kind: sql, engine: sqlite, database: shop.db}
"""
WORKFLOWS = {
    "rows": """name: rows
trigger:
  type: poll
  poll:
    integration: shop
    interval: 10s
    query: {query: 'SELECT id, total FROM orders', watermark: id}
steps:
  - {id: note, action: transform, set: {text: 'row {{.trigger.event.id}}'}}
  - {id: tell, action: emit, type: order.noted, data: {id: '{{.trigger.event.id}}'}}
""",
    "hooks": """name: hooks
trigger:
  webhook: {id: hooks, scheme: none, allow_unsigned: true, id_field: id}
  condition: event.total > 10
steps: [{id: note, action: transform, set: {text: 'hook {{.trigger.event.id}}'}}]
""",
    "broken": """name: broken
trigger: {event: order.noted, max_attempts: 1}
steps: [{id: call, action: http, url: 'http://127.0.0.1:1/', retry: {max_attempts: 1}}]
""",
    "waiting": """name: waiting
trigger: {event: order.noted}
steps: [{id: ask, action: approve, prompt: 'Ship it?'}]
""",
    "resting": """name: resting
trigger: {event: order.noted}
steps: [{id: note, action: transform, set: {text: rested}}]
""",
}
PAUSED = "until the summer"
RUNS = {
    ("rows", "done"): 2,
    ("hooks", "done"): 2,
    ("broken", "dead"): 2,
    ("waiting", "waiting"): 2,
    ("resting", "held"): 2,
}
"""How many runs of each trigger and state the engine leaves."""
LOOKS = 1_200
WRITTEN, FILE = "written.json", "harken.db"


def write_directory(directory: Path, url: str) -> None:
    """The configuration for the store at `url`, and the database that it reads, as the earlier engine left it."""
    (directory / "workflows").mkdir()
    (directory / "harken.yaml").write_text(SETTINGS.replace("STORE", url))
    for name, text in WORKFLOWS.items():
        (directory / "workflows" / f"{name}.yaml").write_text(text)
    with sqlite3.connect(directory / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)")
    for number in (1, 2):
        new_order(directory, number)


def new_order(directory: Path, number: int) -> None:
    with sqlite3.connect(directory / "shop.db") as shop:
        shop.execute("INSERT INTO orders VALUES (?, ?)", (number, number * 10))


async def hook(app: Any, id: str, total: int) -> Any:
    async with aiohttp.ClientSession() as session:
        reply = await session.post(f"{app.url}/webhooks/generic/hooks", json={"id": id, "total": total})
        return await reply.json()


async def is_read(app: Any) -> bool:
    """Whether the table of orders was read once."""
    return any(feed.reads and feed.cursor is not None for feed in await app.store.feeds())


async def read_back(store: Any, transfer: Any) -> Any:
    """All rows of the store, and the answers to its queries, as JSON."""
    from harken.testing.store.transfer_world import snapshot

    answers = await snapshot(store)
    rows = [(type(row).__name__, row) async for chunk in transfer.rows() for row in chunk]
    return json.loads(msgspec.json.encode({"answers": answers, "rows": rows}))


async def _until(fact: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(LOOKS):
        if await fact():
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"{what} did not come")


async def _write_by_engine(url: str) -> None:
    from harken.app import App

    directory = Path.cwd()
    write_directory(directory, url)
    async with App.start(directory, port=0) as app:

        async def all_runs() -> bool:
            runs = (await app.store.runs(limit=100)).items
            return Counter((run.trigger, run.status) for run in runs) == RUNS

        await _until(lambda: is_read(app), "the first read")
        async with aiohttp.ClientSession() as session:
            reply = await session.post(f"{app.url}/api/triggers/resting/pause", json={"reason": PAUSED})
            assert reply.status == 200, await reply.text()
        for number in (3, 4):
            new_order(directory, number)
        for id, total in (("a", 20), ("b", 5), ("c", 30), ("a", 20)):
            await hook(app, id, total)
        await _until(all_runs, f"the runs {RUNS}")


async def _fill(store: Any, clock: Any) -> None:
    from harken.testing.store.transfer_world import BEFORE, WORLD, fill
    from harken.testing.store.world import LEASE_SECONDS, Given

    await store.open(BEFORE)
    opened = await store.open(WORLD)
    lease = await store.lease(0, "a", LEASE_SECONDS)
    await fill(Given(store, clock, opened, lease))


def _backend(kind: str) -> tuple[Any, Any]:
    if kind == "postgres":
        from harken.backends.postgres import PostgresStore
        from harken.backends.postgres.transfer import PostgresTransfer

        return PostgresStore, PostgresTransfer
    if kind == "sqlite":
        from harken.backends.sqlite import SqliteStore
        from harken.backends.sqlite.transfer import SqliteTransfer

        return SqliteStore, SqliteTransfer
    from harken.backends.redis import RedisStore
    from harken.backends.redis.transfer import RedisTransfer

    return RedisStore, RedisTransfer


async def _write(kind: str, content: str, url: str) -> None:
    """Write a store, and what is in it into a file here. This part imports the earlier code."""
    from harken.testing import HandClock

    store_class, transfer_class = _backend(kind)
    clock = HandClock() if content == "filled" else None
    if content == "engine":
        await _write_by_engine(url)
    store = store_class.at(url, clock)
    if content == "filled":
        await _fill(store, clock)
    transfer = transfer_class.at(url, clock)
    Path(WRITTEN).write_text(json.dumps(await read_back(store, transfer), indent=1, sort_keys=True))
    await transfer.close()
    await store.close()


def _written_by(tree: Path, kind: str, content: str, url: str) -> bytes:
    with TemporaryDirectory() as directory:
        return _write_in(Path(directory), tree, kind, content, url)


def _write_in(directory: Path, tree: Path, kind: str, content: str, url: str) -> bytes:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.backends.make_earlier_store", "--write", kind, content, url]
    subprocess.run(command, cwd=directory, env=environment, check=True)
    return (directory / WRITTEN).read_bytes()


def _make_files(tree: Path) -> None:
    """Stores of SQLite. The file is whole without a log beside it, because its last user has closed it."""
    for content in ("engine", "filled"):
        with TemporaryDirectory() as place:
            directory = Path(place)
            written = _write_in(directory, tree, "sqlite", content, FILE)
            assert not (directory / f"{FILE}-wal").exists()
            _save(STORES / _commit_of(tree) / f"sqlite-{content}.json.xz", written)
            _save(STORES / _commit_of(tree) / f"sqlite-{content}.db.xz", (directory / FILE).read_bytes())


def _commit_of(tree: Path) -> str:
    command = ["git", "-C", str(tree), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _save(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(content, preset=9))
    sys.stdout.write(f"{path}: {path.stat().st_size} bytes\n")


async def _make(tree: Path) -> None:
    from tests.backends.earlier_store_files import dump_postgres, dump_redis
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer

    directory = STORES / _commit_of(tree)
    with PostgresServer() as postgres, RedisServer(appendonly="yes") as redis:
        for number, content in enumerate(("engine", "filled")):
            database = await postgres.database()
            url = f"{postgres.url(database)}?sslmode=disable"
            _save(directory / f"postgres-{content}.json.xz", _written_by(tree, "postgres", content, url))
            _save(directory / f"postgres-{content}.sql.xz", dump_postgres(postgres, database))
            url = redis.url(number)
            _save(directory / f"redis-{content}.json.xz", _written_by(tree, "redis", content, url))
            _save(directory / f"redis-{content}.keys.json.xz", await dump_redis(url))


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        asyncio.run(_write(*sys.argv[2:5]))
    else:
        _make_files(Path(sys.argv[1]).resolve())
        if sys.argv[2:] != ["--only", "sqlite"]:
            asyncio.run(_make(Path(sys.argv[1]).resolve()))
