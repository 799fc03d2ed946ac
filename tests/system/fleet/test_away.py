"""A store that goes away for a while: everybody says so, nobody exits, and all goes on afterwards."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.soak import larger
from tests.system.fleet.outside_world import HOOK, signed
from tests.system.fleet.replica_processes import Replica, until
from tests.system.fleet.stores import BOTH
from tests.system.fleet.world import replicas_on

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

AWAY_SECONDS = larger(__file__, 6)


@BOTH
async def test_replicas_wait_for_a_store_that_is_away_and_go_on(kind: str, tmp_path: Path) -> None:
    async with replicas_on(kind, tmp_path) as on:
        here = [await on.fleet.start(0), await on.fleet.start(1)]
        await on.fleet.settled()
        async with on.world.at_work():
            await asyncio.sleep(1)
            await asyncio.to_thread(on.server.stop)
            gone = asyncio.get_running_loop().time()
            new = await on.fleet.start(2)
            for replica in here:
                await until(lambda replica=replica: says_so(replica), 10, on.fleet.told)  # type: ignore[misc]
                await refuses_webhooks(replica)
            assert new.lives, new.said
            await asyncio.sleep(gone + AWAY_SECONDS - asyncio.get_running_loop().time())
            assert all([await says_so(replica) for replica in here])
            assert not await new.is_ready()
            await asyncio.to_thread(on.server.start)
            await on.fleet.settled(40)
        assert all(replica.lives for replica in (*here, new)), on.fleet.told()
        assert "until it answers" in new.log.read_text()
        await on.all_well()
        await on.fleet.stop_all()


async def says_so(replica: Replica) -> bool:
    """Its health has the reason, and it takes no traffic."""
    found = await replica.health()
    state, reason = found["store"]
    return found["status"] == state == "down" and bool(reason) and (await replica.get("/health/ready"))[0] == 503


async def refuses_webhooks(replica: Replica) -> None:
    status, headers = await replica.post(HOOK, *signed("refused"))
    assert status == 503, replica.said
    assert int(headers["retry-after"]) >= 1
