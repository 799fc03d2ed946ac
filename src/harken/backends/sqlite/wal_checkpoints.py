"""Moves the write-ahead log into the database, in a thread and on a connection of its own: no commit waits for it.

SQLite itself would do it within the COMMIT that makes the log too long, and whoever waits for that commit would wait
for thousands of pages to be written and synced. The end of a log that is still growing is moved by the writer, between
two groups: only when all of it is in the database does SQLite begin the log anew.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import apsw
import structlog

__all__ = ["LOG_PAGES", "Checkpoints"]

log = structlog.get_logger("harken.store")

LOG_PAGES = 8_000
"""How long the log may become before it is moved: 32 MB."""
AGAIN_PAGES = LOG_PAGES // 8
"""How much longer it becomes before the next attempt, where something kept it from being moved."""
FEW_PAGES, REST_PAGES = 100, 1_000
"""The thread goes on until so few are left, or no fewer; the writer moves them itself, if they are not too many."""
LARGEST_PAGES = 8 * LOG_PAGES
"""A log that became so long, because it grows faster than it is moved, the writer moves itself, however much it is."""
WAIT_SECONDS = 10.0
ROUNDS = 8
"""How often one attempt catches up with the writer."""


class Checkpoints:
    """`writer` is the connection that commits, `connection` another one, which nothing else uses."""

    def __init__(self, writer: apsw.Connection, connection: apsw.Connection) -> None:
        self.connection = connection
        self._writer = writer
        self._length = 0
        self._due_at = LOG_PAGES
        self._at_rest = threading.Event()
        self._at_rest.set()
        self._rest = False
        self._failed = ""
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        # from the beginning: a commit that cannot start a thread would fail after it is durable
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="harken-checkpoint", daemon=True
        )
        self._thread.start()
        # in the place of SQLite's own, which moves the log within the commit
        writer.set_wal_hook(self._on_commit)

    def _on_commit(self, connection: apsw.Connection, database: str, pages: int) -> int:
        """In the writer's thread, after each commit: `pages` is the length of the log."""
        self._length = pages
        if pages < LOG_PAGES:
            self._due_at, self._rest = LOG_PAGES, False
        elif pages >= self._due_at and self._at_rest.is_set():
            self._at_rest.clear()
            self._ask(pages)
        return int(apsw.SQLITE_OK)

    def _ask(self, pages: int) -> None:
        self._asked.put(pages)

    def finish(self) -> None:
        """In the writer's thread, between two groups: move the little that is left, so that the log begins anew."""
        if self._rest and self._at_rest.is_set():
            self._rest = False
            self._move(self._writer)

    def wait(self) -> None:
        """Until no attempt is under way, at most some seconds."""
        self._at_rest.wait(WAIT_SECONDS)

    def stop(self) -> None:
        """End the thread; an attempt under way is interrupted, and what it has not moved stays in the log."""
        if self._thread is not None:
            self._asked.put(None)
            self.connection.interrupt()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (pages := self._asked.get()) is not None:
            try:
                left = self._catch_up()
                self._rest = left is not None and (left <= REST_PAGES or pages >= LARGEST_PAGES)
                self._due_at = pages + AGAIN_PAGES
            finally:
                self._at_rest.set()

    def _catch_up(self) -> int | None:
        """Move the log until little is left; each time the writer has less time to add to it. None if that fails."""
        left: int | None = None
        for _ in range(ROUNDS):
            before, left = left, self._move(self.connection)
            if left is None or left <= FEW_PAGES or (before is not None and left >= before):
                break
        return left

    def _move(self, connection: apsw.Connection) -> int | None:
        """Move what no reader still needs. Return how many pages are left, None if it failed."""
        try:
            found: Any = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except apsw.InterruptError:
            return None
        except apsw.Error as error:
            self._note(type(error).__name__)
            return None
        self._note("")
        # SQLite speaks of the log as it was when this began
        _, pages, moved = found
        return int(max(pages, self._length) - moved)

    def _note(self, failure: str) -> None:
        """Nothing is lost: what was committed stays in the log, which grows. Say so once."""
        if failure and failure != self._failed:
            log.warning("store.log_not_moved", reason=failure)
        self._failed = failure
