"""The coverage ledger: which stretches of a source's time are proven to be read."""

from __future__ import annotations

from pathlib import Path

from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import HOUR, Process, trigger


@virtual
async def test_a_catch_up_of_many_pages_leaves_no_gap(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, "listing", page_size=5)
    await process.start(trigger())
    for _ in range(9):
        await clock.sleep(HOUR)
        for number in range(3):
            process.world.put(f"{clock.time():.0f}-{number}")
    await process.stop_for(9 * HOUR)
    for number in range(40):
        process.world.put(f"late-{number}", late=number * 600.0)
    await process.start()
    await clock.sleep(HOUR)
    coverage = (await process.store.state("inbox")).coverage
    assert len(coverage) == 1, coverage
    assert coverage[0].start <= process.intake.feeds["inbox"].created_at
    await process.stop()
