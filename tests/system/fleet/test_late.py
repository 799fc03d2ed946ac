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
PATIENT = msgspec.structs.replace(QUICK, answer=15.0)
"""What was written while the network is cut is still waited for when it is mended."""


@BOTH
async def test_a_replica_that_was_frozen_past_its_lease_cannot_write_any_more(kind: str, tmp_path: Path) -> None:
    async with replicas_on(kind, tmp_path) as on:
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


ATTEMPTS = 5


async def comes_back_late(on: Scene, leave: Callable[[Replica], None], come_back: Callable[[Replica], None]) -> None:
    """Until a late write was refused. A replica that notices its lost lease before it writes is made late again."""
    for _ in range(ATTEMPTS):
        if await _is_refused_late(on, leave, come_back):
            break
        on.world.stocks[FEED].answer_all()
        await on.fleet.settled()
    else:
        raise AssertionError(f"no late write in {ATTEMPTS} attempts\n{on.fleet.told()}")
    on.world.stocks[FEED].answer_all()
    await on.fleet.settled()
    on.world.deliver()
    await on.all_well()
    await on.fleet.stop_all()


async def _is_refused_late(on: Scene, leave: Callable[[Replica], None], come_back: Callable[[Replica], None]) -> bool:
    """While it is away it has something to write that nobody else has seen; another reads its shard meanwhile."""
    stock = on.world.stocks[FEED]
    late = await on.fleet.reader_of(FEED)
    stock.hold_answers()
    stock.deliver(2)

    async def is_asked() -> bool:
        return stock.waiting > 0

    async def is_taken_over() -> bool:
        readers = await on.fleet.readers()
        return bool(readers) and late.pid not in readers

    async def is_refused() -> bool:
        refused = on.fleet.history().refused(late.name)
        return any(write.verb == "commit" for write in refused)

    await until(is_asked, 20, on.fleet.told)
    leave(late)
    stock.answer_first()
    await until(is_taken_over, 20, on.fleet.told)
    assert not await is_refused()
    come_back(late)
    try:
        await until(is_refused, 8, on.fleet.told)
    except AssertionError:
        return False
    return True
