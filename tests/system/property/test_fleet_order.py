"""The same scenario has the same history every time, also with a real server; and it is judged at one moment."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from harken.testing import VirtualClock
from harken.testing.virtual_clock_with_servers import WaitingLoop, run_waiting
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.system.property.fleet import played
from tests.system.property.fleet_connection import DESK, Exchange, Line, Turns
from tests.system.property.fleet_scenario import Hazard, Leave, Outage
from tests.system.property.fleet_stores import Home, PostgresHome, RedisHome
from tests.system.property.scenarios import Burst, FeedPlan, Push, Put, Scenario, TriggerPlan, Wait

SCRIPT: Any = (
    Put(0, 1, 0),
    Hazard(1, "crash", 9, True, 60.0),
    Wait(65.0),
    Burst(0, 6, 3, True),
    Push((1, 2)),
    Leave(0, 40.0),
    Wait(65.0),
    Outage(40.0),
    Push((3,)),
)
# an odd seed: whose verb takes effect first is chosen by dice
BUSY = Scenario(
    feeds=(FeedPlan(view="listing", identity="once"),),
    triggers=(TriggerPlan(feed=0, flow="slow"), TriggerPlan(feed=0, overlap="queue", flow="slow")),
    script=SCRIPT,
    cron="skip",
    push=True,
    seed=1,
)


def history(home: Home) -> list[tuple[float, str, str, bool]]:
    fleet = played(BUSY, home)
    return [(note.at, note.who, note.verb, note.accepted) for note in fleet.exchange.history.notes]


@pytest.mark.timeout(1_800)
class TestTheSameScenarioHasTheSameHistory:
    def test_on_redis(self, redis: RedisServer) -> None:
        assert history(RedisHome(redis)) == history(RedisHome(redis))

    def test_on_postgres(self, postgres: PostgresServer) -> None:
        assert history(PostgresHome(postgres)) == history(PostgresHome(postgres))


class Slow:
    """A store that notes when it was asked, and takes a while to answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def counts(self, who: str) -> None:
        await asyncio.sleep(0)
        self.asked.append(who)


def heard(*_: Any) -> None:
    """Nobody compares this with a model."""


def test_while_it_is_held_only_the_desk_is_served() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        store, exchange = Slow(), Exchange(clock, heard)
        desk, replica = (Line(name, store, exchange, clock) for name in (DESK, "r0.1"))
        await exchange.hold()
        waiting = asyncio.create_task(replica.counts("replica"))
        for look in ("first look", "second look"):
            await desk.counts(look)
        exchange.go_on()
        await waiting
        return store.asked

    assert run_waiting(main) == ["first look", "second look", "replica"]


def test_what_was_sent_before_takes_effect_before_it_is_held() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        store, exchange = Slow(), Exchange(clock, heard, dice=Random(1))
        desk, replica = (Line(name, store, exchange, clock) for name in (DESK, "r0.1"))
        sent = [asyncio.create_task(replica.counts("replica")) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await exchange.hold()
        await desk.counts("desk")
        await asyncio.gather(*sent)
        return store.asked

    assert run_waiting(main) == ["replica", "replica", "replica", "desk"]


def served(seed: int) -> list[int]:
    """Who had his turn, in order: five come at one moment, number 2 after all before him, and so has nobody else."""

    async def main(clock: VirtualClock) -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        turns = Turns(loop, Random(seed))
        done: list[int] = []

        async def one(number: int) -> None:
            async with turns.turn(after_all=number == 2):
                await asyncio.sleep(0)
                done.append(number)

        await asyncio.gather(*(one(number) for number in range(5)))
        return done

    return run_waiting(main)


def test_dice_choose_among_all_who_came_at_one_moment_but_not_past_one_who_comes_after_all() -> None:
    orders = {tuple(served(seed)) for seed in range(20)}
    assert orders == {(*first, 2, *last) for first in ((0, 1), (1, 0)) for last in ((3, 4), (4, 3))}


def test_whoever_gives_up_his_place_does_not_hold_up_the_others() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        turns = Turns(loop, None)
        done: list[str] = []

        async def one(name: str) -> None:
            async with turns.turn():
                await clock.sleep(1.0)
                done.append(name)

        first, impatient, last = (asyncio.create_task(one(name)) for name in ("first", "impatient", "last"))
        await clock.sleep(0.5)
        impatient.cancel()
        await asyncio.wait((first, impatient, last))
        return done

    assert run_waiting(main) == ["first", "last"]
