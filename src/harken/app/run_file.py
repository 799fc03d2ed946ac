"""The run file, in which a running controller says who and where it is; commands look for it to talk to it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

__all__ = ["drop_run_file", "write_run_file"]

log = structlog.get_logger("harken.app")


def write_run_file(path: Path, url: str, *, shared: bool) -> None:
    """Say that this process is at `url`. On a shared store it may stay unsaid; raise OSError on any other."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        if not shared:
            raise
        # the files of a replica are often mounted to be read only; commands then ask the store
        log.info("run_file.unwritable", path=str(path), reason=error.strerror)
        return
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode({"pid": os.getpid(), "url": url}))


def drop_run_file(path: Path) -> None:
    """Unless another replica on this machine wrote it meanwhile."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        if msgspec.json.decode(path.read_bytes())["pid"] == os.getpid():
            path.unlink()
