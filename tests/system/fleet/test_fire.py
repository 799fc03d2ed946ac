"""Replicas and their store are killed, frozen and cut off at random: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from tests.soak import longer, patience
from tests.system.fleet.network import Proxies
from tests.system.fleet.stores import BOTH
from tests.system.fleet.world import Scene, dice, replicas_behind_proxies

ROUNDS = longer(__file__, 5)
PAST_THE_LEASE = 3.6

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(patience(1_200)),
]


@BOTH
async def test_nothing_is_lost_or_doubled_whatever_happens_to_replicas_and_store(kind: str, tmp_path: Path) -> None:
    random = dice()
    async with replicas_behind_proxies(kind, tmp_path, random=random) as (on, wires):
        await on.fleet.start_all()
        async with on.world.at_work():
            await asyncio.sleep(1)
            trouble = Trouble(on, wires, random)
            for _ in range(ROUNDS):
                await trouble.one()
        await on.fleet.settled()
        await on.all_well()
        await on.fleet.stop_all()
        history = on.fleet.history()
        assert len({write.shard for write in history.accepted()}) >= 4
        assert len({write.who.split("-")[0] for write in history.accepted()}) == 3
        tries = sum(caller.tries for caller in on.world.callers)
        print(  # noqa: T201
            f"{trouble.told}; {on.world.wanted().total()} runs, {tries} deliveries, {len(history.grants)} grants, "
            f"{len(history.accepted())} writes, {len(history.refused())} refused"
        )


class Trouble:
    """One disturbance after the other, each kind as often as the others; sometimes a second one at the same time."""

    def __init__(self, on: Scene, wires: Proxies, random: Random) -> None:
        self._on = on
        self._wires = wires
        self._random = random
        self._deck: list[str] = []
        self.told: list[str] = []

    async def one(self) -> None:
        first, second = self._random.sample(range(3), 2)
        troubles = [self._draw(first)]
        if self._random.random() < 0.3:
            troubles.append((self._random.choice(("kill", "freeze", "cut")), second))
        self.told.append(" and ".join(f"{what} {victim}" for what, victim in troubles))
        await asyncio.gather(*(getattr(self, f"_{what}")(victim) for what, victim in troubles))
        await asyncio.sleep(self._random.uniform(0.2, 1.0))

    def _draw(self, victim: int) -> tuple[str, int]:
        if not self._deck:
            self._deck = ["kill", "freeze", "cut", "crash", "restart"]
            self._random.shuffle(self._deck)
        return self._deck.pop(), victim

    async def _kill(self, victim: int) -> None:
        await self._on.fleet.kill(victim)
        await asyncio.sleep(self._random.uniform(0.0, PAST_THE_LEASE))
        await self._on.fleet.start(victim)

    async def _freeze(self, victim: int) -> None:
        self._on.fleet.freeze(victim)
        await asyncio.sleep(PAST_THE_LEASE)
        self._on.fleet.thaw(victim)

    async def _cut(self, victim: int) -> None:
        self._wires.cut(victim)
        await asyncio.sleep(PAST_THE_LEASE)
        self._wires.mend(victim)

    async def _crash(self, _: int) -> None:
        await asyncio.to_thread(self._on.server.kill)
        await self._begin_again()

    async def _restart(self, _: int) -> None:
        await asyncio.to_thread(self._on.server.stop)
        await self._begin_again()

    async def _begin_again(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 1.0))
        await asyncio.to_thread(self._on.server.start)
