"""A trigger that is moved back: what happened since is read again, and what is known does not fire twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from harken.testing.clock import VirtualClock, virtual
from tests.ingest.process import HOUR, Process, trigger


@virtual
async def test_what_happened_before_fires_once_and_what_fired_stays_fired(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    process.world.put("early", late=HOUR)
    await process.start(trigger(), trigger("other"))
    process.world.put("now")
    await clock.sleep(600)
    assert await process.fired() == ["now"]
    revision = (await process.store.state("inbox")).revision
    line = clock.now() - timedelta(hours=2)
    assert await process.store.seek("t", line, revision=revision, back=True) is not None
    await process.intake.refresh("inbox")
    await clock.sleep(600)
    assert sorted(await process.fired()) == ["early", "now"]
    assert await process.fired("other") == ["now"]
    state = next(one for one in await process.store.triggers() if one.name == "t")
    assert (state.backfilling, state.start_line) == (False, line)
    process.world.put("later")
    await clock.sleep(600)
    assert sorted(await process.fired()) == ["early", "later", "now"]
    await process.stop()


@virtual
async def test_a_read_that_is_under_way_does_not_undo_it(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path, view="log")
    process.world.put("early", late=HOUR)
    await process.start(trigger())
    await clock.sleep(600)
    process.world.latency = 8.0
    process.world.put("now")
    while not process.intake.feeds["inbox"].busy:
        await clock.sleep(1)
    revision = (await process.store.state("inbox")).revision
    line = clock.now() - timedelta(hours=2)
    assert await process.store.seek("t", line, revision=revision, back=True) is not None
    await process.intake.refresh("inbox")
    await clock.sleep(8)
    assert (await process.store.state("inbox")).cursor is None, "the read has moved the cursor back to where it was"
    await clock.sleep(600)
    assert sorted(await process.fired()) == ["early", "now"]
    await process.stop()
