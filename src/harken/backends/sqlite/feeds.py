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

__all__ = ["bury", "fail", "forget", "recall", "rest"]

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""


def recall(books: Transaction, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
    known: dict[str, Known] = {}
    row = books.row("SELECT id FROM feeds WHERE name=?", (feed,))
    if row is None:
        return known
    by_mid = {books.seal.name(name): name for name in memory_ids}
    mids = list(by_mid)
    for begin in range(0, len(mids), 500):
        some = mids[begin : begin + 500]
        marks = ",".join("?" * len(some))
        for mid, sealed, seq, absent in books.execute(
            f"SELECT mid, state, seq, absent FROM memory WHERE feed=? AND mid IN ({marks})", [row[0], *some]
        ):
            state = ABSENT if absent else None if sealed is None else books.text(sealed)
            known[by_mid[mid]] = Known(state, seq)
    return known


def fail(books: Transaction, failure: Failure) -> None:
    feed = books.feed(failure.feed)
    if failure.token is not None:
        books.check_lease(failure.token, feed.shard)
    now = books.now()
    close_span(books, feed)
    books.execute(
        "UPDATE feeds SET health=?, next_due=?, last_tick=? WHERE id=?",
        (books.shut_json(failure.health), micros_or_none(failure.next_due), now, feed.id),
    )
    books.execute(
        """INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, error, seconds)
        VALUES (?,?,?,1,?,0,0,?,?)""",
        (feed.id, micros(failure.started_at), now, failure.result, books.shut(failure.error), failure.seconds),
    )


RESTED = """UPDATE feeds SET next_due=?, last_success=?, last_tick=?, span_end=?, span_seen=?,
watermark=coalesce(?, watermark), health=coalesce(?, health), cursor=coalesce(?, cursor), reads=reads+?"""
REST = f"{RESTED}, span_count=span_count+? WHERE id=? AND span_result=?"
FIRST_REST = f"{RESTED}, span_count=?, span_result=?, span_start=?, baselined=1 WHERE id=?"


def rest(books: Transaction, rests: Sequence[IdleRead]) -> list[str]:
    stale: list[str] = []
    for one in rests:
        feed = books.feed(one.feed)
        books.check_lease(one.token, feed.shard)
        if one.revision is not None and one.revision != feed.revision:
            stale.append(one.feed)
        else:
            _rest(books, feed, one)
    return stale


def _rest(books: Transaction, feed: FeedRow, one: IdleRead) -> None:
    last, due = micros(one.last_at), micros_or_none(one.next_due)
    health = None if one.health is None else books.shut_json(one.health)
    cursor = None if one.cursor is msgspec.UNSET else books.shut_json(one.cursor)
    shared = (due, last, last, last, one.seen, micros_or_none(one.watermark), health, cursor, one.count, one.count)
    books.execute(REST, (*shared, feed.id, one.result))
    if not books.connection.changes():
        close_span(books, feed)
        books.execute(FIRST_REST, (*shared, one.result, micros(one.first_at), feed.id))
    if one.covered is not None:
        extend_coverage(books, feed, one.covered)


def forget(books: Transaction, feed_name: str, token: int, listed: Sequence[str], before: datetime) -> int:
    feed = books.feed(feed_name)
    books.check_lease(token, feed.shard)
    now = books.now()
    for name in listed:
        books.execute("UPDATE memory SET last_seen=? WHERE feed=? AND mid=?", (now, feed.id, books.seal.name(name)))
    if feed.identity == "transition":
        # only the state goes: the count stays, so that coming back is a change with a key of its own
        books.execute(
            "UPDATE memory SET state=NULL, absent=1 WHERE feed=? AND last_seen<? AND NOT absent",
            (feed.id, micros(before)),
        )
    else:
        books.execute("DELETE FROM memory WHERE feed=? AND last_seen<?", (feed.id, micros(before)))
    return books.connection.changes()


def bury(books: Transaction, feed_name: str, event: Event, reason: str) -> None:
    feed = books.feed(feed_name)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    # a listing shows it again with every read
    known = books.execute("SELECT key FROM buried WHERE feed=? ORDER BY id DESC LIMIT 1000", (feed.id,)).fetchall()
    if any(books.text(sealed) == key for (sealed,) in known):
        return
    books.execute(
        "INSERT INTO buried (feed, key, reason, payload, at) VALUES (?,?,?,?,?)",
        (feed.id, books.shut(key), books.shut(reason), books.seal.shut(payload), books.now()),
    )
