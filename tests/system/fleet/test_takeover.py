"""Who reads after a replica is gone: soon when it says goodbye, within the length of a lease when it was killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.system.fleet.fleet import Fleet
from tests.system.fleet.replica_forker import Pace
from tests.system.fleet.replica_processes import Replica, until
from tests.system.fleet.stores import BOTH
from tests.system.fleet.world import replicas_on

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

REAL = Pace()
LIVELY = Pace(beat=1.0)
TAKEOVER_SECONDS = 35.0
GOODBYE_SECONDS = 7.0


@BOTH
async def test_all_shards_of_a_killed_replica_are_read_again_within_35_seconds(kind: str, tmp_path: Path) -> None:
    """With the leases of a real one: 30 seconds."""
    async with replicas_on(kind, tmp_path, pace=REAL) as on:
        await on.fleet.start_all()
        on.world.deliver()
        await on.fleet.quiet(on.world.wanted())
        gone = await on.fleet.reader_of("corn")
        feeds = await feeds_of(on.fleet, gone.pid)
        pid = gone.pid
        await on.fleet.kill(gone.number)
        killed = time.monotonic()
        on.world.deliver()
        await until(lambda: is_read_without(on.fleet, pid), TAKEOVER_SECONDS, on.fleet.told)
        await on.fleet.quiet(on.world.wanted(), TAKEOVER_SECONDS - (time.monotonic() - killed))
        print(f"{len(feeds)} feeds were read again after {time.monotonic() - killed:.1f} s")  # noqa: T201
        await on.all_well()
        await on.fleet.stop_all()


@BOTH
async def test_a_replica_that_stops_hands_over_its_shards_and_its_runs(kind: str, tmp_path: Path) -> None:
    """Also with leases of 30 seconds, and with runs in the middle of a step."""
    async with replicas_on(kind, tmp_path, pace=LIVELY) as on:
        await on.fleet.start_all()
        leaving = await on.fleet.reader_of("corn")
        pid = leaving.pid
        on.world.sink.hold()
        on.world.deliver(2)
        await until(lambda: is_at_work(leaving), 30, on.fleet.told)
        on.fleet.ask_to_stop(leaving.number)
        took = await until(lambda: is_read_without(on.fleet, pid), GOODBYE_SECONDS, on.fleet.told)
        print(f"its shards were held by others after {took:.1f} s")  # noqa: T201
        assert leaving.lives, "its shards have to go while it still waits for its runs"
        assert await on.fleet.ended(leaving.number) == 0, leaving.said
        on.world.sink.go_on()
        # long before the claims of the one that is gone would have run out
        await on.fleet.quiet(on.world.wanted(), seconds=20)
        on.world.deliver()
        await on.all_well()
        await on.fleet.stop_all()


async def feeds_of(fleet: Fleet, pid: int) -> list[str]:
    holders = await fleet.holders()
    return [feed for feed, shard in (await fleet.shards()).items() if holders[shard] == pid]


async def is_read_without(fleet: Fleet, pid: int) -> bool:
    readers = await fleet.readers()
    return bool(readers) and pid not in readers


async def is_at_work(replica: Replica) -> bool:
    """Whether it is in the middle of runs."""
    return int((await replica.status())["controller"]["runs_in_flight"]) > 0
