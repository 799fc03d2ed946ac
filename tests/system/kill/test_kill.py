"""kill -9 at random moments, again and again: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.runs import OPEN, Run
from harken.testing.store.record_queries import all_pages
from tests.servers.ports import free_port
from tests.soak import longer, patience
from tests.system.kill.outside_world import Nursery, Sender, Shop, Sink, answers, configure, listing_of_now

ROUNDS = longer(__file__, 60)

pytestmark = [
    pytest.mark.process,
    pytest.mark.worker_group("kill"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(patience(1_800)),
]


class Scene:
    """A Harken under fire, and what goes on around it."""

    def __init__(self, directory: Path, nursery: Nursery, sink: Sink, shop: Shop, sender: Sender, url: str) -> None:
        self.directory, self.nursery, self.sink, self.shop, self.sender = directory, nursery, sink, shop, sender
        self.url = url
        self.rounds = 0

    async def until_killed(self, seconds: float) -> None:
        pid = await self.nursery.start()
        await asyncio.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        assert await self.nursery.reap() == -signal.SIGKILL
        self.rounds += 1

    async def run_to_the_end(self) -> int:
        """Let it finish everything, then stop it politely."""
        pid = await self.nursery.start()
        for _ in range(600):
            await asyncio.sleep(0.3)
            if await self._quiet():
                break
        os.kill(pid, signal.SIGTERM)
        return await self.nursery.reap()

    async def _quiet(self) -> bool:
        runs = await self.runs()
        done = Counter(run.trigger for run in runs if run.status not in OPEN)
        wanted = {"posting": len(self.shop.added), "quick": len(self.shop.added), "hooks": len(self.sender.accepted)}
        return all(done[name] >= count for name, count in wanted.items()) and not any(
            run.status in OPEN for run in runs
        )

    async def runs(self) -> list[Run]:
        store = SqliteStore.at(self.directory / "harken.db", SystemClock(), readonly=True)
        try:
            return await all_pages(store.runs, limit=500)
        finally:
            await store.close()

    async def flaws(self) -> list[str]:
        store = SqliteStore.at(self.directory / "harken.db", SystemClock())
        try:
            return list(await store.check())
        finally:
            await store.close()


@asynccontextmanager
async def scene(directory: Path, random: Random) -> AsyncIterator[Scene]:
    listing, sink, port = listing_of_now(), Sink(), free_port()
    url = f"http://127.0.0.1:{port}"
    async with listing.serve() as shown, sink.serve(), Nursery.at(directory, port) as nursery:
        configure(directory, shown, sink.url)
        sender = Sender(f"{url}/webhooks/generic/hooks", random)
        yield Scene(directory, nursery, sink, Shop(listing, random), sender, url)


async def test_nothing_is_lost_or_doubled_by_kill_9(tmp_path: Path) -> None:
    seed = int(os.environ.get("HARKEN_KILL_SEED", "0")) or secrets.randbits(32)
    print(f"HARKEN_KILL_SEED={seed}")  # noqa: T201
    random = Random(seed)
    async with scene(tmp_path, random) as on:
        await under_fire(on, random)
        code = await on.run_to_the_end()
        log = (tmp_path / "harken.log").read_text()[-3_000:]
        assert code == 0, log
        runs = await on.runs()
        found = Counter((run.trigger, key) for run in runs for key in run.event_keys)
        wanted = Counter(
            [(name, id) for name in ("posting", "quick") for id in on.shop.added]
            + [("hooks", id) for id in on.sender.accepted]
        )
        assert wanted - found == Counter(), f"lost; {log}"
        # the last delivery may have been cut off between its commit and its answer
        assert found - wanted <= Counter([("hooks", on.sender.next)]), f"doubled; {log}"
        assert Counter(run.status for run in runs) == Counter(done=len(runs))
        assert await on.flaws() == []
        assert_effects_repeat_only_with_their_key(on)
        assert_a_step_that_is_over_is_not_executed_again(on)
        print(f"{on.rounds} kills, {len(runs)} runs, {on.sender.tries} deliveries")  # noqa: T201


async def under_fire(on: Scene, random: Random) -> None:
    pid = await on.nursery.start()
    await answers(f"{on.url}/health/ready", 90)
    around = [asyncio.create_task(on.shop.trade()), asyncio.create_task(on.sender.send())]
    await asyncio.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    await on.nursery.reap()
    while on.rounds < ROUNDS:
        await on.until_killed(random.choice((random.uniform(0.05, 0.5), random.uniform(0.4, 1.6))))
    for task in around:
        task.cancel()
    await asyncio.gather(*around, return_exceptions=True)


def assert_effects_repeat_only_with_their_key(on: Scene) -> None:
    by_key: dict[str, set[tuple[str, str, str]]] = {}
    for what, keys in on.sink.got.items():
        assert len(set(keys)) == 1, f"{what} came with several keys"
        by_key.setdefault(keys[0], set()).add(what)
    assert all(len(what) == 1 for what in by_key.values()), "two effects share a key"
    ids = [("posting", id) for id in on.shop.added] + [("hooks", id) for id in on.sender.accepted]
    came = {what for what in on.sink.got if what[:2] != ("hooks", on.sender.next)}
    assert came == {(*about, step) for about in ids for step in ("one", "two")}


def assert_a_step_that_is_over_is_not_executed_again(on: Scene) -> None:
    """The second step begins when the record of the first is on the disk, so no kill lets the first come after it."""
    begun: set[tuple[str, str]] = set()
    for of, id, step in on.sink.order:
        if step == "two":
            begun.add((of, id))
        else:
            assert (of, id) not in begun, f"{of} {id}: its first step was executed again after its second"
