"""Keeping the store small and sound."""

from __future__ import annotations

from collections import Counter

from harken.backends.redis.definitions import now_of
from harken.backends.redis.transaction import Transaction

__all__ = ["check", "literal", "reap", "retain"]

SLICE = 100
"""Rows deleted at a time: a few milliseconds, so that nobody waits for the cleaning."""

REAPED = 500
FEEDS_AT_ONCE = 50


async def reap(home: Transaction) -> int:
    """Make runs ready whose claim ran out."""
    total = 0
    while True:
        some: int = await home.link.write("reap", home.ask(), (REAPED,))
        total += some
        if some < REAPED:
            return total


async def retain(home: Transaction, events: float, ticks: float, runs: float, pushed: float) -> int:
    """Delete a slice of what is old."""
    now = await now_of(home)
    old = [now - round(seconds * 1e6) for seconds in (runs, ticks, events)]
    gone = int(await home.link.write("retain", home.ask(), (*old, SLICE)))
    [feeds] = await home.link.read(("SMEMBERS", home.link.key("pushed")))
    names = sorted(feed.decode() for feed in feeds)
    for begin in range(0, len(names), FEEDS_AT_ONCE):
        some = names[begin : begin + FEEDS_AT_ONCE]
        asked = (now - round(pushed * 1e6), SLICE, some)
        gone += int(await home.link.write("retain_pushed", home.ask(), asked))
    return gone


async def check(home: Transaction) -> list[str]:
    """Look at everything, a slice at a time; what is being changed meanwhile is looked at as it is then."""
    found: Counter[str] = Counter()
    for what in ("runs", "events"):
        place = 0
        while True:
            following, some = await home.link.look("check", home.ask(), (what, place))
            found.update(each.decode() for each in some)
            place = int(following)
            if not place:
                break
    cursor = "0"
    while True:
        following, some = await home.link.look("check", home.ask(), ("slots", cursor))
        found.update(each.decode() for each in some)
        cursor = following.decode()
        if cursor == "0":
            break
    return [f"{count} {what}" for what, count in found.items()] + await _orphans(home)


async def _orphans(home: Transaction) -> list[str]:
    """Journals of runs that are gone."""
    link, cursor, orphans = home.link, 0, 0
    prefix = link.key("j:")
    while True:
        [[cursor, keys]] = await link.read(("SCAN", cursor, "MATCH", literal(prefix) + b"*", "COUNT", 1000))
        alive = await link.read(*(("EXISTS", link.key("r:") + key[len(prefix) :]) for key in keys))
        orphans += alive.count(0)
        if not cursor:
            return [f"{orphans} journals belong to no run"] if orphans else []


def literal(prefix: bytes) -> bytes:
    """A pattern that matches just this."""
    return b"".join(b"\\" + bytes([char]) if char in b"*?[]^-\\" else bytes([char]) for char in prefix)
