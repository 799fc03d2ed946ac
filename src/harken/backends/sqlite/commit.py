"""The commit of one page: events, verdicts, runs, memory and cursor in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.backends.codec import as_recorded, first_claim, micros, micros_or_none, moment
from harken.backends.completely_read_spans import KEPT_SPANS, merge_spans, spans_of
from harken.backends.run_states_ids_and_reasons import duplicate_verdicts
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.run_creation_and_admission import Starting, release_flood, resolve
from harken.backends.sqlite.transaction_with_row_cache import FeedRow, Transaction
from harken.backends.verdicts import decode_verdicts, encode_verdicts
from harken.event import Recorded, Span, Verdict
from harken.runs import Claimed
from harken.store import Commit, Committed, EarlyEnd, Entry, Intent, Stale, Tick

__all__ = ["SqliteCommits", "close_span", "commit", "extend_coverage"]

_encode_json = msgspec.json.Encoder().encode

INSERT_MEMORY = """INSERT OR IGNORE INTO memory (feed, mid, state, seq, event, first_seen, last_seen)
VALUES (?,?,?,?,?,?,?)"""
INSERT_EVENT = """INSERT INTO events
(id, feed, recorded_at, verdicts, kid, key, subject, state, type, occurred_at, data) VALUES (?,?,?,?,?,?,?,?,?,?,?)"""


class _MemoryChanged(Exception):
    """Another commit gave this subject another state after matching read it."""


class SqliteCommits(DatabaseUser):
    async def commit(self, wanted: Commit) -> Committed | Stale:
        # a commit of one event fails only before it writes, so it needs no savepoint
        return await self._database.write(commit, wanted, savepoint=len(wanted.entries) > 1)


def commit(tx: Transaction, wanted: Commit) -> Committed | Stale:
    feed = tx.feed(wanted.feed)
    if wanted.token is not None:
        tx.check_lease(wanted.token, feed.shard)
    if feed.revision != wanted.revision:
        return Stale(feed.revision)
    now, first = tx.now(), tx.next_event
    event_ids: list[int] = []
    verdicts: list[tuple[Verdict, ...]] = []
    claimed: list[Claimed] = []
    over: list[tuple[Claimed, EarlyEnd]] = []
    # a single entry checks memory before it writes, so it needs no savepoint
    several = len(wanted.entries) > 1
    counted = tx.fired_counts() if several else []
    if several:
        tx.write("SAVEPOINT page")
    try:
        for entry in wanted.entries:
            starting = Starting(wanted.holder, wanted.claim - len(claimed))
            event_id, decided = _record(tx, feed, entry, now, starting)
            event_ids.append(event_id)
            verdicts.append(decided)
            if starting.claimed or starting.over:
                recorded = as_recorded(entry.event, event_id, feed.name, moment(now))
                claimed.extend(_claim(tx, run_id, intent, recorded) for run_id, intent in starting.claimed)
                for run_id, intent in starting.over:
                    assert intent.end is not None
                    over.append((_claim(tx, run_id, intent, recorded), intent.end))
    except _MemoryChanged:
        if several:
            tx.execute("ROLLBACK TO page")
            tx.execute("RELEASE page")
            tx.restore_fired(counted)
        return Stale(feed.revision)
    if several:
        tx.write("RELEASE page")
    if wanted.tick is not None or not _is_backfill(wanted):
        if wanted.token is None and wanted.tick is None:
            tx.touch(feed)
        else:
            _advance(tx, feed, wanted, tx.next_event - first, now)
    if wanted.backfilled:
        _end_backfill(tx, feed, wanted.backfilled)
    for uid, limit in wanted.release.items():
        release_flood(tx, tx.trigger(uid), limit, now)
    return Committed(event_ids=event_ids, verdicts=verdicts, claimed=claimed, over=over)


def _claim(tx: Transaction, run_id: bytes, intent: Intent, recorded: Recorded) -> Claimed:
    return first_claim(intent, run_id, tx.trigger(intent.trigger).name, recorded)


def _record(
    tx: Transaction, feed: FeedRow, entry: Entry, now: int, starting: Starting
) -> tuple[int, tuple[Verdict, ...]]:
    if entry.again:
        return _again(tx, entry, now)
    event_id = tx.next_event
    # values that the database would refuse raise here, before anything is written
    columns = _columns(tx, entry)
    if entry.memory_id:
        # nearly always the event is remembered by its key, which is hashed already
        mid = columns[0] if entry.memory_id == entry.event.key else tx.seal.name(entry.memory_id)
        first = _remember(tx, feed, entry, mid, event_id, now)
        if first is not None:
            return _repeat(tx, entry, first, now)
    tx.next_event = event_id + 1
    verdicts = tuple(
        decision if isinstance(decision, Verdict) else resolve(tx, decision, event_id, now, starting)
        for decision in entry.decisions
    )
    tx.write(INSERT_EVENT, (event_id, feed.id, now, tx.seal.shut(encode_verdicts(verdicts)), *columns))
    return event_id, verdicts


def _columns(tx: Transaction, entry: Entry) -> tuple[Any, ...]:
    event, seal = entry.event, tx.seal
    event.type.encode()
    for decision in entry.decisions:
        if isinstance(decision, Intent):
            tx.trigger(decision.trigger)
        else:
            _encode_json(decision)
    return (
        seal.name(event.key),
        seal.shut(event.key.encode("utf-8", "surrogatepass")),
        seal.shut(event.subject.encode("utf-8", "surrogatepass")),
        None if event.state is None else tx.shut(event.state),
        event.type,
        micros_or_none(event.occurred_at),
        seal.shut(event.payload()),
    )


def _remember(tx: Transaction, feed: FeedRow, entry: Entry, mid: bytes, event_id: int, now: int) -> int | None:
    """Store the subject's new state. Return the id of its earlier event if it has that state already."""
    event = entry.event
    state = None if event.state is None else tx.shut(event.state)
    if entry.expect == 0:
        row = (feed.id, mid, state, entry.seq, event_id, now, now)
        tx.write(INSERT_MEMORY, row)
        if tx.connection.changes():
            return None
        known = tx.row("SELECT state, event FROM memory WHERE feed=? AND mid=?", (feed.id, mid))
        assert known is not None
        same = feed.identity != "transition" or _text(tx, known[0]) == event.state
    else:
        tx.execute(
            "UPDATE memory SET state=?, absent=0, seq=?, event=?, last_seen=? WHERE feed=? AND mid=? AND seq=?",
            (state, entry.seq, event_id, now, feed.id, mid, entry.expect),
        )
        if tx.connection.changes():
            return None
        known = tx.row("SELECT state, event FROM memory WHERE feed=? AND mid=?", (feed.id, mid))
        same = known is not None and _text(tx, known[0]) == event.state
    if not same:
        raise _MemoryChanged
    assert known is not None
    return int(known[1])


