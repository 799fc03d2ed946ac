"""Where feeds and triggers stand: opened, leased, failing, resting, paused, reset."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.errors import NotFound
from harken.event import Event, Known, Span
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.pace import Health
from harken.store import Definitions, Failure, Lease, Listeners, Opened, Rest
from harken.stores.sqlite import queue
from harken.stores.sqlite.books import Books, FeedRow, merged, micros, micros_or_none, moment, moment_or_none
from harken.stores.sqlite.commit import close_span, extend_coverage

__all__ = [
    "bury",
    "fail",
    "feed_states",
    "forget",
    "give_up",
    "lease",
    "listeners",
    "open_all",
    "pause",
    "recall",
    "reset",
    "rest",
    "resume",
    "state",
    "trigger_states",
    "wake",
]

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""

FEED_COLUMNS = """name, revision, cursor, watermark, next_due, health, reads, baselined, last_success, last_tick,
cover_start, cover_end, coverage, created_at, span_end"""
TRIGGER_COLUMNS = "uid, name, epoch, start_line, paused, created_at, fired, last_fired_at, removed_at"


def feed_states(books: Books, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[FeedState]:
    rows = books.execute(f"SELECT {FEED_COLUMNS} FROM feeds WHERE {where} ORDER BY name", bindings)
    return [_feed_state(books, row) for row in rows]


def _feed_state(books: Books, row: tuple[Any, ...]) -> FeedState:
    spans: list[Span] = []
    if row[12] is not None:
        spans = msgspec.json.decode(books.seal.open(row[12]), type=list[Span])
    if row[10] is not None:
        spans.append(Span(moment(row[10]), moment(row[11])))
    return FeedState(
        name=row[0],
        revision=row[1],
        cursor=books.json(row[2]),
        watermark=moment_or_none(row[3]),
        next_due=moment_or_none(row[4]),
        health=msgspec.json.decode(books.seal.open(row[5]), type=Health) if row[5] is not None else Health(),
        reads=row[6],
        baselined=bool(row[7]),
        last_success=moment_or_none(row[8]),
        last_tick=moment_or_none(row[9]),
        coverage=tuple(merged(spans)),
        created_at=moment(row[13]),
    )


def trigger_states(books: Books, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[TriggerState]:
    rows = books.execute(f"SELECT {TRIGGER_COLUMNS} FROM triggers WHERE {where} ORDER BY name", bindings)
    return [
        TriggerState(
            uid=row[0],
            name=row[1],
            epoch=row[2],
            start_line=moment(row[3]),
            paused=row[4],
            created_at=moment(row[5]),
            fired=row[6],
            last_fired_at=moment_or_none(row[7]),
            removed_at=moment_or_none(row[8]),
        )
        for row in rows
    ]


def open_all(books: Books, definitions: Definitions) -> Opened:
    now = books.now()
    changed = _open_triggers(books, definitions, now)
    _open_feeds(books, definitions, changed, now)
    for name, (rev, definition) in definitions.workflows.items():
        value = books.seal.shut(msgspec.json.encode({"name": name, "definition": msgspec.Raw(definition)}))
        books.execute(
            "INSERT OR IGNORE INTO documents (kind, name, value, revision, updated_at) VALUES ('workflow',?,?,1,?)",
            (rev, value, now),
        )
    books.distrust()
    return Opened(
        feeds={feed.name: feed for feed in feed_states(books)},
        triggers={trigger.name: trigger for trigger in trigger_states(books)},
    )


def _open_triggers(books: Books, definitions: Definitions, now: int) -> set[str]:
    """Insert, update and remove triggers; the feeds whose listeners changed."""
    changed: set[str] = set()
    known = {row[0]: row for row in books.execute("SELECT name, id, feed, definition, removed_at FROM triggers")}
    for trigger in definitions.triggers:
        row = known.pop(trigger.name, None)
        encoded = msgspec.json.encode(trigger)
        if row is None:
            changed.add(trigger.feed)
            start = now - round(trigger.backfill * 1_000_000)
            books.execute(
                "INSERT INTO triggers (uid, name, feed, definition, start_line, created_at) VALUES (?,?,?,?,?,?)",
                (secrets.token_hex(8), trigger.name, trigger.feed, books.seal.shut(encoded), start, now),
            )
            continue
        if row[4] is not None or books.seal.open(row[3]) != encoded:
            changed |= {trigger.feed, row[2]}
            books.execute(
                "UPDATE triggers SET feed=?, definition=?, removed_at=NULL WHERE id=?",
                (trigger.feed, books.seal.shut(encoded), row[1]),
            )
        if row[4] is not None and books.value("SELECT baselined FROM feeds WHERE name=?", (trigger.feed,)):
            # the first read came to its end without it, and nobody else will let its runs go
            queue.release_flood(books, books.trigger_named(trigger.name), trigger.flood_limit, now)
        if definitions.starting:
            _start_again(books, trigger, row[1], now)
    for _, id, feed, _, removed_at in known.values():
        if removed_at is None:
            changed.add(feed)
            books.execute("UPDATE triggers SET removed_at=? WHERE id=?", (now, id))
    return changed


def _start_again(books: Books, trigger: Trigger, id: int, now: int) -> None:
    """Apply the startup mode that the user chose for every start."""
    if trigger.startup == "since_last":
        return
    back = trigger.backfill if trigger.startup == "backfill" else 0.0
    books.execute("UPDATE triggers SET start_line=? WHERE id=?", (now - round(back * 1_000_000), id))


def _open_feeds(books: Books, definitions: Definitions, changed: set[str], now: int) -> None:
    known = {row[0]: row for row in books.execute("SELECT name, id, definition, removed_at FROM feeds")}
    for feed in definitions.feeds:
        row = known.pop(feed.name, None)
        encoded = msgspec.json.encode(feed)
        if row is None:
            _insert_feed(books, feed, encoded, now)
        elif feed.name in changed or row[3] is not None or books.seal.open(row[2]) != encoded:
            books.execute(
                "UPDATE feeds SET definition=?, revision=revision+1, removed_at=NULL WHERE id=?",
                (books.seal.shut(encoded), row[1]),
            )
    for _, id, _, removed_at in known.values():
        if removed_at is None:
            books.execute("UPDATE feeds SET removed_at=?, revision=revision+1 WHERE id=?", (now, id))


def _insert_feed(books: Books, feed: Feed, encoded: bytes, now: int) -> None:
    books.execute(
        "INSERT INTO feeds (name, definition, revision, pushed, created_at) VALUES (?,?,1,?,?)",
        (feed.name, books.seal.shut(encoded), feed.way != "poll", now),
    )
    heir = books.connection.last_insert_rowid()
    earlier = books.row("SELECT id FROM feeds WHERE name=?", (feed.inherits,)) if feed.inherits else None
    if earlier is None:
        return
    books.execute(
        """UPDATE feeds SET
        (cursor, watermark, next_due, reads, baselined, last_success, cover_start, cover_end, coverage) = (
        SELECT cursor, watermark, next_due, reads, baselined, last_success, cover_start, cover_end, coverage
        FROM feeds WHERE id=?) WHERE id=?""",
        (earlier[0], heir),
    )
    books.execute(
        """INSERT INTO memory (feed, mid, state, absent, seq, event, first_seen, last_seen)
        SELECT ?, mid, state, absent, seq, event, first_seen, last_seen FROM memory WHERE feed=?""",
        (heir, earlier[0]),
    )


def state(books: Books, feed: str) -> FeedState:
    found = feed_states(books, "name=?", (feed,))
    if not found:
        raise NotFound(f"there is no feed {feed!r}")
    count = books.value("SELECT count(*) FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=?)", (feed,))
    return msgspec.structs.replace(found[0], memory=count)


def listeners(books: Books, feed: str) -> Listeners:
    row = books.row("SELECT revision, definition FROM feeds WHERE name=?", (feed,))
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    rows = books.execute(
        "SELECT definition FROM triggers WHERE feed=? AND removed_at IS NULL ORDER BY name", (feed,)
    ).fetchall()
    definitions = [msgspec.json.decode(books.seal.open(found[0]), type=Trigger) for found in rows]
    states = trigger_states(books, "feed=? AND removed_at IS NULL", (feed,))
    definition = msgspec.json.decode(books.seal.open(row[1]), type=Feed)
    pairs = list(zip(definitions, states, strict=True))
    return Listeners(revision=row[0], feed=definition, triggers=pairs)


def lease(books: Books, shard: int, holder: str, seconds: float) -> Lease | None:
    now = books.now()
    row = books.row("SELECT holder, token, until FROM leases WHERE shard=?", (shard,))
    if row is not None and row[0] != holder and row[2] >= now:
        return None
    keeps = row is not None and row[0] == holder and row[2] >= now
    token = row[1] if keeps and row else (row[1] if row else 0) + 1
    until = now + round(seconds * 1_000_000)
    books.execute(
        "INSERT OR REPLACE INTO leases (shard, holder, token, until) VALUES (?,?,?,?)", (shard, holder, token, until)
    )
    books.lease_changed()
    return Lease(shard=shard, token=token, until=moment(until))


def give_up(books: Books, held: Lease, holder: str) -> None:
    books.execute("UPDATE leases SET until=0 WHERE shard=? AND holder=? AND token=?", (held.shard, holder, held.token))
    books.lease_changed()


def recall(books: Books, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
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


def fail(books: Books, failure: Failure) -> None:
    feed = books.feed(failure.feed)
    if failure.token is not None:
        books.check_lease(failure.token)
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
watermark=coalesce(?, watermark), health=coalesce(?, health), cursor=coalesce(?, cursor)"""
REST = f"{RESTED}, span_count=span_count+? WHERE id=? AND span_result=?"
FIRST_REST = f"{RESTED}, span_count=?, span_result=?, span_start=?, baselined=1 WHERE id=?"


