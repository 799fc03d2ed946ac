"""Reading feeds: failing, resting, and events that cannot be kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.backends.codec import micros, micros_or_none
from harken.backends.postgres.entering import enter
from harken.backends.postgres.ticks import close_span, extend_coverage
from harken.backends.postgres.transaction import Books, check_lease
from harken.event import Event
from harken.store import Failure, Rest

__all__ = ["bury", "fail", "rest"]


async def fail(books: Books, failure: Failure) -> None:
    feed = await enter(books, failure.feed, leased=failure.token is not None)
    if failure.token is not None:
        check_lease(failure.token, feed.token, feed.until, books.now)
    await close_span(books, feed.id)
    await books.do(
        "UPDATE feeds SET health=$1, next_due=$2, last_tick=$3 WHERE id=$4",
        books.shut_json(failure.health),
        micros_or_none(failure.next_due),
        books.now,
        feed.id,
    )
    await books.do(
        """INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, error, seconds)
        VALUES ($1, $2, $3, 1, $4, 0, 0, $5, $6)""",
        feed.id,
        micros(failure.started_at),
        books.now,
        failure.result,
        books.shut(failure.error),
        failure.seconds,
    )


_RESTED = """next_due={0}due, last_success={0}last, last_tick={0}last, span_end={0}last, span_seen={0}seen,
watermark=coalesce({0}watermark, f.watermark), health=coalesce({0}health, f.health),
cursor=coalesce({0}cursor, f.cursor), reads=f.reads+{0}count"""

QUICK_REST = f"""WITH u AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
$6::bytea[], $7::bytea[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
AS u(name, due, last, seen, watermark, health, cursor, count, result, cover_from, cover_to, token, revision)),
f AS MATERIALIZED (SELECT shard FROM feeds WHERE name=ANY($1) ORDER BY id FOR NO KEY UPDATE),
l AS MATERIALIZED (SELECT shard, token, until FROM leases WHERE shard=ANY(ARRAY(SELECT shard FROM f)) FOR KEY SHARE)
UPDATE feeds f SET {_RESTED.format("u.")}, span_count=f.span_count+u.count,
cover_end=greatest(f.cover_end, u.cover_to) FROM u, l
WHERE f.name=u.name AND l.shard=f.shard AND l.token=u.token AND l.until>=coalesce($14, harken_now())
AND f.revision=coalesce(u.revision, f.revision) AND f.span_result=u.result
AND (u.cover_from IS NULL OR (f.cover_start<=u.cover_from AND f.cover_end>=u.cover_from))
RETURNING f.name"""
"""All feeds are locked before the first lease, as by everybody else who needs both."""


async def rest(books: Books, rests: Sequence[Rest]) -> list[str]:
    """Extend the spans of all that go on as before with one statement, then look at the others one by one."""
    quick: dict[str, Rest] = {}
    left = [one for one in rests if quick.setdefault(one.feed, one) is not one]
    rows = [
        (one.feed, *_columns(books, one), one.result, *_covered(one), one.token, one.revision) for one in quick.values()
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    done = {row[0] for row in await books.rows(QUICK_REST, *columns, books.given_now)}
    left = [one for one in quick.values() if one.feed not in done] + left
    return [one.feed for one in sorted(left, key=lambda one: one.feed) if not await _rest(books, one)]


def _columns(books: Books, one: Rest) -> tuple[Any, ...]:
    last = micros(one.last_at)
    health = None if one.health is None else books.shut_json(one.health)
    cursor = None if one.cursor is msgspec.UNSET else books.shut_json(one.cursor)
    return micros_or_none(one.next_due), last, one.seen, micros_or_none(one.watermark), health, cursor, one.count


def _covered(one: Rest) -> tuple[int | None, int | None]:
    return (None, None) if one.covered is None else (micros(one.covered.start), micros(one.covered.end))


REST = f"""WITH u AS (SELECT $1::bigint AS due, $2::bigint AS last, $3::bigint AS seen, $4::bigint AS watermark,
$5::bytea AS health, $6::bytea AS cursor, $7::bigint AS count)
UPDATE feeds f SET {_RESTED.format("u.")}, span_count="""


async def _rest(books: Books, one: Rest) -> bool:
    """Whether it could be noted: the feed is at the revision that it knew."""
    feed = await enter(books, one.feed, leased=True)
    check_lease(one.token, feed.token, feed.until, books.now)
    if one.revision is not None and one.revision != feed.revision:
        return False
    columns = _columns(books, one)
    goes_on = f"{REST}f.span_count+u.count FROM u WHERE f.id=$8 AND f.span_result=$9"
    if not await books.do(goes_on, *columns, feed.id, one.result):
        await close_span(books, feed.id)
        first = f"{REST}u.count, span_result=$9, span_start=$10, baselined=true FROM u WHERE f.id=$8"
        await books.do(first, *columns, feed.id, one.result, micros(one.first_at))
    if one.covered is not None:
        await extend_coverage(books, feed.id, one.covered)
    return True


async def bury(books: Books, feed_name: str, event: Event, reason: str) -> None:
    feed = await enter(books, feed_name, leased=False)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    # a listing shows it again with every read
    known = await books.rows("SELECT key FROM buried WHERE feed=$1 ORDER BY id DESC LIMIT 1000", feed.id)
    if any(books.text(sealed) == key for (sealed,) in known):
        return
    await books.do(
        "INSERT INTO buried (feed, key, reason, payload, at) VALUES ($1, $2, $3, $4, $5)",
        feed.id,
        books.shut(key),
        books.shut(reason),
        books.seal.shut(payload),
        books.now,
    )