def _text(tx: Transaction, sealed: bytes | None) -> str | None:
    return None if sealed is None else tx.text(sealed)


def _repeat(tx: Transaction, entry: Entry, first: int, now: int) -> tuple[int, tuple[Verdict, ...]]:
    tx.execute("UPDATE events SET repeats=repeats+1, last_repeat_at=? WHERE id=?", (now, first))
    row = tx.row("SELECT verdicts FROM events WHERE id=?", (first,))
    earlier = decode_verdicts(tx.seal.open(row[0])) if row else ()
    names = (_name(tx, decision) for decision in entry.decisions)
    return first, duplicate_verdicts(first, earlier, names)


def _name(tx: Transaction, decision: Verdict | Intent) -> str:
    return decision.trigger if isinstance(decision, Verdict) else tx.trigger(decision.trigger).name


def _is_backfill(wanted: Commit) -> bool:
    """It only decides stored events again, so the feed was not read."""
    return bool(wanted.backfilled or (wanted.entries and wanted.entries[0].again))


def _again(tx: Transaction, entry: Entry, now: int) -> tuple[int, tuple[Verdict, ...]]:
    """Decide a stored event for triggers without a verdict on it, or with one from before their start."""
    row = tx.row("SELECT verdicts FROM events WHERE id=?", (entry.again,))
    if row is None:
        return 0, ()
    verdicts = {verdict.trigger: verdict for verdict in decode_verdicts(tx.seal.open(row[0]))}
    for decision in entry.decisions:
        name = _name(tx, decision)
        if name in verdicts and verdicts[name].outcome != "before_start":
            continue
        if isinstance(decision, Verdict):
            verdicts[name] = decision
        else:
            verdicts[name] = resolve(tx, decision, entry.again, now, None)
    decided = tuple(verdicts.values())
    tx.execute("UPDATE events SET verdicts=? WHERE id=?", (tx.seal.shut(encode_verdicts(decided)), entry.again))
    return entry.again, decided


