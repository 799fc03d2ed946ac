"""Many tickets at once, told by webhooks and found by polls, with replicas that are killed meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TypeAlias

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.virtual_clock_with_servers import run_waiting
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.soak import ROUNDS, larger, patience
from tests.system.property.fleet_stores import PostgresHome, RedisHome, SqliteHome
from tests.system.tickets.lagging_github import writes_by_ticket
from tests.system.tickets.replicas import MIXED, Replicas, replicas
from tests.system.tickets.store_homes import ServedStores, Stores

SEEDS = range(1, 2 + ROUNDS)
MOST_WRITES = 4
QUIET = 1_000.0
"""After so long, a sweep has looked at every ticket again."""
PAUSES = (0.0, 0.2, 8.0)

# of the tickets that no webhook tells of, polls think that webhooks get lost, and come four times as often
OFTEN_ENOUGH = MIXED.replace("interval_seconds: 30", "interval_seconds: 120")

Home: TypeAlias = Callable[[], Stores]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


async def open_tickets(fleet: Replicas, random: Random, tickets: int) -> None:
    """Most of them are told by webhooks, some are only found; every tenth breaks its pipeline."""
    for number in range(tickets):
        title = "broken" if number % 10 == 0 else ""
        issue = fleet.hub.open("fix", "bug", "harken:mine", by="leo", title=title, late=random.choice((0.0, 3.0)))
        if random.random() < 0.8:
            await fleet.deliver(issue, "opened")
            await fleet.deliver(issue, "labeled")
        await fleet.clock.sleep(random.choice(PAUSES))


async def kill_now_and_then(fleet: Replicas, random: Random, times: int) -> None:
    """One replica at a time: at any moment, or right before or after something was written to the store."""
    for _ in range(times):
        await fleet.clock.sleep(random.uniform(5.0, 60.0))
        victim = random.choice(fleet.living)
        victim.store.crash(random.randrange(40), after=random.random() < 0.5)
        with suppress(TimeoutError):
            # once it has crashed it must not go on to use the quota of requests
            async with asyncio.timeout(random.uniform(0.0, 10.0)):
                await victim.store.crashed.wait()
        await fleet.kill(victim)
        await fleet.clock.sleep(random.uniform(0.0, 60.0))
        await fleet.start()


async def run_with_kills(clock: VirtualClock, directory: Path, home: Home, seed: int, tickets: int, kills: int) -> None:
    async with replicas(clock, directory, seed=seed, text=OFTEN_ENOUGH, stores=home()) as fleet:
        random = Random(seed)
        await clock.sleep(40)
        async with asyncio.TaskGroup() as group:
            group.create_task(open_tickets(fleet, random, tickets))
            group.create_task(kill_now_and_then(fleet, random, kills))
        await fleet.until_calm(within=16 * 3600)
        await clock.sleep(QUIET)
        await every_ticket_ran_once(fleet, tickets)
        writes = writes_by_ticket(fleet.hub)
        # whatever a replica wrote and could not note before it was killed is written again
        assert sum(writes.values()) <= MOST_WRITES * tickets
        assert sum(count > MOST_WRITES for count in writes.values()) <= kills, Counter(writes.values())
        # whoever writes next does not know how much the one before it wrote
        assert fleet.hub.refused_writes <= 10 * kills


async def every_ticket_ran_once(fleet: Replicas, tickets: int) -> None:
    outcomes = await fleet.outcomes()
    assert Counter(len(runs) for runs in outcomes.values()) == {1: tickets}
    for issue in fleet.hub.repos["acme/shop"].issues.values():
        broken = issue.title == "broken"
        assert outcomes[str(issue.number)] == ["dead" if broken else "done"]
        end = "harken:failed" if broken else "harken:done"
        assert sorted(issue.labels) == sorted(["fix", "bug", "harken:mine", end])
        assert len([one for one in issue.comments if "harken-receipt" in one["body"]]) == 1


class TestEveryTicketRunsOnceAndShowsItsEndWhoeverIsKilled:
    @pytest.mark.timeout(patience(600))
    @pytest.mark.parametrize("seed", SEEDS)
    @virtual
    async def test_on_sqlite(self, clock: VirtualClock, tmp_path: Path, seed: int) -> None:
        tickets, kills = larger(__file__, 60), larger(__file__, 6)
        await run_with_kills(clock, tmp_path, lambda: Stores(SqliteHome(tmp_path)), seed, tickets, kills)

    @pytest.mark.timeout(patience(600))
    @pytest.mark.parametrize("seed", SEEDS)
    def test_on_postgres(self, tmp_path: Path, postgres: PostgresServer, seed: int) -> None:
        self.play(tmp_path, lambda: ServedStores(PostgresHome(postgres)), seed)

    @pytest.mark.timeout(patience(600))
    @pytest.mark.parametrize("seed", SEEDS)
    def test_on_redis(self, tmp_path: Path, redis: RedisServer, seed: int) -> None:
        self.play(tmp_path, lambda: ServedStores(RedisHome(redis)), seed)

    def play(self, directory: Path, home: Home, seed: int) -> None:
        tickets, kills = larger(__file__, 8), larger(__file__, 2)
        run_waiting(lambda clock: run_with_kills(clock, directory, home, seed, tickets, kills))


@virtual
async def test_without_disasters_four_writes_are_enough(clock: VirtualClock, tmp_path: Path) -> None:
    tickets = larger(__file__, 30)
    async with replicas(clock, tmp_path, text=OFTEN_ENOUGH) as fleet:
        random = Random(1)
        await clock.sleep(40)
        await open_tickets(fleet, random, tickets)
        await fleet.until_calm(within=16 * 3600)
        await clock.sleep(QUIET)
        await every_ticket_ran_once(fleet, tickets)
        writes = writes_by_ticket(fleet.hub)
        assert max(writes.values()) <= MOST_WRITES, Counter(writes.values())
        assert (fleet.hub.refused_writes, fleet.hub.hurried) == (0, 0)


@virtual
async def test_tickets_that_wait_for_their_turn_take_four_writes_too(clock: VirtualClock, tmp_path: Path) -> None:
    """Two labels are taken off again: each is swapped for the next in one request."""
    one_at_a_time = f"agent: {{{{queue: {{{{max_parallel_jobs: 1}}}}}}}}\n{MIXED}"
    async with replicas(clock, tmp_path, size=1, text=one_at_a_time) as fleet:
        await clock.sleep(40)
        await asyncio.gather(*(fleet.deliver(fleet.hub.open("fix", "scan", "harken:mine", by="leo")) for _ in range(8)))
        await fleet.until_calm(within=3600)
        await clock.sleep(QUIET)
        issues = fleet.hub.repos["acme/shop"].issues.values()
        shown = [[entry["label"]["name"] for entry in issue.events if entry["event"] == "labeled"] for issue in issues]
        assert ["fix", "scan", "harken:mine", "harken:enqueued", "harken:in-progress", "harken:done"] in shown
        assert {tuple(sorted(issue.labels)) for issue in issues} == {("fix", "harken:done", "harken:mine", "scan")}
        assert Counter(len(runs) for runs in (await fleet.outcomes()).values()) == {1: 8}
        assert max(writes_by_ticket(fleet.hub).values()) <= MOST_WRITES
        assert (fleet.hub.refused_writes, fleet.hub.hurried) == (0, 0)
