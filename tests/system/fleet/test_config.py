"""One configuration for all: an edit reaches every replica, and whoever does not have it neither reads nor writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.system.fleet.fleet import Fleet
from tests.system.fleet.replica_processes import Replica, until
from tests.system.fleet.stores import POSTGRES, REDIS
from tests.system.fleet.world import replicas_on

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

EDITED = "workflows/beans.yaml"


@POSTGRES
async def test_an_edit_in_a_shared_directory_reaches_every_replica(kind: str, tmp_path: Path) -> None:
    async with replicas_on(kind, tmp_path) as on:
        await on.fleet.start_all()
        before = await fleet_of(on.fleet.replicas[0])
        on.world.deliver()
        await on.fleet.quiet(on.world.wanted())
        edit(on.fleet.replicas[0].directory)
        await until(lambda: are_at_the_next(on.fleet, before), 20, on.fleet.told)
        await on.fleet.settled()
        on.world.deliver()
        await on.all_well()
        assert {step for of, id, step in on.world.sink.got if (of, id) == ("beans", "item-1")} == {"two"}
        assert (await fleet_of(on.fleet.replicas[0]))["epoch"] == before["epoch"] + 1
        await on.fleet.stop_all()


@REDIS
async def test_replicas_without_the_newest_files_say_so_and_stop_reading_until_they_have_them(
    kind: str, tmp_path: Path
) -> None:
    async with replicas_on(kind, tmp_path, apart=True) as on:
        await on.fleet.start_all()
        before = await fleet_of(on.fleet.replicas[0])
        stale = await on.fleet.reader_of("corn")
        first, other = [replica for replica in on.fleet.replicas if replica is not stale]
        stock = on.world.stocks["corn"]
        stock.hold_answers()
        stock.deliver(1)

        async def is_asked() -> bool:
            return stock.waiting > 0

        async def writes_no_more() -> bool:
            """Its commit was refused, or it gave up its read before there was anything to commit."""
            refused = any(write.verb == "commit" for write in on.fleet.history().refused(stale.name))
            return refused or not (await stale.status())["controller"]["shards"]

        await until(is_asked, 10, on.fleet.told)
        edit(first.directory)
        await until(lambda: reads_alone(on.fleet, first), 20, on.fleet.told)
        stock.answer_first()
        await until(writes_no_more, 10, on.fleet.told)
        stock.answer_all()
        for replica in (stale, other):
            await until(lambda replica=replica: says_it_is_behind(replica), 10, on.fleet.told)  # type: ignore[misc]
        await until(lambda: is_at_its_files(first), 20, on.fleet.told)
        on.world.deliver()
        await on.fleet.quiet(on.world.wanted())
        for replica in (stale, other):
            shutil.copy(first.directory / EDITED, replica.directory / EDITED)
        await until(lambda: are_at_the_next(on.fleet, before), 20, on.fleet.told)
        await on.fleet.settled()
        on.world.deliver()
        await on.all_well()
        await on.fleet.stop_all()


def edit(directory: Path) -> None:
    """Let the workflow send to another address."""
    path = directory / EDITED
    text = path.read_text()
    assert "/one" in text
    path.write_text(text.replace("/one", "/two"))


async def fleet_of(replica: Replica) -> Mapping[str, Any]:
    return dict((await replica.status())["fleet"])


async def are_at_the_next(fleet: Fleet, before: Mapping[str, Any]) -> bool:
    """Whether each of them runs one and the same generation, which is not that of before."""
    told = [await fleet_of(replica) for replica in fleet.replicas]
    found = {replica["generation"] for one in told for replica in one["replicas"]} | {one["generation"] for one in told}
    return len(found) == 1 and before["generation"] not in found and all(len(one["replicas"]) == 3 for one in told)


async def reads_alone(fleet: Fleet, replica: Replica) -> bool:
    return await fleet.readers() == {replica.pid}


async def is_at_its_files(replica: Replica) -> bool:
    return bool((await replica.health())["config"][0] == "up")


async def says_it_is_behind(replica: Replica) -> bool:
    found = await replica.health()
    state, reason = found["config"]
    return found["status"] == state == "degraded" and "generation" in reason and not (await replica.is_ready())
