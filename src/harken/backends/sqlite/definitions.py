"""Making a configuration current: what is known keeps its place, what is new begins, what is gone rests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harken.backends.budgets import window
from harken.backends.codec import decode_feed, decode_health, decode_trigger
from harken.backends.rows import FEED, feed_of, trigger_of
from harken.backends.sqlite import leases, queue
from harken.backends.sqlite.transaction import Transaction
from harken.errors import NotFound
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.schedule import Every
from harken.store import Definitions, Listeners, Opened

__all__ = ["feed_states", "listeners", "open_all", "pause", "reset", "resume", "state", "trigger_states", "wake"]


TRIGGER_COLUMNS = """uid, name, epoch, start_line, paused, created_at, fired, last_fired_at, removed_at, reads_from,
backfilling, done"""

SPENT = "(SELECT amount FROM spent s WHERE s.trigger=triggers.id AND what=? AND since=?)"


def feed_states(books: Transaction, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[FeedState]:
    rows = books.execute(f"SELECT {FEED} FROM feeds WHERE {where} ORDER BY name", bindings)
    return [feed_of(books, row) for row in rows]


def trigger_states(
    books: Transaction, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()
) -> list[TriggerState]:
    now = books.now()
    columns = f"{TRIGGER_COLUMNS}, {SPENT}, {SPENT}, {SPENT}"
    spans = [mark for what in ("runs", "tokens", "usd") for mark in (what, window(what, now))]
    rows = books.execute(f"SELECT {columns} FROM triggers WHERE {where} ORDER BY name", [*spans, *bindings])
    return [trigger_of(books, row) for row in rows]


def state(books: Transaction, feed: str) -> FeedState:
    found = feed_states(books, "name=?", (feed,))
    if not found:
        raise NotFound(f"there is no feed {feed!r}")
    count = books.value("SELECT count(*) FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=?)", (feed,))
    return msgspec.structs.replace(found[0], memory=count)


def listeners(books: Transaction, feed: str) -> Listeners:
    row = books.row("SELECT revision, definition FROM feeds WHERE name=?", (feed,))
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    rows = books.execute(
        "SELECT definition FROM triggers WHERE feed=? AND removed_at IS NULL ORDER BY name", (feed,)
    ).fetchall()
    definitions = [decode_trigger(books.seal.open(found[0])) for found in rows]
    states = trigger_states(books, "feed=? AND removed_at IS NULL", (feed,))
    definition = decode_feed(books.seal.open(row[1]))
    pairs = list(zip(definitions, states, strict=True))
    return Listeners(revision=row[0], feed=definition, triggers=pairs)


def open_all(books: Transaction, definitions: Definitions) -> Opened:
    now = books.now()
    epoch = leases.begin(books, definitions.generation, definitions.holder, now)
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
        epoch=epoch,
    )


def _open_triggers(books: Transaction, definitions: Definitions, now: int) -> set[str]:
    """Insert, update and remove triggers; the feeds whose listeners changed."""
    changed: set[str] = set()
    known = {row[0]: row for row in books.execute("SELECT name, id, feed, definition, removed_at FROM triggers")}
    for trigger in definitions.triggers:
        row = known.pop(trigger.name, None)
        encoded = msgspec.json.encode(trigger)
        if row is None:
            changed.add(trigger.feed)
            _insert_trigger(books, trigger, encoded, now)
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
        if definitions.starting and trigger.startup != "since_last":
            _start_again(books, trigger, row[1], now)
            changed.add(trigger.feed)
    for _, id, feed, _, removed_at in known.values():
        if removed_at is None:
            changed.add(feed)
            # what it had yet to look back for is no longer wanted: it must not come back with a surprise
            books.execute("UPDATE triggers SET removed_at=?, backfilling=0 WHERE id=?", (now, id))
    return changed | (_pause(books, definitions.pause) if definitions.starting else set())


def _pause(books: Transaction, reasons: Mapping[str, str]) -> set[str]:
    """Pause these before anyone can read for them; their feeds."""
    for name, reason in reasons.items():
        books.execute("UPDATE triggers SET paused=? WHERE name=? AND paused=''", (books.shut(reason), name))
    return {books.trigger_named(name).feed for name in reasons}


def _insert_trigger(books: Transaction, trigger: Trigger, encoded: bytes, now: int) -> None:
    start = now - round(trigger.backfill * 1_000_000)
    books.execute(
        """INSERT INTO triggers (uid, name, feed, definition, start_line, reads_from, backfilling, created_at)
        VALUES (?,?,?,?,?,?,?,?)""",
        (
            secrets.token_hex(8),
            trigger.name,
            trigger.feed,
            books.seal.shut(encoded),
            start,
            start,
            trigger.backfill > 0,
            now,
        ),
    )


def _start_again(books: Transaction, trigger: Trigger, id: int, now: int) -> None:
    """Apply the startup mode that the user chose for every start."""
    if trigger.startup == "ignore_historical":
        # what happened meanwhile is read all the same, so that each of it gets its verdict
        books.execute("UPDATE triggers SET start_line=? WHERE id=?", (now, id))
        return
    reset_at = books.value("SELECT reset_at FROM triggers WHERE id=?", (id,))
    start = max(now - round(trigger.backfill * 1_000_000), reset_at or 0)
    books.execute("UPDATE triggers SET start_line=?, reads_from=?, backfilling=1 WHERE id=?", (start, start, id))


def _open_feeds(books: Transaction, definitions: Definitions, changed: set[str], now: int) -> None:
    known = {row[0]: row for row in books.execute("SELECT name, id, definition, removed_at FROM feeds")}
    for feed in definitions.feeds:
        row = known.pop(feed.name, None)
        encoded = msgspec.json.encode(feed)
        if row is None:
            _insert_feed(books, feed, encoded, now)
        elif feed.name in changed or row[3] is not None or books.seal.open(row[2]) != encoded:
            before = decode_feed(books.seal.open(row[2]))
            books.execute(
                "UPDATE feeds SET definition=?, shard=?, revision=revision+1, removed_at=NULL WHERE id=?",
                (books.seal.shut(encoded), feed.shard, row[1]),
            )
            if before.identity != feed.identity:
                _begin_anew(books, feed, row[1], now)
            if _is_timed_otherwise(before, feed):
                _due_anew(books, row[1])
    for _, id, _, removed_at in known.values():
        if removed_at is None:
            books.execute("UPDATE feeds SET removed_at=?, revision=revision+1 WHERE id=?", (now, id))


def _is_timed_otherwise(before: Feed, feed: Feed) -> bool:
    # a shorter or longer interval is found out when the next read is planned
    regular = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    return before.schedule != feed.schedule and not regular


def _due_anew(books: Transaction, id: int) -> None:
    """What was due by the old schedule is not due by the new one. A wait after failures stays."""
    sealed = books.value("SELECT health FROM feeds WHERE id=?", (id,))
    if sealed is None or decode_health(books.seal.open(sealed)).clean:
        books.execute("UPDATE feeds SET next_due=NULL WHERE id=?", (id,))


def _insert_feed(books: Transaction, feed: Feed, encoded: bytes, now: int) -> None:
    books.execute(
        "INSERT INTO feeds (name, definition, revision, shard, pushed, created_at) VALUES (?,?,1,?,?,?)",
        (feed.name, books.seal.shut(encoded), feed.shard, feed.way != "poll", now),
    )
    heir = books.connection.last_insert_rowid()
    earlier = books.row("SELECT id, definition FROM feeds WHERE name=?", (feed.inherits,)) if feed.inherits else None
    if earlier is None:
        return
    books.execute(
        """UPDATE feeds SET
        (cursor, watermark, next_due, reads, baselined, last_success, cover_start, cover_end, coverage) = (
        SELECT cursor, watermark, next_due, reads, baselined, last_success, cover_start, cover_end, coverage
        FROM feeds WHERE id=?) WHERE id=?""",
        (earlier[0], heir),
    )
    if decode_feed(books.seal.open(earlier[1])).identity != feed.identity:
        _begin_anew(books, feed, heir, now)
        return
    books.execute(
        """INSERT INTO memory (feed, mid, state, absent, seq, event, first_seen, last_seen)
        SELECT ?, mid, state, absent, seq, event, first_seen, last_seen FROM memory WHERE feed=?""",
        (heir, earlier[0]),
    )


def _begin_anew(books: Transaction, feed: Feed, id: int, now: int) -> None:
    """Another identity names everything differently: what was read up to now must not be found a second time."""
    books.execute("DELETE FROM memory WHERE feed=?", (id,))
    if feed.first == "baseline":
        books.execute("UPDATE feeds SET baselined=0 WHERE id=?", (id,))
    last = books.value("SELECT last_success FROM feeds WHERE id=?", (id,)) or now
    books.execute(
        """UPDATE triggers SET epoch=epoch+1, epoch_event=?, start_line=max(start_line, ?),
        reads_from=max(reads_from, ?) WHERE feed=? AND removed_at IS NULL AND created_at<?""",
        (books.next_event, last, last, feed.name, now),
    )


def pause(books: Transaction, trigger: str, reason: str) -> TriggerState:
    found = books.trigger_named(trigger)
    books.execute("UPDATE triggers SET paused=? WHERE id=?", (books.shut(reason or "paused"), found.id))
    _new_revision(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def resume(books: Transaction, trigger: str) -> TriggerState:
    found = books.trigger_named(trigger)
    books.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    queue.let_go(books, found, "paused", books.now())
    _clear_errors(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def reset(books: Transaction, trigger: str, cursor: bool) -> TriggerState:
    found = books.trigger_named(trigger)
    now = books.now()
    books.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    queue.let_go(books, found, "paused", now)
    if cursor:
        books.execute(
            """UPDATE triggers SET epoch=epoch+1, epoch_event=?, start_line=?, reads_from=?, reset_at=?, backfilling=0
            WHERE id=?""",
            (books.next_event, now, now, now, found.id),
        )
        books.execute("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=?", (found.feed,))
        _wipe_memory(books, found.feed)
    _clear_errors(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def _wipe_memory(books: Transaction, name: str) -> None:
    feed = books.feed(name)
    listening = books.value("SELECT count(*) FROM triggers WHERE feed=? AND removed_at IS NULL", (name,))
    if feed.identity == "transition" and listening > 1:
        # keys count the changes of a subject: beginning again would give the others' next change an old key
        return
    books.execute("DELETE FROM memory WHERE feed=?", (feed.id,))
    books.execute("UPDATE feeds SET baselined=0 WHERE id=?", (feed.id,))


def _clear_errors(books: Transaction, feed: str) -> None:
    books.execute("UPDATE feeds SET health=NULL, next_due=? WHERE name=?", (books.now(), feed))
    _new_revision(books, feed)


def _new_revision(books: Transaction, feed: str) -> None:
    books.execute("UPDATE feeds SET revision=revision+1 WHERE name=?", (feed,))
    books.feed_changed(feed)


def wake(books: Transaction, feed: str) -> FeedState:
    books.execute("UPDATE feeds SET next_due=? WHERE name=?", (books.now(), feed))
    return state(books, feed)
