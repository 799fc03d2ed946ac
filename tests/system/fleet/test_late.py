"""A replica that comes back after its lease has run out: what it still wants to write is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.system.fleet.fleet import QUICK
from tests.system.fleet.network import Namespace
from tests.system.fleet.replica_processes import Replica, until
from tests.system.fleet.stores import BOTH, running
from tests.system.fleet.world import REPLICAS, Scene, replicas_on, stage

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

FEED = "corn"
STEADY = msgspec.structs.replace(QUICK, lease=6.0)
"""Leases that no replica loses only because the machine is busy."""
PATIENT = msgspec.structs.replace(STEADY, answer=60.0)
"""What was sent while the network is cut is still waited for when it is mended, and was sent again by the kernel; what
was sent before a replica was frozen does not count as unanswered at the moment it is thawed."""


@BOTH
async def test_a_replica_that_was_frozen_past_its_lease_cannot_write_any_more(kind: str, tmp_path: Path) -> None:
    async with replicas_on(kind, tmp_path, pace=PATIENT) as on:
        await on.fleet.start_all()
        await comes_back_late(
            on,
            leave=lambda replica: on.fleet.freeze(replica.number),
            come_back=lambda replica: on.fleet.thaw(replica.number),
        )


@BOTH
async def test_a_replica_that_was_cut_off_past_its_lease_cannot_write_any_more(kind: str, tmp_path: Path) -> None:
    """The packets between it and the store are dropped in both directions; no connection is closed."""
    with (
        Namespace.made(REPLICAS + 1) as network,
        running(kind, everywhere=True, inside=network.inside) as (server, url),
    ):
        network.use(url)
        # the last address is for the test itself
        async with stage(tmp_path, network, network.url(REPLICAS), server, PATIENT, Random(1)) as on:
            await on.fleet.start_all()
            await comes_back_late(
                on,
                leave=lambda replica: network.cut(replica.number),
                come_back=lambda replica: network.mend(replica.number),
            )


async def comes_back_late(on: Scene, leave: Callable[[Replica], None], come_back: Callable[[Replica], None]) -> None:
    """While it is away it has something to write that nobody else has seen; another reads its shard meanwhile.

    Its renewals wait until the write was refused: whichever comes first would tell it that its lease is lost."""
    stock = on.world.stocks[FEED]
    late = await on.fleet.reader_of(FEED)
    renewals = on.fleet.renewals(late)

    async def is_asked() -> bool:
        return stock.waiting > 0

    async def renewal_waits() -> bool:
        return renewals.is_reached

    async def is_taken_over() -> bool:
        readers = await on.fleet.readers()
        return bool(readers) and late.pid not in readers

    def refusals() -> int:
        return sum(write.verb == "commit" for write in on.fleet.history().refused(late.name))

    async def is_refused() -> bool:
        return refusals() > before

    stock.hold_answers()
    stock.deliver(1)
    await until(is_asked, 20, on.fleet.told)
    # a commit before the one that comes late: it leaves no idle read that would be written first and be refused
    stock.deliver(2)
    stock.answer_first()
    await until(is_asked, 20, on.fleet.told)
    renewals.close()
    await until(renewal_waits, 20, on.fleet.told)
    leave(late)
    before = refusals()
    stock.answer_first()
    await until(is_taken_over, 20, on.fleet.told)
    assert not await is_refused()
    come_back(late)
    await until(is_refused, 20, on.fleet.told)
    renewals.open()
    stock.answer_all()
    await on.fleet.settled()
    on.world.deliver()
    await on.all_well()
    await on.fleet.stop_all()
