"""Feeds in PostgreSQL: what they remember, their ticks and coverage, failures, and events that cannot be kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from harken.backends.codec import micros, micros_or_none
from harken.backends.coverage import KEPT_SPANS, merged, spans_of
from harken.backends.postgres.statements import Spread
from harken.backends.postgres.transaction import LockedFeed, Transaction, Withdrawn, check_lease, enter
from harken.event import Event, Known, Span
from harken.store import Entry, Failure, IdleRead, Stale

__all__ = [
    "ABSENT",
    "close_span",
    "dead_letter",
    "extend_coverage",
    "fail",
    "forget",
    "recall",
    "record_idle",
    "remember",
]


async def close_span(tx: Transaction, feed: int) -> None:
    await tx.do(
        """WITH span AS (SELECT span_start, span_end, span_count, span_result, span_seen FROM feeds
            WHERE id=$1 AND span_result IS NOT NULL),
        closed AS (UPDATE feeds SET span_result=NULL WHERE id=$1 AND span_result IS NOT NULL)
        INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
        SELECT $1, span_start, span_end, span_count, span_result, span_seen, 0, 0 FROM span""",
        feed,
    )


async def extend_coverage(tx: Transaction, feed: int, covered: Span) -> None:
    """Add a proven span; adjoining ones grow together."""
    start, end = micros(covered.start), micros(covered.end)
    grown = """UPDATE feeds SET cover_end=greatest(cover_end, $1) WHERE id=$2 AND cover_start<=$3 AND cover_end>=$3"""
    if await tx.do(grown, end, feed, start):
        return
    row = await tx.row("SELECT cover_start, cover_end, coverage FROM feeds WHERE id=$1", feed)
    *older, newest = merged([covered, *spans_of(tx.seal, row[2], row[0], row[1])])
    await tx.do(
        "UPDATE feeds SET cover_start=$1, cover_end=$2, coverage=$3 WHERE id=$4",
        micros(newest.start),
        micros(newest.end),
        tx.shut_json(older[-KEPT_SPANS:]) if older else None,
        feed,
    )


ABSENT = "\0absent"

"""The state of a subject that its source no longer lists."""

ROWS = Spread(mid="bytea", state="bytea", seq="bigint", event="bigint", expect="bigint")

NOTE = """INSERT INTO memory (feed, mid, state, seq, event, first_seen, last_seen)
SELECT $1, u.mid, u.state, u.seq, u.event, $2, $2 FROM ({}) u ON CONFLICT DO NOTHING RETURNING mid"""

MOVE = """UPDATE memory m SET state=u.state, absent=false, seq=u.seq, event=u.event, last_seen=$2
FROM ({}) u WHERE m.feed=$1 AND m.mid=u.mid AND m.seq=u.expect RETURNING m.mid"""


class Sight(NamedTuple):
    """A subject with its new state, at this place of the page."""

    place: int
    entry: Entry
    mid: bytes
    event_id: int


async def remember(tx: Transaction, feed: LockedFeed, entries: Sequence[Entry], ids: Sequence[int]) -> dict[int, int]:
    """Note the new states. For entries that are known already: the id of the first event, by place.

    Raise Withdrawn when somebody else moved a subject to another state meanwhile.
    """
    firsts: dict[int, int] = {}
    for sights in _rounds(tx, entries, ids):
        new = await _written(tx, NOTE, feed, [sight for sight in sights if sight.entry.expect == 0])
        new |= await _written(tx, MOVE, feed, [sight for sight in sights if sight.entry.expect != 0])
        known = [sight for sight in sights if sight.mid not in new]
        if known:
            firsts.update(await _repeated(tx, feed, known))
    return firsts


def _rounds(tx: Transaction, entries: Sequence[Entry], ids: Sequence[int]) -> list[list[Sight]]:
    """Each subject once in a round: a page may show one there and back again."""
    rounds: list[list[Sight]] = []
    seen: dict[bytes, int] = {}
    for place, entry in enumerate(entries):
        if entry.memory_id and not entry.again:
            mid = tx.seal.name(entry.memory_id)
            turn = seen[mid] = seen.get(mid, -1) + 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(Sight(place, entry, mid, ids[place]))
    for sights in rounds:
        # replicas that note the same subjects meet in the same order, and so do not wait for each other in a circle
        sights.sort(key=lambda sight: sight.mid)
    return rounds


async def _written(tx: Transaction, sql: str, feed: LockedFeed, sights: Sequence[Sight]) -> set[bytes]:
    """Those for which the statement had something to do."""
    if not sights:
        return set()
    rows = [
        (
            sight.mid,
            None if sight.entry.event.state is None else tx.shut(sight.entry.event.state),
            sight.entry.seq,
            sight.event_id,
            sight.entry.expect,
        )
        for sight in sights
    ]
    text, values = ROWS.of(rows, fixed=2)
    return {row[0] for row in await tx.rows(sql.format(text), feed.id, tx.now, *values)}


async def _repeated(tx: Transaction, feed: LockedFeed, sights: Sequence[Sight]) -> dict[int, int]:
    sql = "SELECT mid, state, event FROM memory WHERE feed=$1 AND mid=ANY($2::bytea[])"
    rows = await tx.rows(sql, feed.id, [sight.mid for sight in sights])
    known = {row[0]: (None if row[1] is None else tx.text(row[1]), row[2]) for row in rows}
    firsts: dict[int, int] = {}
    for sight in sights:
        found = known.get(sight.mid)
        anyway = sight.entry.expect == 0 and feed.identity != "transition"
        if found is None or not (anyway or found[0] == sight.entry.event.state):
            raise Withdrawn(Stale(feed.revision))
        firsts[sight.place] = found[1]
    return firsts


async def recall(tx: Transaction, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
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


async def forget(tx: Transaction, feed_name: str, token: int, listed: Sequence[str], before: datetime) -> int:
    feed = await enter(tx, feed_name, leased=True)
    check_lease(token, feed.token, feed.until, tx.now)
    mids = [tx.seal.name(name) for name in listed]
    seen = "UPDATE memory SET last_seen=$1 WHERE feed=$2 AND mid=ANY($3::bytea[])"
    await tx.do(seen, tx.now, feed.id, mids)
    if feed.identity == "transition":
        # only the state goes: the count stays, so that coming back is a change with a key of its own
        gone = "UPDATE memory SET state=NULL, absent=true WHERE feed=$1 AND last_seen<$2 AND NOT absent"
    else:
        gone = "DELETE FROM memory WHERE feed=$1 AND last_seen<$2"
    return await tx.do(gone, feed.id, micros(before))


async def fail(tx: Transaction, failure: Failure) -> None:
    feed = await enter(tx, failure.feed, leased=failure.token is not None)
    if failure.token is not None:
        check_lease(failure.token, feed.token, feed.until, tx.now)
    await close_span(tx, feed.id)
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


async def record_idle(tx: Transaction, reads: Sequence[IdleRead]) -> list[str]:
    """Extend the spans of all that go on as before with one statement, then look at the others one by one."""
    quick: dict[str, IdleRead] = {}
    left = [one for one in reads if quick.setdefault(one.feed, one) is not one]
    rows = [
        (one.feed, *_columns(tx, one), one.result, *_covered(one), one.token, one.revision) for one in quick.values()
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    done = {row[0] for row in await tx.rows(QUICK_REST, *columns, tx.given_now)}
    left = [one for one in quick.values() if one.feed not in done] + left
    return [one.feed for one in sorted(left, key=lambda one: one.feed) if not await _rest(tx, one)]


def _columns(tx: Transaction, one: IdleRead) -> tuple[Any, ...]:
    last = micros(one.last_at)
    health = None if one.health is None else tx.shut_json(one.health)
    cursor = None if one.cursor is msgspec.UNSET else tx.shut_json(one.cursor)
    return micros_or_none(one.next_due), last, one.seen, micros_or_none(one.watermark), health, cursor, one.count


def _covered(one: IdleRead) -> tuple[int | None, int | None]:
    return (None, None) if one.covered is None else (micros(one.covered.start), micros(one.covered.end))


REST = f"""WITH u AS (SELECT $1::bigint AS due, $2::bigint AS last, $3::bigint AS seen, $4::bigint AS watermark,
$5::bytea AS health, $6::bytea AS cursor, $7::bigint AS count)
UPDATE feeds f SET {_RESTED.format("u.")}, span_count="""


async def _rest(tx: Transaction, one: IdleRead) -> bool:
    """Whether it could be noted: the feed is at the revision that it knew."""
    feed = await enter(tx, one.feed, leased=True)
    check_lease(one.token, feed.token, feed.until, tx.now)
    if one.revision is not None and one.revision != feed.revision:
        return False
    columns = _columns(tx, one)
    goes_on = f"{REST}f.span_count+u.count FROM u WHERE f.id=$8 AND f.span_result=$9"
    if not await tx.do(goes_on, *columns, feed.id, one.result):
        await close_span(tx, feed.id)
        first = f"{REST}u.count, span_result=$9, span_start=$10, baselined=true FROM u WHERE f.id=$8"
        await tx.do(first, *columns, feed.id, one.result, micros(one.first_at))
    if one.covered is not None:
        await extend_coverage(tx, feed.id, one.covered)
    return True


async def dead_letter(tx: Transaction, feed_name: str, event: Event, reason: str) -> None:
    feed = await enter(tx, feed_name, leased=False)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    # a listing shows it again with every read
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
