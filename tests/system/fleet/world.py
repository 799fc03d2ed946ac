"""Three replicas, their store and the world around them, for one test."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from tests.system.fleet.fleet import QUICK, Fleet
from tests.system.fleet.network import Direct, Proxies, Wires
from tests.system.fleet.outside_world import FEEDS, World, configure
from tests.system.fleet.replica_forker import Pace
from tests.system.fleet.stores import StoreServer, running

__all__ = ["REPLICAS", "Scene", "dice", "replicas_behind_proxies", "replicas_on", "stage"]

REPLICAS = 3


class Scene:
    def __init__(self, server: StoreServer, fleet: Fleet, world: World) -> None:
        self.server, self.fleet, self.world = server, fleet, world

    async def all_well(self) -> None:
        """Everything that happened outside is recorded once, has its one run, and nobody wrote who had no right to."""
        await self.fleet.quiet(self.world.wanted())
        faults = self.world.faults(await self.fleet.runs()) + await self.fleet.flaws()
        assert faults == [], f"{faults[:20]}\n{self.fleet.told()}"


def dice() -> Random:
    seed = int(os.environ.get("HARKEN_FLEET_SEED", "0")) or secrets.randbits(32)
    print(f"HARKEN_FLEET_SEED={seed}")  # noqa: T201
    return Random(seed)


@asynccontextmanager
async def replicas_on(
    kind: str,
    folder: Path,
    *,
    pace: Pace = QUICK,
    random: Random | None = None,
    feeds: tuple[str, ...] = FEEDS,
    apart: bool = False,
) -> AsyncIterator[Scene]:
    """Three replicas that share a directory, or have one each where they are `apart`. None of them is started yet."""
    with running(kind) as (server, place):
        async with stage(folder, Direct(place), place, server, pace, random or Random(1), feeds, apart) as found:
            yield found


@asynccontextmanager
async def stage(
    folder: Path,
    wires: Wires,
    place: str,
    server: StoreServer,
    pace: Pace,
    random: Random,
    feeds: tuple[str, ...] = FEEDS,
    apart: bool = False,
) -> AsyncIterator[Scene]:
    async with World.around(random, feeds) as world:
        directories = [configure(folder / f"config{number}", world) for number in range(REPLICAS if apart else 1)]
        directories = directories if apart else directories * REPLICAS
        async with Fleet.at(folder, wires, place, directories, pace) as fleet:
            world.will_call([replica.url for replica in fleet.replicas])
            yield Scene(server, fleet, world)


@asynccontextmanager
async def replicas_behind_proxies(
    kind: str, folder: Path, *, pace: Pace = QUICK, random: Random
) -> AsyncIterator[tuple[Scene, Proxies]]:
    """The same, with wires that can be cut."""
    with running(kind) as (server, place):
        async with (
            Proxies.to(place, REPLICAS) as wires,
            stage(folder, wires, place, server, pace, random) as found,
        ):
            yield found, wires
