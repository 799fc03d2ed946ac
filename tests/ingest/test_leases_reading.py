"""A read belongs to the lease under which it began, also where the same process gets the shard back meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from harken.testing import VirtualClock, virtual
from tests.ingest.process import FEED, Process, trigger


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


@virtual
async def test_who_takes_a_shard_over_reads_the_states_of_its_feeds_alone(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    process.feed = msgspec.structs.replace(FEED, shard=1)
    await process.start(trigger())
    feeds, intake, asked = process.store.feeds, process.intake, list[Any]()
    intake.leases.shards = 2

    async def noted(*, names: Any = None) -> Any:
        asked.append(names)
        return await feeds(names=names)

    process.store.feeds = noted  # type: ignore[method-assign]
    await intake.leases.release_all()
    assert await process.store.lease(0, "another", 3600) is not None
    await intake.leases.balance()
    assert (asked, sorted(intake.leases.held)) == ([["inbox"]], [1])
    process.world.put("a")
    await clock.sleep(120)
    assert await process.fired() == ["a"]
    await process.stop()
