"""Private files and directories: 0700 folders, and 0600 files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harken.errors import Misconfigured

__all__ = ["make_private", "read_private", "write_private", "writing"]


def make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing, each for its owner alone, whatever the umask is."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)


def read_private(path: Path) -> bytes | None:
    """The content; None when there is no such file. Refuses one that others could read or have put there."""
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
    """Put the content in the file's place: after a crash it is the old one or the new one, whole."""
    coming = path.with_name(f"{path.name}.{os.getpid()}.new")
    coming.unlink(missing_ok=True)
    handle = os.open(coming, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(coming, path)
    except BaseException:
        coming.unlink(missing_ok=True)
        raise
    _settle(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Be the only one who changes this file; its directory is made, and made private."""
    make_private(path.absolute().parent)
    os.chmod(path.parent, 0o700)
    handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for left in path.parent.glob(f"{path.name}.*.new"):
            # by somebody who was killed while writing
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _settle(folder: Path) -> None:
    """A new name is on the disk only once its folder is."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
