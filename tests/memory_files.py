"""Where tests keep their files: in memory where there is room, as waiting for the disk is not what they test."""

from __future__ import annotations

import shutil

__all__ = ["in_memory"]

MEMORY, ROOM = "/dev/shm", 2_000_000_000


def in_memory() -> str | None:
    """A directory in memory; None where there is none, or little room."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    return MEMORY if free > ROOM else None
