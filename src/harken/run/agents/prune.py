"""Removes the worktrees and outputs of agents that nobody has used for long."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from harken.private_files import make_private
from harken.run.agents.workspace import TREE
from harken.run.agents.workspace_lock import is_locked

__all__ = ["prune_workspaces"]

ROUND_SECONDS = 3_600.0


async def prune_workspaces(directory: Path, keep_seconds: float) -> None:
    """Remove what was not used for `keep_seconds`, at most once an hour."""
    mark = directory / "pruned"
    if mark.exists() and time.time() - mark.stat().st_mtime < ROUND_SECONDS:
        return
    make_private(directory)
    mark.touch(mode=0o600)
    await asyncio.to_thread(_prune, directory, time.time() - keep_seconds)


def _prune(directory: Path, before: float) -> None:
    for output in (directory / "outputs").glob("*"):
        if output.stat().st_mtime < before:
            shutil.rmtree(output, ignore_errors=True)
    for workspace in (directory / "tickets").glob("*"):
        # the directory itself stays: its lock may be waited for
        state = workspace / "state.json"
        if state.exists() and state.stat().st_mtime < before and not is_locked(workspace):
            state.unlink()
            shutil.rmtree(workspace / TREE, ignore_errors=True)
