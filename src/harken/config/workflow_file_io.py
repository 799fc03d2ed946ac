"""Reads and replaces one file below workflows/ for a caller who is not on this machine.

No symbolic link is followed below the directory of harken.yaml, so that nothing outside can be read or written. A file
is replaced as a whole or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from harken.errors import NotFound, Outdated, Refused

__all__ = ["LARGEST", "NEW", "obstacle", "read_file", "replace_file", "revision_of"]

LARGEST = 256 * 1024
"""Bytes of a file that is edited from afar: its text travels with every check."""
NEW = "new"
"""The revision of a file that is not there yet."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# a pipe or a device must not be waited for
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINKED = (errno.ELOOP, errno.ENOTDIR)


def revision_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def read_file(directory: Path, file: str) -> bytes:
    """The content of `file`, which is relative to the directory. Raise Refused for what cannot be edited from afar."""
    with _open_folder(directory, file) as (folder, name):
        return _read(folder, name, file)[0]


def obstacle(directory: Path, file: str) -> str:
    """Why the file cannot be replaced, in words; empty if it can."""
    try:
        with _open_folder(directory, file) as (folder, name):
            _require_writable(folder, file)
            if _exists(folder, name):
                _require_owner(_read(folder, name, file)[1], file)
    except Refused as error:
        return error.message
    return ""


def replace_file(directory: Path, file: str, content: bytes, *, expect: str) -> None:
    """Give the file this content; it keeps its mode, owner and group. After a crash it has the old content or the new.

    Raise Outdated when its revision is not `expect`, and Refused where it cannot be written."""
    with _open_folder(directory, file) as (folder, name):
        _require_writable(folder, file)
        # other processes of ours wait; an editor may write meanwhile, and is noticed below unless it is very late
        fcntl.flock(folder, fcntl.LOCK_EX)
        status = None
        if _exists(folder, name):
            before, status = _read(folder, name, file)
            _require_owner(status, file)
        if (NEW if status is None else revision_of(before)) != expect:
            raise Outdated(f"{file} was changed meanwhile", fix="Read it again, and change what is there now")
        _remove_leftovers(folder, name)
        _write(folder, name, content, status, file)


def _write(folder: int, name: str, content: bytes, before: os.stat_result | None, file: str) -> None:
    # hidden, so that no reload reads it
    temporary = f".{name}.{secrets.token_hex(4)}.new"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as stream:
                if before is not None:
                    _keep_owner(stream.fileno(), before)
                    os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror}", fix="Check the disk and its rights") from error
    # a renamed file is only then safe from a power cut
    os.fsync(folder)


def _keep_owner(handle: int, before: os.stat_result) -> None:
    made = os.fstat(handle)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(handle, before.st_uid, before.st_gid)


def _remove_leftovers(folder: int, name: str) -> None:
    """Those of a process that was killed while it wrote; we hold the lock, so nobody uses them."""
    for found in os.listdir(folder):
        if found.startswith(f".{name}.") and found.endswith(".new"):
            os.unlink(found, dir_fd=folder)


@contextmanager
def _open_folder(directory: Path, file: str) -> Iterator[tuple[int, str]]:
    """The folder of the file, opened part by part without following a link, and the name of the file in it."""
    first, *folders, name = _parts(file)
    handle = os.open(directory, _FOLDER)
    try:
        for part in (first, *folders):
            inner = _open_inner(handle, part, file)
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)


def _parts(file: str) -> tuple[str, ...]:
    parts = PurePosixPath(file).parts
    if len(parts) < 2 or parts[0] != "workflows" or ".." in parts or "\0" in file:
        raise Refused(f"{file!r} is no file below workflows/", fix="Only these can be changed from here")
    return parts


def _open_inner(handle: int, part: str, file: str) -> int:
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
    except OSError as error:
        raise _cannot_open(error, file, part) from error


def _read(folder: int, name: str, file: str) -> tuple[bytes, os.stat_result]:
    try:
        handle = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        raise _cannot_open(error, file, name) from error
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{file} is not a regular file", fix="Put a file there")
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Refused(f"{file} is larger than {LARGEST // 1024} kB", fix="Change it with an editor on its machine")
    return content, status


def _cannot_open(error: OSError, file: str, part: str) -> Refused:
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no {file} any more", fix="See: harken workflows list")
    if error.errno in _LINKED:
        return Refused(f"{part} in {file} is a symbolic link", fix="Change the file that it leads to, on its machine")
    return Refused(f"{file} cannot be opened: {error.strerror}", fix="Check its rights")


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _require_writable(folder: int, file: str) -> None:
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
        where = PurePosixPath(file).parent
        raise Refused(f"Harken may not write in {where}/", fix="Change the file on its machine")


def _require_owner(status: os.stat_result, file: str) -> None:
    """Only root may give a new file to another user."""
    if os.geteuid() not in (0, status.st_uid):
        raise Refused(f"{file} belongs to another user than the one Harken runs as", fix="Change it as its owner")
