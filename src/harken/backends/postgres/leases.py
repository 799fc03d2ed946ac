"""Who reads which feeds: the leases of the shards, and the generation of the configuration that they serve.

Everybody locks feeds before the generation, and the generation before leases, so that nobody waits in a circle.
"""

from __future__ import annotations

from harken.backends.codec import moment, moment_or_none
from harken.backends.postgres.transaction import Transaction
from harken.store import Generation, HeldLease, Lease

__all__ = ["begin", "generation", "lease", "leases", "release_lease"]

GIVEN_UP = 0
"""The end of a lease that its holder let go."""


async def lease(tx: Transaction, shard: int, holder: str, seconds: float, serves: str) -> Lease | None:
    """Renewing disturbs nobody; whoever takes it over waits for writes under the old token."""
    # the lock keeps a new generation waiting until it can see the lease that it has to end
    if serves and serves != await tx.value("SELECT name FROM generation FOR SHARE"):
        await _let_go(tx, shard, holder)
        return None
    until = tx.now + round(seconds * 1_000_000)
    # one that ran out is as good as it was if nobody else has had it since
    renewed = "UPDATE leases SET until=$1 WHERE shard=$2 AND holder=$3 AND until<>$4 RETURNING token"
    token = await tx.value(renewed, until, shard, holder, GIVEN_UP)
    if token is not None:
        return Lease(shard=shard, token=token, until=moment(until))
    new = """INSERT INTO leases (shard, holder, token, until) VALUES ($1, $2, nextval('lease_tokens'), $3)
    ON CONFLICT DO NOTHING RETURNING token"""
    token = await tx.value(new, shard, holder, until)
    if token is not None:
        return Lease(shard=shard, token=token, until=moment(until))
    return await _take(tx, shard, holder, until)


async def _take(tx: Transaction, shard: int, holder: str, until: int) -> Lease | None:
    before = await tx.row("SELECT holder, until FROM leases WHERE shard=$1 FOR UPDATE", shard)
    if before[0] != holder and before[1] >= tx.now:
        return None
    taken = "UPDATE leases SET holder=$1, token=nextval('lease_tokens'), until=$2 WHERE shard=$3 RETURNING token"
    token = await tx.value(taken, holder, until, shard)
    taken_over = before[0] != holder and before[1] != GIVEN_UP
    return Lease(shard=shard, token=token, until=moment(until), taken_over=taken_over)


async def _let_go(tx: Transaction, shard: int, holder: str) -> None:
    if await tx.value("SELECT 1 FROM leases WHERE shard=$1 AND holder=$2 FOR UPDATE", shard, holder):
        await tx.do("UPDATE leases SET until=$1 WHERE shard=$2", GIVEN_UP, shard)


async def release_lease(tx: Transaction, held: Lease, holder: str) -> None:
    sql = "SELECT 1 FROM leases WHERE shard=$1 AND holder=$2 AND token=$3 FOR UPDATE"
    if await tx.value(sql, held.shard, holder, held.token):
        await tx.do("UPDATE leases SET until=$1 WHERE shard=$2", GIVEN_UP, held.shard)


async def leases(tx: Transaction) -> list[HeldLease]:
    sql = "SELECT shard, holder, token, until FROM leases WHERE until>=$1 ORDER BY shard"
    rows = await tx.rows(sql, tx.now)
    return [HeldLease(shard=row[0], holder=row[1], token=row[2], until=moment(row[3])) for row in rows]


async def generation(tx: Transaction) -> Generation:
    row = await tx.row("SELECT epoch, name, since FROM generation")
    return Generation(epoch=row[0], name=row[1], since=moment_or_none(row[2]))


async def begin(tx: Transaction, name: str, holder: str) -> int:
    """Be at this generation; the epoch. With a new one, whoever else reads feeds by the old one stops at once.

    The caller is the only one who opens; writes under the leases that end are waited for.
    """
    known = await generation(tx)
    if known.name == name:
        return known.epoch
    await tx.do("UPDATE generation SET epoch=epoch+1, name=$1, since=$2", name, tx.now)
    if holder:
        others = "SELECT shard FROM leases WHERE shard>=0 AND holder<>$1 AND until>=$2 ORDER BY shard FOR UPDATE"
        ended = [row[0] for row in await tx.rows(others, holder, tx.now)]
        await tx.do("UPDATE leases SET until=$1 WHERE shard=ANY($2::int[])", GIVEN_UP, ended)
    return known.epoch + 1
