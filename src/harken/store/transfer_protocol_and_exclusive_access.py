"""Copies a store into an empty one: rows in bounded chunks, while no other process may use either store."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from harken.errors import LeaseLost, Refused
from harken.store.document_kinds import REPLICA, THIS_STORE, TRANSFER
from harken.store.method_arguments_and_results import HOUSEKEEPING, Lease
from harken.store.protocols import Store
from harken.store.transfer_rows import Chunk, ExportedRow

__all__ = [
    "Counts",
    "ExclusiveStore",
    "StoreTransfer",
    "chunks",
    "chunks_of",
    "refuse_marked",
]


Counts: TypeAlias = Mapping[str, int]
"""Numbers of rows by the values of KINDS."""

ROWS, BYTES = 400, 1_000_000
"""A chunk has at most so many rows, and not much more than so many bytes."""

SECONDS = 30.0
"""How long the leases last that keep others out."""

SILENT = timedelta(seconds=35)
"""A replica without a heartbeat for so long is gone."""


class StoreTransfer(Protocol):
    """A store as the source or target of a copy."""

    @property
    def place(self) -> str:
        """Where the store is, for messages; without a password."""
        ...

    async def writers(self) -> Sequence[str]:
        """Describe each process that uses the store. If there is none, lock others out until `close`."""
        ...

    async def stay(self) -> None:
        """Renew the lock; call it every few seconds. Raise LeaseLost when another process uses the store after all."""
        ...

    def rows(self) -> AsyncIterator[Chunk]:
        """The contents of the store at one moment: an ExportHeader, then the kinds in the order of KINDS."""
        ...

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """Load these rows. Raise Refused unless the store is empty; `force` first wipes an unfinished copy.

        After an interruption the store is empty, or it is marked so that no process starts with it (refuse_marked)."""
        ...

    async def counts(self) -> Counts: ...

    async def mark(self, words: str, fix: str) -> None:
        """Refuse every process that starts with the store, with this message; an empty message ends that."""
        ...

    async def close(self) -> None: ...


async def refuse_marked(store: Store) -> None:
    """Raise Refused for a store that was replaced by its copy, or is being copied. Call it at every start."""
    found = await store.get(TRANSFER, THIS_STORE)
    if found is None:
        return
    holder = found.value["holder"]
    if holder and holder not in {held.holder for held in await store.leases()}:
        # the copying process died, and its leases have expired
        return
    raise Refused(found.value["words"], fix=found.value["fix"])


def _weight(value: Any) -> int:
    """The approximate size of a row in bytes."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, tuple):
        return sum(map(_weight, value))
    if isinstance(value, msgspec.Struct):
        return sum(_weight(getattr(value, field)) for field in value.__struct_fields__)
    return 8


def _is_full(some: Sequence[ExportedRow], size: int) -> bool:
    return len(some) >= ROWS or size >= BYTES


def chunks(rows: Iterable[ExportedRow]) -> Iterator[list[ExportedRow]]:
    """Split rows of one kind into chunks of bounded size."""
    some: list[ExportedRow] = []
    size = 0
    for row in rows:
        some.append(row)
        size += _weight(row)
        if _is_full(some, size):
            yield some
            some, size = [], 0
    if some:
        yield some


async def chunks_of(rows: AsyncIterator[ExportedRow]) -> AsyncIterator[list[ExportedRow]]:
    """The same for an asynchronous iterator."""
    some: list[ExportedRow] = []
    size = 0
    async for row in rows:
        some.append(row)
        size += _weight(row)
        if _is_full(some, size):
            yield some
            some, size = [], 0
    if some:
        yield some


class ExclusiveStore:
    """Keeps other processes out of a store: holds the lease of every shard, and marks the store against new starts."""

    def __init__(self, store: Store) -> None:
        self.holder = f"copy-{os.getpid()}-{secrets.token_hex(4)}"
        self._store = store
        self._leases: dict[int, Lease] = {}

    async def writers(self, shards: Iterable[int], words: str) -> list[str]:
        """Describe each process that uses the store. If there is none, lock it until `leave`; renew with `stay`."""
        await refuse_marked(self._store)
        # runs of dead workers would count as running
        await self._store.requeue_expired()
        found = sorted({f"{held.holder} holds leases of it" for held in await self._store.leases()})
        running = (await self._store.counts()).get("runs_running", 0)
        found += [f"workers have {running} of its runs"] if running else []
        found = found or await self._take_leases({HOUSEKEEPING, *shards})
        if found:
            await self.leave()
            return found
        value = {"words": words, "fix": "Start when that is done", "holder": self.holder}
        await self._store.put(TRANSFER, THIS_STORE, value)
        return []

    async def _take_leases(self, shards: set[int]) -> list[str]:
        """Take the leases. Return who else uses the store: a faster process, or a replica without leases."""
        for shard in sorted(shards):
            lease = await self._store.lease(shard, self.holder, SECONDS)
            if lease is None:
                return [f"somebody has just taken shard {shard} of it"]
            self._leases[shard] = lease
        # by the store's clock, which also sets `updated_at`
        now = self._leases[HOUSEKEEPING].until - timedelta(seconds=SECONDS)
        replicas = await self._store.documents(REPLICA)
        return [f"replica {each.name} uses it" for each in replicas if now - each.updated_at < SILENT]

    async def stay(self) -> None:
        """Renew the leases. Raise LeaseLost when another process has taken one."""
        for shard, held in self._leases.items():
            lease = await self._store.lease(shard, self.holder, SECONDS)
            if lease is None or lease.token != held.token:
                raise LeaseLost("somebody else came to use the store while it was copied")

    async def leave(self) -> None:
        """Release the leases and remove the mark."""
        if not self._leases:
            return
        mark = await self._store.get(TRANSFER, THIS_STORE)
        if mark is not None and mark.value["holder"] == self.holder:
            await self._store.delete(TRANSFER, THIS_STORE)
        for lease in self._leases.values():
            await self._store.release_lease(lease, self.holder)
        self._leases = {}
