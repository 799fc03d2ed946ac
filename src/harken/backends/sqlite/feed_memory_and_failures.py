"""What a feed remembers, and reads that brought no events: failed or idle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from harken.backends.codec import micros, micros_or_none
from harken.backends.sqlite.commit import SqliteCommits, close_span, extend_coverage
from harken.backends.sqlite.feeds_and_triggers import SqliteDefinitions
from harken.backends.sqlite.leases import SqliteLeases
from harken.backends.sqlite.transaction_with_row_cache import FeedRow, Transaction
from harken.event import Event, Known
from harken.store import Failure, IdleRead

__all__ = ["FORGET_OLDER", "MARK_ABSENT", "SqliteFeeds", "forget_older"]

RECALL_INLINE = 256
"""So many look-ups in a warm cache cost less than changing threads."""

FORGOTTEN_AT_ONCE = 500
"""Subjects that one transaction marks or forgets: a few milliseconds, so that other writes need not wait."""

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""

IDLE_COLUMNS = """UPDATE feeds SET next_due=?, last_success=?, last_tick=?, span_end=?, span_seen=?,
watermark=coalesce(?, watermark), health=coalesce(?, health), cursor=coalesce(?, cursor), reads=reads+?"""
EXTEND_SPAN = f"{IDLE_COLUMNS}, span_count=span_count+? WHERE id=? AND span_result=?"
EXTEND_BOTH = f"""{IDLE_COLUMNS}, span_count=span_count+?, cover_end=max(cover_end, ?)
WHERE id=? AND span_result=? AND cover_start<=? AND cover_end>=?"""
"""As nearly always: a read like the last one, which covers what came since. One update, as each writes the row anew."""
BEGIN_SPAN = f"{IDLE_COLUMNS}, span_count=?, span_result=?, span_start=?, baselined=1 WHERE id=?"

FORGET_OLDER = """DELETE FROM memory WHERE feed=? AND mid IN
(SELECT mid FROM memory WHERE feed=? AND absent IN (0, 1) AND last_seen<? LIMIT ?)"""
MARK_ABSENT = """UPDATE memory SET state=NULL, absent=1 WHERE feed=? AND mid IN
(SELECT mid FROM memory WHERE feed=? AND absent=0 AND last_seen<? LIMIT ?)"""


class SqliteFeeds(SqliteDefinitions, SqliteLeases, SqliteCommits):
    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        if not memory_ids:
            return {}
        if len(memory_ids) <= RECALL_INLINE:
            return _recall(self._database.loop_reader, feed, memory_ids)
        return await self._database.read(_recall, feed, memory_ids)

    async def fail(self, failure: Failure) -> None:
        await self._database.write(_fail, failure)

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        return await self._database.write(_record_idle, reads)

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime | None) -> int:
        # mark what is listed before anything is forgotten: an interruption then forgets too little, never too much
        for begin in range(0, max(1, len(listed)), FORGOTTEN_AT_ONCE):
            await self._database.write(_mark_listed, feed, token, listed[begin : begin + FORGOTTEN_AT_ONCE])
        total = 0
        if before is None:
            return total
        while forgotten := await self._database.write(_forget, feed, token, micros(before)):
            total += forgotten
            if forgotten < FORGOTTEN_AT_ONCE:
                break
        return total

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        await self._database.write(_dead_letter, feed, event, reason)


def _recall(tx: Transaction, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
    known: dict[str, Known] = {}
    row = tx.row("SELECT id FROM feeds WHERE name=?", (feed,))
    if row is None:
        return known
    by_mid = {tx.seal.name(name): name for name in memory_ids}
    mids = list(by_mid)
    for begin in range(0, len(mids), 500):
        some = mids[begin : begin + 500]
        marks = ",".join("?" * len(some))
        for mid, sealed, seq, absent in tx.execute(
            f"SELECT mid, state, seq, absent FROM memory WHERE feed=? AND mid IN ({marks})", [row[0], *some]
        ):
            state = ABSENT if absent else None if sealed is None else tx.text(sealed)
            known[by_mid[mid]] = Known(state, seq)
    return known


def _fail(tx: Transaction, failure: Failure) -> None:
    feed = tx.feed(failure.feed)
    if failure.token is not None:
        tx.check_lease(failure.token, feed.shard)
    now = tx.now()
    close_span(tx, feed)
    tx.execute(
        "UPDATE feeds SET health=?, next_due=?, last_tick=? WHERE id=?",
        (tx.shut_json(failure.health), micros_or_none(failure.next_due), now, feed.id),
    )
    tx.execute(
        """INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, error, seconds)
        VALUES (?,?,?,1,?,0,0,?,?)""",
        (feed.id, micros(failure.started_at), now, failure.result, tx.shut(failure.error), failure.seconds),
    )


def _record_idle(tx: Transaction, reads: Sequence[IdleRead]) -> list[str]:
    stale: list[str] = []
    for read in reads:
        feed = tx.feed(read.feed)
        tx.check_lease(read.token, feed.shard)
        if read.revision is not None and read.revision != feed.revision:
            stale.append(read.feed)
        else:
            _extend_span(tx, feed, read)
    return stale


def _extend_span(tx: Transaction, feed: FeedRow, read: IdleRead) -> None:
    last, due = micros(read.last_at), micros_or_none(read.next_due)
    health = None if read.health is None else tx.shut_json(read.health)
    cursor = None if read.cursor is msgspec.UNSET else tx.shut_json(read.cursor)
    shared = (due, last, last, last, read.seen, micros_or_none(read.watermark), health, cursor, read.count, read.count)
    if read.covered is not None:
        start = micros(read.covered.start)
        tx.write(EXTEND_BOTH, (*shared, micros(read.covered.end), feed.id, read.result, start, start))
        if tx.connection.changes():
            return
    tx.write(EXTEND_SPAN, (*shared, feed.id, read.result))
    if not tx.connection.changes():
        close_span(tx, feed)
        tx.write(BEGIN_SPAN, (*shared, read.result, micros(read.first_at), feed.id))
    if read.covered is not None:
        extend_coverage(tx, feed, read.covered)


def _mark_listed(tx: Transaction, feed_name: str, token: int, listed: Sequence[str]) -> None:
    feed = tx.feed(feed_name)
    tx.check_lease(token, feed.shard)
    now = tx.now()
    for name in listed:
        tx.execute("UPDATE memory SET last_seen=? WHERE feed=? AND mid=?", (now, feed.id, tx.seal.name(name)))


def _forget(tx: Transaction, feed_name: str, token: int, before: int) -> int:
    feed = tx.feed(feed_name)
    tx.check_lease(token, feed.shard)
    if feed.identity != "transition":
        return forget_older(tx, feed.id, before, FORGOTTEN_AT_ONCE)
    # keep the count of changes, so that the subject has a new key when it comes back
    tx.execute(MARK_ABSENT, (feed.id, feed.id, before, FORGOTTEN_AT_ONCE))
    return tx.connection.changes()


def forget_older(tx: Transaction, feed: int, before: int, limit: int) -> int:
    """Delete up to `limit` subjects of the feed that were last seen before then."""
    tx.execute(FORGET_OLDER, (feed, feed, before, limit))
    return tx.connection.changes()


def _dead_letter(tx: Transaction, feed_name: str, event: Event, reason: str) -> None:
    feed = tx.feed(feed_name)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    # the same event is refused again with every read of a listing
    known = tx.execute("SELECT key FROM buried WHERE feed=? ORDER BY id DESC LIMIT 1000", (feed.id,)).fetchall()
    if any(tx.text(sealed) == key for (sealed,) in known):
        return
    tx.execute(
        "INSERT INTO buried (feed, key, reason, payload, at) VALUES (?,?,?,?,?)",
        (feed.id, tx.shut(key), tx.shut(reason), tx.seal.shut(payload), tx.now()),
    )
