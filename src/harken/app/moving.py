"""Stores as something to be copied, opened by their location."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from harken.app.store import KEY
from harken.clock import SystemClock
from harken.config.settings import is_url
from harken.errors import Refused
from harken.operate.rows import Plain
from harken.operate.store_admin import Watching, copy_store
from harken.store.transfer import Moving

__all__ = ["copy_between", "moving_at", "reopen"]


async def copy_between(source: str, target: str, watching: Watching, *, live: bool, force: bool) -> Plain:
    """Copy the store at one location into the empty one at the other; HARKEN_ENCRYPTION_KEY is for both."""
    if _same(source, target):
        raise Refused("a store is not copied into itself", fix="Name two stores")
    async with _opened(source) as origin, _opened(target) as goal:
        return await copy_store(origin, goal, SystemClock(), watching, live=live, force=force)


async def reopen(location: str) -> str:
    """Let a store be used again that moved away; where it is."""
    async with _opened(location) as store:
        await store.mark("", "")
        return store.place


@asynccontextmanager
async def _opened(location: str) -> AsyncIterator[Moving]:
    async with AsyncExitStack() as stack:
        moving = moving_at(location, os.environ.get(KEY, ""))
        stack.push_async_callback(moving.close)
        yield moving


def moving_at(location: str, key: str) -> Moving:
    """The store at a path or URL. Nothing is read or made before it is asked something."""
    if not is_url(location):
        from harken.backends.sqlite.transfer import SqliteMoving

        return SqliteMoving.at(_file(location), key=key)
    if location.startswith(("redis://", "rediss://")):
        from harken.backends.redis.transfer import RedisMoving

        return RedisMoving.at(location, key=key)
    from harken.backends.postgres.transfer import PostgresMoving

    return PostgresMoving.at(location, key=key)


def _file(location: str) -> Path:
    return Path(location.removeprefix("sqlite://")).expanduser()


def _same(one: str, other: str) -> bool:
    if is_url(one) or is_url(other):
        return one == other
    return _file(one).resolve() == _file(other).resolve()
