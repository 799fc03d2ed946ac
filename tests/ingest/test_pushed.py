"""Pushed feeds: there is nothing to read, whatever a person does to their triggers."""

from __future__ import annotations

from pathlib import Path

from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import HOUR, Process, trigger


@virtual
async def test_a_pushed_feed_is_never_read_also_after_a_pause_and_a_resume(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(feed="hooks"))
    await process.push("one")
    await process.store.pause("t", "lunch")
    await process.intake.refresh("hooks")
    await process.store.resume("t")
    await process.intake.refresh("hooks")
    await clock.sleep(HOUR)
    state = await process.store.state("hooks")
    assert (state.health.failures, state.health.message, state.reads) == (0, "", 0)
    await process.push("two")
    assert await process.fired() == ["one", "two"]
    await process.stop()
