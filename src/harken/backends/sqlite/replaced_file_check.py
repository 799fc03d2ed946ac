"""Notices that the store's files were removed or exchanged while they are open: what is written then would be lost.

SQLite goes on writing to a file that has no name any more, and every write succeeds. The -shm file is not compared:
SQLite makes it again from the other two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harken.clock import Clock
from harken.errors import StoreUnavailable

__all__ = ["LOOK_SECONDS", "FileGuard", "LostFile", "NoFileGuard"]

LOOK_SECONDS = 2.0
"""How old a look may be when a write is acknowledged."""

Identity = tuple[int, int]
"""device, inode"""


@dataclass(frozen=True, kw_only=True)
class LostFile:
    """What is wrong. `only_log`: the database is still in its place, so the log's content can be moved into it."""

    message: str
    fix: str
    only_log: bool = False

    def error(self) -> StoreUnavailable:
        return StoreUnavailable(self.message, after=5.0, fix=self.fix)


class FileGuard:
    """Compares the files at the store's path with those that were opened. Make it right after opening them."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._database = os.path.abspath(path)
        self._log = f"{self._database}-wal"
        self._clock = clock
        self._opened = {file: _identity(os.stat(file)) for file in (self._database, self._log)}
        self._looked = clock.monotonic()
        self._emptied = False
        self.lost: LostFile | None = None

    def look_again(self) -> LostFile | None:
        """Look whether what was lost is back; do not look if nothing was."""
        return self.lost and self.look()

    def look_if_due(self) -> LostFile | None:
        """Look if the last look is too old, or found something."""
        if self.lost is None and self._clock.monotonic() - self._looked < LOOK_SECONDS:
            return None
        return self.look()

    def look(self) -> LostFile | None:
        self._looked = self._clock.monotonic()
        self.lost = self._compare_database() or self._compare_log()
        return self.lost

    def _compare_database(self) -> LostFile | None:
        file = self._database
        wrong, size = self._compare(file)
        # sticky: bytes that come back into the same file need not be the ones that were there
        self._emptied = self._emptied or (not wrong and size == 0)
        if self._emptied:
            fix = "Stop Harken and restore a backup: harken store restore FILE"
            return LostFile(message=f"{file} was emptied while Harken used it", fix=fix)
        if wrong:
            fix = (
                "Put the same file back, or save what is still open (harken store backup FILE), stop Harken, "
                "and restore that (harken store restore FILE)"
            )
            return LostFile(message=f"{file} {wrong}", fix=fix)
        return None

    def _compare_log(self) -> LostFile | None:
        wrong, _ = self._compare(self._log)
        if not wrong:
            return None
        fix = f"Restart Harken: what was in it is written to {self._database}"
        return LostFile(message=f"{self._log} {wrong}", fix=fix, only_log=True)

    def _compare(self, file: str) -> tuple[str, int]:
        """What is wrong with the file, if anything, and its size."""
        try:
            found = os.stat(file)
        except (FileNotFoundError, NotADirectoryError):
            return "was removed or moved away while Harken used it", 0
        except OSError as error:
            return f"cannot be looked at ({error.strerror})", 0
        if _identity(found) != self._opened[file]:
            return "was exchanged for another file while Harken used it", 0
        return "", found.st_size


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


class NoFileGuard(FileGuard):
    """The guard of a database in memory, which has no file that could be lost."""

    def __init__(self) -> None:
        self.lost = None

    def look_again(self) -> LostFile | None:
        return None

    def look_if_due(self) -> LostFile | None:
        return None

    def look(self) -> LostFile | None:
        return None
