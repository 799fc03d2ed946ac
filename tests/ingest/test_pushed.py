"""Pushed feeds: there is nothing to read, whatever a person does to their triggers."""

from __future__ import annotations

from pathlib import Path

from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.world import HOUR, House, trigger


@virtual
async def test_a_pushed_feed_is_never_read_also_after_a_pause_and_a_resume(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path)
    await house.start(trigger(feed="hooks"))
    await house.push("one")
    await house.store.pause("t", "lunch")
    await house.intake.refresh("hooks")
    await house.store.resume("t")
    await house.intake.refresh("hooks")
    await clock.sleep(HOUR)
    state = await house.store.state("hooks")
    assert (state.health.failures, state.health.message, state.reads) == (0, "", 0)
    await house.push("two")
    assert await house.fired() == ["one", "two"]
    await house.stop()
