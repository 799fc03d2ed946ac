"""A store on its way to another home: told in chunks that take little memory, and taken into an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from harken.errors import Refused
from harken.store.export_rows import Chunk, Moved
from harken.store.protocols import Store

__all__ = ["HERE", "MARK", "UNMOVED", "Counts", "Moving", "chunks", "chunks_of", "refuse_marked"]

Counts: TypeAlias = Mapping[str, int]
"""How many rows there are of each kind, by the words of KINDS."""

ROWS, BYTES = 400, 1_000_000
"""A chunk has at most so many rows, and not much more than so many bytes."""

MARK, HERE = "moving", "here"
"""Kind and name of the document that says that a store is being copied, being filled, or has moved away."""

UNMOVED = frozenset({MARK, "replica"})
"""Kinds of documents that belong to a home and not to what lives in it."""


class Moving(Protocol):
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
    found = await store.get(MARK, HERE)
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
