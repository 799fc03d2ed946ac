"""Directories and files that only their owner may read (0700, 0600); files are replaced atomically."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harken.errors import Misconfigured

__all__ = ["lock_for_writing", "make_private", "read_private", "write_private"]


def make_private(folder: Path) -> None:
    """Create the directory and its missing parents, each readable only by its owner, whatever the umask is."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)


def read_private(path: Path) -> bytes | None:
    """The content of the file; None if there is none. Raise Misconfigured if others can read it or it is not ours."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read ({error.strerror})", fix="Check the path and its rights") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            raise Misconfigured(f"{path} is not a file of your own", fix="Move it away, and store what was in it again")
        if found.st_mode & 0o077:
            message = f"others may read {path} (mode {stat.S_IMODE(found.st_mode):o})"
            fix = f"chmod 600 {path}, and change the credentials in it if others use this machine"
            raise Misconfigured(message, fix=fix)
        return file.read()


def write_private(path: Path, content: bytes) -> None:
    """Replace the content of the file atomically: after a crash it has the old content or the new one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


@contextmanager
def lock_for_writing(path: Path) -> Iterator[None]:
    """Hold the lock of this file while it is changed. Its directory is created, and made private."""
    make_private(path.absolute().parent)
    os.chmod(path.parent, 0o700)
    handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for leftover in path.parent.glob(f"{path.name}.*.new"):
            # of a process that was killed while writing
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _sync_directory(folder: Path) -> None:
    """Flush the directory: a renamed file is only then safe from a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
