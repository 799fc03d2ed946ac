"""The commit: events, verdicts, runs, memory and cursor of one page, together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from harken.backends.codec import as_recorded, first_claim, micros, micros_or_none, moment
from harken.backends.completely_read_spans import KEPT_SPANS, merge_spans, spans_of
from harken.backends.postgres.connection import Database, DatabaseUser
from harken.backends.postgres.group_commit import GroupCommit, may_share
from harken.backends.postgres.run_creation_and_admission import CommitShare, Resolver, RunRequest, release_flood
from harken.backends.postgres.statement_builder import UnnestRows
from harken.backends.postgres.transaction_with_row_cache import (
    LockedFeed,
    Rollback,
    Transaction,
    check_lease,
    lock_feed,
)
from harken.backends.run_states_ids_and_reasons import duplicate_verdicts
from harken.backends.verdicts import decode_verdicts, encode_verdicts
from harken.event import Event, Span, Verdict
from harken.runs import Claimed
from harken.store import Commit, Committed, Entry, Intent, Stale, Tick

__all__ = ["PostgresCommits", "extend_coverage", "write_commit"]

TOUCH_US = 1_000_000
"""How old a feed's `last_success` may get while events are pushed to it: if each push wrote it, all replicas would
queue for that row."""

MEMORY_ROWS = UnnestRows(mid="bytea", state="bytea", seq="bigint", event="bigint", expect="bigint")
INSERT_MEMORY = """INSERT INTO memory (feed, mid, state, seq, event, first_seen, last_seen)
SELECT $1, u.mid, u.state, u.seq, u.event, $2, $2 FROM ({}) u ON CONFLICT DO NOTHING RETURNING mid"""
UPDATE_MEMORY = """UPDATE memory m SET state=u.state, absent=false, seq=u.seq, event=u.event, last_seen=$2
FROM ({}) u WHERE m.feed=$1 AND m.mid=u.mid AND m.seq=u.expect RETURNING m.mid"""

EVENT_ROWS = UnnestRows(
    id="bigint",
    kid="bytea",
    key="bytea",
    subject="bytea",
    state="bytea",
    type="text",
    occurred_at="bigint",
    verdicts="bytea",
    data="bytea",
)
INSERT_TALLIES = """INSERT INTO tallies (trigger, fired, done, fired_at)
SELECT t, n, d, $1::bigint FROM unnest($2::int[], $3::int[], $4::int[]) AS u(t, n, d)"""
INSERT_EVENTS = f"""WITH tallied AS ({INSERT_TALLIES}) INSERT INTO events
(id, kid, key, subject, state, type, occurred_at, verdicts, data, feed, recorded_at, written_at)
SELECT u.*, $5::int, $1, (SELECT harken_now()) FROM ({{}}) u"""

# a tick ends the span of idle reads, whose row is inserted before its own
ADVANCE_FEED = """WITH ticked AS (INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
SELECT $1, x.* FROM (
SELECT span_start, span_end, span_count, span_result, span_seen, 0::bigint, 0::float8 FROM feeds
WHERE id=$1 AND span_result IS NOT NULL
UNION ALL SELECT $11::bigint, $2::bigint, 1::bigint, $10::text, $12::bigint, $13::bigint, $14::float8) x
WHERE $10 IS NOT NULL)
UPDATE feeds SET last_success=$2, last_tick=$2, cursor=coalesce($3, cursor), watermark=coalesce($4, watermark),
next_due=CASE WHEN $5 THEN $6 ELSE next_due END, health=coalesce($7, health), seen=seen+$8,
reads=reads+$9::boolean::int, baselined=baselined OR $9, span_result=CASE WHEN $10 IS NULL THEN span_result END
WHERE id=$1"""

Verdicts = tuple[Verdict, ...]


class PostgresCommits(DatabaseUser):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._group_commit = GroupCommit(self._commit)

    async def commit(self, wanted: Commit) -> Committed | Stale:
        return await (self._group_commit.commit(wanted) if may_share(wanted) else self._commit(wanted))

    async def _commit(self, wanted: Commit, shares: Sequence[CommitShare] = ()) -> Committed | Stale:
        return await self._database.write(write_commit, wanted, shares, timed=False)


async def write_commit(tx: Transaction, wanted: Commit, shares: Sequence[CommitShare] = ()) -> Committed | Stale:
    """Raise Rollback(Stale) when a subject's memory has changed after something was written already.

    `shares`: `wanted` is made of several commits, in this order.
    """
    entries = wanted.entries
    intents = [one for entry in entries for one in entry.decisions if isinstance(one, Intent)]
    leased = wanted.token is not None
    feed = await lock_feed(tx, wanted.feed, leased=leased, events=len(entries), runs=len(intents))
    if wanted.token is not None:
        check_lease(wanted.token, feed.token, feed.until, tx.now)
    if feed.revision != wanted.revision:
        return Stale(feed.revision)
    await tx.load_triggers(wanted.feed, feed.revision, {intent.trigger for intent in intents})
    event_ids: list[int] = list(feed.event_ids)
    resolver = Resolver(tx, shares or [CommitShare(len(entries), wanted.claim)], wanted.holder)
    verdicts: list[Verdicts] = [()] * len(entries)
    new = await _record(tx, feed, entries, event_ids, verdicts, resolver) if entries else 0
    await _update_feed(tx, feed, wanted, new)
    claimed = [
        _claimed(tx, wanted.feed, entries[request.position].event, request, run_id)
        for request, run_id in resolver.claimed
    ]
    over = [
        (_claimed(tx, wanted.feed, entries[request.position].event, request, run_id), request.intent.end)
        for request, run_id in resolver.over
        if request.intent.end is not None
    ]
    return Committed(event_ids=event_ids, verdicts=verdicts, claimed=claimed, over=over)


async def _record(
    tx: Transaction,
    feed: LockedFeed,
    entries: Sequence[Entry],
    event_ids: list[int],
    verdicts: list[Verdicts],
    resolver: Resolver,
) -> int:
    """Fill in the verdicts, and the ids of events that are known already. Return how many events are new."""
    first_ids = await _remember(tx, feed, entries, event_ids)
    new = [position for position, entry in enumerate(entries) if not entry.again and position not in first_ids]
    seqs = iter(feed.run_seqs)
    requests = [
        RunRequest(position, decision, event_ids[position], next(seqs))
        for position in new
        for decision in entries[position].decisions
        if isinstance(decision, Intent)
    ]
    resolved = iter(await resolver.resolve(requests))
    for position in new:
        decisions = entries[position].decisions
        verdicts[position] = tuple(one if isinstance(one, Verdict) else next(resolved) for one in decisions)
    if new:
        events = [(event_ids[position], entries[position].event, verdicts[position]) for position in new]
        await _insert_events(tx, feed.id, events, resolver.take_tallies())
    if first_ids:
        await _count_repeats(tx, entries, first_ids, event_ids, verdicts)
    for position, entry in enumerate(entries):
        if entry.again:
            event_ids[position], verdicts[position] = await _decide_again(tx, entry, position, seqs, resolver)
            await tx.do(INSERT_TALLIES, tx.now, *resolver.take_tallies())
    return len(new)


class MemoryWrite(NamedTuple):
    """The new state of a subject, from the entry at `position` of the page."""

    position: int
    entry: Entry
    mid: bytes
    event_id: int


async def _remember(tx: Transaction, feed: LockedFeed, entries: Sequence[Entry], ids: Sequence[int]) -> dict[int, int]:
    """Write the new states. For each entry that repeats a known state, return its position and the first event's id.

    Raise Rollback(Stale) when another transaction has changed a subject's state since it was recalled.
    """
    first_ids: dict[int, int] = {}
    for writes in _rounds(tx, entries, ids):
        written = await _write_memory(tx, INSERT_MEMORY, feed, [write for write in writes if write.entry.expect == 0])
        written |= await _write_memory(tx, UPDATE_MEMORY, feed, [write for write in writes if write.entry.expect != 0])
        unwritten = [write for write in writes if write.mid not in written]
        if unwritten:
            first_ids.update(await _first_ids(tx, feed, unwritten))
    return first_ids


def _rounds(tx: Transaction, entries: Sequence[Entry], ids: Sequence[int]) -> list[list[MemoryWrite]]:
    """Groups with each subject at most once: a page may show a subject change and change back."""
    rounds: list[list[MemoryWrite]] = []
    seen: dict[bytes, int] = {}
    for position, entry in enumerate(entries):
        if entry.memory_id and not entry.again:
            mid = tx.seal.name(entry.memory_id)
            number = seen[mid] = seen.get(mid, -1) + 1
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(MemoryWrite(position, entry, mid, ids[position]))
    for writes in rounds:
        # replicas lock the same subjects in the same order, so that they do not wait for each other in a circle
        writes.sort(key=lambda write: write.mid)
    return rounds


async def _write_memory(tx: Transaction, sql: str, feed: LockedFeed, writes: Sequence[MemoryWrite]) -> set[bytes]:
    """Return the `mid` of each subject that the statement wrote."""
    if not writes:
        return set()
    rows = [
        (
            write.mid,
            None if write.entry.event.state is None else tx.shut(write.entry.event.state),
            write.entry.seq,
            write.event_id,
            write.entry.expect,
        )
        for write in writes
    ]
    query, values = MEMORY_ROWS.select(rows, after=2)
    return {row[0] for row in await tx.rows(sql.format(query), feed.id, tx.now, *values)}


async def _first_ids(tx: Transaction, feed: LockedFeed, writes: Sequence[MemoryWrite]) -> dict[int, int]:
    """The event that first showed each state, by position. Raise Rollback(Stale) for a state that is not stored."""
    sql = "SELECT mid, state, event FROM memory WHERE feed=$1 AND mid=ANY($2::bytea[])"
    rows = await tx.rows(sql, feed.id, [write.mid for write in writes])
    known = {row[0]: (None if row[1] is None else tx.text(row[1]), row[2]) for row in rows}
    first_ids: dict[int, int] = {}
    for write in writes:
        found = known.get(write.mid)
        # without transitions a new subject is an occurrence, whatever its state
        any_state = write.entry.expect == 0 and feed.identity != "transition"
        if found is None or not (any_state or found[0] == write.entry.event.state):
            raise Rollback(Stale(feed.revision))
        first_ids[write.position] = found[1]
    return first_ids


async def _insert_events(
    tx: Transaction,
    feed: int,
    events: Sequence[tuple[int, Event, Verdicts]],
    tallies: tuple[list[int], list[int], list[int]],
) -> None:
    seal = tx.seal
    rows = [
        (
            event_id,
            seal.name(event.key),
            seal.shut(event.key.encode("utf-8", "surrogatepass")),
            seal.shut(event.subject.encode("utf-8", "surrogatepass")),
            None if event.state is None else tx.shut(event.state),
            event.type,
            micros_or_none(event.occurred_at),
            seal.shut(encode_verdicts(verdicts)),
            seal.shut(event.payload()),
        )
        for event_id, event, verdicts in events
    ]
    query, values = EVENT_ROWS.select(rows, after=5)
    await tx.do(INSERT_EVENTS.format(query), tx.now, *tallies, feed, *values)


async def _count_repeats(
    tx: Transaction,
    entries: Sequence[Entry],
    first_ids: dict[int, int],
    event_ids: list[int],
    verdicts: list[Verdicts],
) -> None:
    """Count each repeat on the first event of its kind; its verdicts name the runs of that one."""
    rows = await tx.rows(
        """UPDATE events e SET repeats=repeats+u.n, last_repeat_at=$2
        FROM (SELECT id, count(*) AS n FROM unnest($1::bigint[]) AS ids(id) GROUP BY id) u
        WHERE e.id=u.id RETURNING e.id, e.verdicts""",
        sorted(first_ids.values()),
        tx.now,
    )
    earlier = {row[0]: decode_verdicts(tx.seal.open(row[1])) for row in rows}
    for position, first_id in first_ids.items():
        event_ids[position] = first_id
        names = (_trigger_name(tx, decision) for decision in entries[position].decisions)
        verdicts[position] = duplicate_verdicts(first_id, earlier.get(first_id, ()), names)


def _trigger_name(tx: Transaction, decision: Verdict | Intent) -> str:
    return decision.trigger if isinstance(decision, Verdict) else tx.trigger(decision.trigger).name


async def _decide_again(
    tx: Transaction, entry: Entry, position: int, seqs: Iterator[int], resolver: Resolver
) -> tuple[int, Verdicts]:
    """Decide a stored event for the triggers that have no verdict on it yet, or one of `before_start`."""
    sealed = await tx.value("SELECT verdicts FROM events WHERE id=$1 FOR UPDATE", entry.again)
    if sealed is None:
        return 0, ()
    verdicts = {verdict.trigger: verdict for verdict in decode_verdicts(tx.seal.open(sealed))}
    for decision in entry.decisions:
        name = _trigger_name(tx, decision)
        if name in verdicts and verdicts[name].outcome != "before_start":
            continue
        if isinstance(decision, Verdict):
            verdicts[name] = decision
        else:
            request = RunRequest(position, decision, entry.again, next(seqs))
            [verdicts[name]] = await resolver.resolve([request], claim=False)
    decided = tuple(verdicts.values())
    update = "UPDATE events SET verdicts=$1 WHERE id=$2"
    await tx.do(update, tx.seal.shut(encode_verdicts(decided)), entry.again)
    return entry.again, decided


def _claimed(tx: Transaction, feed: str, event: Event, request: RunRequest, run_id: bytes) -> Claimed:
    recorded = as_recorded(event, request.event_id, feed, moment(tx.now))
    return first_claim(request.intent, run_id, tx.trigger(request.intent.trigger).name, recorded)


async def _update_feed(tx: Transaction, feed: LockedFeed, wanted: Commit, new: int) -> None:
    """Write what the page says about its feed and triggers, beside its events."""
    # a page about stored events only does not prove that the feed can be read
    looks_back = bool(wanted.backfilled or (wanted.entries and wanted.entries[0].again))
    if wanted.tick is not None or (wanted.token is not None and not looks_back):
        await _advance_feed(tx, feed.id, wanted, new)
    elif not looks_back:
        await _touch_feed(tx, feed)
    if wanted.backfilled:
        own = "UPDATE triggers SET backfilling=false WHERE uid=ANY($1::text[]) AND feed=$2"
        await tx.do(own, list(wanted.backfilled), wanted.feed)
        await tx.do(
            """UPDATE trigger_feeds SET backfilling=false WHERE feed=$2
            AND trigger IN (SELECT id FROM triggers WHERE uid=ANY($1::text[]))""",
            list(wanted.backfilled),
            wanted.feed,
        )
        await tx.value("SELECT 1 FROM feeds WHERE id=$1 FOR UPDATE", feed.id)
        await tx.do("UPDATE feeds SET revision=revision+1 WHERE id=$1", feed.id)
    if wanted.release:
        await tx.load_triggers(wanted.feed, feed.revision, wanted.release)
    for uid, limit in wanted.release.items():
        await release_flood(tx, tx.trigger(uid).id, limit)


async def _advance_feed(tx: Transaction, feed: int, wanted: Commit, new: int) -> None:
    tick = wanted.tick
    await tx.do(
        ADVANCE_FEED,
        feed,
        tx.now,
        None if wanted.cursor is msgspec.UNSET else tx.shut_json(wanted.cursor),
        micros_or_none(wanted.watermark),
        wanted.next_due is not None or wanted.done,
        micros_or_none(wanted.next_due),
        None if wanted.health is None else tx.shut_json(wanted.health),
        new,
        wanted.done,
        *((None,) * 5 if tick is None else _tick_values(tick)),
    )
    if tick is not None and tick.covered is not None:
        await extend_coverage(tx, feed, tick.covered)


def _tick_values(tick: Tick) -> tuple[str, int, int, int, float]:
    return tick.result, micros(tick.started_at), tick.seen, tick.new, tick.seconds


async def extend_coverage(tx: Transaction, feed: int, covered: Span) -> None:
    """Add a span that was read completely; adjoining spans are merged."""
    start, end = micros(covered.start), micros(covered.end)
    extend = "UPDATE feeds SET cover_end=greatest(cover_end, $1) WHERE id=$2 AND cover_start<=$3 AND cover_end>=$3"
    if await tx.do(extend, end, feed, start):
        return
    row = await tx.row("SELECT cover_start, cover_end, coverage FROM feeds WHERE id=$1", feed)
    *older, newest = merge_spans([covered, *spans_of(tx.seal, row[2], row[0], row[1])])
    await tx.do(
        "UPDATE feeds SET cover_start=$1, cover_end=$2, coverage=$3 WHERE id=$4",
        micros(newest.start),
        micros(newest.end),
        tx.shut_json(older[-KEPT_SPANS:]) if older else None,
        feed,
    )


async def _touch_feed(tx: Transaction, feed: LockedFeed) -> None:
    """Note that events arrive, unless it was noted within a second or another replica is noting it."""
    if (feed.last_success or 0) > tx.now - TOUCH_US:
        return
    await tx.do(
        """UPDATE feeds SET last_success=$2, last_tick=$2
        WHERE id=(SELECT id FROM feeds WHERE id=$1 FOR NO KEY UPDATE SKIP LOCKED)""",
        feed.id,
        tx.now,
    )
