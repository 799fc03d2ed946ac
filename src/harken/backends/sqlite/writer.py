"""One writer for the file: verbs queue up, and those that wait together share one commit and one fsync.

Each verb has a savepoint, so one that fails leaves the others whole. An error that rolled the group back fails
every verb in it: nobody is told "done" for something that is not on disk.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import apsw
import structlog

from harken.backends.sqlite.transaction import Transaction
from harken.errors import HarkenError, StoreBusy, StoreUnavailable

__all__ = ["Manner", "Writer", "readable"]

log = structlog.get_logger("harken.store")

T = TypeVar("T")
Manner = Literal["guarded", "frugal"]
"""How a verb is run: with a savepoint, or without one, as it fails only before it writes (docs/decisions/0005)."""
Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]", Manner]
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]

LARGEST_GROUP = 512
GATHER_SECONDS = 0.002
PATIENCE_MS = 5000
IMPATIENCE_MS = 200


class Writer:
    """Runs verbs on the write connection: in a thread of its own, or inline where time is virtual.

    A group begins at once if as many verbs wait as last time, otherwise two milliseconds later, so that those who come
    together share one fsync. A lone verb never waits.
    """

    def __init__(self, tx: Transaction, *, inline: bool = False, limit: int = 10_000) -> None:
        self._tx = tx
        self.inline = inline
        self._limit = limit
        self._queue: deque[Job] = deque()
        self._work: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._busy = False
        self._expected = 1
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._quiet: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.trouble = ""
        self._changes = 0
        self.groups = 0
        self.verbs = 0

    async def do(self, verb: Callable[..., T], *args: Any, manner: Manner = "guarded") -> T:
        """Run the verb in a transaction; return when it is on disk."""
        if self.inline:
            return self._alone(verb, args)
        return await self.submit(verb, args, manner)

    def submit(self, verb: Callable[..., T], args: tuple[Any, ...], manner: Manner) -> asyncio.Future[T]:
        """Queue the verb. Raise StoreBusy when too much waits already."""
        if len(self._queue) >= self._limit or self._closing:
            raise StoreBusy(f"the store has {len(self._queue)} writes waiting", after=1.0)
        loop = self._loop
        if loop is None:
            loop = self._begin()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append((verb, args, future, manner))
        if not self._busy:
            self._plan(loop)
        return future

    @property
    def queued(self) -> int:
        return len(self._queue)

    async def stop(self) -> None:
        """Write what is queued, then end the thread."""
        while self._busy or self._queue:
            self._quiet = asyncio.Event()
            await self._quiet.wait()
        self._closing = True
        self._work.put(None)
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._commits, name="harken-store", daemon=True)
        self._thread.start()
        return self._loop

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            if len(self._queue) < self._expected:
                return
            self._timer.cancel()
        wait = 0.0 if len(self._queue) >= self._expected else GATHER_SECONDS
        self._timer = loop.call_later(wait, self._go)

    def _go(self) -> None:
        self._timer = None
        self._busy = True
        self._work.put([self._queue.popleft() for _ in range(min(len(self._queue), LARGEST_GROUP))])

    def _commits(self) -> None:
        """The thread: execute a group, wait for the disk, tell the loop."""
        while (group := self._work.get()) is not None:
            self._tell(self._commit(group))

    def _commit(self, group: list[Job]) -> list[Answer]:
        answers: list[Answer] = []
        # whoever waits behind a lock that is held for long hears of it without having waited for every write before
        patience = PATIENCE_MS if not self.trouble else IMPATIENCE_MS
        failure = self._try(lambda: self._transact(group, answers), patience=patience, answers=answers)
        if failure is None:
            return answers
        return _undone([(future, None, None) for _, _, future, _ in group], failure)

    def _transact(self, group: list[Job], answers: list[Answer]) -> None:
        self._tx.execute("BEGIN IMMEDIATE")
        answers.extend(self._guarded(job) for job in group)
        self._tx.flush()
        self._tx.execute("COMMIT")

    def _tell(self, answers: list[Answer]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._answered, answers)
        except RuntimeError:
            return  # the loop is closed: nobody is left to tell

    def _answered(self, answers: list[Answer]) -> None:
        self._busy = False
        self._expected = max(1, len(answers))
        for future, result, error in answers:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if self._quiet is not None:
            self._quiet.set()
        if self._queue:
            assert self._loop is not None
            self._plan(self._loop)

    def _alone(self, verb: Callable[..., T], args: tuple[Any, ...]) -> T:
        results: list[T] = []

        def transact() -> None:
            self._tx.execute("BEGIN IMMEDIATE")
            results.append(verb(self._tx, *args))
            self._tx.flush()
            self._tx.execute("COMMIT")

        failure = self._try(transact, patience=PATIENCE_MS)
        if failure is not None:
            raise _translate(failure)
        return results[0]

    def _guarded(self, job: Job) -> Answer:
        verb, args, future, manner = job
        execute = self._tx.execute
        if manner == "frugal":
            return self._frugal(verb, args, future)
        counted = self._tx.fired_counts()
        execute("SAVEPOINT verb")
        try:
            result = verb(self._tx, *args)
        except Exception as error:
            if not self._tx.connection.in_transaction:
                raise
            execute("ROLLBACK TO verb")
            execute("RELEASE verb")
            self._tx.restore_fired(counted)
            self._tx.clear_cache()
            return future, None, _translate(error)
        execute("RELEASE verb")
        self.verbs += 1
        return future, result, None

    def _frugal(self, verb: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]) -> Answer:
        before = self._tx.connection.total_changes()
        try:
            result = verb(self._tx, *args)
        except Exception as error:
            if self._tx.connection.total_changes() != before or not self._tx.connection.in_transaction:
                # it has written something after all: only undoing the whole group is safe
                raise _Spoilt(future, error) from error
            return future, None, _translate(error)
        self.verbs += 1
        return future, result, None

    def _try(
        self, work: Callable[[], object], *, patience: int, answers: Sequence[Answer] = ()
    ) -> BaseException | None:
        """Do a transaction; when it fails, all of it is undone."""
        tx = self._tx
        tx.connection.set_busy_timeout(patience)
        try:
            work()
        except BaseException as error:
            if tx.connection.in_transaction:
                tx.execute("ROLLBACK")
            tx.roll_back()
            self._judge([(None, None, _translate(error))])
            return error
        self.groups += 1
        self._judge(answers)
        return None

    def _judge(self, answers: Sequence[tuple[Any, Any, BaseException | None]]) -> None:
        """Note whether the disk takes what it is given; a group that wrote nothing proves nothing."""
        before, self._changes = self._changes, self._tx.connection.total_changes()
        found = next((str(error) for _, _, error in answers if isinstance(error, StoreUnavailable)), "")
        if found == self.trouble or (not found and self._changes == before):
            return
        self.trouble = found
        if found:
            log.error("store.down", reason=found)
        else:
            log.info("store.up")


class _Spoilt(Exception):
    """A verb failed in the middle, and took its group with it."""

    def __init__(self, future: asyncio.Future[Any], error: Exception) -> None:
        super().__init__(str(error))
        self.future = future
        self.error = error


def _undone(answers: list[Answer], failure: BaseException) -> list[Answer]:
    """Nobody's verb happened. Whoever did not cause that may try again."""
    if not isinstance(failure, _Spoilt):
        return [(future, None, _translate(failure)) for future, _, _ in answers]
    again = StoreBusy("another write of the same group failed", after=0.1)
    return [
        (future, None, _translate(failure.error) if future is failure.future else again) for future, _, _ in answers
    ]


AWAY = (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError, apsw.CorruptError, apsw.NotADBError)


@contextmanager
def readable() -> Iterator[None]:
    """Whoever reads hears of a disk that is gone what a writer hears; a fault of ours stays what it is."""
    try:
        yield
    except AWAY as error:
        fix = "Check the disk and the file's permissions"
        message = f"the database cannot be read ({type(error).__name__})"
        raise StoreUnavailable(message, after=5.0, fix=fix) from None


def _translate(error: BaseException) -> BaseException:
    if isinstance(error, apsw.FullError):
        return StoreUnavailable("the disk is full", after=5.0, fix="Free some space; nothing was lost")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable("another program holds the database", after=5.0, fix="Close it; nothing was lost")
    if isinstance(error, (apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError)):
        fix = "Check the disk and the file's permissions"
        return StoreUnavailable(f"the database cannot be written ({type(error).__name__})", after=5.0, fix=fix)
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        fix = "Restore the last backup: harken store restore FILE"
        return StoreUnavailable("the database file is damaged", after=60.0, fix=fix)
    if isinstance(error, (HarkenError, AssertionError)) or not isinstance(error, apsw.Error):
        return error
    return StoreUnavailable(f"the database refused a write ({type(error).__name__}: {error})", after=5.0)
