"""Cancelling tasks, and waiting until they have really ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

__all__ = ["cancel_and_wait"]

log = structlog.get_logger("harken")

WAIT_SECONDS = 1.0
"""After so long without an end a task is cancelled again."""
MOST_TRIES = 30


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until they have ended.

    A cancellation may get lost: before Python 3.12 `asyncio.wait_for`, which drivers use, drops one that arrives just
    when its awaitable is done. So tasks that have not ended are cancelled again.
    """
    left = {task for task in tasks if not task.done()}
    for _ in range(MOST_TRIES):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=WAIT_SECONDS)
    if left:
        log.error("tasks.left", names=sorted(task.get_name() for task in left))
