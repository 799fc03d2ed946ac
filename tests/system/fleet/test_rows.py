"""Triggers that are rows, in replicas that are killed: the others fire those of which they had only the definition."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.system.fleet.fleet import Fleet
from tests.system.fleet.outside_world import Stock
from tests.system.fleet.replica_processes import Replica, until
from tests.system.fleet.stores import BOTH
from tests.system.fleet.world import Scene, replicas_on

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

STEPS = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
A_SECOND = 1.1
"""The listing dates its items by the second."""


@BOTH
async def test_the_rows_of_a_killed_replica_fire_elsewhere_and_none_twice(kind: str, tmp_path: Path) -> None:
    async with replicas_on(kind, tmp_path) as on:
        await on.fleet.start_all()
        for name, stock in on.world.stocks.items():
            await create(on.fleet.replicas[0], row_of(name), name, stock)
        await until(lambda: are_read(on), 30, on.fleet.told)
        # the one that comes back opens all rows at its start; the others have followed the changes
        await on.fleet.kill(2)
        await on.fleet.start(2)
        await on.fleet.settled()
        on.world.deliver()
        await on.fleet.quiet(wanted(on))

        feed = await feed_of(on.fleet, row_of("corn"))
        gone = await on.fleet.reader_of(feed)
        await on.fleet.kill(gone.number)
        # nobody reads the feed now, and who makes another trigger on it does not hold its shard
        await create(on.fleet.living[0], "late", "corn", on.world.stocks["corn"])
        await asyncio.sleep(A_SECOND)
        on.world.deliver(2)
        await on.fleet.quiet(wanted(on) + Counter(("late", id) for id in on.world.stocks["corn"].added[-2:]))

        assert await feed_of(on.fleet, "late") == feed
        assert (await on.fleet.reader_of(feed)).pid in {replica.pid for replica in on.fleet.living}
        runs = Counter((run.trigger, key) for run in await on.fleet.runs() for key in run.event_keys)
        assert [one for one, count in runs.items() if count > 1] == []
        assert await on.fleet.flaws() == []
        await on.fleet.stop_all()


def row_of(listing: str) -> str:
    return f"row-{listing}"


def wanted(on: Scene) -> Counter[tuple[str, str]]:
    """The runs of the files and of the rows that there have to be, as trigger and key of the event."""
    rows = [(row_of(name), id) for name, stock in on.world.stocks.items() for id in stock.added]
    return on.world.wanted() + Counter(rows)


async def create(replica: Replica, name: str, integration: str, stock: Stock) -> None:
    """Make a row that reads the listing by a feed of its own."""
    query: dict[str, Any] = {
        "url": f"{stock.url}/offsets",
        "items_path": "items",
        "time_field": "created_at",
        "paging": {"offset": {"size": 40}, "more": "more"},
    }
    config = {"integration": integration, "query": query, "interval": "1s"}
    body = {"name": name, "provider": "poll", "config": config, "workflow": STEPS}
    status, _ = await replica.post("/api/triggers", msgspec.json.encode(body), {"content-type": "application/json"})
    assert status == 201, (status, replica.said)


async def feed_of(fleet: Fleet, trigger: str) -> str:
    """The feed that the row listens to."""
    for state in await fleet.store.feeds():
        if trigger in [found.name for found, _ in (await fleet.store.listeners(state.name)).triggers]:
            return state.name
    raise AssertionError(f"nothing is read for {trigger}")


async def are_read(on: Scene) -> bool:
    """Whether the feeds of all rows have been read once, so that what comes from now on counts."""
    read = {state.name for state in await on.fleet.store.feeds() if state.baselined}
    return all([await feed_of(on.fleet, row_of(name)) in read for name in on.world.stocks])
