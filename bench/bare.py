"""The limit of the poll flow: the same statements, rows and waiters on bare group commit, with nothing around them."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.engine import answer
from bench.pages import PollFlow, Used, pages, reached
from harken.event import Event
from harken.stores.seal import PlainSeal
from harken.stores.sqlite.commit import INSERT_EVENT, INSERT_MEMORY
from harken.stores.sqlite.opening import connect, migrate
from harken.stores.sqlite.queue import DONE, INSERT_RUN, RUNNING
from harken.stores.sqlite.runs import FINISH

__all__ = ["bare"]

Statements = list[tuple[str, tuple[Any, ...]]]
UPDATE_FEED = "UPDATE feeds SET last_success=?, last_tick=?, cursor=?, watermark=? WHERE id=?"
INSERT_TICK = (
    "INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds) VALUES (?,?,?,1,?,?,?,?)"
)
COUNT_FIRED = "UPDATE triggers SET fired=fired+?, last_fired_at=? WHERE id=?"
MOST = 500


class Group:
    """A writer thread that commits together what waits together."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queue: queue.SimpleQueue[tuple[Statements, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def submit(self, statements: Statements) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._queue.put((statements, future))
        return future

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _write(self) -> None:
        execute = self._connection.execute
        while (job := self._queue.get()) is not None:
            group = [job]
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                group.append(more)
            execute("BEGIN IMMEDIATE")
            for statements, _ in group:
                for sql, row in statements:
                    execute(sql, row)
            execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in group])


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


class Settling:
    """While one batch of ends is written, the next one gathers."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._waiting: Statements = []
        self._task: asyncio.Task[None] | None = None
        self.done = 0

    def add(self, ends: Statements) -> None:
        self._waiting += ends
        if self._task is None:
            self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            await self._group.submit(batch)
            self.done += len(batch)
        self._task = None


def _prepared(asked: PollFlow) -> list[list[tuple[Statements, Statements]]]:
    """For each feed its pages: what a page writes, and what settles its runs."""
    numbers = iter(range(1, asked.events + 1))
    return [
        [
            _page(feed, page, [next(numbers) for _ in page], last=place == asked.pages - 1)
            for place, page in enumerate(pages(f"f{feed}", asked.pages, asked.page))
        ]
        for feed in range(1, asked.feeds + 1)
    ]


def _page(feed: int, page: list[Event], numbers: list[int], *, last: bool) -> tuple[Statements, Statements]:
    now = int(time.time() * 1_000_000)
    writes: Statements = []
    ends: Statements = []
    for number, event in zip(numbers, page, strict=True):
        rows, end = _rows(feed, number, event, now)
        writes += rows
        ends.append(end)
    writes.append((UPDATE_FEED, (now, now, b'"cursor"', now, feed)))
    writes.append((COUNT_FIRED, (len(page), now, feed)))
    if last:
        writes.append((INSERT_TICK, (feed, now, now, "events", len(page), len(page), 0.1)))
    return writes, ends


def _rows(feed: int, number: int, event: Event, now: int) -> tuple[Statements, tuple[str, tuple[Any, ...]]]:
    seal, subject = PlainSeal(), event.subject.encode()
    run_id = seal.name(f"run\0uid\0{1}\0{event.subject}\0")
    verdicts = msgspec.json.encode([{"trigger": f"t-f{feed}", "outcome": "fired", "run_id": run_id.hex()}])
    memory = (feed, seal.name(event.subject), None, 1, number, now, now)
    # fmt: off
    recorded = (
        number, feed, seal.name(event.subject), subject, subject, None, event.type, now, now, verdicts, event.payload(),
    )
    run = (
        number, run_id, feed, "r1", RUNNING, 0, now, 3, 1, now + 60_000_000, "bench", number, None, None, None, None, 1,
        None, now, now,
    )
    # fmt: on
    end = (FINISH, (DONE, now, None, run_id, 1))
    return [(INSERT_MEMORY, memory), (INSERT_RUN, run), (INSERT_EVENT, recorded)], end


async def bare(asked: PollFlow) -> Used:
    """Write everything that the poll flow of this size writes; the feeds wait for each of their pages."""
    connection = connect(Path(asked.directory) / "bare.db")
    migrate(connection)
    prepared = _prepared(asked)
    group = Group(connection)
    settling = Settling(group)

    async def read(feed: list[tuple[Statements, Statements]]) -> None:
        for writes, ends in feed:
            await group.submit(writes)
            settling.add(ends)

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(read(feed) for feed in prepared))
    await reached(lambda: settling.done, asked.events)
    result = Used(seconds=time.perf_counter() - began, cpu=time.process_time() - used)
    group.stop()
    settled = connection.execute("SELECT count(*) FROM runs WHERE state=?", (DONE,)).fetchone()
    connection.close()
    if settled != (asked.events,):
        raise RuntimeError(f"the statements have changed: {settled} of {asked.events} runs are settled")
    return result


if __name__ == "__main__":
    answer(PollFlow, bare)
