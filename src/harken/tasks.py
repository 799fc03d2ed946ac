"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

__all__ = ["end"]

log = structlog.get_logger("harken")

PATIENCE = 1.0
MOST = 30


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these and wait until they have ended.

    A cancellation may get lost on its way: before Python 3.12 `asyncio.wait_for` drops one that comes just when what it
    waits for is there, and drivers use it. So those that are left are cancelled again.
    """
    left = {task for task in tasks if not task.done()}
    for _ in range(MOST):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=PATIENCE)
    if left:
        log.error("tasks.left", names=sorted(task.get_name() for task in left))
