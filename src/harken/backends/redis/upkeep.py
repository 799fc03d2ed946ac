"""Keeping the store small and sound."""

from __future__ import annotations

from collections import Counter

from harken.backends.redis.definitions import now_of
from harken.backends.redis.transaction import Transaction

__all__ = ["check", "literal", "prune", "requeue_expired"]

SLICE = 100
"""Rows deleted at a time: a few milliseconds, so that nobody waits for the cleaning."""

REAPED = 500
FEEDS_AT_ONCE = 50


async def requeue_expired(tx: Transaction) -> int:
    """Make runs ready whose claim ran out."""
    total = 0
    while True:
        some: int = await tx.connection.write("requeue_expired", tx.ask(), (REAPED,))
        total += some
        if some < REAPED:
            return total


async def prune(tx: Transaction, events: float, ticks: float, runs: float, pushed: float) -> int:
    """Delete a slice of what is old."""
    now = await now_of(tx)
    old = [now - round(seconds * 1e6) for seconds in (runs, ticks, events)]
    gone = int(await tx.connection.write("prune", tx.ask(), (*old, SLICE)))
    [feeds] = await tx.connection.read(("SMEMBERS", tx.connection.key("pushed")))
    names = sorted(feed.decode() for feed in feeds)
    for begin in range(0, len(names), FEEDS_AT_ONCE):
        some = names[begin : begin + FEEDS_AT_ONCE]
        asked = (now - round(pushed * 1e6), SLICE, some)
        gone += int(await tx.connection.write("prune_pushed", tx.ask(), asked))
    return gone


async def check(tx: Transaction) -> list[str]:
    """Look at everything, a slice at a time; what is being changed meanwhile is looked at as it is then."""
    found: Counter[str] = Counter()
    for what in ("runs", "events"):
        place = 0
        while True:
            following, some = await tx.connection.look("check", tx.ask(), (what, place))
            found.update(each.decode() for each in some)
            place = int(following)
            if not place:
                break
    cursor = "0"
    while True:
        following, some = await tx.connection.look("check", tx.ask(), ("slots", cursor))
        found.update(each.decode() for each in some)
        cursor = following.decode()
        if cursor == "0":
            break
    return [f"{count} {what}" for what, count in found.items()] + await _orphans(tx)


async def _orphans(tx: Transaction) -> list[str]:
    """Journals of runs that are gone."""
    connection, cursor, orphans = tx.connection, 0, 0
    prefix = connection.key("j:")
    while True:
        [[cursor, keys]] = await connection.read(("SCAN", cursor, "MATCH", literal(prefix) + b"*", "COUNT", 1000))
        alive = await connection.read(*(("EXISTS", connection.key("r:") + key[len(prefix) :]) for key in keys))
        orphans += alive.count(0)
        if not cursor:
            return [f"{orphans} journals belong to no run"] if orphans else []


def literal(prefix: bytes) -> bytes:
    """A pattern that matches just this."""
    return b"".join(b"\\" + bytes([char]) if char in b"*?[]^-\\" else bytes([char]) for char in prefix)
