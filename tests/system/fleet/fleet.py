"""Real replicas on one real store: started, killed, frozen, cut off and asked how they are."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from harken.app.store import open_store
from harken.clock import SystemClock
from harken.event import Recorded
from harken.runs import OPEN, Run
from harken.store import HOUSEKEEPING, Store
from harken.testing.store.record_queries import all_pages
from tests.system.fleet.lease_history import History, read_history
from tests.system.fleet.network import Wires
from tests.system.fleet.outside_world import SHARDS
from tests.system.fleet.recording_store import Gate
from tests.system.fleet.replica_forker import Order, Pace
from tests.system.fleet.replica_processes import Nursery, Replica, until

__all__ = ["QUICK", "Fleet"]

STOP_SECONDS = 45.0
QUICK = Pace(lease=3.0, claim=4.0, beat=0.5, alive=2.0, round=0.5, answer=4.0)
"""For tests that wait for leases to run out."""


class Fleet:
    """`wires` lead to the store; `store` is it, without anything in between."""

    def __init__(
        self, nursery: Nursery, wires: Wires, store: Store, folder: Path, replicas: list[Replica], pace: Pace
    ) -> None:
        self._nursery = nursery
        self._wires = wires
        self.store = store
        self._folder = folder
        self._pace = pace
        self.replicas = replicas
        self._unsettled = ""

    @classmethod
    @asynccontextmanager
    async def at(
        cls, folder: Path, wires: Wires, place: str, directories: Sequence[Path], pace: Pace = QUICK
    ) -> AsyncIterator[Fleet]:
        """A fleet with a replica for each of the directories, none of which lives yet."""
        (folder / "history").mkdir()
        replicas = [Replica(number, directory, folder) for number, directory in enumerate(directories)]
        async with Nursery.opened(folder / "nursery.log") as nursery, opened(place) as store:
            fleet = cls(nursery, wires, store, folder, replicas, pace)
            try:
                yield fleet
            finally:
                for replica in replicas:
                    if replica.pid:
                        with suppress(ProcessLookupError):
                            os.kill(replica.pid, signal.SIGKILL)

    @property
    def living(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.pid]

    async def start(self, number: int, role: str = "all") -> Replica:
        replica = self.replicas[number]
        assert not replica.pid
        order = Order(
            name=replica.name,
            directory=str(replica.directory),
            port=replica.port,
            history=str(self._folder / "history"),
            log=str(replica.log),
            role=role,
            environment={"HARKEN_STORE": self._wires.url(number)},
            pace=self._pace,
        )
        replica.pid = await self._nursery.ask("start", order)
        return replica

    async def start_all(self) -> None:
        for replica in self.replicas:
            await self.start(replica.number)
        await self.settled()

    async def settled(self, seconds: float = 60.0) -> None:
        """Wait until all that live are ready and every shard is held, by each of them a fair share."""
        await until(self._is_settled, seconds, self.told)

    async def _is_settled(self) -> bool:
        answers = [await replica.get("/health/ready") for replica in self.living]
        found = Counter((await self.holders()).values())
        self._unsettled = f"ready: {answers}, shards by process: {found}"
        fair = -(-SHARDS // len(self.living))
        return (
            all(code == 200 for code, _ in answers)
            and found.total() == SHARDS
            and max(found.values()) <= fair
            and len(found) == len(self.living)
        )

    async def kill(self, number: int) -> None:
        replica = self.replicas[number]
        os.kill(replica.pid, signal.SIGKILL)
        assert await self._nursery.ask("reap", replica.pid) == -signal.SIGKILL, replica.said
        replica.pid = 0

    async def stop(self, number: int) -> int:
        """Ask it to stop; its exit code."""
        self.ask_to_stop(number)
        return await self.ended(number)

    def ask_to_stop(self, number: int) -> None:
        os.kill(self.replicas[number].pid, signal.SIGTERM)

    async def ended(self, number: int) -> int:
        """Wait until it has stopped; its exit code."""
        replica = self.replicas[number]
        await until(replica.is_over, STOP_SECONDS, replica.tell_tasks)
        code = await self._nursery.ask("reap", replica.pid)
        replica.pid = 0
        return code

    async def stop_all(self) -> None:
        for replica in self.living:
            code = await self.stop(replica.number)
            assert code == 0, (code, replica.said)

    async def reader_of(self, feed: str) -> Replica:
        """Who reads this feed now."""
        pid = (await self.holders())[(await self.shards())[feed]]
        return next(replica for replica in self.replicas if replica.pid == pid)

    def freeze(self, number: int) -> None:
        os.kill(self.replicas[number].pid, signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        os.kill(self.replicas[number].pid, signal.SIGCONT)

    def renewals(self, replica: Replica) -> Gate:
        """The gate that every renewal of its leases passes."""
        return Gate(self._folder / "history" / f"{replica.name}.gate")

    def told(self) -> str:
        """How the fleet was when it was last asked whether it has settled, and what the replicas said last."""
        return "\n".join([self._unsettled, *(f"--- {replica.name}\n{replica.said}" for replica in self.replicas)])

    async def holders(self) -> Mapping[int, int]:
        """The process that holds each shard."""
        return {
            held.shard: int(held.holder.split("-")[0])
            for held in await self.store.leases()
            if held.shard != HOUSEKEEPING
        }

    async def readers(self) -> set[int]:
        """The processes that read; nobody as long as there is a shard that nobody holds."""
        found = await self.holders()
        return set(found.values()) if len(found) == SHARDS else set()

    async def shards(self) -> Mapping[str, int]:
        """The shard of each feed that is polled."""
        names = [state.name for state in await self.store.feeds()]
        found = [(await self.store.listeners(name)).feed for name in names]
        return {feed.name: feed.shard for feed in found if feed.way == "poll"}

    async def runs(self) -> list[Run]:
        return await all_pages(self.store.runs, limit=500)

    async def quiet(self, wanted: Counter[tuple[str, str]], seconds: float = 90.0) -> None:
        """Wait until there is a run for each of these, as trigger and key, and none is open."""

        async def is_quiet() -> bool:
            if wanted - Counter((run.trigger, key) for run in await self.runs() for key in run.event_keys):
                return False
            # only now: a run that came after the count would be there, and open
            counts = await self.store.counts()
            return not any(counts.get(f"runs_{status}") for status in OPEN)

        await until(is_quiet, seconds, self.told)

    async def flaws(self) -> list[str]:
        """What is wrong with the store, or with who was allowed to write it."""
        events = await self.events()
        twice = [f"{what} was recorded twice" for what, n in Counter((e.feed, e.key) for e in events).items() if n > 1]
        recorded = {event.id: event.recorded_at.timestamp() for event in events}
        return [*await self.store.check(), *twice, *self.history().flaws(recorded)]

    async def events(self) -> list[Recorded]:
        found: list[Recorded] = []
        while page := await self.store.events_after(found[-1].id if found else 0, limit=500):
            found.extend(page)
        return found

    def history(self) -> History:
        return read_history(self._folder / "history")


@asynccontextmanager
async def opened(place: str) -> AsyncIterator[Store]:
    home = open_store(place, SystemClock())
    try:
        await home.connect()
        yield home.store
    finally:
        await home.store.close()
