"""Opens the store at a location: a SQLite file, PostgreSQL or Redis. No other module knows which one it is."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from harken.backends.copy_encryption_and_exclusive_access import bare_url
from harken.circuit_breaker import doubling, retry
from harken.clock import Clock, SystemClock
from harken.config.settings import is_url, store_extra
from harken.errors import HarkenError, Misconfigured, Refused, RetryLater
from harken.extras import how_to_install
from harken.operate.output_rows import Plain
from harken.operate.store_copy_restore import CopyProgress, copy_store
from harken.store import Store
from harken.store.transfer_protocol_and_exclusive_access import StoreTransfer

__all__ = [
    "KEY",
    "OpenedStore",
    "StoreInMemory",
    "compact_file",
    "copy_between",
    "open_in_memory",
    "open_store",
    "opened_store",
    "rekey_store",
    "reopen",
    "scratch_store",
    "transfer_at",
    "wait_for_store",
    "without_password",
]

KEY = "HARKEN_ENCRYPTION_KEY"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OpenedStore:
    """A store, and how to connect to it. `connect` returns lines that the person who starts it should see.

    `shared`: several replicas may use it. `listen` registers callbacks: another replica made runs ready, or released a
    lease.
    """

    store: Store
    shared: bool
    connect: Callable[[], Awaitable[Sequence[str]]]
    listen: Callable[[Callable[[], object], Callable[[], object]], None]


class StoreInMemory(Store, Protocol):
    """A store without a file. `image` is all that was committed to it; `abandon` ends it, as a kill does."""

    def image(self) -> bytes: ...

    def abandon(self) -> None: ...


def opened_store(store: Store) -> OpenedStore:
    return OpenedStore(store=store, shared=store.shared, connect=store.connect, listen=store.listen)


def open_store(location: str, clock: Clock, *, readonly: bool = False, key: str = "", new: bool = False) -> OpenedStore:
    """Open the store at a path or URL. A server is contacted by `connect`, or by the first call.

    `new`: begin with an empty file, also where an earlier store left something. Raises Misconfigured for an invalid
    location, Refused when another process has the file, or when a store was there and is gone.
    """
    if new:
        return _new_file(location, clock, key)
    backend = _backend(location)
    return opened_store(backend.at(location, None if backend.shared else clock, readonly=readonly, key=key))


@asynccontextmanager
async def scratch_store(clock: Clock) -> AsyncIterator[Store]:
    """An empty store that is thrown away at the end. It is in memory where the system has a folder for that."""
    from harken.backends.sqlite import SqliteStore

    shared = "/dev/shm"
    place = shared if os.path.isdir(shared) and os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="harken-scratch-", dir=place) as folder:
        store = SqliteStore.at(Path(folder) / "scratch.db", clock, inline=True)
        try:
            yield store
        finally:
            await store.close()


def _new_file(location: str, clock: Clock, key: str) -> OpenedStore:
    from harken.backends.sqlite import SqliteStore

    if is_url(location):
        raise Misconfigured("--new-store is for a store in a file", fix="Start without it: a server keeps its data")
    return opened_store(SqliteStore.at(location, clock, key=key, new=True))


async def wait_for_store(
    opened: OpenedStore, clock: Clock, say: Callable[[str], None], call: Callable[[], Awaitable[T]]
) -> T:
    """Call the store. A server that does not answer is waited for, without end; `say` gets the reason."""
    if not opened.shared:
        return await call()

    def note(error: HarkenError) -> None:
        # a start collects no garbage, and this wait may last for days
        gc.collect()
        say(f"{error}; trying again until it answers")

    return await retry(
        call,
        clock,
        on=(RetryLater,),
        pauses=doubling(FIRST_PAUSE, LONGEST_PAUSE),
        on_wait=note,
        # nothing works before the store answers, so ask more often than it would like
        honour_after=False,
    )


async def rekey_store(location: str, old: str, new: str) -> None:
    """Encrypt the store with another key."""
    await _backend(location).rekey(location, old, new)


def compact_file(path: Path) -> Plain:
    """Write a store's file anew without unused space. Raises Refused while another process writes it."""
    from harken.backends.sqlite import SqliteStore

    before, after = SqliteStore.compact(path)
    return {"store": str(path), "before": before, "after": after}


def _backend(location: str) -> type[Store]:
    """The store class for a path or URL. Raises Misconfigured when its library is not installed."""
    if not is_url(location):
        from harken.backends.sqlite import SqliteStore

        return SqliteStore
    extra = store_extra(location)
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
    return Misconfigured(message, fix=how_to_install(extra))


def without_password(location: str) -> str:
    return bare_url(location) if is_url(location) else location


async def copy_between(source: str, target: str, watching: CopyProgress, *, live: bool, force: bool) -> Plain:
    """Copy the store at one location into the empty one at the other; HARKEN_ENCRYPTION_KEY is for both."""
    if _same(source, target):
        raise Refused("a store is not copied into itself", fix="Name two stores")
    async with _open_transfer(source) as origin, _open_transfer(target) as goal:
        return await copy_store(origin, goal, SystemClock(), watching, live=live, force=force)


async def reopen(location: str) -> str:
    """Allow a store that was moved elsewhere to be used again. Returns its place."""
    async with _open_transfer(location) as store:
        await store.mark("", "")
        return store.place


@asynccontextmanager
async def _open_transfer(location: str) -> AsyncIterator[StoreTransfer]:
    async with AsyncExitStack() as stack:
        transfer = transfer_at(location, os.environ.get(KEY, ""))
        stack.push_async_callback(transfer.close)
        yield transfer


def transfer_at(location: str, key: str) -> StoreTransfer:
    """The store at a path or URL, for copying. It is neither read nor created before the first call."""
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


def open_in_memory(clock: Clock, image: bytes = b"") -> StoreInMemory:
    """A store without a file, for virtual time; `image` is what another one had."""
    from harken.backends.sqlite import SqliteStore

    return SqliteStore.in_memory(clock, image)
