"""The coverage ledger: which stretches of a source's time are proven to be read."""

from __future__ import annotations

from pathlib import Path

from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.world import HOUR, House, trigger


@virtual
async def test_a_catch_up_of_many_pages_leaves_no_gap(clock: VirtualClock, tmp_path: Path) -> None:
    house = House(clock, tmp_path, "listing", page_size=5)
    await house.start(trigger())
    for _ in range(9):
        await clock.sleep(HOUR)
        for number in range(3):
            house.world.put(f"{clock.time():.0f}-{number}")
    await house.down(9 * HOUR)
    for number in range(40):
        house.world.put(f"late-{number}", late=number * 600.0)
    await house.start()
    await clock.sleep(HOUR)
    coverage = (await house.store.state("inbox")).coverage
    assert len(coverage) == 1, coverage
    assert coverage[0].start <= house.intake.feeds["inbox"].created_at
    await house.stop()
