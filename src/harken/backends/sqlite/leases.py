"""Shard leases, and the generation of the configuration that their holders serve."""

from __future__ import annotations

from collections.abc import Sequence

from harken.backends.codec import moment, moment_or_none
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.store import Generation, HeldLease, Lease

__all__ = ["GIVEN_UP", "ORPHANED", "SqliteLeases", "begin_generation"]

GIVEN_UP, ORPHANED = 0, 1
"""Values of `until` that say why a lease ended: its holder released it, or the holder's process died."""


class SqliteLeases(DatabaseUser):
    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        return await self._database.write(_lease, shard, holder, seconds, generation)

    async def release_lease(self, lease: Lease, holder: str) -> None:
        await self._database.write(_release, lease, holder)

    async def leases(self) -> Sequence[HeldLease]:
        return await self._database.read(_leases)

    async def generation(self) -> Generation:
        return await self._database.read(_generation)


def _lease(tx: Transaction, shard: int, holder: str, seconds: float, generation: str) -> Lease | None:
    now = tx.now()
    if generation and generation != _generation(tx).name:
        _give_up(tx, shard, holder)
        return None
    row = tx.row("SELECT holder, token, until FROM leases WHERE shard=?", (shard,))
    if row is not None and row[0] != holder and row[2] >= now:
        return None
    # an expired lease that nobody took meanwhile keeps its token
    keeps = row is not None and row[0] == holder and row[2] not in (GIVEN_UP, ORPHANED)
    # tokens are unique across shards, so that the token of one shard is never valid for another
    token = row[1] if keeps and row else (tx.value("SELECT max(token) FROM leases") or 0) + 1
    until = now + round(seconds * 1_000_000)
    tx.execute(
        "INSERT OR REPLACE INTO leases (shard, holder, token, until) VALUES (?,?,?,?)", (shard, holder, token, until)
    )
    tx.lease_changed()
    taken_over = row is not None and row[0] != holder and row[2] != GIVEN_UP
    return Lease(shard=shard, token=token, until=moment(until), taken_over=taken_over)


def _release(tx: Transaction, held: Lease, holder: str) -> None:
    tx.execute(
        "UPDATE leases SET until=? WHERE shard=? AND holder=? AND token=?", (GIVEN_UP, held.shard, holder, held.token)
    )
    tx.lease_changed()


def _give_up(tx: Transaction, shard: int, holder: str) -> None:
    tx.execute("UPDATE leases SET until=? WHERE shard=? AND holder=?", (GIVEN_UP, shard, holder))
    tx.lease_changed()


def _leases(tx: Transaction) -> list[HeldLease]:
    rows = tx.execute("SELECT shard, holder, token, until FROM leases WHERE until>=? ORDER BY shard", (tx.now(),))
    return [HeldLease(shard=row[0], holder=row[1], token=row[2], until=moment(row[3])) for row in rows]


def _generation(tx: Transaction) -> Generation:
    row = tx.row("SELECT epoch, name, since FROM generation")
    assert row is not None, "the first migration inserts it"
    return Generation(epoch=row[0], name=row[1], since=moment_or_none(row[2]))


def begin_generation(tx: Transaction, name: str, holder: str, now: int) -> int:
    """Make this generation current and return its epoch. A new one ends the leases of all other holders."""
    known = _generation(tx)
    if known.name == name:
        return known.epoch
    tx.execute("UPDATE generation SET epoch=epoch+1, name=?, since=?", (name, now))
    if holder:
        ended = "UPDATE leases SET until=? WHERE shard>=0 AND holder<>? AND until>=?"
        tx.execute(ended, (GIVEN_UP, holder, now))
        tx.lease_changed()
    return known.epoch + 1
