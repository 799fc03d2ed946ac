"""Processes that an agent of a killed Harken has left behind. They are known by a variable of their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

__all__ = ["WORKSPACE_VARIABLE", "kill_leftovers"]

WORKSPACE_VARIABLE = "HARKEN_WORKSPACE"


def kill_leftovers(workspace: Path) -> int:
    """Kill every process that was started for this workspace, and return how many. Linux only; else nothing is done.

    To be called when none of them may live: with the workspace's lock, or after the claim of its holder has ended."""
    if sys.platform != "linux":
        return 0
    found = _find(workspace)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _find(workspace: Path) -> list[int]:
    mark = os.fsencode(f"{WORKSPACE_VARIABLE}={workspace}")
    found = []
    for name in os.listdir("/proc"):
        # processes of other users cannot be read, and others end while we look
        with contextlib.suppress(OSError):
            if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return [pid for pid in found if pid != os.getpid()]
