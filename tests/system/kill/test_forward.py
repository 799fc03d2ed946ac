"""A source that never shows again what is before its cursor, and a database that another program locks now and then.

A cursor that moves before its page is stored loses the page here: the process goes on, and nobody shows it again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.runs import OPEN, Run
from harken.testing.store.record_queries import all_pages
from tests.servers.ports import free_port
from tests.soak import longer, patience
from tests.system.kill.outside_world import ForwardQueues, Nursery, answers

LIVES = longer(__file__, 4)
QUEUES = 3
WAIT_AFTER_LOCK = 5.0
"""Seconds after which a feed is read again that could not be stored."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.worker_group("kill"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(patience(1_200)),
]

WORKFLOW = """
name: {name}
trigger:
  poll: {{integration: forward, interval: 1s, query: {{url: "{url}/{name}"}}}}
steps:
  - {{id: note, action: transform, set: {{text: seen}}}}
"""


class Scene:
    def __init__(self, directory: Path, nursery: Nursery, queues: ForwardQueues, url: str) -> None:
        self.store = directory / "harken.db"
        self.nursery, self.queues, self.url = nursery, queues, url

    async def live(self, random: Random, *, locked: bool) -> None:
        """One life, which kill -9 ends: soon, or after what could not be stored was read again."""
        pid = await self.nursery.start()
        await answers(f"{self.url}/health/ready", 90)
        if locked:
            await self._lock(random.uniform(1.2, 1.6))
            await asyncio.sleep(WAIT_AFTER_LOCK + random.uniform(0.5, 1.5))
        else:
            await asyncio.sleep(random.uniform(0.1, 1.0))
            # it dies while it waits for the lock
            await asyncio.gather(self._lock(0.5), self._kill_soon(pid, random.uniform(0.1, 0.4)))
        self._kill(pid)
        assert await self.nursery.reap() == -signal.SIGKILL

    async def _lock(self, seconds: float) -> None:
        """Hold the database as another program does that writes to it."""
        connection = sqlite3.connect(self.store, isolation_level=None, timeout=10)
        try:
            connection.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    async def _kill_soon(self, pid: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._kill(pid)

    @staticmethod
    def _kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    async def run_to_the_end(self) -> int:
        pid = await self.nursery.start()
        for _ in range(200):
            await asyncio.sleep(0.3)
            runs = await self.runs()
            if len(runs) >= len(self.queues.put) and not any(run.status in OPEN for run in runs):
                break
        os.kill(pid, signal.SIGTERM)
        return await self.nursery.reap()

    async def runs(self) -> list[Run]:
        store = SqliteStore.at(self.store, SystemClock(), readonly=True)
        try:
            return await all_pages(store.runs, limit=500)
        finally:
            await store.close()


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    queues, port = ForwardQueues([f"queue{number}" for number in range(QUEUES)]), free_port()
    async with queues.serve() as shown, Nursery.at(directory, port, services={"forward": "forward_service"}) as nursery:
        (directory / "harken.yaml").write_text("store: harken.db\n")
        (directory / "workflows").mkdir()
        for name in queues.names:
            (directory / "workflows" / f"{name}.yaml").write_text(WORKFLOW.format(name=name, url=shown))
        yield Scene(directory, nursery, queues, f"http://127.0.0.1:{port}")


async def test_a_source_that_only_goes_forward_loses_nothing_while_the_database_is_locked_now_and_then(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("HARKEN_KILL_SEED", "0")) or secrets.randbits(32)
    print(f"HARKEN_KILL_SEED={seed}")  # noqa: T201
    random = Random(seed)
    async with scene(tmp_path) as on:
        await begin(on)
        bringing = asyncio.create_task(on.queues.bring(random))
        for number in range(LIVES):
            await on.live(random, locked=number % 2 == 0)
        bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)
        code = await on.run_to_the_end()
        log = (tmp_path / "harken.log").read_text()[-3_000:]
        assert code == 0, log
        found = Counter((run.trigger, key) for run in await on.runs() for key in run.event_keys)
        wanted = Counter(on.queues.put)
        assert "another program holds the database" in (tmp_path / "harken.log").read_text()
        assert wanted - found == Counter(), f"lost {len(wanted - found)} of {len(wanted)}; {log}"
        assert found - wanted == Counter(), f"doubled; {log}"
        print(f"{LIVES} lives, {len(wanted)} items")  # noqa: T201


async def begin(on: Scene) -> None:
    """The first read of each queue is its baseline: nothing that comes later may be taken for old."""
    pid = await on.nursery.start()
    await answers(f"{on.url}/health/ready", 90)
    await asyncio.wait_for(on.queues.read_twice.wait(), 200)
    os.kill(pid, signal.SIGKILL)
    await on.nursery.reap()