def rest(books: Books, rests: Sequence[Rest]) -> None:
    for one in rests:
        feed = books.feed(one.feed)
        books.check_lease(one.token)
        _rest(books, feed, one)


def _rest(books: Books, feed: FeedRow, one: Rest) -> None:
    last, due = micros(one.last_at), micros_or_none(one.next_due)
    health = None if one.health is None else books.shut_json(one.health)
    cursor = None if one.cursor is msgspec.UNSET else books.shut_json(one.cursor)
    shared = (due, last, last, last, one.seen, micros_or_none(one.watermark), health, cursor, one.count)
    books.execute(REST, (*shared, feed.id, one.result))
    if not books.connection.changes():
        close_span(books, feed)
        books.execute(FIRST_REST, (*shared, one.result, micros(one.first_at), feed.id))
    if one.covered is not None:
        extend_coverage(books, feed, one.covered)


def forget(books: Books, feed_name: str, token: int, listed: Sequence[str], before: datetime) -> int:
    feed = books.feed(feed_name)
    books.check_lease(token)
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


def bury(books: Books, feed_name: str, event: Event, reason: str) -> None:
    feed = books.feed(feed_name)
    payload = repr(dict(event.data))[:10_000].encode("utf-8", "backslashreplace")
    key = event.key or event.subject
    books.execute(
        "INSERT INTO buried (feed, key, reason, payload, at) VALUES (?,?,?,?,?)",
        (feed.id, books.shut(key), books.shut(reason), books.seal.shut(payload), books.now()),
    )


