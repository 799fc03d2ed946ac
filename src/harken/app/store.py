"""The store that a location names, opened: a file, PostgreSQL or Redis. The only place where they are told apart."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harken.backends.transfer import bare_url
from harken.clock import Clock, SystemClock
from harken.config.settings import is_url
from harken.errors import Misconfigured, Refused, RetryLater
from harken.operate.rows import Plain
from harken.operate.store_admin import CopyProgress, copy_store
from harken.store import Store
from harken.store.transfer import StoreTransfer

__all__ = [
    "KEY",
    "OpenedStore",
    "alone",
    "copy_between",
    "moving_at",
    "open_home",
    "patiently",
    "rekey_home",
    "reopen",
    "shown",
]


KEY = "HARKEN_ENCRYPTION_KEY"

FIRST_PAUSE = 0.5

LONGEST_PAUSE = 15.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OpenedStore:
    """A store. `connect` reaches it, and returns what a person should know about it.

    `shared`: replicas may write it together. `listen` calls back when another of them made something ready.
    """

    store: Store
    shared: bool
    connect: Callable[[], Awaitable[Sequence[str]]]
    listen: Callable[[Callable[[], object]], None]


def alone(store: Store) -> OpenedStore:
    """A store that is open already."""
    return OpenedStore(store=store, shared=store.shared, connect=store.connect, listen=store.listen)


def open_home(location: str, clock: Clock, *, readonly: bool = False, key: str = "") -> OpenedStore:
    """Open the store at a path or URL. A server is not reached before `connect`, or the first verb.

    Raise Misconfigured for a location that is none, Refused when another process has the file.
    """
    backend = _backend(location)
    return alone(backend.at(location, None if backend.shared else clock, readonly=readonly, key=key))


async def patiently(home: OpenedStore, clock: Clock, say: Callable[[str], None], ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store, and where it is a server wait for it as long as it takes; `say` hears why."""
    pause, said = FIRST_PAUSE, ""
    while True:
        try:
            return await ask()
        except RetryLater as error:
            if not home.shared:
                raise
            if str(error) != said:
                said = str(error)
                say(f"{said}; trying again until it answers")
        await clock.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def rekey_home(location: str, old: str, new: str) -> None:
    """Make the store open with another key."""
    await _backend(location).rekey(location, old, new)


def _backend(location: str) -> type[Store]:
    """The store class for a path or URL. Raise Misconfigured when its library is not installed."""
    if not is_url(location):
        from harken.backends.sqlite import SqliteStore

        return SqliteStore
    extra = "redis" if _is_redis(location) else "postgres"
    try:
        if extra == "redis":
            from harken.backends.redis import RedisStore

            return RedisStore
        from harken.backends.postgres import PostgresStore

        return PostgresStore
    except ImportError as error:
        raise _missing(extra, error) from None


def _is_redis(location: str) -> bool:
    return location.startswith(("redis://", "rediss://"))


def _missing(extra: str, error: ImportError) -> Misconfigured:
    message = f"this store needs a library that is not installed ({error.name})"
    return Misconfigured(message, fix=f"pip install 'harken[{extra}]'")


def shown(location: str) -> str:
    """The location without its password."""
    return bare_url(location) if is_url(location) else location


async def copy_between(source: str, target: str, watching: CopyProgress, *, live: bool, force: bool) -> Plain:
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
async def _opened(location: str) -> AsyncIterator[StoreTransfer]:
    async with AsyncExitStack() as stack:
        moving = moving_at(location, os.environ.get(KEY, ""))
        stack.push_async_callback(moving.close)
        yield moving


def moving_at(location: str, key: str) -> StoreTransfer:
    """The store at a path or URL. Nothing is read or made before it is asked something."""
    if not is_url(location):
        from harken.backends.sqlite.transfer import SqliteTransfer

        return SqliteTransfer.at(_file(location), key=key)
    if _is_redis(location):
        from harken.backends.redis.transfer import RedisTransfer

        return RedisTransfer.at(location, key=key)
    from harken.backends.postgres.transfer import PostgresTransfer

    return PostgresTransfer.at(location, key=key)


def _file(location: str) -> Path:
    return Path(location.removeprefix("sqlite://")).expanduser()


def _same(one: str, other: str) -> bool:
    if is_url(one) or is_url(other):
        return one == other
    return _file(one).resolve() == _file(other).resolve()
