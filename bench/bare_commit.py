"""The limit of the poll flow: the same statements, rows and waiters on bare group commit, with nothing around them."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.engine import answer
from bench.sample_pages import PollFlow, Used, pages, reached
from harken.backends.encryption import PlainSeal
from harken.backends.run_states_ids_and_reasons import DONE, RUNNING
from harken.backends.sqlite.commit import INSERT_EVENT, INSERT_MEMORY
from harken.backends.sqlite.connection import connect, migrate
from harken.backends.sqlite.run_creation_and_admission import INSERT_RUN
from harken.backends.sqlite.runs import FINISH
from harken.event import Event

__all__ = ["Group", "Settling", "bare", "page_statements"]

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
        self._thread = threading.Thread(target=self._write, daemon=True)
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
            error = _commit(execute, group)
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in group], error)


def _commit(execute: Any, group: list[tuple[Statements, asyncio.Future[None]]]) -> apsw.Error | None:
    try:
        execute("BEGIN IMMEDIATE")
        for statements, _ in group:
            for sql, row in statements:
                execute(sql, row)
        execute("COMMIT")
    except apsw.Error as error:
        return error
    return None


def _resolve(futures: list[asyncio.Future[None]], error: apsw.Error | None) -> None:
    for future in futures:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


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
            page_statements(feed, page, [next(numbers) for _ in page], last=place == asked.pages - 1)
            for place, page in enumerate(pages(f"f{feed}", asked.pages, asked.page))
        ]
        for feed in range(1, asked.feeds + 1)
    ]


def page_statements(feed: int, page: list[Event], numbers: list[int], *, last: bool) -> tuple[Statements, Statements]:
    """What a page of a feed writes, and what settles its runs."""
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
    memory = {
        "feed": feed,
        "mid": seal.name(event.subject),
        "seq": 1,
        "event": number,
        "first_seen": now,
        "last_seen": now,
    }
    recorded = {
        "id": number, "feed": feed, "kid": seal.name(event.subject), "key": subject, "subject": subject,
        "type": event.type, "occurred_at": now, "recorded_at": now, "verdicts": verdicts, "data": event.payload(),
    }  # fmt: skip
    run = {
        "seq": number, "id": run_id, "trigger": feed, "workflow_rev": "r1", "state": RUNNING, "priority": 0,
        "due_at": now, "max_attempts": 3, "token": 1, "lease_until": now + 60_000_000, "holder": "bench",
        "event": number, "gathered": 1, "created_at": now, "started_at": now,
    }  # fmt: skip
    end = (FINISH, (DONE, now, None, run_id, 1))
    return [_bound(INSERT_MEMORY, memory), _bound(INSERT_RUN, run), _bound(INSERT_EVENT, recorded)], end


def _bound(insert: str, row: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The statement with the row's values in the order of its columns; what the row does not name is NULL."""
    columns = _columns(insert, tuple(row))
    return insert, tuple([row.get(column) for column in columns])


@cache
def _columns(insert: str, named: tuple[str, ...]) -> list[str]:
    columns = [column.strip() for column in insert.partition("(")[2].partition(")")[0].split(",")]
    strange = set(named) - set(columns)
    if strange:
        raise RuntimeError(f"the statements have changed: there is no {', '.join(sorted(strange))}")
    return columns


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
