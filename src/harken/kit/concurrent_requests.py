"""Several requests at once, for the pages and histories that one read needs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["gather"]

T = TypeVar("T")


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all at once and return their results in order. The first error cancels the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
