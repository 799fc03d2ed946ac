"""Keeping all others out of a store that several processes may use, by means of its own leases."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from datetime import timedelta

from harken.errors import LeaseLost
from harken.store.protocols import Store
from harken.store.transfer import HERE, MARK, refuse_marked
from harken.store.values import HOUSE, Lease

__all__ = ["Keeper"]

SECONDS = 30.0
SILENT = timedelta(seconds=35)
"""A replica that was not heard of for so long is gone."""


class Keeper:
    """Holds the lease of every shard, so that nobody reads; its mark refuses whoever would start meanwhile."""

    def __init__(self, store: Store) -> None:
        self.holder = f"copy-{os.getpid()}-{secrets.token_hex(4)}"
        self._store = store
        self._leases: dict[int, Lease] = {}

    async def writers(self, shards: Iterable[int], words: str) -> list[str]:
        """Who uses the store now. When nobody does, it is ours until `leave`, as long as we `stay`."""
        await refuse_marked(self._store)
        # runs whose worker died would look like running ones for good
        await self._store.reap()
        found = sorted({f"{held.holder} holds leases of it" for held in await self._store.leases()})
        running = (await self._store.counts()).get("runs_running", 0)
        found += [f"workers have {running} of its runs"] if running else []
        found = found or await self._enter({HOUSE, *shards})
        if found:
            await self.leave()
            return found
        value = {"words": words, "fix": "Start when that is done", "holder": self.holder}
        await self._store.put(MARK, HERE, value)
        return []

    async def _enter(self, shards: set[int]) -> list[str]:
        """Take the leases, unless somebody else is faster or is heard of without having any."""
        for shard in sorted(shards):
            lease = await self._store.lease(shard, self.holder, SECONDS)
            if lease is None:
                return [f"somebody has just taken shard {shard} of it"]
            self._leases[shard] = lease
        # the store's own time, by which it stamps its documents too
        now = self._leases[HOUSE].until - timedelta(seconds=SECONDS)
        replicas = await self._store.documents("replica")
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
        mark = await self._store.get(MARK, HERE)
        if mark is not None and mark.value["holder"] == self.holder:
            await self._store.delete(MARK, HERE)
        for lease in self._leases.values():
            await self._store.give_up(lease, self.holder)
        self._leases = {}
