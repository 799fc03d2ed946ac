"""Rows in a fleet: a replica follows what others change, has the feeds of its shards, and takes over from the dead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harken.app.application import App
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from tests.operate.test_fleet import held, replicas, shared, site

ROWS = [f"row{number}" for number in range(12)]
STEPS = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
HOURLY: dict[str, Any] = {"provider": "schedule", "config": {"every": "1h"}, "workflow": STEPS}
FOLLOWED = 15.0
"""Within so many seconds a replica has followed a change that another has made."""


def feeds_here(app: App) -> set[str]:
    """The feeds of rows that the replica has."""
    return {name.removeprefix("schedule/") for name in app.intake.feeds} & set(ROWS)


def shards_here(app: App) -> set[int]:
    return {live.feed.shard for name, live in app.intake.feeds.items() if name.removeprefix("schedule/") in ROWS}


def rules_here(app: App) -> set[str]:
    """The feeds of rows whose rules the replica has."""
    known = app.intake.rule_cache
    return {name for name in ROWS if known.revision(f"schedule/{name}") is not None}


async def die(app: App) -> None:
    """As kill -9 does: nothing is told to anybody."""
    app.intake.scheduler.stop()
    app.intake._stopping = True
    tasks = [*app._tasks, *app.intake._running]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual
async def test_replicas_have_the_rows_feeds_of_their_shards_and_follow_what_others_change(
    clock: VirtualClock, tmp_path: Path
) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (_, apps):
        one, two = apps
        for name in ROWS:
            await one.operator.call("triggers.create", name=name, **HOURLY)
        await clock.sleep(FOLLOWED)
        assert set(ROWS) <= {trigger.name for trigger in two.loaded.triggers}
        assert held(apps) == [2, 2]
        assert (feeds_here(one) | feeds_here(two), feeds_here(one) & feeds_here(two)) == (set(ROWS), set())
        assert all(shards_here(app) <= set(app.intake.leases.held) for app in apps)
        await two.operator.call("triggers.delete", name="row3", match="*")
        await two.operator.call("triggers.edit", name="row4", condition="false", match="*")
        await clock.sleep(FOLLOWED)
        assert "row3" not in {trigger.name for trigger in one.loaded.triggers}
        assert {trigger.name: trigger.condition for trigger in one.loaded.triggers}["row4"] == "false"
        assert feeds_here(one) | feeds_here(two) == set(ROWS) - {"row3"}


@virtual
async def test_replicas_have_the_rules_of_what_they_read_and_learn_those_of_the_dead(
    clock: VirtualClock, tmp_path: Path
) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory) as (store, apps):
        [one] = apps
        for name in ROWS:
            await one.operator.call("triggers.create", name=name, **HOURLY)
        await clock.sleep(2 * 3600)
        assert rules_here(one) == set(ROWS)
        # it opens all of them, and reads half
        two = App(load_directory(directory), shared(store), clock)
        apps.append(two)
        await two.begin()
        two._join_fleet()
        await clock.sleep(FOLLOWED)
        assert held(apps) == [2, 2]
        assert rules_here(two) <= feeds_here(two) and rules_here(one) <= feeds_here(one)
        # what happens to a row while only the other one reads it is known to who takes it over
        for name in sorted(feeds_here(one)):
            await one.operator.call("triggers.edit", name=name, condition="false", match="*")
        changed = feeds_here(one)
        await clock.sleep(FOLLOWED)
        before = {name: len((await store.runs(trigger=name, limit=100)).items) for name in ROWS}
        await die(one)
        await clock.sleep(3 * 3600)
        assert feeds_here(two) == rules_here(two) == set(ROWS)
        after = {name: len((await store.runs(trigger=name, limit=100)).items) for name in ROWS}
        assert {name for name in ROWS if after[name] == before[name]} == changed


@virtual
async def test_the_rows_of_a_replica_that_dies_are_read_by_the_other_and_none_twice(
    clock: VirtualClock, tmp_path: Path
) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (store, apps):
        dead, other = apps
        for name in ROWS:
            await dead.operator.call("triggers.create", name=name, **HOURLY)
        await clock.sleep(FOLLOWED)
        left = feeds_here(dead)
        assert left and left < set(ROWS)
        await die(dead)
        await clock.sleep(60)
        assert feeds_here(other) == set(ROWS)
        await clock.sleep(3 * 3600)
        events: dict[str, list[str]] = {}
        for name in ROWS:
            found = (await store.runs(trigger=name, limit=100)).items
            events[name] = [key for run in found for key in run.event_keys]
        assert all(len(keys) == len(set(keys)) >= 2 for keys in events.values()), events
