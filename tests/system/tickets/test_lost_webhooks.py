"""How many webhooks get lost is counted over all replicas, and each of them tells the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from tests.system.tickets.replicas import MIXED, replicas


@pytest.mark.parametrize("text", [MIXED, MIXED.replace("polling:", "doorbell: true\n    polling:")])
@virtual
async def test_webhooks_that_other_replicas_receive_are_not_lost(
    clock: VirtualClock, tmp_path: Path, text: str
) -> None:
    async with replicas(clock, tmp_path, text=text, lags=(0.0,)) as fleet:
        await clock.sleep(40)
        leader = await fleet.leader()
        others = [replica for replica in fleet.living if replica is not leader]
        for number in range(10):
            issue = fleet.hub.open("fix", by="leo")
            if number != 3:
                assert await fleet.deliver(issue, to=others[number % 2]) in (200, 202)
            await clock.sleep(60)
        await clock.sleep(120)
        for replica in fleet.living:
            [listed] = (await replica.app.operator.call("trackers.list"))["items"]
            [shown] = (await replica.app.operator.call("status"))["trackers"]
            assert listed["webhooks"] == shown["webhooks"]
            assert (shown["webhooks"]["delivered"], shown["webhooks"]["lost"]) == (9, 1)
            assert shown["webhooks"]["problem"].startswith("no webhook told 1 of 10 changes")
