"""A source that hears of changes makes its feed due at once, and never more often than it wants to be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import structlog

from harken.errors import RetryLater
from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import Process, SinceRecorder, trigger


class Bell(SinceRecorder):
    """Rings when a test says so, and counts who listens."""

    ring_floor_seconds = 3.0

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.rings: asyncio.Queue[None] = asyncio.Queue()
        self.listening = 0
        self.broken = False
        self.reads: list[float] = []

    async def poll(self, cursor: Any, since: Any) -> Any:
        self.reads.append(asyncio.get_running_loop().time())
        if self.broken:
            raise RetryLater("away")
        return await super().poll(cursor, since)

    async def rung(self) -> None:
        self.listening += 1
        try:
            await self.rings.get()
        finally:
            self.listening -= 1

    def ring(self) -> None:
        self.rings.put_nowait(None)


async def started(clock: VirtualClock, path: Path) -> tuple[Process, Bell]:
    process = Process(clock, path)
    bell = Bell(process.world, view="since")
    process.source = bell
    await process.start(trigger())
    return process, bell


@virtual
async def test_a_ring_makes_the_feed_due_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    process, bell = await started(clock, tmp_path)
    process.world.put("a")
    bell.ring()
    await clock.sleep(1)
    assert await process.fired() == ["a"]
    await process.stop()
    assert bell.listening == 0


@virtual
async def test_rings_without_end_are_answered_no_more_often_than_the_source_wants(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process, bell = await started(clock, tmp_path)
    for _ in range(300):
        bell.ring()
        await clock.sleep(0.1)
    gaps = [later - earlier for earlier, later in zip(bell.reads, bell.reads[1:], strict=False)]
    assert 9 <= len(gaps) <= 11
    assert min(gaps) > 2.999
    await process.stop()


@virtual
async def test_a_ring_during_a_read_leads_to_another_one(clock: VirtualClock, tmp_path: Path) -> None:
    process, bell = await started(clock, tmp_path)
    process.world.latency = 8.0
    bell.ring()
    await clock.sleep(1)
    bell.ring()
    before = len(bell.reads)
    await clock.sleep(8)
    assert len(bell.reads) == before + 1
    await process.stop()


@virtual
async def test_without_a_ring_the_schedule_counts(clock: VirtualClock, tmp_path: Path) -> None:
    process, bell = await started(clock, tmp_path)
    await clock.sleep(240)
    assert len(bell.reads) == 5
    await process.stop()


@virtual
async def test_a_feed_that_fails_is_not_tried_again_by_rings(clock: VirtualClock, tmp_path: Path) -> None:
    process, bell = await started(clock, tmp_path)
    bell.broken = True
    bell.ring()
    await clock.sleep(1)
    tried = len(bell.reads)
    bell.ring()
    await clock.sleep(4)
    assert len(bell.reads) == tried
    await process.stop()


@virtual
async def test_only_the_process_that_reads_a_feed_listens(clock: VirtualClock, tmp_path: Path) -> None:
    process, bell = await started(clock, tmp_path)
    assert bell.listening == 1
    other = process.another_intake("other")
    await other.start(process.definitions())
    await clock.sleep(5)
    assert bell.listening == 1
    await other.stop()
    await process.stop()
    assert bell.listening == 0


@virtual
async def test_a_bell_that_breaks_is_said_and_the_feed_is_read_by_its_schedule(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)

    class Broken(Bell):
        async def rung(self) -> None:
            raise OSError("no more watches")

    process.source = bell = Broken(process.world, view="since")
    with structlog.testing.capture_logs() as logs:
        await process.start(trigger())
        await clock.sleep(120)
    assert "source.bell_broken" in [entry["event"] for entry in logs]
    assert len(bell.reads) == 3
    await process.stop()
