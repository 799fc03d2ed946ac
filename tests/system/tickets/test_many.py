"""Many tickets at once, told by webhooks and found by polls, with replicas that are killed meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from harken.testing import VirtualClock, virtual
from tests.system.tickets.lagging_github import lifecycle_of, writes_to
from tests.system.tickets.replicas import Replicas, replicas

SOAK = bool(os.environ.get("HARKEN_SOAK"))
TICKETS = 1_000 if SOAK else 120
SEEDS = range(1, 6) if SOAK else (1,)


async def open_tickets(fleet: Replicas, random: Random) -> None:
    """Most of them are told by webhooks, some are only found; every tenth breaks its pipeline."""
    for number in range(TICKETS):
        title = "broken" if number % 10 == 0 else ""
        issue = fleet.hub.open("fix", "bug", "harken:mine", by="leo", title=title, late=random.choice((0.0, 3.0)))
        if random.random() < 0.8:
            await fleet.deliver(issue, "opened")
            await fleet.deliver(issue, "labeled")
        await fleet.clock.sleep(random.choice((0.0, 0.2, 8.0)))


async def kill_now_and_then(fleet: Replicas, random: Random, times: int) -> None:
    """One replica at a time: at any moment, or right before or after something was written to the store."""
    for _ in range(times):
        await fleet.clock.sleep(random.uniform(5.0, 60.0))
        victim = random.choice(fleet.living)
        victim.store.crash(random.randrange(40), after=random.random() < 0.5)
        await fleet.clock.sleep(random.uniform(0.0, 10.0))
        await fleet.kill(victim)
        await fleet.clock.sleep(random.uniform(0.0, 60.0))
        await fleet.start()


@pytest.mark.parametrize("seed", SEEDS)
@virtual
async def test_every_ticket_runs_once_and_shows_its_end_whoever_is_killed(
    clock: VirtualClock, tmp_path: Path, seed: int
) -> None:
    async with replicas(clock, tmp_path, seed=seed) as fleet:
        random = Random(seed)
        await clock.sleep(40)
        async with asyncio.TaskGroup() as group:
            group.create_task(open_tickets(fleet, random))
            group.create_task(kill_now_and_then(fleet, random, times=30 if SOAK else 6))
        await fleet.until_calm(within=16 * 3600)
        await clock.sleep(1_800)
        outcomes = await fleet.outcomes()
        assert Counter(len(runs) for runs in outcomes.values()) == {1: TICKETS}
        for issue in fleet.hub.repos["acme/shop"].issues.values():
            [status] = outcomes[str(issue.number)]
            end = "harken:failed" if issue.title == "broken" else "harken:done"
            assert status == ("dead" if issue.title == "broken" else "done")
            assert sorted(issue.labels) == sorted(["fix", "bug", "harken:mine", end])
            assert len([one for one in issue.comments if "harken-receipt" in one["body"]]) == 1


@virtual
async def test_without_disasters_four_writes_are_enough(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, tmp_path) as fleet:
        random = Random(1)
        await clock.sleep(40)
        await open_tickets(fleet, random)
        await fleet.until_calm(within=16 * 3600)
        await clock.sleep(1_800)
        outcomes = await fleet.outcomes()
        assert Counter(len(runs) for runs in outcomes.values()) == {1: TICKETS}
        writes = Counter(writes_to(fleet.hub.seen, issue) for issue in fleet.hub.repos["acme/shop"].issues.values())
        assert max(writes) <= 4, writes
        assert fleet.hub.refused_writes == 0
        assert {tuple(lifecycle_of(issue)) for issue in fleet.hub.repos["acme/shop"].issues.values()} == {
            ("harken:mine", "harken:done"),
            ("harken:mine", "harken:failed"),
        }
