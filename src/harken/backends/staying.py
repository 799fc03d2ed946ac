"""A store that several processes may use, while it is copied: everybody else is kept out, and a mark tells them why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from harken.errors import Refused
from harken.store import Store
from harken.store.transfer import HERE, MARK, Counts, Keeper

__all__ = ["Staying", "refuse_full"]


class Staying:
    """Opens the store as everybody uses it, once it is needed. Its leases are ours once `writers` found nobody."""

    def __init__(self, place: str, opened: Callable[[], Awaitable[Store]]) -> None:
        self._place = place
        self._opened = opened
        self._store: Store | None = None
        self._keeper: Keeper | None = None

    async def store(self) -> Store:
        if self._store is None:
            self._store = await self._opened()
        return self._store

    async def writers(self, shards: Callable[[], Awaitable[Iterable[int]]]) -> Sequence[str]:
        store = await self.store()
        self._keeper = self._keeper or Keeper(store)
        return await self._keeper.writers(await shards(), f"{self._place} is being copied")

    async def stay(self) -> None:
        if self._keeper is not None:
            await self._keeper.stay()

    async def mark(self, words: str, fix: str) -> None:
        store = await self.store()
        if words:
            await store.put(MARK, HERE, {"words": words, "fix": fix, "holder": ""})
        else:
            await store.delete(MARK, HERE)

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.leave()
        if self._store is not None:
            await self._store.close()
        self._keeper = self._store = None


def refuse_full(place: str, counts: Counts, fix: str) -> None:
    """Raise Refused for a store that has anything in it."""
    found = [f"{number} {kind}" for kind, number in counts.items() if number]
    if found:
        raise Refused(f"{place} is not empty: it has {', '.join(found)}", fix=fix)
