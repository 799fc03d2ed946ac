"""The right to move cursors, shard by shard: taken, renewed, shared fairly with other replicas, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol
from zlib import crc32

import structlog

from harken.clock import Clock
from harken.errors import LeaseLost, RetryLater
from harken.store import Definitions, HeldLease, Lease, Opened

__all__ = ["LEASE_SECONDS", "LeaseStore", "ShardLeases"]

log = structlog.get_logger("harken.ingest")

LEASE_SECONDS = 30.0
LOOKS = 20
"""So often within the length of a lease one looks for shards that nobody holds; it is renewed three times."""
DOUBT_SECONDS = 1.0
ENDED_SECONDS = 0.05
"""So long after the end of a lease that somebody else has, one looks whether they renewed it."""


class LeaseStore(Protocol):
    """What is needed of a store."""

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None: ...

    async def release_lease(self, lease: Lease, holder: str) -> None: ...

    async def leases(self) -> Sequence[HeldLease]: ...


class ShardLeases:
    """The shards that this process reads. A missed renewal is retried until the lease has run out.

    `peers` is how many replicas read, this one included: nobody keeps more than a fair share, except of what nobody
    else takes. `works` says whether what is done with the leases goes on; when it does not, others shall do it.
    `generation` is the configuration we run. Without `reading` nothing is ever taken.

    A lease is one thing, that its feeds are read another: `on_taken` prepares, and what it returns is called when the
    token may be used. So there is no moment in which a new token meets an old cursor.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        holder: str,
        *,
        shards: int = 1,
        seconds: float = LEASE_SECONDS,
        reading: bool = True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._seconds = seconds
        self._reading = reading
        self._leases: dict[int, Lease] = {}
        self._renewed: dict[int, float] = {}
        self._until: dict[int, float] = {}
        self._begun: dict[int, int] = {}
        self._extra: set[int] = set()
        self._unread: set[int] = set()
        self._looked_around = clock.monotonic()
        self._others_end = 0.0
        self._turn = asyncio.Lock()
        self._peers = 1
        self.shards = shards
        self.generation = ""
        self.works: Callable[[], bool] = lambda: True
        self.on_taken: Callable[[Collection[int]], Awaitable[Callable[[], None]]] = _nothing_to_begin
        self.on_leaving: Callable[[Collection[int]], Awaitable[None]] = _nothing_to_leave
        self.on_takeover: Callable[[int], None] = lambda shard: None

    @property
    def peers(self) -> int:
        return self._peers

    @peers.setter
    def peers(self, peers: int) -> None:
        if peers != self._peers:
            self._extra.clear()
            self._unread.clear()
        self._peers = peers

    @property
    def held(self) -> Collection[int]:
        """Those that are read here."""
        return self._begun.keys()

    def token(self, shard: int) -> int:
        """The token to write with. Raise LeaseLost when we hold none."""
        token = self._begun.get(shard)
        if token is None:
            raise LeaseLost("this process does not read the feed now")
        return token

    def is_late(self, shard: int) -> bool:
        """Whether the lease has run out by our clock, as it has after a sleep."""
        return self._until.get(shard, 0.0) < self._clock.time()

    async def keep(self) -> None:
        """Renew and share for ever."""
        while True:
            await self._clock.sleep(self._pause())
            try:
                await self.look()
            except RetryLater as error:
                # the store itself says when it goes and when it is back
                log.debug("lease.trouble", reason=str(error))
            except Exception:
                log.exception("lease.failed")

    def _pause(self) -> float:
        """Until the next look; where the lease of a shard ends before that we would take, right behind its end."""
        usual, ends = self._seconds / LOOKS, self._others_end - self._clock.time()
        return ends + ENDED_SECONDS if 0 <= ends <= usual else usual

    async def look(self) -> None:
        """Let go of what is more than our share, renew the rest in time, and take what nobody holds."""
        async with self._turn:
            if not self._reading or not self.works():
                await self._leave(list(self._leases))
                return
            self._others_end = 0.0
            share = -(-self.shards // max(1, self._peers))
            mine = [shard for shard in sorted(self._leases) if shard < self.shards and shard not in self._extra]
            await self._leave(set(self._leases) - set(mine[:share]) - self._extra)
            now = self._clock.monotonic()
            try:
                await self._renew([shard for shard, at in self._renewed.items() if now - at >= self._seconds / 3])
                if len(self._leases) < share:
                    await self._take(share - len(self._leases))
                await self._look_around(now)
            finally:
                await self._settle()

    async def give_up(self) -> None:
        """Let go of everything, so that another can go on at once."""
        async with self._turn:
            await self._leave(list(self._leases))

    async def close(self) -> None:
        """Let go of everything and take nothing more."""
        self._reading = False
        await self.give_up()

    async def renewing(self, open: Callable[[Definitions], Awaitable[Opened]], definitions: Definitions) -> Opened:
        """Open these definitions while no lease is renewed, which would be for another generation."""
        async with self._turn:
            opened = await open(definitions)
            self.generation = definitions.generation
            return opened

    async def doubt(self, shard: int) -> None:
        """A write was refused: see whether the shard is still ours. Many may ask at once; the first answers for all."""
        async with self._turn:
            # one that was renewed right before a laptop slept looks new by a clock that slept too
            if shard in self._leases and (self.is_late(shard) or self._is_old(shard)):
                try:
                    await self._renew([shard])
                finally:
                    await self._settle()

    def _is_old(self, shard: int) -> bool:
        return self._clock.monotonic() - self._renewed[shard] >= DOUBT_SECONDS

    async def _renew(self, shards: Sequence[int]) -> None:
        for shard in shards:
            await self._ask(shard)

    async def _take(self, wanted: int) -> None:
        for shard in await self._free():
            if wanted <= 0:
                return
            wanted -= await self._ask(shard)

    async def _look_around(self, now: float) -> None:
        """What nobody has taken for as long as a lease lasts is read by whoever sees it, whatever its share."""
        if self._peers == 1 or now - self._looked_around < self._seconds:
            return
        self._looked_around = now
        free = set(await self._free())
        for shard in sorted(free & self._unread):
            if await self._ask(shard):
                self._extra.add(shard)
        self._unread = free - self._leases.keys()

    async def _settle(self) -> None:
        """Begin to read what has another token than we read with, and end what is not ours any more."""
        gone = [shard for shard in self._begun if shard not in self._leases]
        for shard in gone:
            del self._begun[shard]
        if gone:
            log.warning("lease.lost", shards=sorted(gone))
            await self.on_leaving(gone)
        tokens = {shard: lease.token for shard, lease in self._leases.items()}
        fresh = {shard: token for shard, token in tokens.items() if self._begun.get(shard) != token}
        if not fresh:
            return
        begin = await self.on_taken(fresh.keys())
        self._begun.update(fresh)
        begin()
        log.info("lease.taken", shards=sorted(fresh))

    async def _free(self) -> list[int]:
        """The shards to ask for, in another order for each replica, so that they do not all want the same one."""
        others = {held.shard: held.until for held in await self._store.leases() if held.holder != self._holder}
        ends = (until.timestamp() for shard, until in others.items() if 0 <= shard < self.shards)
        self._others_end = min(ends, default=0.0)
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
        self._until[shard] = lease.until.timestamp()
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
            self._begun.pop(shard, None)
        for lease in leases:
            await self._store.release_lease(lease, self._holder)
        log.info("lease.given_up", shards=sorted(shards))

    def _forget(self, shard: int) -> None:
        self._leases.pop(shard, None)
        self._renewed.pop(shard, None)
        self._extra.discard(shard)


async def _nothing_to_begin(shards: Collection[int]) -> Callable[[], None]:
    return lambda: None


async def _nothing_to_leave(shards: Collection[int]) -> None:
    """Nobody has to be told."""
