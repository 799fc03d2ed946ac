"""What is written of a feed beside its commits: idle reads, failures, forgotten subjects, refused events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import micros, micros_or_none
from harken.backends.postgres.commit import PostgresCommits, extend_coverage
from harken.backends.postgres.feeds_and_triggers import PostgresDefinitions
from harken.backends.postgres.leases import PostgresLeases
from harken.backends.postgres.transaction_with_row_cache import Transaction, check_lease, lock_feed
from harken.event import Event, Known
from harken.store import Failure, IdleRead

__all__ = ["PostgresFeeds"]

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""

FORGOTTEN_AT_ONCE = 1_000
"""Subjects that one transaction marks or forgets, so that nothing waits long for the feed's row."""
FORGET_OLDER = """DELETE FROM memory WHERE feed=$1 AND mid=ANY(ARRAY
(SELECT mid FROM memory WHERE feed=$1 AND absent IN (false, true) AND last_seen<$2 LIMIT $3))"""
MARK_ABSENT = """UPDATE memory SET state=NULL, absent=true WHERE feed=$1 AND mid=ANY(ARRAY
(SELECT mid FROM memory WHERE feed=$1 AND NOT absent AND last_seen<$2 LIMIT $3))"""

_SET_IDLE = """next_due=u.due, last_success=u.last, last_tick=u.last, span_end=u.last, span_seen=u.seen,
watermark=coalesce(u.watermark, f.watermark), health=coalesce(u.health, f.health),
cursor=coalesce(u.cursor, f.cursor), reads=f.reads+u.count"""

# all feeds are locked before the first lease, as in every transaction that needs both
EXTEND_SPANS = f"""WITH u AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
$6::bytea[], $7::bytea[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
AS u(name, due, last, seen, watermark, health, cursor, count, result, cover_from, cover_to, token, revision)),
f AS MATERIALIZED (SELECT shard FROM feeds WHERE name=ANY($1) ORDER BY id FOR NO KEY UPDATE),
l AS MATERIALIZED (SELECT shard, token, until FROM leases WHERE shard=ANY(ARRAY(SELECT shard FROM f)) FOR KEY SHARE)
UPDATE feeds f SET {_SET_IDLE}, span_count=f.span_count+u.count,
cover_end=greatest(f.cover_end, u.cover_to) FROM u, l
WHERE f.name=u.name AND l.shard=f.shard AND l.token=u.token AND l.until>=coalesce($14, harken_now())
AND f.revision=coalesce(u.revision, f.revision) AND f.span_result=u.result
AND (u.cover_from IS NULL OR (f.cover_start<=u.cover_from AND f.cover_end>=u.cover_from))
RETURNING f.name"""

_IDLE = f"""WITH u AS (SELECT $1::bigint AS due, $2::bigint AS last, $3::bigint AS seen, $4::bigint AS watermark,
$5::bytea AS health, $6::bytea AS cursor, $7::bigint AS count)
UPDATE feeds f SET {_SET_IDLE}, span_count="""
EXTEND_SPAN = f"{_IDLE}f.span_count+u.count FROM u WHERE f.id=$8 AND f.span_result=$9"
BEGIN_SPAN = f"{_IDLE}u.count, span_result=$9, span_start=$10, baselined=true FROM u WHERE f.id=$8"


class PostgresFeeds(PostgresDefinitions, PostgresLeases, PostgresCommits):
    """The protocol Feeds: this class has the calls that its bases do not."""

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        return await self._database.autocommit(_recall, feed, memory_ids, writes=False) if memory_ids else {}

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime | None) -> int:
        # mark what is listed before anything is forgotten: an interruption then forgets too little, never too much
        for begin in range(0, max(1, len(listed)), FORGOTTEN_AT_ONCE):
            some = listed[begin : begin + FORGOTTEN_AT_ONCE]
            await self._database.write(_mark_listed, feed, token, some, timed=False)
        total = 0
        if before is None:
            return total
        while forgotten := await self._database.write(_forget, feed, token, micros(before), timed=False):
            total += forgotten
            if forgotten < FORGOTTEN_AT_ONCE:
                break
        return total

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        return await self._database.write(_record_idle, reads, timed=False) if reads else ()

    async def fail(self, failure: Failure) -> None:
        await self._database.write(_fail, failure, timed=False)

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        await self._database.write(_dead_letter, feed, event, reason, timed=False)


