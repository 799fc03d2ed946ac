"""A read belongs to the lease under which it began, also where the same process gets the shard back meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.testing import VirtualClock, virtual
from tests.ingest.process import Process, trigger


@virtual
async def test_a_read_that_began_under_an_older_lease_is_not_committed(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    poll, store, intake = process.source.poll, process.store, process.intake

    async def interrupted(cursor: Any, since: Any) -> Any:
        """While it reads, another has the shard, and gives it up again."""
        batch = await poll(cursor, since)
        process.source.poll = intake.feeds["inbox"].poll = poll  # type: ignore[method-assign]
        await intake.leases.release_all()
        other = await store.lease(0, "another", 30)
        assert other is not None
        await store.release_lease(other, "another")
        await intake.leases.balance()
        return batch

    before = (await store.state("inbox")).cursor
    process.world.put("a")
    intake.feeds["inbox"].poll = interrupted
    report = await intake.tick("inbox")
    assert (report.result, report.error) == ("skipped", "the lease was lost; the read begins again")
    assert (await store.state("inbox")).cursor == before
    await clock.sleep(120)
    assert await process.fired() == ["a"]
    await process.stop()
