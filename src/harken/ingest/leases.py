"""Shard leases: the right to move the cursors of a shard's feeds. Taken, renewed, shared between replicas, released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol
from zlib import crc32

import structlog

from harken.clock import Clock
from harken.errors import LeaseLost, RetryLater
from harken.store import Definitions, HeldLease, Lease, Opened
from harken.timings import Timings

__all__ = ["LeaseStore", "ShardLeases"]

log = structlog.get_logger("harken.ingest")

VERIFY_SECONDS = 1.0
"""A lease that was renewed within this time need not be verified."""
EXPIRY_SLACK = 0.05
"""So long after the lease of another replica ends we look whether it was renewed."""


class LeaseStore(Protocol):
    """The part of a store that leases need."""

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None: ...

    async def release_lease(self, lease: Lease, holder: str) -> None: ...

    async def leases(self) -> Sequence[HeldLease]: ...


async def _prepare_nothing(shards: Collection[int]) -> Callable[[], None]:
    return lambda: None


async def _leave_nothing(shards: Collection[int]) -> None:
    """No reads have to be ended."""


class ShardLeases:
    """The shards that this process reads. A missed renewal is retried until the lease has expired.

    `peers` is the number of replicas that read, this one included: each takes at most its fair share, and beyond it
    only shards that nobody takes. `generation` is the configuration that we run. Without `reading` no lease is taken.

    `works()` tells whether the feeds of our leases are still being read; if not, all leases are released for others.
    `on_taken(shards)` prepares to read the feeds of new leases and returns a function that begins; it is called once
    their tokens may be used. So a new token is never used with an old cursor. `on_leaving(shards)` ends reading.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        holder: str,
        *,
        shards: int = 1,
        reading: bool = True,
        works: Callable[[], bool] = lambda: True,
        on_taken: Callable[[Collection[int]], Awaitable[Callable[[], None]]] = _prepare_nothing,
        on_leaving: Callable[[Collection[int]], Awaitable[None]] = _leave_nothing,
        timings: Timings = Timings(),
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._reading = reading
        self._works = works
        self._on_taken = on_taken
        self._on_leaving = on_leaving
        self._seconds = timings.lease_seconds
        self._looks = timings.lease_looks
        self._leases: dict[int, Lease] = {}
        self._renewed: dict[int, float] = {}
        self._until: dict[int, float] = {}
        # tokens of the leases whose feeds are read
        self._tokens: dict[int, int] = {}
        self._beyond_share: set[int] = set()
        self._unleased: set[int] = set()
        self._checked_unleased = clock.monotonic()
        self._next_expiry = 0.0
        self._lock = asyncio.Lock()
        self._readers: set[str] = {holder}
        self.shards = shards
        self.generation = ""
        # in a store that nobody shares, a lease says nothing that a person has to know
        self.shared = True
        self.on_takeover: Callable[[int], None] = lambda shard: None

    def share_with(self, readers: Collection[str]) -> bool:
        """These replicas read now, ourselves included. Return whether they are fewer than before.

        Whoever is new may take what was read beyond the fair share, also if it came for one that left."""
        fewer = len(readers) < len(self._readers)
        if set(readers) != self._readers:
            self._beyond_share.clear()
            self._unleased.clear()
        self._readers = set(readers)
        return fewer

    @property
    def held(self) -> Collection[int]:
        """The shards whose feeds are read here."""
        return self._tokens.keys()

    def token(self, shard: int) -> int:
        """The token to write with. Raise LeaseLost when we hold none."""
        token = self._tokens.get(shard)
        if token is None:
            raise LeaseLost("this process does not read the feed now")
        return token

    def has_expired(self, shard: int) -> bool:
        """Whether the lease has ended by our clock, as it has after a sleep."""
        return self._until.get(shard, 0.0) < self._clock.time()

    async def keep(self) -> None:
        """Balance the leases for ever."""
        while True:
            await self._clock.sleep(self._pause())
            try:
                await self.balance()
            except RetryLater as error:
                # that the store is away, and that it is back, is logged by the store itself
                log.debug("lease.trouble", reason=str(error))
            except Exception:
                log.exception("lease.failed")

    def _pause(self) -> float:
        """Seconds until the next look: the usual time, or until the lease of another replica ends before that."""
        usual, expiry = self._seconds / self._looks, self._next_expiry - self._clock.time()
        return expiry + EXPIRY_SLACK if 0 <= expiry <= usual else usual

    async def balance(self) -> None:
        """Release what is more than our fair share, renew the rest in time, and take shards that nobody holds."""
        async with self._lock:
            if not self._reading or not self._works():
                await self._release(list(self._leases))
                return
            self._next_expiry = 0.0
            share = -(-self.shards // max(1, len(self._readers)))
            mine = [shard for shard in sorted(self._leases) if shard < self.shards and shard not in self._beyond_share]
            await self._release(set(self._leases) - set(mine[:share]) - self._beyond_share)
            now = self._clock.monotonic()
            try:
                for shard in [shard for shard, at in self._renewed.items() if now - at >= self._seconds / 3]:
                    await self._acquire(shard)
                if len(self._leases) < share:
                    await self._take(share - len(self._leases))
                await self._take_unleased(now)
            finally:
                await self._begin_and_end_reading()

    async def release_all(self) -> None:
        """Release every lease, so that another replica can go on at once."""
        async with self._lock:
            await self._release(list(self._leases))

    async def close(self) -> None:
        """Release every lease and take no more."""
        self._reading = False
        await self.release_all()

    async def open_definitions(
        self, open: Callable[[Definitions], Awaitable[Opened]], definitions: Definitions
    ) -> Opened:
        """Open the definitions while no lease is renewed: a renewal in between would name the old generation."""
        async with self._lock:
            opened = await open(definitions)
            self.generation = definitions.generation
            # with a new generation the leases of all others end: that says nothing about who takes them
            self._unleased.clear()
            return opened

    async def verify(self, shard: int) -> None:
        """A write was refused: renew the lease to see whether the shard is still ours.

        Of many callers at once only the first asks the store."""
        async with self._lock:
            # a lease that was renewed right before a laptop slept looks fresh by the monotonic clock, which slept too
            if shard in self._leases and (self.has_expired(shard) or self._is_unverified(shard)):
                try:
                    await self._acquire(shard)
                finally:
                    await self._begin_and_end_reading()

    def _is_unverified(self, shard: int) -> bool:
        return self._clock.monotonic() - self._renewed[shard] >= VERIFY_SECONDS

    async def _take(self, wanted: int) -> None:
        for shard in await self._free_shards():
            if wanted <= 0:
                return
            wanted -= await self._acquire(shard)

    async def _take_unleased(self, now: float) -> None:
        """Take shards that no look has shown leased for a whole lease period, even beyond our fair share."""
        over = now - self._checked_unleased >= self._seconds
        if len(self._readers) <= 1 or not (over or self._unleased):
            return
        free = set(await self._free_shards())
        self._unleased &= free
        if not over:
            return
        self._checked_unleased = now
        for shard in sorted(self._unleased):
            if await self._acquire(shard):
                self._beyond_share.add(shard)
        self._unleased = free - self._leases.keys()

    async def _begin_and_end_reading(self) -> None:
        """Begin to read shards whose token is new, and end reading those whose lease is lost."""
        lost = [shard for shard in self._tokens if shard not in self._leases]
        for shard in lost:
            del self._tokens[shard]
        if lost:
            log.warning("lease.lost", shards=sorted(lost))
            await self._on_leaving(lost)
        tokens = {shard: lease.token for shard, lease in self._leases.items()}
        new = {shard: token for shard, token in tokens.items() if self._tokens.get(shard) != token}
        if not new:
            return
        begin = await self._on_taken(new.keys())
        self._tokens.update(new)
        begin()
        self._tell("lease.taken", new)

    def _tell(self, event: str, shards: Iterable[int]) -> None:
        (log.info if self.shared else log.debug)(event, shards=sorted(shards))

    async def _free_shards(self) -> list[int]:
        """Shards without a lease, in another order for each replica, so that they do not all want the same one."""
        others = {held.shard: held.until for held in await self._store.leases() if held.holder != self._holder}
        ends = (until.timestamp() for shard, until in others.items() if 0 <= shard < self.shards)
        self._next_expiry = min(ends, default=0.0)
        first = crc32(self._holder.encode()) % self.shards
        order = [(first + step) % self.shards for step in range(self.shards)]
        return [shard for shard in order if shard not in others and shard not in self._leases]

    async def _acquire(self, shard: int) -> bool:
        """Take or renew the lease of a shard; False if another replica holds it."""
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

    async def _release(self, shards: Collection[int]) -> None:
        if not shards:
            return
        await self._on_leaving(shards)
        leases = [self._leases[shard] for shard in shards]
        for shard in shards:
            self._forget(shard)
            self._tokens.pop(shard, None)
        for lease in leases:
            await self._store.release_lease(lease, self._holder)
        self._tell("lease.given_up", shards)

    def _forget(self, shard: int) -> None:
        self._leases.pop(shard, None)
        self._renewed.pop(shard, None)
        self._beyond_share.discard(shard)
