"""The right to move cursors, shard by shard: taken, renewed, shared fairly with other replicas, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol
from zlib import crc32

import structlog

from harken.clock import Clock
from harken.errors import LeaseLost, RetryLater
from harken.store import Definitions, Held, Lease, Opened

__all__ = ["LEASE_SECONDS", "Leases", "Shares"]

log = structlog.get_logger("harken.ingest")

LEASE_SECONDS = 30.0
LOOKS = 20
"""So often within the length of a lease one looks for shards that nobody holds; it is renewed three times."""
DOUBT_SECONDS = 1.0


class Leases(Protocol):
    """What is needed of a store."""

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None: ...

    async def give_up(self, lease: Lease, holder: str) -> None: ...

    async def leases(self) -> Sequence[Held]: ...


class Shares:
    """The shards that this process holds. A missed renewal is retried until the lease has run out.

    `peers` is how many replicas read, this one included: nobody keeps more than a fair share. `works` says whether what
    is done with the leases goes on; when it does not, others shall do it. `generation` is the configuration we run.
    """

    def __init__(
        self, store: Leases, clock: Clock, holder: str, *, shards: int = 1, seconds: float = LEASE_SECONDS
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._seconds = seconds
        self._leases: dict[int, Lease] = {}
        self._renewed: dict[int, float] = {}
        self._turn = asyncio.Lock()
        self.shards = shards
        self.peers = 1
        self.generation = ""
        self.works: Callable[[], bool] = lambda: True
        self.on_taken: Callable[[Collection[int]], Awaitable[None]] = _nothing
        self.on_leaving: Callable[[Collection[int]], Awaitable[None]] = _nothing
        self.on_takeover: Callable[[int], None] = lambda shard: None

    @property
    def held(self) -> Collection[int]:
        return self._leases.keys()

    def token(self, shard: int) -> int:
        """The token to write with. Raise LeaseLost when we hold none."""
        lease = self._leases.get(shard)
        if lease is None:
            raise LeaseLost("this process does not read the feed now")
        return lease.token

    async def keep(self) -> None:
        """Renew and share for ever."""
        while True:
            await self._clock.sleep(self._seconds / LOOKS)
            try:
                await self.look()
            except RetryLater as error:
                # the store itself says when it goes and when it is back
                log.debug("lease.trouble", reason=str(error))

    async def look(self) -> None:
        """Let go of what is more than our share, renew the rest in time, and take what nobody holds."""
        async with self._turn:
            if not self.works():
                await self._leave(list(self._leases))
                return
            share = -(-self.shards // max(1, self.peers))
            kept = [shard for shard in sorted(self._leases) if shard < self.shards][:share]
            await self._leave([shard for shard in self._leases if shard not in kept])
            now = self._clock.monotonic()
            await self._renew([shard for shard, at in self._renewed.items() if now - at >= self._seconds / 3])
            if len(self._leases) < share:
                await self._take(share - len(self._leases))

    async def give_up(self) -> None:
        """Let go of everything, so that another can go on at once."""
        async with self._turn:
            await self._leave(list(self._leases))

    async def renewing(self, open: Callable[[Definitions], Awaitable[Opened]], definitions: Definitions) -> Opened:
        """Open these definitions while no lease is renewed, which would be for another generation."""
        async with self._turn:
            opened = await open(definitions)
            self.generation = definitions.generation
            return opened

    async def doubt(self, shard: int) -> None:
        """A write was refused: see whether the shard is still ours. Many may ask at once; the first answers for all."""
        async with self._turn:
            if shard in self._leases and self._clock.monotonic() - self._renewed[shard] >= DOUBT_SECONDS:
                await self._renew([shard])

    async def _renew(self, shards: Sequence[int]) -> None:
        before = {shard: self._leases[shard].token for shard in shards}
        lost = [shard for shard in shards if not await self._ask(shard)]
        if lost:
            log.warning("lease.lost", shards=lost)
            await self.on_leaving(lost)
        # it had run out, and others may have had it meanwhile
        await self._begin([shard for shard in shards if self._has_moved(shard, before[shard])])

    def _has_moved(self, shard: int, token: int) -> bool:
        return shard in self._leases and self._leases[shard].token != token

    async def _take(self, wanted: int) -> None:
        taken: list[int] = []
        for shard in await self._free():
            if len(taken) == wanted:
                break
            if await self._ask(shard):
                taken.append(shard)
        await self._begin(taken)

    async def _begin(self, shards: Collection[int]) -> None:
        if not shards:
            return
        try:
            await self.on_taken(shards)
        except BaseException:
            # held, but not read: better that the next look finds them free
            for shard in shards:
                self._forget(shard)
            raise
        log.info("lease.taken", shards=sorted(shards))

    async def _free(self) -> list[int]:
        """The shards to ask for, in another order for each replica, so that they do not all want the same one."""
        if self.shards == 1:
            return [0]
        others = {held.shard for held in await self._store.leases() if held.holder != self._holder}
        first = crc32(self._holder.encode()) % self.shards
        order = [(first + step) % self.shards for step in range(self.shards)]
        return [shard for shard in order if shard not in others and shard not in self._leases]

    async def _ask(self, shard: int) -> bool:
        now = self._clock.monotonic()
        lease = await self._store.lease(shard, self._holder, self._seconds, generation=self.generation)
        if lease is None:
            self._forget(shard)
            return False
        self._leases[shard], self._renewed[shard] = lease, now
        if lease.taken_over:
            self.on_takeover(shard)
        return True

    async def _leave(self, shards: Collection[int]) -> None:
        if not shards:
            return
        await self.on_leaving(shards)
        leases = [self._leases[shard] for shard in shards]
        for shard in shards:
            self._forget(shard)
        for lease in leases:
            await self._store.give_up(lease, self._holder)
        log.info("lease.given_up", shards=sorted(shards))

    def _forget(self, shard: int) -> None:
        self._leases.pop(shard, None)
        self._renewed.pop(shard, None)


async def _nothing(shards: Collection[int]) -> None:
    """Nobody has to be told."""
