"""Streams: what a broker pushes is on disk before it is acknowledged, and what comes twice runs once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

from harken.backends.sqlite import SqliteStore
from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.feed import Feed, Trigger
from harken.ingest.intake import Intake
from harken.source import Batch, Cursor
from harken.store import Definitions
from harken.testing import VirtualClock, run_virtual
from harken.testing.crashing import CrashingStore
from tests.ingest.process import NoExecutor

FEED = Feed(name="orders", kind="broker", integration="broker", way="stream", identity="once", first="deliver")
TRIGGER = Trigger(name="ship", feed="orders", workflow="w", workflow_rev="r1", flood_limit=0)
DEFINITIONS = Definitions(
    generation="1", starting=True, feeds=[FEED], triggers=[TRIGGER], workflows={"w": ("r1", b'{"steps": []}')}
)


class Broker:
    """Delivers what is not acknowledged. `errors` are those with which the next connections break.

    So many connections as `ends` says are closed by the broker at once, without an error."""

    def __init__(self, clock: VirtualClock, *, shared: bool = False) -> None:
        self._clock = clock
        self.shared = shared
        self.queue: list[str] = []
        self.acknowledged: list[str] = []
        self.errors: list[Exception] = []
        self.ends = 0
        self.began: list[Cursor] = []
        self.after_delivery: list[int] = []
        self.store: SqliteStore | None = None

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        self.began.append(cursor)
        if self.ends:
            self.ends -= 1
            return
        while True:
            if self.errors:
                raise self.errors.pop(0)
            while not self.queue:
                await self._clock.sleep(1.0)
            name = self.queue[0]
            yield Batch(events=[Event(subject=name, type="order", data={"id": name})], cursor=name)
            # the engine asks for the next batch only when this one is committed
            self.after_delivery.append(await self._stored())
            self.acknowledged.append(self.queue.pop(0))

    async def _stored(self) -> int:
        assert self.store is not None
        return len((await self.store.events(limit=100)).items)


async def start(clock: VirtualClock, path: Path, broker: Broker, locked: int = 0) -> tuple[SqliteStore, Intake]:
    """`locked`: so many commits fail, because the database is locked."""
    store = broker.store = SqliteStore.at(path, clock, inline=True)
    used: Any = CrashingStore(store)
    used.lock(locked, only="commit")
    intake = Intake(used, clock, Random(1), NoExecutor(), lambda feed: broker, holder="test")
    await intake.start(DEFINITIONS)
    return store, intake


async def crash(store: SqliteStore) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    store.abandon()


async def runs(store: SqliteStore) -> int:
    return len((await store.runs(limit=100)).items)


def test_a_batch_is_committed_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1", "o2", "o3"]
        await clock.sleep(10.0)
        assert broker.acknowledged == ["o1", "o2", "o3"]
        assert broker.after_delivery == [1, 2, 3]
        assert await runs(store) == 3
        assert (await store.state("orders")).cursor == "o3"
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_batch_that_could_not_be_committed_is_asked_for_again_from_the_cursor_before_it(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker, locked=2)
        broker.queue += ["o1", "o2"]
        await clock.sleep(60.0)
        assert broker.began == [None, None, None]
        assert (broker.acknowledged, await runs(store)) == (["o1", "o2"], 2)
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_stream_that_the_broker_ends_is_opened_again(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        broker.ends = 3
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(60.0)
        assert (len(broker.began), broker.acknowledged) == (4, ["o1"])
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_what_is_delivered_again_after_a_crash_runs_once(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(3.0)
        # the acknowledgement got lost with the process
        await crash(store)
        broker.queue.insert(0, "o1")
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue.append("o2")
        await clock.sleep(10.0)
        assert broker.began[-1] == "o1"
        assert broker.acknowledged == ["o1", "o1", "o2"]
        assert await runs(store) == 2
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_connection_that_breaks_goes_on_where_it_stood(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(3.0)
        broker.errors.append(RetryLater("the broker hung up"))
        broker.queue += ["o2"]
        await clock.sleep(2.0)
        assert (await store.state("orders")).health.failures == 1
        broker.queue += ["o3"]
        await clock.sleep(120.0)
        assert broker.began == [None, "o2"]
        assert await runs(store) == 3
        assert (await store.state("orders")).health.failures == 0
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_stream_that_needs_attention_stops_and_says_why(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        broker.errors.append(NeedsAttention("the broker refused the password", fix="Set BROKER_PASSWORD"))
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(600.0)
        health = (await store.state("orders")).health
        assert (health.state, len(broker.began)) == ("paused", 1)
        assert "Set BROKER_PASSWORD" in health.message
        broker.queue += ["o1"]
        await clock.sleep(600.0)
        assert ((await store.state("orders")).health.state, broker.acknowledged) == ("closed", ["o1"])
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_shared_stream_commits_without_the_lease(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock, shared=True)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await intake.leases.release_all()
        await store.lease(0, "another process", 3_600.0)
        broker.queue += ["o1", "o2"]
        await clock.sleep(10.0)
        assert broker.acknowledged == ["o1", "o2"]
        assert await runs(store) == 2
        await intake.stop()
        await store.close()

    run_virtual(main)
