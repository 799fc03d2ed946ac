"""Group commit: writes queue up, and those that wait at the same time share one transaction and one fsync.

Each write has a savepoint, so that one that fails does not undo the others. When the whole group is rolled back, every
write in it fails: none is acknowledged before it is on disk.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import apsw
import structlog

from harken.backends.sqlite.damage import Damage, forget_pages
from harken.backends.sqlite.errors import DAMAGED, translate
from harken.backends.sqlite.replaced_file_check import FileGuard, LostFile
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.sqlite.wal_checkpoints import Checkpoints
from harken.errors import StoreBusy, StoreUnavailable

__all__ = ["Writer", "save_log"]

log = structlog.get_logger("harken.store")

T = TypeVar("T")
Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]", bool]
"""A function with its arguments, who waits for it, and whether it runs in a savepoint."""
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]

LARGEST_GROUP = 512
GATHER_SECONDS = 0.002
BUSY_MS = 5000
"""How long a write waits for another program that locks the file."""
BUSY_AGAIN_MS = 200
"""The same while the store is in trouble already, so that queued writes fail soon."""


class Writer:
    """Runs functions on the write connection: in a thread of its own, or `inline` where time is virtual.

    A group is written at once if as many writes wait as the last group had, otherwise two milliseconds later, so that
    concurrent callers share one fsync. A single caller never waits.
    """

    def __init__(
        self,
        tx: Transaction,
        guard: FileGuard,
        damage: Damage,
        checkpoints: Checkpoints | None = None,
        *,
        inline: bool = False,
        limit: int = 10_000,
    ) -> None:
        self._tx = tx
        self._guard = guard
        self._damage = damage
        self._checkpoints = checkpoints
        self.inline = inline
        self._limit = limit
        self._queue: deque[Job] = deque()
        self._work: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._busy = False
        self._expected = 1
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._idle: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.trouble = ""
        self._changes = 0
        self.groups = 0
        self.writes = 0

    def do(self, work: Callable[..., T], *args: Any, savepoint: bool = True) -> Awaitable[T]:
        """Run the function in a transaction; what is returned is there when it is on disk.

        One that fails only before it changes anything needs no savepoint (docs/decisions/0005).
        """
        return self._do_inline(work, args) if self.inline else self.submit(work, args, savepoint)

    async def _do_inline(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        return self._run_inline(work, args)

    def submit(self, work: Callable[..., T], args: tuple[Any, ...], savepoint: bool) -> asyncio.Future[T]:
        """Queue the function. Raise StoreBusy when too many wait already."""
        if len(self._queue) >= self._limit or self._closing:
            raise StoreBusy(f"the store has {len(self._queue)} writes waiting", after=1.0)
        loop = self._loop
        if loop is None:
            loop = self._start_thread()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append((work, args, future, savepoint))
        if not self._busy:
            self._plan_group(loop)
        return future

    @property
    def queued(self) -> int:
        return len(self._queue)

    async def stop(self) -> None:
        """Write what is queued, then end the thread."""
        while self._busy or self._queue:
            self._idle = asyncio.Event()
            await self._idle.wait()
        self._closing = True
        self._work.put(None)
        if self._thread is not None:
            self._thread.join()

    def _start_thread(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run_thread, name="harken-store", daemon=True)
        self._thread.start()
        return self._loop

    def _plan_group(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            if len(self._queue) < self._expected:
                return
            self._timer.cancel()
        wait = 0.0 if len(self._queue) >= self._expected else GATHER_SECONDS
        self._timer = loop.call_later(wait, self._start_group)

    def _start_group(self) -> None:
        self._timer = None
        self._busy = True
        self._work.put([self._queue.popleft() for _ in range(min(len(self._queue), LARGEST_GROUP))])

    def _run_thread(self) -> None:
        """The thread: write a group, then give the results to the event loop."""
        while (group := self._work.get()) is not None:
            self._reply(self._commit(group))
            if self._checkpoints is not None:
                self._checkpoints.finish()

    def _commit(self, group: list[Job]) -> list[Answer]:
        answers: list[Answer] = []
        busy_ms = BUSY_MS if not self.trouble else BUSY_AGAIN_MS
        failure = self._try(lambda: self._transact(group, answers), busy_ms=busy_ms, answers=answers)
        if failure is None:
            return answers
        return _failed_answers([(future, None, None) for _, _, future, _ in group], failure)

    def _transact(self, group: list[Job], answers: list[Answer]) -> None:
        self._tx.write("BEGIN IMMEDIATE")
        answers.extend(self._run_job(job) for job in group)
        self._tx.flush()
        self._tx.write("COMMIT")

    def _reply(self, answers: list[Answer]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._on_replies, answers)
        except RuntimeError:
            return  # the event loop is closed: no caller is left

    def _on_replies(self, answers: list[Answer]) -> None:
        self._busy = False
        self._expected = max(1, len(answers))
        for future, result, error in answers:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if self._idle is not None:
            self._idle.set()
        if self._queue:
            assert self._loop is not None
            self._plan_group(self._loop)

    def _run_inline(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        results: list[T] = []

        def transact() -> None:
            self._tx.write("BEGIN IMMEDIATE")
            results.append(work(self._tx, *args))
            self._tx.flush()
            self._tx.write("COMMIT")

        failure = self._try(transact, busy_ms=BUSY_MS)
        if failure is not None:
            raise translate(failure)
        return results[0]

    def _run_job(self, job: Job) -> Answer:
        work, args, future, savepoint = job
        execute = self._tx.write
        if not savepoint:
            return self._run_without_savepoint(work, args, future)
        counted = self._tx.fired_counts()
        execute("SAVEPOINT write")
        try:
            result = work(self._tx, *args)
        except Exception as error:
            if isinstance(error, DAMAGED) or not self._tx.connection.in_transaction:
                raise
            execute("ROLLBACK TO write")
            execute("RELEASE write")
            self._tx.restore_fired(counted)
            self._tx.clear_cache()
            return future, None, translate(error)
        execute("RELEASE write")
        self.writes += 1
        return future, result, None

    def _run_without_savepoint(
        self, work: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> Answer:
        before = self._tx.connection.total_changes()
        try:
            result = work(self._tx, *args)
        except DAMAGED:
            raise
        except Exception as error:
            if self._tx.connection.total_changes() != before or not self._tx.connection.in_transaction:
                # it changed something after all, and without a savepoint only the whole group can be undone
                raise _GroupFailed(future, error) from error
            return future, None, translate(error)
        self.writes += 1
        return future, result, None

    def _try(self, work: Callable[[], object], *, busy_ms: int, answers: Sequence[Answer] = ()) -> BaseException | None:
        """Run a transaction. When it fails, roll it back and return the error.

        A transaction in a file that is lost fails too, also after its commit: it must not be acknowledged.
        """
        if lost := self._guard.look_again():
            return self._refuse(lost)
        if self._damage.check_if_due():
            damaged = translate(apsw.CorruptError())
            self._update_trouble([(None, None, damaged)])
            return damaged
        tx = self._tx
        tx.connection.set_busy_timeout(busy_ms)
        try:
            work()
        except BaseException as error:
            if tx.connection.in_transaction:
                tx.write("ROLLBACK")
            tx.roll_back()
            if isinstance(error, DAMAGED):
                self._damage.note()
                forget_pages(tx.connection)
            self._update_trouble([(None, None, translate(error))])
            return error
        self.groups += 1
        if lost := self._guard.look_if_due():
            return self._refuse(lost)
        self._update_trouble(answers)
        return None

    def _refuse(self, lost: LostFile) -> StoreUnavailable:
        error = lost.error()
        if lost.only_log and str(error) != self.trouble:
            if self._checkpoints is not None:
                self._checkpoints.wait()
            save_log(self._tx.connection)
        self._update_trouble([(None, None, error)])
        return error

    def _update_trouble(self, answers: Sequence[tuple[Any, Any, BaseException | None]]) -> None:
        """Note whether the disk accepts writes; a group that wrote nothing proves nothing."""
        before, self._changes = self._changes, self._tx.connection.total_changes()
        found = next((str(error) for _, _, error in answers if isinstance(error, StoreUnavailable)), "")
        if found == self.trouble or (not found and self._changes == before):
            return
        self.trouble = found
        if found:
            log.error("store.down", reason=found)
        else:
            log.info("store.up")


class _GroupFailed(Exception):
    """A write without a savepoint failed after it had changed something."""

    def __init__(self, future: asyncio.Future[Any], error: Exception) -> None:
        super().__init__(str(error))
        self.future = future
        self.error = error


def _failed_answers(answers: list[Answer], failure: BaseException) -> list[Answer]:
    """The group was rolled back: its cause gets the error, the other writes may try again."""
    if not isinstance(failure, _GroupFailed):
        return [(future, None, translate(failure)) for future, _, _ in answers]
    again = StoreBusy("another write of the same group failed", after=0.1)
    return [(future, None, translate(failure.error) if future is failure.future else again) for future, _, _ in answers]


def save_log(connection: apsw.Connection) -> None:
    """Move the content of the open write-ahead log into the database, because the log's file has lost its name."""
    try:
        [(busy, pages, saved)] = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
    except apsw.Error as error:
        log.error("store.log_not_saved", reason=type(error).__name__)
        return
    if busy or pages != saved:
        log.error("store.log_not_saved", reason=f"{saved} of {pages} pages")
    else:
        log.info("store.log_saved", pages=saved)
