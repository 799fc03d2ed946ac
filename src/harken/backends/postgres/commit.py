"""The commit: events, verdicts, runs, memory and cursor of one page, together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.backends.codec import decode_verdicts, first_claim, just_recorded, micros, micros_or_none, moment
from harken.backends.postgres.feeds import extend_coverage, remember
from harken.backends.postgres.queue import Resolver, Share, Wish, release_flood
from harken.backends.postgres.statements import Spread
from harken.backends.postgres.transaction import LockedFeed, Transaction, check_lease, enter
from harken.backends.run_states import repeated
from harken.event import Event, Verdict
from harken.runs import Claimed
from harken.store import Commit, Committed, Entry, Intent, Stale, Tick

__all__ = ["commit"]

TOUCH_US = 1_000_000
"""How late a feed may learn that somebody pushed to it: one row for all replicas must not be written by each push."""

_encode_verdicts = msgspec.json.Encoder().encode

ROWS = Spread(
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
TALLY = """INSERT INTO tallies (trigger, fired, done, fired_at)
SELECT t, n, 0, $1::bigint FROM unnest($2::int[], $3::int[]) AS u(t, n)"""
INSERT_EVENTS = f"""WITH told AS ({TALLY}) INSERT INTO events
(id, kid, key, subject, state, type, occurred_at, verdicts, data, feed, recorded_at, written_at)
SELECT u.*, $4::int, $1, (SELECT harken_now()) FROM ({{}}) u"""

Decided = list[tuple[Verdict, ...]]
New = tuple[int, Event, tuple[Verdict, ...]]


async def commit(tx: Transaction, wanted: Commit, shares: Sequence[Share] = ()) -> Committed | Stale:
    """Raise Withdrawn(Stale) when memory moved on after something was written already.

    `shares`: several asked for this page, each for so many of its entries and for so many runs to be handed over."""
    entries = wanted.entries
    intents = [one for entry in entries for one in entry.decisions if isinstance(one, Intent)]
    feed = await enter(tx, wanted.feed, leased=wanted.token is not None, events=len(entries), runs=len(intents))
    if wanted.token is not None:
        check_lease(wanted.token, feed.token, feed.until, tx.now)
    if feed.revision != wanted.revision:
        return Stale(feed.revision)
    await tx.know(wanted.feed, feed.revision, {intent.trigger for intent in intents})
    event_ids: list[int] = list(feed.event_ids)
    resolver = Resolver(tx, shares or [(len(entries), wanted.claim)], wanted.holder)
    verdicts: Decided = [()] * len(entries)
    fresh = await _record(tx, feed, entries, event_ids, verdicts, resolver) if entries else []
    await _end(tx, feed, wanted, len(fresh))
    claimed = [_claimed(tx, wanted.feed, entries, verdicts, wish, run_id) for wish, run_id in resolver.handed]
    return Committed(event_ids=event_ids, verdicts=verdicts, claimed=claimed)


async def _record(
    tx: Transaction,
    feed: LockedFeed,
    entries: Sequence[Entry],
    event_ids: list[int],
    verdicts: Decided,
    resolver: Resolver,
) -> list[int]:
    """Fill in what was decided, and the ids of events that are known already; the places of the new ones."""
    firsts = await remember(tx, feed, entries, event_ids)
    fresh = [place for place, entry in enumerate(entries) if not entry.again and place not in firsts]
    seqs = iter(feed.run_seqs)
    wishes = [
        Wish(place, one, event_ids[place], next(seqs))
        for place in fresh
        for one in entries[place].decisions
        if isinstance(one, Intent)
    ]
    decided = iter(await resolver.resolve(wishes))
    for place in fresh:
        said = entries[place].decisions
        verdicts[place] = tuple(one if isinstance(one, Verdict) else next(decided) for one in said)
    if fresh:
        new = [(event_ids[place], entries[place].event, verdicts[place]) for place in fresh]
        await _insert_events(tx, feed.id, new, resolver.tallied())
    if firsts:
        await _repeat(tx, entries, firsts, event_ids, verdicts)
    for place, entry in enumerate(entries):
        if entry.again:
            event_ids[place], verdicts[place] = await _again(tx, entry, place, seqs, resolver)
            await tx.do(TALLY, tx.now, *resolver.tallied())
    return fresh


async def _insert_events(tx: Transaction, feed: int, events: Sequence[New], fired: tuple[list[int], list[int]]) -> None:
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
            seal.shut(_encode_verdicts(verdicts)),
            seal.shut(event.payload()),
        )
        for event_id, event, verdicts in events
    ]
    text, values = ROWS.of(rows, fixed=4)
    await tx.do(INSERT_EVENTS.format(text), tx.now, *fired, feed, *values)


async def _repeat(
    tx: Transaction, entries: Sequence[Entry], firsts: dict[int, int], event_ids: list[int], verdicts: Decided
) -> None:
    """Count the repeats on their first events, and say which runs those have."""
    rows = await tx.rows(
        """UPDATE events e SET repeats=repeats+u.n, last_repeat_at=$2
        FROM (SELECT id, count(*) AS n FROM unnest($1::bigint[]) AS ids(id) GROUP BY id) u
        WHERE e.id=u.id RETURNING e.id, e.verdicts""",
        sorted(firsts.values()),
        tx.now,
    )
    earlier = {row[0]: decode_verdicts(tx.seal.open(row[1])) for row in rows}
    for place, first in firsts.items():
        event_ids[place] = first
        names = (_name(tx, decision) for decision in entries[place].decisions)
        verdicts[place] = repeated(first, earlier.get(first, ()), names)


def _name(tx: Transaction, decision: Verdict | Intent) -> str:
    return decision.trigger if isinstance(decision, Verdict) else tx.trigger(decision.trigger).name


async def _again(
    tx: Transaction, entry: Entry, place: int, seqs: Any, resolver: Resolver
) -> tuple[int, tuple[Verdict, ...]]:
    """Decide a stored event for those triggers that had nothing to do with it before."""
    sealed = await tx.value("SELECT verdicts FROM events WHERE id=$1 FOR UPDATE", entry.again)
    if sealed is None:
        return 0, ()
    verdicts = {verdict.trigger: verdict for verdict in decode_verdicts(tx.seal.open(sealed))}
    for decision in entry.decisions:
        name = _name(tx, decision)
        if name in verdicts and verdicts[name].outcome != "before_start":
            continue
        if isinstance(decision, Verdict):
            verdicts[name] = decision
        else:
            [verdicts[name]] = await resolver.resolve([Wish(place, decision, entry.again, next(seqs))], hand=False)
    decided = tuple(verdicts.values())
    sql = "UPDATE events SET verdicts=$1 WHERE id=$2"
    await tx.do(sql, tx.seal.shut(_encode_verdicts(decided)), entry.again)
    return entry.again, decided


def _claimed(
    tx: Transaction, feed: str, entries: Sequence[Entry], verdicts: Decided, wish: Wish, run_id: bytes
) -> Claimed:
    recorded = just_recorded(entries[wish.place].event, wish.event_id, feed, moment(tx.now), verdicts[wish.place])
    return first_claim(wish.intent, run_id, tx.trigger(wish.intent.trigger).name, recorded)


async def _end(tx: Transaction, feed: LockedFeed, wanted: Commit, fresh: int) -> None:
    """What the page says about the feed and its triggers."""
    # a page about stored events only says nothing about the feed being alive
    looks_back = bool(wanted.backfilled or (wanted.entries and wanted.entries[0].again))
    if wanted.tick is not None or (wanted.token is not None and not looks_back):
        await _advance(tx, feed.id, wanted, fresh)
    elif not looks_back:
        await _touch(tx, feed)
    if wanted.backfilled:
        await tx.do("UPDATE triggers SET backfilling=false WHERE uid=ANY($1::text[])", list(wanted.backfilled))
        await tx.value("SELECT 1 FROM feeds WHERE id=$1 FOR UPDATE", feed.id)
        await tx.do("UPDATE feeds SET revision=revision+1 WHERE id=$1", feed.id)
    if wanted.release:
        await tx.know(wanted.feed, feed.revision, wanted.release)
    for uid, limit in wanted.release.items():
        await release_flood(tx, tx.trigger(uid).id, limit)


ADVANCE = """WITH told AS (INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
SELECT $1, x.* FROM (
SELECT span_start, span_end, span_count, span_result, span_seen, 0::bigint, 0::float8 FROM feeds
WHERE id=$1 AND span_result IS NOT NULL
UNION ALL SELECT $11::bigint, $2::bigint, 1::bigint, $10::text, $12::bigint, $13::bigint, $14::float8) x
WHERE $10 IS NOT NULL)
UPDATE feeds SET last_success=$2, last_tick=$2, cursor=coalesce($3, cursor), watermark=coalesce($4, watermark),
next_due=CASE WHEN $5 THEN $6 ELSE next_due END, health=coalesce($7, health), seen=seen+$8,
reads=reads+$9::boolean::int, baselined=baselined OR $9, span_result=CASE WHEN $10 IS NULL THEN span_result END
WHERE id=$1"""
"""A read that is told of ends the span of those that found nothing, whose row comes first."""


async def _advance(tx: Transaction, feed: int, wanted: Commit, fresh: int) -> None:
    tick = wanted.tick
    await tx.do(
        ADVANCE,
        feed,
        tx.now,
        None if wanted.cursor is msgspec.UNSET else tx.shut_json(wanted.cursor),
        micros_or_none(wanted.watermark),
        wanted.next_due is not None or wanted.done,
        micros_or_none(wanted.next_due),
        None if wanted.health is None else tx.shut_json(wanted.health),
        fresh,
        wanted.done,
        *((None,) * 5 if tick is None else _told(tick)),
    )
    if tick is not None and tick.covered is not None:
        await extend_coverage(tx, feed, tick.covered)


def _told(tick: Tick) -> tuple[str, int, int, int, float]:
    return tick.result, micros(tick.started_at), tick.seen, tick.new, tick.seconds


async def _touch(tx: Transaction, feed: LockedFeed) -> None:
    """Note that the feed is alive, unless that is known for this second or another replica notes it now."""
    if (feed.last_success or 0) > tx.now - TOUCH_US:
        return
    await tx.do(
        """UPDATE feeds SET last_success=$2, last_tick=$2
        WHERE id=(SELECT id FROM feeds WHERE id=$1 FOR NO KEY UPDATE SKIP LOCKED)""",
        feed.id,
        tx.now,
    )
