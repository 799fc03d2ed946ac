"""Says in words why the file cannot be opened, read or written: full, damaged, read-only, locked."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from harken.errors import HarkenError, StoreUnavailable

__all__ = ["DAMAGED", "opening", "place_problems", "reading", "translate"]

DAMAGED = (apsw.CorruptError, apsw.NotADBError)
UNREADABLE = (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError, *DAMAGED)

RESTORE = "Restore the last backup: harken store restore FILE"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_RIGHT = (errno.EROFS, errno.EACCES, errno.EPERM)


def translate(error: BaseException) -> BaseException:
    """The error of a write in words; errors that are not of the file stay."""
    if isinstance(error, apsw.FullError):
        return StoreUnavailable("the disk is full", after=5.0, fix="Free some space; nothing was lost")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable("another program holds the database", after=5.0, fix="Close it; nothing was lost")
    if isinstance(error, DAMAGED):
        return StoreUnavailable("the database file is damaged", after=60.0, fix=RESTORE)
    if isinstance(error, apsw.ReadOnlyError):
        fix = "Give your user the right to write the file and its directory"
        return StoreUnavailable("the database file or its directory is read-only", after=5.0, fix=fix)
    if isinstance(error, (apsw.IOError, apsw.CantOpenError)):
        fix = "Check the disk and the file's permissions"
        return StoreUnavailable(f"the database cannot be written ({type(error).__name__})", after=5.0, fix=fix)
    if isinstance(error, (HarkenError, AssertionError)) or not isinstance(error, apsw.Error):
        return error
    return StoreUnavailable(f"the database refused a write ({type(error).__name__}: {error})", after=5.0)


@contextmanager
def reading() -> Iterator[None]:
    """Turn errors of disk and file into StoreUnavailable for readers, as the writer does; other errors stay."""
    try:
        yield
    except DAMAGED as error:
        raise translate(error) from None
    except UNREADABLE as error:
        fix = "Check the disk and the file's permissions"
        message = f"the database cannot be read ({type(error).__name__})"
        raise StoreUnavailable(message, after=5.0, fix=fix) from None


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn errors of disk and file into StoreUnavailable with the path and what to do; other errors stay."""
    try:
        yield
    except DAMAGED:
        raise StoreUnavailable(f"{path} is damaged, or no database", fix=RESTORE) from None
    except (apsw.BusyError, apsw.LockedError):
        raise StoreUnavailable(f"another program holds {path}", fix="Close it, and try again") from None
    except apsw.FullError:
        raise _full(path) from None
    except (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError):
        raise _read_only(path) from None
    except (apsw.IOError, apsw.CantOpenError) as error:
        raise _unopened(path, type(error).__name__) from None
    except OSError as error:
        raise _refused_by_system(path, error) from None


def place_problems(path: Path) -> list[str]:
    """What is wrong with the disk and the directory of the file, before a write finds out."""
    return [str(error) for error in (_full(path) if _is_full(path) else None, _unwritable(path)) if error]


def _refused_by_system(path: Path, error: OSError) -> StoreUnavailable:
    if error.errno in NO_ROOM:
        return _full(path)
    if error.errno in NO_RIGHT:
        return _read_only(path)
    return _unopened(path, error.strerror or type(error).__name__)


def _unopened(path: Path, reason: str) -> StoreUnavailable:
    # SQLite says no more than "I/O error" or "cannot open" for many reasons, so look for the two that people meet
    if _is_full(path):
        return _full(path)
    return _unwritable(path) or StoreUnavailable(
        f"{path} cannot be opened ({reason})", fix="Check the disk, the path and the file's permissions"
    )


def _full(path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"the disk of {path} is full", fix="Free some space there; nothing was lost")


def _read_only(path: Path) -> StoreUnavailable:
    fix = "Give your user the right to write there, or set `store:` to a file elsewhere"
    return StoreUnavailable(f"{path} or its directory is read-only", fix=fix)


def _unwritable(path: Path) -> StoreUnavailable | None:
    existing = [place for place in (path.absolute().parent, path) if place.exists()]
    return None if all(os.access(place, os.W_OK) for place in existing) else _read_only(path)


def _is_full(path: Path) -> bool:
    try:
        return os.statvfs(path.absolute().parent).f_bavail == 0
    except OSError:
        return False
