"""Which simulated process a task belongs to: several share one event loop, and each ends with its own tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["TaskOwner", "note_owners"]

_owner: ContextVar[TaskOwner | None] = ContextVar("owner", default=None)
_owned: WeakKeyDictionary[asyncio.Task[Any], TaskOwner | None] = WeakKeyDictionary()


def note_owners(loop: asyncio.AbstractEventLoop) -> None:
    """From now on each task belongs to the owner in whose context it was made."""

    def made(loop: asyncio.AbstractEventLoop, work: Any, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        _owned[task] = _owner.get() if context is None else context.get(_owner)
        return task

    loop.set_task_factory(made)


class TaskOwner:
    """A process that is not one: whatever it spawns, and whatever that spawns, is its own."""

    def __init__(self) -> None:
        self.context: Context = copy_context()
        self.context.run(_owner.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do it as this owner; it ends with it."""
        return asyncio.get_running_loop().create_task(work, context=self.context.run(copy_context))

    async def end(self) -> None:
        """Cancel everything that it has spawned, and wait for that."""
        # in the order in which they were made: a set of tasks has another one every time
        mine = [task for task, owner in _owned.items() if owner is self and not task.done()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
