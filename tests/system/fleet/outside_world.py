"""The world around a fleet: listings of several accounts, senders of webhooks, a taker of effects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import msgspec
from aiohttp import web

from harken.clock import SystemClock
from harken.runs import Run
from harken.testing.fakes import Listing
from harken.testing.fakes.server import Handler
from tests.system.kill.outside_world import HOOKS, Sender, Sink, feed, posting, signed, trouble_at_times

__all__ = ["FEEDS", "HOOK", "SHARDS", "Stock", "World", "configure", "signed"]

FEEDS = ("apples", "beans", "corn", "dates", "eggs", "figs")
HOOK = "/webhooks/generic/hooks"

SHARDS = 8
MAIN = """
shards: {shards}
integrations:
{integrations}
feeds:
{feeds}
agent: {{queue: {{shutdown_grace_seconds: 8}}}}
"""

INTEGRATION = (
    "  {name}: {{kind: json, rate_limit: 500, allow_private_networks: true, backoff: {{initial: 1s, max: 1s}}}}"
)


class Stock(Listing):
    """A listing that can be told to wait with its answers."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), cap=100)
        self.added: list[str] = []
        self._held: list[asyncio.Future[None]] | None = None

    def deliver(self, count: int, late: float = 0.0) -> None:
        """So many items of the very same moment."""
        ids = [f"item-{len(self.added) + number}" for number in range(count)]
        first = self.add(ids[0], late=late)
        for id in ids:
            self._items[id] = msgspec.structs.replace(first, id=id, title=id)
        self.added += ids

    @property
    def waiting(self) -> int:
        """How many wait for an answer that is held back."""
        return len(self._held or ())

    def hold_answers(self) -> None:
        self._held = []

    def answer_first(self) -> None:
        """Let the answer go that is held back longest."""
        assert self._held
        self._held.pop(0).set_result(None)

    def answer_all(self) -> None:
        held, self._held = self._held or [], None
        for one in held:
            # unless whoever waited has gone
            if not one.done():
                one.set_result(None)

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await super().handle(request, view)
        if self._held is not None:
            self._held.append(asyncio.get_running_loop().create_future())
            await self._held[-1]
        return reply


class SlowSink(Sink):
    """A taker of effects that can be told to take its time."""

    def __init__(self) -> None:
        super().__init__()
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def go_on(self) -> None:
        self._free.set()

    async def take(self, request: web.Request) -> web.Response:
        reply = await super().take(request)
        await self._free.wait()
        return reply


class Caller(Sender):
    """Sends each webhook to any of the replicas until one of them accepts it."""

    def __init__(self, name: str, urls: Sequence[str], random: Random) -> None:
        super().__init__(urls[0], random)
        self._name = name
        self._urls = urls

    @property
    def next(self) -> str:
        return f"{self._name}-{len(self.accepted)}"

    async def _post(self, session: aiohttp.ClientSession, id: str) -> bool:
        self._url = self._random.choice(self._urls)
        taken = await super()._post(session, id)
        await asyncio.sleep(self._random.uniform(0.1, 0.4))
        return taken


class World:
    """What happens outside, and what has to come of it."""

    def __init__(self, stocks: dict[str, Stock], sink: SlowSink, random: Random) -> None:
        self.stocks = stocks
        self.sink = sink
        self.callers: list[Caller] = []
        self._random = random

    @classmethod
    @asynccontextmanager
    async def around(cls, random: Random, feeds: Sequence[str] = FEEDS) -> AsyncIterator[World]:
        stocks, sink = {name: Stock() for name in feeds}, SlowSink()
        async with AsyncExitStack() as stack:
            for stock in stocks.values():
                await stack.enter_async_context(stock.serve())
            await stack.enter_async_context(sink.serve())
            yield cls(stocks, sink, random)

    def will_call(self, urls: Sequence[str]) -> None:
        self.callers = [Caller(f"hook-{name}", [url + HOOK for url in urls], self._random) for name in "abc"]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Items appear and webhooks are sent until the block ends."""
        tasks = [asyncio.create_task(caller.send()) for caller in self.callers]
        tasks.append(asyncio.create_task(self._trade()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended

    def deliver(self, count: int = 1) -> None:
        for stock in self.stocks.values():
            stock.deliver(count)

    async def _trade(self) -> None:
        random = self._random
        while True:
            stock = random.choice(list(self.stocks.values()))
            stock.deliver(random.choice((1, 1, 4)), late=random.choice((0.0, 0.0, 1.5)))
            trouble_at_times(stock, random)
            await asyncio.sleep(random.uniform(0.05, 0.35))

    def wanted(self) -> Counter[tuple[str, str]]:
        """The runs that there have to be, as trigger and key of the event."""
        polled = [(name, id) for name, stock in self.stocks.items() for id in stock.added]
        return Counter(polled + [("hooks", id) for caller in self.callers for id in caller.accepted])

    def perhaps(self) -> set[tuple[str, str]]:
        """The last deliveries, which may have been cut off between their commit and its answer."""
        return {("hooks", caller.next) for caller in self.callers}

    def faults(self, runs: Sequence[Run]) -> list[str]:
        """What is lost, doubled or not at its end."""
        found = Counter((run.trigger, key) for run in runs for key in run.event_keys)
        wanted = self.wanted()
        lost = [f"lost: {one}" for one in wanted - found]
        twice = [f"doubled: {one}" for one in found - wanted if found[one] > 1 or one not in self.perhaps()]
        open_ = [
            f"{run.trigger} {run.event_keys} is {run.status} ({run.error})" for run in runs if run.status != "done"
        ]
        return [*lost, *twice, *open_, *self._effects(set(found))]

    def _effects(self, wanted: set[tuple[str, str]]) -> list[str]:
        """An effect may be repeated, but only with the key that it had before."""
        keys = {what: set(keys) for what, keys in self.sink.got.items()}
        several = [f"{what} came with several keys" for what, found in keys.items() if len(found) > 1]
        shared = Counter(key for found in keys.values() for key in found)
        several += [f"two effects share the key {key}" for key, count in shared.items() if count > 1]
        came = {what[:2] for what in self.sink.got}
        return (
            several + [f"no effect of {what}" for what in wanted - came] + [f"who is {what}" for what in came - wanted]
        )


def configure(directory: Path, world: World) -> Path:
    """Write the configuration of a replica: a feed and a workflow for each listing, and a webhook."""
    workflows = directory / "workflows"
    workflows.mkdir(parents=True)
    integrations = "\n".join(INTEGRATION.format(name=name) for name in world.stocks)
    feeds = "\n".join(feed(name, name, stock.url) for name, stock in world.stocks.items())
    (directory / "harken.yaml").write_text(MAIN.format(shards=SHARDS, integrations=integrations, feeds=feeds))
    triggers = {name: f"feed: {name}" for name in world.stocks}
    triggers["hooks"] = HOOKS
    for name, trigger in triggers.items():
        (workflows / f"{name}.yaml").write_text(posting(name, trigger, world.sink.url, ("one",)))
    return directory
