"""Who reads which feeds: the leases of the shards, and the generation of the configuration that they serve."""

from __future__ import annotations

from harken.backends.codec import moment, moment_or_none
from harken.backends.sqlite.transaction import Transaction
from harken.store import Generation, HeldLease, Lease

__all__ = ["GIVEN_UP", "ORPHANED", "begin", "generation", "lease", "leases", "release_lease"]

GIVEN_UP, ORPHANED = 0, 1
"""Ends of a lease that say why it ended: its holder let it go, or was found to be gone."""


def lease(tx: Transaction, shard: int, holder: str, seconds: float, serves: str) -> Lease | None:
    now = tx.now()
    if serves and serves != generation(tx).name:
        _let_go(tx, shard, holder)
        return None
    row = tx.row("SELECT holder, token, until FROM leases WHERE shard=?", (shard,))
    if row is not None and row[0] != holder and row[2] >= now:
        return None
    # one that ran out is as good as it was if nobody else has had it since
    keeps = row is not None and row[0] == holder and row[2] not in (GIVEN_UP, ORPHANED)
    # no two shards ever have the same token, so that of another one proves nothing
    token = row[1] if keeps and row else (tx.value("SELECT max(token) FROM leases") or 0) + 1
    until = now + round(seconds * 1_000_000)
    tx.execute(
        "INSERT OR REPLACE INTO leases (shard, holder, token, until) VALUES (?,?,?,?)", (shard, holder, token, until)
    )
    tx.lease_changed()
    taken_over = row is not None and row[0] != holder and row[2] != GIVEN_UP
    return Lease(shard=shard, token=token, until=moment(until), taken_over=taken_over)


def _let_go(tx: Transaction, shard: int, holder: str) -> None:
    tx.execute("UPDATE leases SET until=? WHERE shard=? AND holder=?", (GIVEN_UP, shard, holder))
    tx.lease_changed()


def release_lease(tx: Transaction, held: Lease, holder: str) -> None:
    tx.execute(
        "UPDATE leases SET until=? WHERE shard=? AND holder=? AND token=?", (GIVEN_UP, held.shard, holder, held.token)
    )
    tx.lease_changed()


def leases(tx: Transaction) -> list[HeldLease]:
    rows = tx.execute("SELECT shard, holder, token, until FROM leases WHERE until>=? ORDER BY shard", (tx.now(),))
    return [HeldLease(shard=row[0], holder=row[1], token=row[2], until=moment(row[3])) for row in rows]


def generation(tx: Transaction) -> Generation:
    row = tx.row("SELECT epoch, name, since FROM generation")
    assert row is not None, "the schema puts it there"
    return Generation(epoch=row[0], name=row[1], since=moment_or_none(row[2]))


def begin(tx: Transaction, name: str, holder: str, now: int) -> int:
    """Be at this generation; the epoch. With a new one, whoever else reads feeds by the old one stops at once."""
    known = generation(tx)
    if known.name == name:
        return known.epoch
    tx.execute("UPDATE generation SET epoch=epoch+1, name=?, since=?", (name, now))
    if holder:
        ended = "UPDATE leases SET until=? WHERE shard>=0 AND holder<>? AND until>=?"
        tx.execute(ended, (GIVEN_UP, holder, now))
        tx.lease_changed()
    return known.epoch + 1
