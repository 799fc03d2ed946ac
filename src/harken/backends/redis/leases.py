"""Leases of shards, and the generation of the configuration that their holders serve."""

from __future__ import annotations

from collections.abc import Sequence

from harken.backends.redis.codec import moment, moment_or_none
from harken.backends.redis.connection_and_name_cache import UsesSession
from harken.store import Generation, HeldLease, Lease

__all__ = ["RedisLeases"]


class RedisLeases(UsesSession):
    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        session = await self._ready()
        instructions = (shard, holder, round(seconds * 1e6), generation)
        found = await session.connection.write("leases.lease", session.arguments(), instructions)
        if not found:
            return None
        token, until, taken_over = found
        return Lease(shard=shard, token=token, until=moment(until), taken_over=bool(taken_over))

    async def release_lease(self, lease: Lease, holder: str) -> None:
        session = await self._ready()
        instructions = (lease.shard, holder, lease.token)
        await session.connection.write("leases.release_lease", session.arguments(), instructions)

    async def leases(self) -> Sequence[HeldLease]:
        session = await self._ready()
        rows = await session.connection.query("leases.leases", session.arguments(), ())
        found = [
            HeldLease(shard=int(shard), holder=holder.decode(), token=int(token), until=moment(until))
            for shard, holder, token, until in rows
        ]
        return sorted(found, key=lambda held: held.shard)

    async def generation(self) -> Generation:
        connection = (await self._ready()).connection
        [(epoch, name, since)] = await connection.execute(("HMGET", connection.key("gen"), "epoch", "name", "since"))
        return Generation(epoch=int(epoch or 0), name=(name or b"").decode(), since=moment_or_none(since))
