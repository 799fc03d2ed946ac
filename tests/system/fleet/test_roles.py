"""Replicas that do a part each: one reads, one executes, one answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.fleet.outside_world import HOOK, signed
from tests.system.fleet.replica_processes import until
from tests.system.fleet.stores import REDIS
from tests.system.fleet.world import replicas_on

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@REDIS
async def test_one_replica_reads_one_executes_and_one_answers(kind: str, tmp_path: Path) -> None:
    async with replicas_on(kind, tmp_path) as on:
        reader = await on.fleet.start(0, "ingest")
        worker = await on.fleet.start(1, "run")
        database = await on.fleet.start(2, "api")

        async def are_ready() -> bool:
            ready = all([await replica.is_ready() for replica in on.fleet.replicas])
            return ready and await on.fleet.readers() == {reader.pid}

        await until(are_ready, 30, on.fleet.told)
        on.world.deliver(2)
        for number in range(3):
            assert (await database.post(HOOK, *signed(f"hook-{number}")))[0] == 202
            on.world.callers[0].accepted.append(f"hook-{number}")
        assert (await worker.post(HOOK, *signed("hook-9")))[0] == 404
        await on.all_well()
        told = [(await replica.status())["controller"] for replica in (reader, worker, database)]
        assert [one["events_committed"] for one in told] == [12, 0, 3]
        assert [one["runs_started"] for one in told] == [0, 15, 0]
        assert [one["webhooks_received"] for one in told] == [0, 0, 3]
        assert len((await database.get("/api/runs?limit=50"))[1]["items"]) == 15
        await on.fleet.stop_all()
