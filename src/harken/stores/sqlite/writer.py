"""One writer for the file: verbs queue up, and those that wait together share one commit and one fsync.

Each verb has a savepoint, so one that fails leaves the others whole. An error that rolled the group back fails
every verb in it: nobody is told "done" for something that is not on disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from harken.errors import HarkenError, StoreBusy, StoreUnavailable
from harken.stores.sqlite.books import Books

__all__ = ["Writer"]

T = TypeVar("T")
Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]

LARGEST_GROUP = 512


class Writer:
    """Runs verbs on the write connection: in a thread of its own, or inline where time is virtual."""

    def __init__(self, books: Books, *, inline: bool = False, limit: int = 10_000) -> None:
        self._books = books
        self.inline = inline
        self._limit = limit
        self._queue: deque[Job] = deque()
        self._wake = threading.Semaphore(0)
        self._asleep = False
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.trouble = ""
        self.groups = 0
        self.verbs = 0

    async def do(self, verb: Callable[..., T], *args: Any) -> T:
        """Run the verb in a transaction; return when it is on disk."""
        if self.inline:
            return self._alone(verb, args)
        return await self.submit(verb, *args)

    def submit(self, verb: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Queue the verb. Raise StoreBusy when too much waits already."""
        if len(self._queue) >= self._limit or self._closing:
            raise StoreBusy(f"the store has {len(self._queue)} writes waiting", after=1.0)
        loop = self._loop
        if loop is None:
            loop = self._begin()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append((verb, args, future))
        if self._asleep:
            self._asleep = False
            self._wake.release()
        return future

    @property
    def queued(self) -> int:
        return len(self._queue)

    def stop(self) -> None:
        """Write what is queued, then end the thread."""
        self._closing = True
        if self._thread is not None:
            self._wake.release()
            self._thread.join()

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, name="harken-store", daemon=True)
        self._thread.start()
        return self._loop

    def _alone(self, verb: Callable[..., T], args: tuple[Any, ...]) -> T:
        answers: list[T] = []
        failure = self._transact([lambda: answers.append(verb(self._books, *args))])
        if failure is not None:
            raise failure
        return answers[0]

    def _write(self) -> None:
        queue = self._queue
        while True:
            if not queue:
                if self._closing:
                    return
                # announce the nap first: a verb queued in between sees it and wakes us
                self._asleep = True
                if not queue:
                    self._wake.acquire()
                self._asleep = False
                continue
            group = [queue.popleft() for _ in range(min(len(queue), LARGEST_GROUP))]
            answers = self._commit_group(group)
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(_resolve, answers)
            except RuntimeError:
                return  # the loop is closed: nobody is left to tell

    def _commit_group(self, group: list[Job]) -> list[Answer]:
        answers: list[Answer] = []

        def attempt(job: Job) -> Callable[[], None]:
            verb, args, future = job
            return lambda: answers.append((future, verb(self._books, *args), None))

        if len(group) == 1:
            failure = self._transact([attempt(group[0])])
            return [(group[0][2], None, failure)] if failure else answers
        failure = self._transact([lambda job=job: self._guarded(job, answers) for job in group])  # type: ignore[misc]
        return [(future, None, failure) for _, _, future in group] if failure else answers

    def _guarded(self, job: Job, answers: list[Answer]) -> None:
        verb, args, future = job
        execute = self._books.execute
        execute("SAVEPOINT verb")
        try:
            result = verb(self._books, *args)
        except Exception as error:
            if not self._books.connection.in_transaction:
                raise
            execute("ROLLBACK TO verb")
            execute("RELEASE verb")
            self._books.distrust()
            answers.append((future, None, _translate(error)))
            return
        execute("RELEASE verb")
        answers.append((future, result, None))

    def _transact(self, attempts: list[Callable[[], None]]) -> BaseException | None:
        books = self._books
        try:
            books.execute("BEGIN IMMEDIATE")
            for attempt in attempts:
                attempt()
            books.flush()
            books.execute("COMMIT")
        except BaseException as error:
            if books.connection.in_transaction:
                books.execute("ROLLBACK")
            books.abandon()
            translated = _translate(error)
            if isinstance(translated, StoreUnavailable):
                self.trouble = str(translated)
            return translated
        self.groups += 1
        self.verbs += len(attempts)
        self.trouble = ""
        return None


def _resolve(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


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
