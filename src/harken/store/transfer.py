"""Copy a store into an empty one: rows in bounded chunks, with all other processes kept out meanwhile."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from harken.errors import LeaseLost, Refused
from harken.store.documents import REPLICA, THIS_STORE, TRANSFER
from harken.store.export_rows import Chunk, Moved
from harken.store.protocols import Store
from harken.store.values import HOUSEKEEPING, Lease

__all__ = [
    "Counts",
    "ExclusiveStore",
    "StoreTransfer",
    "chunks",
    "chunks_of",
    "refuse_marked",
]


Counts: TypeAlias = Mapping[str, int]

"""How many rows there are of each kind, by the words of KINDS."""

ROWS, BYTES = 400, 1_000_000

"""A chunk has at most so many rows, and not much more than so many bytes."""


class StoreTransfer(Protocol):
    """A store as something to be copied."""

    @property
    def place(self) -> str:
        """Where it is, for people: never with a password."""
        ...

    async def writers(self) -> Sequence[str]:
        """Who uses the store now, in words. When nobody does, nobody can from now on until `close`."""
        ...

    async def stay(self) -> None:
        """Go on keeping the others out; asked every few seconds. Raise LeaseLost when somebody came in after all."""
        ...

    def rows(self) -> AsyncIterator[Chunk]:
        """All that the store holds at one moment: a Beginning, then the kinds in the order of KINDS."""
        ...

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """Become what these rows tell. Raise Refused unless the store is empty; `force` wipes half a copy first.

        Where this is interrupted the store is empty as before, or nobody can start with it (see refuse_marked)."""
        ...

    async def counts(self) -> Counts: ...

    async def mark(self, words: str, fix: str) -> None:
        """Whoever starts with the store from now on is refused with these words; with empty ones nobody is."""
        ...

    async def close(self) -> None: ...


async def refuse_marked(store: Store) -> None:
    """Raise Refused for a store that moved away, or is being copied or filled at this moment. Ask it at every start."""
    found = await store.get(TRANSFER, THIS_STORE)
    if found is None:
        return
    holder = found.value["holder"]
    if holder and holder not in {held.holder for held in await store.leases()}:
        # whoever was copying it died; what they held has run out
        return
    raise Refused(found.value["words"], fix=found.value["fix"])


def _weight(value: Any) -> int:
    """About how many bytes a row takes."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, tuple):
        return sum(map(_weight, value))
    if isinstance(value, msgspec.Struct):
        return sum(_weight(getattr(value, field)) for field in value.__struct_fields__)
    return 8


def _is_full(some: Sequence[Moved], size: int) -> bool:
    """Whether a chunk is long enough."""
    return len(some) >= ROWS or size >= BYTES


def chunks(rows: Iterable[Moved]) -> Iterator[list[Moved]]:
    """Rows of one kind, so many at a time that they take little memory."""
    some: list[Moved] = []
    size = 0
    for row in rows:
        some.append(row)
        size += _weight(row)
        if _is_full(some, size):
            yield some
            some, size = [], 0
    if some:
        yield some


async def chunks_of(rows: AsyncIterator[Moved]) -> AsyncIterator[list[Moved]]:
    """The same for rows that have to be waited for."""
    some: list[Moved] = []
    size = 0
    async for row in rows:
        some.append(row)
        size += _weight(row)
        if _is_full(some, size):
            yield some
            some, size = [], 0
    if some:
        yield some


SECONDS = 30.0

SILENT = timedelta(seconds=35)

"""A replica that was not heard of for so long is gone."""


class ExclusiveStore:
    """Holds the lease of every shard, so that nobody reads; its mark refuses whoever would start meanwhile."""

    def __init__(self, store: Store) -> None:
        self.holder = f"copy-{os.getpid()}-{secrets.token_hex(4)}"
        self._store = store
        self._leases: dict[int, Lease] = {}

    async def writers(self, shards: Iterable[int], words: str) -> list[str]:
        """Who uses the store now. When nobody does, it is ours until `leave`, as long as we `stay`."""
        await refuse_marked(self._store)
        # runs whose worker died would look like running ones for good
        await self._store.requeue_expired()
        found = sorted({f"{held.holder} holds leases of it" for held in await self._store.leases()})
        running = (await self._store.counts()).get("runs_running", 0)
        found += [f"workers have {running} of its runs"] if running else []
        found = found or await self._enter({HOUSEKEEPING, *shards})
        if found:
            await self.leave()
            return found
        value = {"words": words, "fix": "Start when that is done", "holder": self.holder}
        await self._store.put(TRANSFER, THIS_STORE, value)
        return []

    async def _enter(self, shards: set[int]) -> list[str]:
        """Take the leases, unless somebody else is faster or is heard of without having any."""
        for shard in sorted(shards):
            lease = await self._store.lease(shard, self.holder, SECONDS)
            if lease is None:
                return [f"somebody has just taken shard {shard} of it"]
            self._leases[shard] = lease
        # the store's own time, by which it stamps its documents too
        now = self._leases[HOUSEKEEPING].until - timedelta(seconds=SECONDS)
        replicas = await self._store.documents(REPLICA)
        return [f"replica {each.name} uses it" for each in replicas if now - each.updated_at < SILENT]

    async def stay(self) -> None:
        """Renew what we hold. Raise LeaseLost when somebody else has it."""
        for shard, held in self._leases.items():
            lease = await self._store.lease(shard, self.holder, SECONDS)
            if lease is None or lease.token != held.token:
                raise LeaseLost("somebody else came to use the store while it was copied")

    async def leave(self) -> None:
        """Let the others in again."""
        if not self._leases:
            return
        mark = await self._store.get(TRANSFER, THIS_STORE)
        if mark is not None and mark.value["holder"] == self.holder:
            await self._store.delete(TRANSFER, THIS_STORE)
        for lease in self._leases.values():
            await self._store.release_lease(lease, self.holder)
        self._leases = {}
