"""One store, empty and then full: webhooks at a steady rate, `explain`, and retention and shrinking beside webhooks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec

from bench.engine import NOTHING, answer, definitions
from bench.growth_rows import empty_file, fill_file, fill_postgres, fill_with
from bench.store_rounds import BODY
from harken.app.housekeeping import repeat_slices
from harken.backends.postgres import PostgresStore
from harken.backends.redis import RedisStore
from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.event import Event
from harken.feed import Feed
from harken.operate.context import Context
from harken.operate.explain import explain
from harken.runs import Finished
from harken.store import Commit, Committed, Entry, Intent, Settlement, Store
from harken.timings import Timings

__all__ = ["Asked", "Grown", "StoreName", "grow"]

HOOK = Feed(name="hook", kind="webhook", integration="", way="push", identity="once")
TRIGGER = f"t-{HOOK.name}"
KEPT_SECONDS = 2.0
"""The age at which retention deletes here: younger than what was filled, older than a webhook that is under way."""
WARM_SECONDS = 0.5
KNOWN = 1_000
"""How many of the newest keys can be asked about."""


StoreName = Literal["SQLite", "PostgreSQL", "Redis"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    store: StoreName
    location: str
    rows: int
    rate: float
    seconds: float
    explained: int


class Grown(msgspec.Struct, kw_only=True):
    """Lists are seconds, one for each webhook or question. `largest` and `smallest`: bytes of a file, 0 on a server."""

    filling: float = 0.0
    empty: list[float]
    full: list[float] = []
    explained: list[float] = []
    unknown: list[float] = []
    counts: list[float] = []
    pruning: list[float] = []
    deleted: int = 0
    pruned: float = 0.0
    shrinking: list[float] = []
    largest: int = 0
    smallest: int = 0


async def grow(asked: Asked) -> Grown:
    pushing = await Pushing.on(_open(asked))
    grown = Grown(empty=await pushing.steadily(asked.rate, asked.seconds))
    began = time.perf_counter()
    pushing = await _fill(asked, pushing)
    grown.filling = time.perf_counter() - began
    await repeat_slices(pushing.store.index_objects, SystemClock())
    grown.full = await pushing.steadily(asked.rate, asked.seconds)
    await _ask(pushing, asked.explained, grown)
    await asyncio.sleep(KEPT_SECONDS)
    grown.pruning = await pushing.steadily(asked.rate, asked.seconds, beside=_retention(pushing.store, grown))
    if asked.store == "SQLite":
        await _shrink(asked, pushing, grown)
    else:
        await pushing.store.close()
    return grown


def _open(asked: Asked) -> Store:
    if asked.store == "SQLite":
        return SqliteStore.at(asked.location)
    return PostgresStore.at(asked.location) if asked.store == "PostgreSQL" else RedisStore.at(asked.location)


async def _fill(asked: Asked, pushing: Pushing) -> Pushing:
    if asked.store == "PostgreSQL":
        await fill_postgres(asked.location, asked.rows)
    elif asked.store == "Redis":
        await fill_with(pushing.page, asked.rows)
    else:
        # the file is filled by hand, which only its one writer may do
        await pushing.store.close()
        await asyncio.to_thread(fill_file, Path(asked.location), asked.rows)
        return await Pushing.on(_open(asked))
    return pushing


async def _ask(pushing: Pushing, times: int, grown: Grown) -> None:
    context = Context(pushing.store, None, None, SystemClock(), Timings())
    for number in range(times):
        key = pushing.keys[-1 - number]
        grown.explained.append(await _timed(lambda key=key: explain(context, name=TRIGGER, key=key)))  # type: ignore[misc]
        grown.counts.append(await _timed(pushing.store.counts))
    for _ in range(min(times, 5)):
        grown.unknown.append(await _timed(lambda: explain(context, name=TRIGGER, key="nothing of this name")))


async def _timed(ask: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began


async def _retention(store: Store, grown: Grown) -> None:
    """Delete as housekeeping does, until it is cancelled or nothing is left."""
    began = time.perf_counter()
    ages = dict.fromkeys(("events", "ticks", "runs", "pushed", "audit"), KEPT_SECONDS)

    async def prune() -> int:
        try:
            gone = await store.prune(**ages)
            grown.deleted += gone
            return gone
        finally:
            # also when it is cancelled in its first slice, as happens on a busy machine
            grown.pruned = time.perf_counter() - began

    await repeat_slices(prune, SystemClock())


async def _shrink(asked: Asked, pushing: Pushing, grown: Grown) -> None:
    file = Path(asked.location)
    await pushing.store.close()
    await asyncio.to_thread(empty_file, file)
    pushing = await Pushing.on(_open(asked))
    grown.largest = (await pushing.store.space()).bytes
    shrinking = asyncio.create_task(repeat_slices(pushing.store.shrink, SystemClock()))
    grown.shrinking = await pushing.steadily(asked.rate, asked.seconds)
    await shrinking
    # closing moves the log into the file
    await pushing.store.close()
    grown.smallest = os.stat(file).st_size


class Pushing:
    """Commits events one by one, each with a run that the commit hands over and that is settled at once."""

    def __init__(self, store: Store, revision: int, uid: str, epoch: int) -> None:
        self.store = store
        self.keys: list[str] = []
        self._revision = revision
        self._uid = uid
        self._epoch = epoch

    @classmethod
    async def on(cls, store: Store) -> Pushing:
        opened = await store.open(definitions([HOOK]))
        trigger = opened.triggers[TRIGGER]
        return cls(store, opened.feeds[HOOK.name].revision, trigger.uid, trigger.epoch)

    async def steadily(self, rate: float, seconds: float, beside: Awaitable[None] | None = None) -> list[float]:
        """Push at a steady rate, whether or not the last one has been answered; the time that each took.

        `beside` is cancelled at the end."""
        await self._spread(rate, min(WARM_SECONDS, seconds))
        other = asyncio.ensure_future(beside) if beside is not None else None
        taken = await self._spread(rate, seconds)
        if other is not None:
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
        return taken

    async def _spread(self, rate: float, seconds: float) -> list[float]:
        begin, loop = time.perf_counter(), asyncio.get_running_loop()
        tasks = []
        for number in range(max(2, round(rate * seconds))):
            due = begin + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(loop.create_task(self._push(due)))
        return await asyncio.gather(*tasks)

    async def _push(self, due: float) -> float:
        settling = await self._commit(1)
        taken = time.perf_counter() - due
        await settling
        return taken

    async def page(self, count: int) -> None:
        await (await self._commit(count))

    async def _commit(self, count: int) -> Awaitable[object]:
        """Commit so many events. What is returned settles their runs."""
        now = SystemClock().now()
        keys = [f"k-{time.perf_counter_ns()}-{number}" for number in range(count)]
        intents = [
            Intent(trigger=self._uid, epoch=self._epoch, workflow_rev=NOTHING.rev, due_at=now, run_key=key)
            for key in keys
        ]
        entries = [
            Entry(
                event=Event(subject=key, key=key, type="mail", data={}, raw=BODY, occurred_at=now),
                memory_id=key,
                decisions=(intent,),
            )
            for key, intent in zip(keys, intents, strict=True)
        ]
        wanted = Commit(feed=HOOK.name, revision=self._revision, entries=entries, claim=count, holder="bench")
        committed = await self.store.commit(wanted)
        assert isinstance(committed, Committed)
        ends = [
            Settlement(id=run.id, token=run.token, outcome=Finished(), trigger=TRIGGER) for run in committed.claimed
        ]
        self.keys = [*self.keys[-KNOWN:], *keys]
        return self.store.settle(ends)


if __name__ == "__main__":
    answer(Asked, grow)
