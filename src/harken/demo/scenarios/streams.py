"""The scenario of `harken demo streams`: a shop sends orders, restarts in the middle, and garbles a message."""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path
from random import Random

import msgspec

from harken.clock import Clock
from harken.demo.order_stream import OrderStream, PackingRoom
from harken.demo.scenario import Scenario
from harken.event import Recorded

__all__ = ["OrderDesk", "make"]

TRIGGER = "pack-orders"
FIRST_RESTART, BETWEEN_RESTARTS = 2.0, 30.0
MOMENT, MOMENTS_AWAY = 0.4, 4
GOODS = ("teapots", "lamps", "umbrellas", "kites", "maps of Iceland")
PEOPLE = ("Ada", "Bo", "Chidi", "Dana", "Eli")
GARBLED = b'{"id": "order-'


class OrderDesk:
    place = "shop with an event stream"
    looked_at = "dead list"
    noted = "at the shop"
    late = 0
    rate_limited = 0
    settled = True

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._next_restart = math.inf
        self._notes: list[str] = []
        self.stream = OrderStream(self._note)
        self._packing = PackingRoom()
        self.refused = 0
        self.expected: dict[str, list[str]] = {TRIGGER: []}

    def prepare(self, directory: Path) -> None:
        with as_file(files("harken.demo") / "examples" / "streams") as example:
            shutil.copytree(example, directory, dirs_exist_ok=True)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Mapping[str, str]]:
        async with self._packing.serve() as packing:
            await self.stream.start()
            try:
                yield {"SHOP_URL": self.stream.url, "PACKING_URL": packing}
            finally:
                await self.stream.stop()

    def open(self, url: str) -> None:
        self._next_restart = self._clock.monotonic() + FIRST_RESTART

    async def advance(self) -> None:
        if self._clock.monotonic() >= self._next_restart:
            await self._restart()
            self._next_restart = self._clock.monotonic() + BETWEEN_RESTARTS
        for _ in range(self._random.choice((0, 1, 1, 2))):
            self._order()

    def _order(self) -> None:
        name = f"order-{len(self.expected[TRIGGER]) + 1}"
        title = f"{self._random.randint(1, 9)} {self._random.choice(GOODS)} for {self._random.choice(PEOPLE)}"
        self.expected[TRIGGER].append(name)
        self.stream.send(msgspec.json.encode({"id": name, "title": title, "at": self._clock.now()}))

    async def _restart(self) -> None:
        self._note("the shop restarts: it drops every connection, and people go on ordering")
        await self.stream.stop()
        before = len(self.expected[TRIGGER])
        for _ in range(MOMENTS_AWAY):
            self._order()
            await self._clock.sleep(MOMENT)
        if not self.refused:
            self.refused += 1
            self._note(f"message {self.stream.send(GARBLED)} is garbled: it ends in the middle")
            self._order()
        self._note(f"the shop comes back, with {len(self.expected[TRIGGER]) - before} orders that nobody was told of")
        await self._come_back()

    async def _come_back(self) -> None:
        while True:
            try:
                return await self.stream.start()
            except OSError:
                # a connection of another program has the port for a moment
                await self._clock.sleep(MOMENT)

    def _note(self, text: str) -> None:
        self._notes.append(f"{self._clock.now().astimezone():%H:%M:%S} {text}")

    def notes(self) -> Collection[str]:
        said, self._notes = self._notes, []
        return said

    def occurrence(self, event: Recorded) -> str:
        data = event.data if isinstance(event.data, Mapping) else {}
        return str(data.get("id") or "") if event.type == "order.placed" else ""

    def deliveries(self) -> Mapping[str, Collection[str]]:
        return self._packing.parcels


def make(clock: Clock, random: Random) -> Scenario:
    return OrderDesk(clock, random)