def _end_backfill(tx: Transaction, feed: FeedRow, uids: Sequence[str]) -> None:
    for uid in uids:
        trigger = tx.trigger(uid)
        if trigger.feed == feed.name:
            tx.execute("UPDATE triggers SET backfilling=0 WHERE id=?", (trigger.id,))
        else:
            done = "UPDATE trigger_feeds SET backfilling=0 WHERE trigger=? AND feed=?"
            tx.execute(done, (trigger.id, feed.name))
    tx.execute("UPDATE feeds SET revision=revision+1 WHERE id=?", (feed.id,))
    tx.feed_changed(feed.name)


def _advance(tx: Transaction, feed: FeedRow, wanted: Commit, fresh: int, now: int) -> None:
    sets: list[str] = ["last_success=?", "last_tick=?"]
    values: list[Any] = [now, now]
    if wanted.cursor is not msgspec.UNSET:
        sets.append("cursor=?")
        values.append(tx.shut_json(wanted.cursor))
    if wanted.watermark is not None:
        sets.append("watermark=?")
        values.append(micros(wanted.watermark))
    if wanted.next_due is not None or wanted.done:
        sets.append("next_due=?")
        values.append(micros_or_none(wanted.next_due))
    if wanted.health is not None:
        sets.append("health=?")
        values.append(tx.shut_json(wanted.health))
    if fresh:
        sets.append("seen=seen+?")
        values.append(fresh)
    if wanted.done:
        sets.append("reads=reads+1, baselined=1")
    values.append(feed.id)
    tx.write(f"UPDATE feeds SET {', '.join(sets)} WHERE id=?", values)
    if wanted.tick is not None:
        _write_tick(tx, feed, wanted.tick, now)


def _write_tick(tx: Transaction, feed: FeedRow, tick: Tick, now: int) -> None:
    """Close the current span of idle reads and write a row for this read."""
    close_span(tx, feed)
    tx.execute(
        "INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds) VALUES (?,?,?,1,?,?,?,?)",
        (feed.id, micros(tick.started_at), now, tick.result, tick.seen, tick.new, tick.seconds),
    )
    if tick.covered is not None:
        extend_coverage(tx, feed, tick.covered)


def close_span(tx: Transaction, feed: FeedRow) -> None:
    tx.execute(
        """INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
        SELECT id, span_start, span_end, span_count, span_result, span_seen, 0, 0 FROM feeds
        WHERE id=? AND span_result IS NOT NULL""",
        (feed.id,),
    )
    if tx.connection.changes():
        tx.execute("UPDATE feeds SET span_result=NULL WHERE id=?", (feed.id,))


def extend_coverage(tx: Transaction, feed: FeedRow, covered: Span) -> None:
    """Add a span that was read completely; adjoining spans are merged."""
    start, end = micros(covered.start), micros(covered.end)
    tx.execute(
        "UPDATE feeds SET cover_end=max(cover_end, ?) WHERE id=? AND cover_start<=? AND cover_end>=?",
        (end, feed.id, start, start),
    )
    if tx.connection.changes():
        return
    row = tx.row("SELECT cover_start, cover_end, coverage FROM feeds WHERE id=?", (feed.id,))
    assert row is not None
    *older, newest = merge_spans([covered, *spans_of(tx.seal, row[2], row[0], row[1])])
    tx.execute(
        "UPDATE feeds SET cover_start=?, cover_end=?, coverage=? WHERE id=?",
        (micros(newest.start), micros(newest.end), tx.shut_json(older[-KEPT_SPANS:]) if older else None, feed.id),
    )
