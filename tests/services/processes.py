"""What the kernel says about processes: whether anything was left behind."""

from __future__ import annotations

import os
from pathlib import Path


def running(mark: str) -> list[str]:
    """The command lines of processes, other than this one, that mention the mark."""
    return [
        command
        for entry in Path("/proc").glob("[0-9]*")
        if mark in (command := _read(entry / "cmdline").replace("\0", " ")) and int(entry.name) != os.getpid()
    ]


def left_behind(mark: str) -> list[str]:
    """Those of them that are ours, or nobody's any more: another test may run its own at the same time."""
    return [
        command
        for entry in Path("/proc").glob("[0-9]*")
        if mark in (command := _read(entry / "cmdline").replace("\0", " "))
        and _parent(entry) in (os.getpid(), 1)
        and int(entry.name) != os.getpid()
    ]


def _parent(entry: Path) -> int:
    _, parent, *_ = _read(entry / "stat").rpartition(")")[2].split() or ["", "0"]
    return int(parent)


def zombies() -> list[int]:
    """Our children that ended and were not waited for."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        state, parent, *_ = _read(entry / "stat").rpartition(")")[2].split() or ["", "0"]
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(entry.name))
    return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