async def _recall(tx: Transaction, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
    by_mid = {tx.seal.name(name): name for name in memory_ids}
    rows = await tx.rows(
        """SELECT mid, state, seq, absent FROM memory
        WHERE feed=(SELECT id FROM feeds WHERE name=$1) AND mid=ANY($2::bytea[])""",
        feed,
        list(by_mid),
    )
    known: dict[str, Known] = {}
    for mid, sealed, seq, absent in rows:
        state = ABSENT if absent else None if sealed is None else tx.text(sealed)
        known[by_mid[mid]] = Known(state, seq)
    return known


async def _mark_listed(tx: Transaction, feed_name: str, token: int, listed: Sequence[str]) -> None:
    feed = await lock_feed(tx, feed_name, leased=True)
    check_lease(token, feed.token, feed.until, tx.now)
    mids = [tx.seal.name(name) for name in listed]
    await tx.do("UPDATE memory SET last_seen=$1 WHERE feed=$2 AND mid=ANY($3::bytea[])", tx.now, feed.id, mids)


async def _forget(tx: Transaction, feed_name: str, token: int, before: int) -> int:
    feed = await lock_feed(tx, feed_name, leased=True)
    check_lease(token, feed.token, feed.until, tx.now)
    if feed.identity != "transition":
        return await tx.do(FORGET_OLDER, feed.id, before, FORGOTTEN_AT_ONCE)
    # keep the count of changes, so that a subject that comes back gets a new key
    return await tx.do(MARK_ABSENT, feed.id, before, FORGOTTEN_AT_ONCE)


async def _record_idle(tx: Transaction, reads: Sequence[IdleRead]) -> list[str]:
    """Extend all spans that have the same result as before with one statement, then write the others one by one.

    Return the feeds whose reads were not written.
    """
    by_feed: dict[str, IdleRead] = {}
    left = [read for read in reads if by_feed.setdefault(read.feed, read) is not read]
    rows = [
        (read.feed, *_idle_values(tx, read), read.result, *_covered(read), read.token, read.revision)
        for read in by_feed.values()
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    written = {row[0] for row in await tx.rows(EXTEND_SPANS, *columns, tx.given_now)}
    left = [read for read in by_feed.values() if read.feed not in written] + left
    return [read.feed for read in sorted(left, key=lambda read: read.feed) if not await _record_one(tx, read)]


def _idle_values(tx: Transaction, read: IdleRead) -> tuple[Any, ...]:
    last = micros(read.last_at)
    health = None if read.health is None else tx.shut_json(read.health)
    cursor = None if read.cursor is msgspec.UNSET else tx.shut_json(read.cursor)
    return micros_or_none(read.next_due), last, read.seen, micros_or_none(read.watermark), health, cursor, read.count


def _covered(read: IdleRead) -> tuple[int | None, int | None]:
    return (None, None) if read.covered is None else (micros(read.covered.start), micros(read.covered.end))


async def _record_one(tx: Transaction, read: IdleRead) -> bool:
    """Return False, and write nothing, if the feed is at another revision than when it was read."""
    feed = await lock_feed(tx, read.feed, leased=True)
    check_lease(read.token, feed.token, feed.until, tx.now)
    if read.revision is not None and read.revision != feed.revision:
        return False
    values = _idle_values(tx, read)
    if not await tx.do(EXTEND_SPAN, *values, feed.id, read.result):
        await _close_span(tx, feed.id)
        await tx.do(BEGIN_SPAN, *values, feed.id, read.result, micros(read.first_at))
    if read.covered is not None:
        await extend_coverage(tx, feed.id, read.covered)
    return True


async def _close_span(tx: Transaction, feed: int) -> None:
    """Turn the feed's current span of idle reads, if it has one, into a row of `ticks`."""
    await tx.do(
        """WITH span AS (SELECT span_start, span_end, span_count, span_result, span_seen FROM feeds
            WHERE id=$1 AND span_result IS NOT NULL),
        closed AS (UPDATE feeds SET span_result=NULL WHERE id=$1 AND span_result IS NOT NULL)
        INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
        SELECT $1, span_start, span_end, span_count, span_result, span_seen, 0, 0 FROM span""",
        feed,
    )


async def _fail(tx: Transaction, failure: Failure) -> None:
    feed = await lock_feed(tx, failure.feed, leased=failure.token is not None)
    if failure.token is not None:
        check_lease(failure.token, feed.token, feed.until, tx.now)
    await _close_span(tx, feed.id)
    await tx.do(
        "UPDATE feeds SET health=$1, next_due=$2, last_tick=$3 WHERE id=$4",
        tx.shut_json(failure.health),
        micros_or_none(failure.next_due),
        tx.now,
        feed.id,
    )
    await tx.do(
        """INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, error, seconds)
        VALUES ($1, $2, $3, 1, $4, 0, 0, $5, $6)""",
        feed.id,
        micros(failure.started_at),
        tx.now,
        failure.result,
        tx.shut(failure.error),
        failure.seconds,
    )


async def _dead_letter(tx: Transaction, feed_name: str, event: Event, reason: str) -> None:
    feed = await lock_feed(tx, feed_name, leased=False)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    # a source that lists everything returns the event with every read: keep it once
    known = await tx.rows("SELECT key FROM buried WHERE feed=$1 ORDER BY id DESC LIMIT 1000", feed.id)
    if any(tx.text(sealed) == key for (sealed,) in known):
        return
    await tx.do(
        "INSERT INTO buried (feed, key, reason, payload, at) VALUES ($1, $2, $3, $4, $5)",
        feed.id,
        tx.shut(key),
        tx.shut(reason),
        tx.seal.shut(payload),
        tx.now,
    )