def pause(books: Books, trigger: str, reason: str) -> TriggerState:
    found = books.trigger_named(trigger)
    books.execute("UPDATE triggers SET paused=? WHERE id=?", (reason or "paused", found.id))
    _new_revision(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def resume(books: Books, trigger: str) -> TriggerState:
    found = books.trigger_named(trigger)
    books.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    queue.let_go(books, found, "paused", books.now())
    _clear_errors(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def reset(books: Books, trigger: str, cursor: bool) -> TriggerState:
    found = books.trigger_named(trigger)
    now = books.now()
    books.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    queue.let_go(books, found, "paused", now)
    if cursor:
        books.execute("UPDATE triggers SET epoch=epoch+1, start_line=? WHERE id=?", (now, found.id))
        books.execute("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=?", (found.feed,))
        _wipe_memory(books, found.feed)
    _clear_errors(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def _wipe_memory(books: Books, name: str) -> None:
    feed = books.feed(name)
    listening = books.value("SELECT count(*) FROM triggers WHERE feed=? AND removed_at IS NULL", (name,))
    if feed.identity == "transition" and listening > 1:
        # keys count the changes of a subject: beginning again would give the others' next change an old key
        return
    books.execute("DELETE FROM memory WHERE feed=?", (feed.id,))
    books.execute("UPDATE feeds SET baselined=0 WHERE id=?", (feed.id,))


def _clear_errors(books: Books, feed: str) -> None:
    books.execute("UPDATE feeds SET health=NULL, next_due=? WHERE name=?", (books.now(), feed))
    _new_revision(books, feed)


def _new_revision(books: Books, feed: str) -> None:
    books.execute("UPDATE feeds SET revision=revision+1 WHERE name=?", (feed,))
    books.feed_changed(feed)


def wake(books: Books, feed: str) -> FeedState:
    books.execute("UPDATE feeds SET next_due=? WHERE name=?", (books.now(), feed))
    return state(books, feed)
