"""The directory in which the code of a python step works: how much is in it, and its removal, whatever that is.

No kernel has a limit for all files of a process together, so the directory is looked at while the code runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator

__all__ = ["MOST_FILES", "MOST_WRITTEN", "excess", "scratch_directory"]

MOST_WRITTEN = 100_000_000
MOST_FILES = 1_000
_BLOCK = 512


@contextlib.asynccontextmanager
async def scratch_directory() -> AsyncIterator[str]:
    """An empty directory, which is gone afterwards with all that is in it."""
    folder = tempfile.mkdtemp(prefix="harken-python-")
    try:
        yield folder
    finally:
        await asyncio.to_thread(_remove, folder)


def excess(folder: str, process: int) -> str:
    """What the process has done too much of, such as `wrote more than …`; empty if it keeps to the limits."""
    sizes = _unnamed_files(process)
    folders, count = [folder], 0
    try:
        while folders:
            for entry in _entries(folders.pop()):
                count += 1
                if count > MOST_FILES:
                    return f"made more than {MOST_FILES:,} files"
                # it may be gone since
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    sizes[found.st_ino] = found.st_blocks * _BLOCK
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.path)
    except PermissionError:
        return "made a directory that cannot be read"
    except OSError as error:
        # the directory itself is gone when the step is
        return "made directories deeper than a path can name" if error.errno == errno.ENAMETOOLONG else ""
    return f"wrote more than {MOST_WRITTEN:,} bytes" if sum(sizes.values()) > MOST_WRITTEN else ""


def _unnamed_files(process: int) -> dict[int, int]:
    """The sizes of files that the process has open and has removed, by their number; empty where nothing tells it."""
    sizes = {}
    with contextlib.suppress(OSError):
        for handle in _entries(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                found = handle.stat()
                if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                    sizes[found.st_ino] = found.st_blocks * _BLOCK
    return sizes


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(itertools.islice(found, MOST_FILES + 1))


def _remove(folder: str) -> None:
    """What is in a directory is moved to the top before the directory is removed, so that none is too deep."""
    names = (f"{folder}/{number}" for number in itertools.count())
    with contextlib.suppress(OSError):
        while entries := _entries(folder):
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _move_up(entry.path, names)
                    os.rmdir(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(folder)


def _move_up(folder: str, names: Iterator[str]) -> None:
    _allow_all(folder)
    while entries := _entries(folder):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _allow_all(entry.path)
            os.rename(entry.path, next(name for name in names if not os.path.lexists(name)))


def _allow_all(folder: str) -> None:
    """It may have been made without the rights to read and empty it."""
    os.chmod(folder, stat.S_IRWXU, follow_symlinks=os.chmod not in os.supports_follow_symlinks)
