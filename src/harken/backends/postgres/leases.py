"""Which process reads which feeds: the leases of the shards, and the generation of the configuration that they serve.

Every transaction locks feeds before the generation, and the generation before leases, so that none wait in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence

from harken.backends.codec import moment, moment_or_none
from harken.backends.notify import RELEASED as RELEASED_LEASE
from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.store import Generation, HeldLease, Lease

__all__ = ["RELEASED", "PostgresLeases", "begin_generation"]

RELEASED = 0
"""The end of a lease that its holder released."""


class PostgresLeases(DatabaseUser):
    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        return await self._database.write(_lease, shard, holder, seconds, generation)

    async def release_lease(self, lease: Lease, holder: str) -> None:
        await self._database.write(_release, lease.shard, holder, lease.token)
        self._database.notify(RELEASED_LEASE)

    async def leases(self) -> Sequence[HeldLease]:
        return await self._database.read(_current_leases)

    async def generation(self) -> Generation:
        return await self._database.read(_generation)


async def _lease(tx: Transaction, shard: int, holder: str, seconds: float, generation: str) -> Lease | None:
    """Renewing waits for no other transaction; taking over waits for transactions that write under the old token."""
    # the lock makes a new generation wait until it can see the lease that it has to end
    if generation and generation != await tx.value("SELECT name FROM generation FOR SHARE"):
        await _release(tx, shard, holder)
        return None
    until = tx.now + round(seconds * 1_000_000)
    # an expired lease that nobody took meanwhile keeps its token
    renew = "UPDATE leases SET until=$1 WHERE shard=$2 AND holder=$3 AND until<>$4 RETURNING token"
    token = await tx.value(renew, until, shard, holder, RELEASED)
    if token is not None:
        return Lease(shard=shard, token=token, until=moment(until))
    create = """INSERT INTO leases (shard, holder, token, until) VALUES ($1, $2, nextval('lease_tokens'), $3)
    ON CONFLICT DO NOTHING RETURNING token"""
    token = await tx.value(create, shard, holder, until)
    if token is not None:
        return Lease(shard=shard, token=token, until=moment(until))
    return await _take_over(tx, shard, holder, until)


async def _take_over(tx: Transaction, shard: int, holder: str, until: int) -> Lease | None:
    before = await tx.row("SELECT holder, until FROM leases WHERE shard=$1 FOR UPDATE", shard)
    if before[0] != holder and before[1] >= tx.now:
        return None
    take = "UPDATE leases SET holder=$1, token=nextval('lease_tokens'), until=$2 WHERE shard=$3 RETURNING token"
    token = await tx.value(take, holder, until, shard)
    taken_over = before[0] != holder and before[1] != RELEASED
    return Lease(shard=shard, token=token, until=moment(until), taken_over=taken_over)


async def _release(tx: Transaction, shard: int, holder: str, token: int | None = None) -> None:
    """End the holder's lease; with `token` only if it is still that one."""
    find = "SELECT 1 FROM leases WHERE shard=$1 AND holder=$2 AND token=coalesce($3, token) FOR UPDATE"
    if await tx.value(find, shard, holder, token):
        await tx.do("UPDATE leases SET until=$1 WHERE shard=$2", RELEASED, shard)


async def _current_leases(tx: Transaction) -> list[HeldLease]:
    sql = "SELECT shard, holder, token, until FROM leases WHERE until>=$1 ORDER BY shard"
    rows = await tx.rows(sql, tx.now)
    return [HeldLease(shard=row[0], holder=row[1], token=row[2], until=moment(row[3])) for row in rows]


async def _generation(tx: Transaction) -> Generation:
    row = await tx.row("SELECT epoch, name, since FROM generation")
    return Generation(epoch=row[0], name=row[1], since=moment_or_none(row[2]))


async def begin_generation(tx: Transaction, name: str, holder: str) -> int:
    """Make `name` the current generation and return its epoch. If it is a new one, end the leases of other holders.

    The caller has the lock that only one transaction at a time holds while it opens definitions. This waits for
    transactions that write under the leases it ends.
    """
    current = await _generation(tx)
    if current.name == name:
        return current.epoch
    await tx.do("UPDATE generation SET epoch=epoch+1, name=$1, since=$2", name, tx.now)
    if holder:
        others = "SELECT shard FROM leases WHERE shard>=0 AND holder<>$1 AND until>=$2 ORDER BY shard FOR UPDATE"
        ended = [row[0] for row in await tx.rows(others, holder, tx.now)]
        await tx.do("UPDATE leases SET until=$1 WHERE shard=ANY($2::int[])", RELEASED, ended)
    return current.epoch + 1
