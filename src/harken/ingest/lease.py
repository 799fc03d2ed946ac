"""The right to move cursors: taken, renewed, and given up when it is lost or no longer wanted."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from harken.clock import Clock
from harken.errors import LeaseLost, RetryLater
from harken.store import Feeds, Lease

__all__ = ["Keeper"]

log = structlog.get_logger("harken.ingest")

LEASE_SECONDS = 30.0


class Keeper:
    """Holds one shard's lease. Renews at a third of its length; a missed renewal is retried until it has run out."""

    def __init__(
        self, store: Feeds, clock: Clock, holder: str, *, shard: int = 0, seconds: float = LEASE_SECONDS
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._shard = shard
        self._seconds = seconds
        self._lease: Lease | None = None
        self.on_takeover: Callable[[], None] = lambda: None

    @property
    def held(self) -> bool:
        return self._lease is not None

    def token(self) -> int:
        """The token to write with. Raise LeaseLost when we hold none."""
        if self._lease is None:
            raise LeaseLost("this process does not read the feeds now")
        return self._lease.token

    async def take(self) -> bool:
        """Take or renew the lease; False while another holder has it."""
        before = self._lease
        self._lease = await self._store.lease(self._shard, self._holder, self._seconds)
        if (self._lease is None) != (before is None):
            log.info("lease.taken" if self._lease else "lease.lost", shard=self._shard)
        if self._lease is not None and self._lease.taken_over:
            self.on_takeover()
        return self._lease is not None

    async def keep(self) -> None:
        """Renew for ever."""
        while True:
            await self._clock.sleep(self._seconds / 3)
            try:
                await self.take()
            except RetryLater as error:
                log.warning("lease.trouble", reason=str(error))

    async def give_up(self) -> None:
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await self._store.give_up(lease, self._holder)
