"""Keeps a damaged file down until it is whole: writes that miss the damaged page would succeed, and the store flap."""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw
import structlog

from harken.clock import Clock

__all__ = ["CHECK_SECONDS", "Damage", "find_damage", "forget_pages"]

log = structlog.get_logger("harken.store")

CHECK_SECONDS = 30.0
"""How often a damaged file is checked again."""


class Damage:
    """`found` from the first damaged page on, until `check` (which reads the whole file) returns True."""

    def __init__(self, check: Callable[[], bool], clock: Clock, *, inline: bool) -> None:
        self._check = check
        self._clock = clock
        self._inline = inline
        self._checking = threading.Lock()
        self._checked = 0.0
        self.found = False

    def note(self) -> None:
        self._checked = self._clock.monotonic()
        self.found = True

    def check_if_due(self) -> bool:
        """Whether the file is damaged as far as is known; begins another check when the last one is old."""
        if not self.found:
            return False
        due = self._clock.monotonic() - self._checked >= CHECK_SECONDS
        if due and self._checking.acquire(blocking=False):
            self._checked = self._clock.monotonic()
            if self._inline:
                self._look()
            else:
                # not in the writer's thread: a large file takes minutes, and writes are refused at once meanwhile
                threading.Thread(target=self._look, name="harken-check", daemon=True).start()
        return self.found

    def _look(self) -> None:
        try:
            self.found = not self._check()
        except apsw.Error as error:
            # it could not be read to its end, so it stays damaged
            log.warning("store.check_failed", reason=type(error).__name__)
        finally:
            self._checked = self._clock.monotonic()
            self._checking.release()


def forget_pages(connection: apsw.Connection) -> None:
    """Empty the connection's cache: it has the damaged page, and would find it there when the file is whole again."""
    connection.execute("PRAGMA shrink_memory")


def find_damage(connection: apsw.Connection) -> list[str]:
    """What SQLite finds wrong in the whole file."""
    try:
        return [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [str(error)]
