"""The first statement of every write to a feed: its row and its lease, locked and read at one instant.

Whoever raises a revision or takes a lease over locks FOR UPDATE, and so waits for those who write under the old one.
Writers do not stand in each other's way unless they move the same cursor.
"""

from __future__ import annotations

from typing import NamedTuple

from harken.backends.postgres.transaction import Books
from harken.errors import NotFound

__all__ = ["Entered", "enter"]

_ENTER = """WITH f AS MATERIALIZED (SELECT id, revision, identity, last_success, shard FROM feeds WHERE name=$1 {lock}),
l AS MATERIALIZED (SELECT token, until FROM leases WHERE shard=(SELECT shard FROM f) {lease})
SELECT f.id, f.revision, f.identity, f.last_success, l.token, l.until,
ARRAY(SELECT nextval('event_ids') FROM generate_series(1, $2)),
ARRAY(SELECT nextval('run_seqs') FROM generate_series(1, $3)), harken_now() FROM f LEFT JOIN l ON true"""

LEASED = _ENTER.format(lock="FOR NO KEY UPDATE", lease="FOR KEY SHARE")
PUSHED = _ENTER.format(lock="FOR KEY SHARE", lease="AND false")


class Entered(NamedTuple):
    """A feed as it is while we write to it, its lease, and fresh ids for what we write."""

    id: int
    revision: int
    identity: str
    last_success: int | None
    token: int | None
    until: int | None
    event_ids: list[int]
    run_seqs: list[int]


async def enter(books: Books, feed: str, *, leased: bool, events: int = 0, runs: int = 0) -> Entered:
    """Raise NotFound for a feed that was never opened."""
    row = await books.row(LEASED if leased else PUSHED, feed, events, runs)
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    books.now = books.now or row[8]
    return Entered(*row[:8])
