"""What is in a file, as far as an event may have it."""

from __future__ import annotations

import base64
import os
from typing import Any

from harken.services.files.directory_tree_listing import pack_stamp

__all__ = ["read_content"]


def read_content(path: bytes, stamp: bytes, cap: int, root: bytes) -> dict[str, Any] | None:
    """Return the fields of the event; None if the file is not the one that was listed, or is gone.

    `root` is the directory, without links: a folder may have become a link out of it since it was listed.
    """
    try:
        # a pipe that took the place of the file must not keep us waiting
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return _left_out(f"cannot be read: {error.strerror or type(error).__name__}")
    try:
        found = os.fstat(file)
        if pack_stamp(found) != stamp or not _is_inside(file, root):
            return None
        if found.st_size > cap:
            return _left_out(f"larger than {cap} bytes")
        data = _read(file, found.st_size)
        # whoever writes to it right now makes it another version, which is read in its turn
        return _as_fields(data) if pack_stamp(os.fstat(file)) == stamp and len(data) == found.st_size else None
    except OSError as error:
        return _left_out(f"cannot be read: {error.strerror or type(error).__name__}")
    finally:
        os.close(file)


def _is_inside(file: int, root: bytes) -> bool:
    """Whether an open file is below the directory, as far as the system tells."""
    try:
        where = os.readlink(b"/proc/self/fd/%d" % file)
    except OSError:
        # only Linux tells
        return True
    return where.startswith(root.rstrip(b"/") + b"/")


def _read(file: int, size: int) -> bytes:
    pieces = []
    while size and (piece := os.read(file, min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _as_fields(data: bytes) -> dict[str, Any]:
    try:
        return {"content": data.decode("utf-8"), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode("ascii"), "encoding": "base64"}


def _left_out(reason: str) -> dict[str, Any]:
    return {"content": None, "content_left_out": reason}
