"""Who reads which feeds: the leases of the shards, and the generation of the configuration that they serve."""

from __future__ import annotations

from harken.backends.redis.codec import moment, moment_or_none
from harken.backends.redis.transaction import Transaction
from harken.store import Generation, HeldLease, Lease

__all__ = ["generation", "lease", "leases", "release_lease"]


async def lease(tx: Transaction, shard: int, holder: str, seconds: float, serves: str) -> Lease | None:
    found = await tx.connection.write("lease", tx.ask(), (shard, holder, round(seconds * 1e6), serves))
    if not found:
        return None
    token, until, taken_over = found
    return Lease(shard=shard, token=token, until=moment(until), taken_over=bool(taken_over))


async def release_lease(tx: Transaction, held: Lease, holder: str) -> None:
    await tx.connection.write("release_lease", tx.ask(), (held.shard, holder, held.token))


async def leases(tx: Transaction) -> list[HeldLease]:
    rows = await tx.connection.look("leases", tx.ask(), ())
    found = [
        HeldLease(shard=int(shard), holder=holder.decode(), token=int(token), until=moment(until))
        for shard, holder, token, until in rows
    ]
    return sorted(found, key=lambda held: held.shard)


async def generation(tx: Transaction) -> Generation:
    [(epoch, name, since)] = await tx.connection.read(("HMGET", tx.connection.key("gen"), "epoch", "name", "since"))
    return Generation(epoch=int(epoch or 0), name=(name or b"").decode(), since=moment_or_none(since))
