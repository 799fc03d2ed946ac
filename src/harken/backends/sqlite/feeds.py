"""Reading feeds: recalled, failing, resting, forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from harken.backends.codec import micros, micros_or_none
from harken.backends.sqlite.commit import close_span, extend_coverage
from harken.backends.sqlite.transaction import FeedRow, Transaction
from harken.event import Event, Known
from harken.store import Failure, IdleRead

__all__ = ["dead_letter", "fail", "forget", "recall", "record_idle"]

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""


def recall(tx: Transaction, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
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


def fail(tx: Transaction, failure: Failure) -> None:
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


RESTED = """UPDATE feeds SET next_due=?, last_success=?, last_tick=?, span_end=?, span_seen=?,
watermark=coalesce(?, watermark), health=coalesce(?, health), cursor=coalesce(?, cursor), reads=reads+?"""
REST = f"{RESTED}, span_count=span_count+? WHERE id=? AND span_result=?"
FIRST_REST = f"{RESTED}, span_count=?, span_result=?, span_start=?, baselined=1 WHERE id=?"


def record_idle(tx: Transaction, reads: Sequence[IdleRead]) -> list[str]:
    stale: list[str] = []
    for one in reads:
        feed = tx.feed(one.feed)
        tx.check_lease(one.token, feed.shard)
        if one.revision is not None and one.revision != feed.revision:
            stale.append(one.feed)
        else:
            _rest(tx, feed, one)
    return stale


def _rest(tx: Transaction, feed: FeedRow, one: IdleRead) -> None:
    last, due = micros(one.last_at), micros_or_none(one.next_due)
    health = None if one.health is None else tx.shut_json(one.health)
    cursor = None if one.cursor is msgspec.UNSET else tx.shut_json(one.cursor)
    shared = (due, last, last, last, one.seen, micros_or_none(one.watermark), health, cursor, one.count, one.count)
    tx.execute(REST, (*shared, feed.id, one.result))
    if not tx.connection.changes():
        close_span(tx, feed)
        tx.execute(FIRST_REST, (*shared, one.result, micros(one.first_at), feed.id))
    if one.covered is not None:
        extend_coverage(tx, feed, one.covered)


def forget(tx: Transaction, feed_name: str, token: int, listed: Sequence[str], before: datetime) -> int:
    feed = tx.feed(feed_name)
    tx.check_lease(token, feed.shard)
    now = tx.now()
    for name in listed:
        tx.execute("UPDATE memory SET last_seen=? WHERE feed=? AND mid=?", (now, feed.id, tx.seal.name(name)))
    if feed.identity == "transition":
        # only the state goes: the count stays, so that coming back is a change with a key of its own
        tx.execute(
            "UPDATE memory SET state=NULL, absent=1 WHERE feed=? AND last_seen<? AND NOT absent",
            (feed.id, micros(before)),
        )
    else:
        tx.execute("DELETE FROM memory WHERE feed=? AND last_seen<?", (feed.id, micros(before)))
    return tx.connection.changes()


def dead_letter(tx: Transaction, feed_name: str, event: Event, reason: str) -> None:
    feed = tx.feed(feed_name)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    # a listing shows it again with every read
    known = tx.execute("SELECT key FROM buried WHERE feed=? ORDER BY id DESC LIMIT 1000", (feed.id,)).fetchall()
    if any(tx.text(sealed) == key for (sealed,) in known):
        return
    tx.execute(
        "INSERT INTO buried (feed, key, reason, payload, at) VALUES (?,?,?,?,?)",
        (feed.id, tx.shut(key), tx.shut(reason), tx.seal.shut(payload), tx.now()),
    )
