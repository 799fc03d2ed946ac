"""Feeds and triggers as the configuration defines them: opened, paused, resumed, reset."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from harken.backends.codec import decode_feed, decode_health, decode_trigger, micros, moment
from harken.backends.remaining_budget import window
from harken.backends.rows import FEED, feed_of, trigger_of
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.leases import begin_generation
from harken.backends.sqlite.run_creation_and_admission import hold_gathering, release_flood, release_held
from harken.backends.sqlite.transaction_with_row_cache import Transaction, TriggerRow
from harken.errors import NotFound
from harken.feed import MEMORY_COUNTED, Feed, FeedState, Trigger, TriggerState
from harken.schedule import Every
from harken.store import FUTURE_SECONDS, Definitions, Listeners, MovedStart, Opened
from harken.store.document_kinds import WORKFLOW

__all__ = ["SqliteDefinitions", "feed_states", "trigger_states"]

T = TypeVar("T")

FUTURE = round(FUTURE_SECONDS * 1_000_000)

MANY_WORKFLOWS = 100
"""From so many on, all revisions that are stored are read at once."""

TRIGGER_COLUMNS = """uid, name, epoch, start_line, paused, created_at, fired, last_fired_at, removed_at, reads_from,
backfilling, done"""

SPENT = "(SELECT amount FROM spent s WHERE s.trigger=triggers.id AND what=? AND since=?)"

LISTENING = "(feed=? OR id IN (SELECT trigger FROM trigger_feeds WHERE feed=?))"

COUNT_MEMORY = f"""SELECT count(*) FROM
(SELECT 1 FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=?) LIMIT {MEMORY_COUNTED})"""


class SqliteDefinitions(DatabaseUser):
    """The protocol Feeds, but for leases and commits.

    Both SQL stores repeat its signatures on purpose, each beside its own SQL.
    """

    async def open(self, definitions: Definitions) -> Opened:
        return await self._database.write(_open, definitions)

    async def state(self, feed: str) -> FeedState:
        return await self._database.read(_state, feed)

    async def listeners(self, feed: str) -> Listeners:
        return await self._database.read(_listeners, feed)

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        return await self._database.write(_pause, trigger, reason)

    async def resume(self, trigger: str) -> TriggerState:
        return await self._database.write(_resume, trigger)

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        return await self._database.write(_reset, trigger, cursor)

    async def move_start_lines(self, lines: Mapping[str, datetime]) -> Sequence[MovedStart]:
        return await self._database.write(_move_start_lines, lines)

    async def seek(
        self, trigger: str, start_line: datetime, *, revision: int, back: bool, cursor: Any = None
    ) -> TriggerState | None:
        return await self._database.write(_seek, trigger, start_line, revision, back, cursor)

    async def wake(self, feed: str) -> FeedState:
        return await self._database.write(_wake, feed)


def _open(tx: Transaction, definitions: Definitions) -> Opened:
    now = tx.now()
    if definitions.only is None:
        epoch = begin_generation(tx, definitions.generation, definitions.holder, now)
    else:
        epoch = int(tx.value("SELECT epoch FROM generation") or 0)
    changed = _open_triggers(tx, definitions, now)
    _open_feeds(tx, definitions, changed, now)
    kept = _kept_revisions(tx, definitions.workflows)
    for name, (rev, definition) in definitions.workflows.items():
        if rev in kept:
            continue
        value = tx.seal.shut(msgspec.json.encode({"name": name, "definition": msgspec.Raw(definition)}))
        tx.execute(
            "INSERT OR IGNORE INTO documents (kind, name, value, revision, updated_at) VALUES (?,?,?,1,?)",
            (WORKFLOW, rev, value, now),
        )
    tx.clear_cache()
    only = definitions.only
    feeds = _each(feed_states, tx, only.feeds) if only else feed_states(tx)
    triggers = _each(trigger_states, tx, only.triggers) if only else trigger_states(tx)
    return Opened(
        feeds={feed.name: feed for feed in feeds}, triggers={trigger.name: trigger for trigger in triggers}, epoch=epoch
    )


def _kept_revisions(tx: Transaction, workflows: Mapping[str, tuple[str, bytes]]) -> set[str]:
    """The revisions of workflows that are stored already, if there are so many that looking for each takes longer."""
    if len(workflows) < MANY_WORKFLOWS:
        return set()
    return {name for (name,) in tx.execute("SELECT name FROM documents WHERE kind=?", (WORKFLOW,))}


def _each(states: Callable[..., list[T]], tx: Transaction, names: Collection[str]) -> list[T]:
    return [state for name in sorted(names) for state in states(tx, "name=? AND removed_at IS NULL", (name,))]


def _known(tx: Transaction, sql: str, only: Collection[str] | None) -> dict[str, tuple[Any, ...]]:
    """The rows by name: all of them, or those of a part."""
    if only is None:
        return {row[0]: row for row in tx.execute(sql)}
    return {row[0]: row for name in only for row in tx.execute(f"{sql} WHERE name=?", (name,))}


def _open_triggers(tx: Transaction, definitions: Definitions, now: int) -> set[str]:
    """Insert, update and remove triggers. Return the feeds whose listeners changed."""
    changed: set[str] = set()
    only = definitions.only.triggers if definitions.only else None
    known = _known(tx, "SELECT name, id, feed, definition, removed_at FROM triggers", only)
    there = {row[0] for row in known.values() if row[4] is None}
    for trigger in definitions.triggers:
        row = known.pop(trigger.name, None)
        encoded = msgspec.json.encode(trigger)
        if row is None:
            changed |= set(trigger.feeds)
            _insert_trigger(tx, trigger, encoded, now)
            continue
        if row[4] is not None or tx.seal.open(row[3]) != encoded:
            changed |= {*trigger.feeds, *_stored_feeds(tx, row[1], row[2])}
            _write_feeds(tx, row[1], trigger.feeds, backfilling=False)
            tx.execute(
                "UPDATE triggers SET feed=?, definition=?, removed_at=NULL WHERE id=?",
                (trigger.feed, tx.seal.shut(encoded), row[1]),
            )
        if row[4] is not None and tx.value("SELECT baselined FROM feeds WHERE name=?", (trigger.feed,)):
            # the feed's first read ended while the trigger was removed, so no commit will release its runs
            release_flood(tx, tx.trigger_named(trigger.name), trigger.flood_limit, now)
        if definitions.starting and trigger.startup != "since_last":
            _start_again(tx, trigger, row[1], now)
            changed |= set(trigger.feeds)
    for _, id, feed, _, removed_at in known.values():
        if removed_at is None:
            changed |= set(_stored_feeds(tx, id, feed))
            # a removed trigger that comes back must not resume an old backfill
            tx.execute("UPDATE triggers SET removed_at=?, backfilling=0 WHERE id=?", (now, id))
            tx.execute("DELETE FROM trigger_feeds WHERE trigger=?", (id,))
    return changed | _pause_on_arrival(tx, definitions.to_pause(there))


def _pause_on_arrival(tx: Transaction, reasons: Mapping[str, str]) -> set[str]:
    """Pause these triggers before their feeds are read. Return the feeds."""
    for name, reason in reasons.items():
        tx.execute("UPDATE triggers SET paused=? WHERE name=? AND paused=''", (tx.shut(reason), name))
        hold_gathering(tx, tx.trigger_named(name).id)
    return {feed for name in reasons for feed in _feeds_of(tx, tx.trigger_named(name))}


def _feeds_of(tx: Transaction, trigger: TriggerRow) -> list[str]:
    return _stored_feeds(tx, trigger.id, trigger.feed)


def _stored_feeds(tx: Transaction, id: int, feed: str) -> list[str]:
    """The feeds that a trigger listens to; `feed` is its own."""
    further = tx.execute("SELECT feed FROM trigger_feeds WHERE trigger=? ORDER BY feed", (id,)).fetchall()
    return [feed, *(name for (name,) in further)]


def _write_feeds(tx: Transaction, id: int, feeds: Sequence[str], *, backfilling: bool) -> None:
    """Store the further feeds of a trigger; those that it has already keep their state."""
    for _, gone in tx.execute("SELECT trigger, feed FROM trigger_feeds WHERE trigger=?", (id,)).fetchall():
        if gone not in feeds[1:]:
            tx.execute("DELETE FROM trigger_feeds WHERE trigger=? AND feed=?", (id, gone))
    for feed in feeds[1:]:
        row = (id, feed, backfilling)
        tx.execute("INSERT OR IGNORE INTO trigger_feeds (trigger, feed, backfilling) VALUES (?,?,?)", row)


def _insert_trigger(tx: Transaction, trigger: Trigger, encoded: bytes, now: int) -> None:
    start = now - round(trigger.backfill * 1_000_000)
    tx.execute(
        """INSERT INTO triggers (uid, name, feed, definition, start_line, reads_from, backfilling, created_at)
        VALUES (?,?,?,?,?,?,?,?)""",
        (
            secrets.token_hex(8),
            trigger.name,
            trigger.feed,
            tx.seal.shut(encoded),
            start,
            start,
            trigger.backfill > 0,
            now,
        ),
    )
    _write_feeds(tx, tx.connection.last_insert_rowid(), trigger.feeds, backfilling=trigger.backfill > 0)


def _start_again(tx: Transaction, trigger: Trigger, id: int, now: int) -> None:
    """Apply the trigger's startup mode."""
    if trigger.startup == "ignore_historical":
        # events since the last stop are still read, so that each is recorded with a verdict
        tx.execute("UPDATE triggers SET start_line=? WHERE id=?", (now, id))
        return
    reset_at = tx.value("SELECT reset_at FROM triggers WHERE id=?", (id,))
    start = max(now - round(trigger.backfill * 1_000_000), reset_at or 0)
    tx.execute("UPDATE triggers SET start_line=?, reads_from=?, backfilling=1 WHERE id=?", (start, start, id))
    tx.execute("UPDATE trigger_feeds SET backfilling=1 WHERE trigger=?", (id,))


def _open_feeds(tx: Transaction, definitions: Definitions, changed: set[str], now: int) -> None:
    only = definitions.only.feeds if definitions.only else None
    known = _known(tx, "SELECT name, id, definition, removed_at FROM feeds", only)
    for feed in definitions.feeds:
        row = known.pop(feed.name, None)
        encoded = msgspec.json.encode(feed)
        if row is None:
            _insert_feed(tx, feed, encoded, now)
        elif feed.name in changed or row[3] is not None or tx.seal.open(row[2]) != encoded:
            before = decode_feed(tx.seal.open(row[2]))
            tx.execute(
                "UPDATE feeds SET definition=?, shard=?, pushed=?, revision=revision+1, removed_at=NULL WHERE id=?",
                (tx.seal.shut(encoded), feed.shard, feed.way != "poll", row[1]),
            )
            if before.identity != feed.identity:
                _begin_epoch(tx, feed, row[1], now)
            if _has_other_schedule(before, feed):
                _forget_due_time(tx, row[1])
    for _, id, _, removed_at in known.values():
        if removed_at is None:
            tx.execute("UPDATE feeds SET removed_at=?, revision=revision+1 WHERE id=?", (now, id))


def _insert_feed(tx: Transaction, feed: Feed, encoded: bytes, now: int) -> None:
    tx.execute(
        "INSERT INTO feeds (name, definition, revision, shard, pushed, created_at) VALUES (?,?,1,?,?,?)",
        (feed.name, tx.seal.shut(encoded), feed.shard, feed.way != "poll", now),
    )
    heir = tx.connection.last_insert_rowid()
    earlier = tx.row("SELECT id, definition FROM feeds WHERE name=?", (feed.inherits,)) if feed.inherits else None
    if earlier is None:
        return
    tx.execute(
        """UPDATE feeds SET
        (cursor, watermark, next_due, reads, baselined, last_success, cover_start, cover_end, coverage) = (
        SELECT cursor, watermark, next_due, reads, baselined, last_success, cover_start, cover_end, coverage
        FROM feeds WHERE id=?) WHERE id=?""",
        (earlier[0], heir),
    )
    if decode_feed(tx.seal.open(earlier[1])).identity != feed.identity:
        _begin_epoch(tx, feed, heir, now)
        return
    tx.execute(
        """INSERT INTO memory (feed, mid, state, absent, seq, event, first_seen, last_seen)
        SELECT ?, mid, state, absent, seq, event, first_seen, last_seen FROM memory WHERE feed=?""",
        (heir, earlier[0]),
    )


def _has_other_schedule(before: Feed, feed: Feed) -> bool:
    # another interval takes effect when the next read is planned
    regular = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    return before.schedule != feed.schedule and not regular


def _forget_due_time(tx: Transaction, id: int) -> None:
    """Drop the due time of the old schedule, but keep a wait after failures."""
    sealed = tx.value("SELECT health FROM feeds WHERE id=?", (id,))
    if sealed is None or decode_health(tx.seal.open(sealed)).clean:
        tx.execute("UPDATE feeds SET next_due=NULL WHERE id=?", (id,))


def _begin_epoch(tx: Transaction, feed: Feed, id: int, now: int) -> None:
    """Event keys changed with the feed's identity: begin a new epoch, so that known events do not fire again."""
    tx.execute("DELETE FROM memory WHERE feed=?", (id,))
    if feed.first == "baseline":
        tx.execute("UPDATE feeds SET baselined=0 WHERE id=?", (id,))
    last = tx.value("SELECT last_success FROM feeds WHERE id=?", (id,)) or now
    tx.execute(
        f"""UPDATE triggers SET epoch=epoch+1, epoch_event=?, start_line=max(start_line, ?),
        reads_from=max(reads_from, ?) WHERE {LISTENING} AND removed_at IS NULL AND created_at<?""",
        (tx.next_event, last, last, feed.name, feed.name, now),
    )


def _pause(tx: Transaction, trigger: str, reason: str) -> TriggerState:
    found = tx.trigger_named(trigger)
    tx.execute("UPDATE triggers SET paused=? WHERE id=?", (tx.shut(reason or "paused"), found.id))
    hold_gathering(tx, found.id)
    for feed in _feeds_of(tx, found):
        _new_revision(tx, feed)
    return trigger_states(tx, "id=?", (found.id,))[0]


def _resume(tx: Transaction, trigger: str) -> TriggerState:
    found = tx.trigger_named(trigger)
    tx.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    release_held(tx, found, "paused", tx.now())
    for feed in _feeds_of(tx, found):
        _clear_errors(tx, feed)
    return trigger_states(tx, "id=?", (found.id,))[0]


def _reset(tx: Transaction, trigger: str, cursor: bool) -> TriggerState:
    found = tx.trigger_named(trigger)
    now = tx.now()
    tx.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    release_held(tx, found, "paused", now)
    if cursor:
        tx.execute(
            """UPDATE triggers SET epoch=epoch+1, epoch_event=?, start_line=?, reads_from=?, reset_at=?, backfilling=0
            WHERE id=?""",
            (tx.next_event, now, now, now, found.id),
        )
        tx.execute("UPDATE trigger_feeds SET backfilling=0 WHERE trigger=?", (found.id,))
    for feed in _feeds_of(tx, found):
        if cursor:
            tx.execute("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=?", (feed,))
            _wipe_memory(tx, feed)
        _clear_errors(tx, feed)
    return trigger_states(tx, "id=?", (found.id,))[0]


def _wipe_memory(tx: Transaction, name: str) -> None:
    feed = tx.feed(name)
    listening = tx.value(f"SELECT count(*) FROM triggers WHERE {LISTENING} AND removed_at IS NULL", (name, name))
    if feed.identity == "transition" and listening > 1:
        # keys count the changes of a subject: starting at 1 again would give other triggers' next event a used key
        return
    tx.execute("DELETE FROM memory WHERE feed=?", (feed.id,))
    tx.execute("UPDATE feeds SET baselined=0 WHERE id=?", (feed.id,))


def _clear_errors(tx: Transaction, feed: str) -> None:
    tx.execute("UPDATE feeds SET health=NULL, next_due=? WHERE name=?", (tx.now(), feed))
    _new_revision(tx, feed)


def _new_revision(tx: Transaction, feed: str) -> None:
    tx.execute("UPDATE feeds SET revision=revision+1 WHERE name=?", (feed,))
    tx.feed_changed(feed)


def _move_start_lines(tx: Transaction, lines: Mapping[str, datetime]) -> list[MovedStart]:
    now, moved, feeds = tx.now(), [], set[str]()
    rows = tx.execute(
        "SELECT id, name, feed, start_line FROM triggers WHERE removed_at IS NULL AND start_line>? ORDER BY name",
        (now + FUTURE,),
    ).fetchall()
    for id, name, feed, start in rows:
        if name not in lines:
            continue
        line = min(micros(lines[name]), now)
        tx.execute(
            """UPDATE triggers SET start_line=?1, reads_from=min(reads_from, ?1), created_at=min(created_at, ?1),
            reset_at=min(reset_at, ?1), backfilling=1 WHERE id=?2""",
            (line, id),
        )
        tx.execute("UPDATE trigger_feeds SET backfilling=1 WHERE trigger=?", (id,))
        moved.append(MovedStart(trigger=name, feed=feed, was=moment(start), start_line=moment(line)))
        feeds |= set(_stored_feeds(tx, id, feed))
    for feed in sorted(feeds):
        _new_revision(tx, feed)
    return moved


def _seek(
    tx: Transaction, trigger: str, start_line: datetime, revision: int, back: bool, cursor: Any
) -> TriggerState | None:
    found, line = tx.trigger_named(trigger), micros(start_line)
    if tx.feed(found.feed).revision != revision:
        return None
    tx.execute("UPDATE triggers SET start_line=? WHERE id=?", (line, found.id))
    if back:
        tx.execute("UPDATE triggers SET reads_from=min(reads_from, ?), backfilling=1 WHERE id=?", (line, found.id))
    if back or cursor is not None:
        place = None if cursor is None else tx.shut_json(cursor)
        tx.execute("UPDATE feeds SET cursor=?, next_due=? WHERE name=?", (place, tx.now(), found.feed))
    _new_revision(tx, found.feed)
    return trigger_states(tx, "id=?", (found.id,))[0]


def _wake(tx: Transaction, feed: str) -> FeedState:
    tx.execute("UPDATE feeds SET next_due=? WHERE name=?", (tx.now(), feed))
    return _state(tx, feed)


def _state(tx: Transaction, feed: str) -> FeedState:
    found = feed_states(tx, "name=?", (feed,))
    if not found:
        raise NotFound(f"there is no feed {feed!r}")
    count = tx.value(COUNT_MEMORY, (feed,))
    return msgspec.structs.replace(found[0], memory=count)


def _listeners(tx: Transaction, feed: str) -> Listeners:
    row = tx.row("SELECT revision, definition FROM feeds WHERE name=?", (feed,))
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    where = f"{LISTENING} AND removed_at IS NULL"
    rows = tx.execute(f"SELECT definition FROM triggers WHERE {where} ORDER BY name", (feed, feed)).fetchall()
    definitions = [decode_trigger(tx.seal.open(found[0])) for found in rows]
    further = "SELECT t.uid, f.backfilling FROM trigger_feeds f JOIN triggers t ON t.id=f.trigger WHERE f.feed=?"
    flags = dict(tx.execute(further, (feed,)))
    states = [
        msgspec.structs.replace(state, backfilling=bool(flags[state.uid])) if state.uid in flags else state
        for state in trigger_states(tx, where, (feed, feed))
    ]
    definition = decode_feed(tx.seal.open(row[1]))
    pairs = list(zip(definitions, states, strict=True))
    return Listeners(revision=row[0], feed=definition, triggers=pairs)


def feed_states(tx: Transaction, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[FeedState]:
    rows = tx.execute(f"SELECT {FEED} FROM feeds WHERE {where} ORDER BY name", bindings)
    return [feed_of(tx, row) for row in rows]


def trigger_states(
    tx: Transaction, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()
) -> list[TriggerState]:
    now = tx.now()
    columns = f"{TRIGGER_COLUMNS}, {SPENT}, {SPENT}, {SPENT}"
    spans = [mark for what in ("runs", "tokens", "usd") for mark in (what, window(what, now))]
    rows = tx.execute(f"SELECT {columns} FROM triggers WHERE {where} ORDER BY name", [*spans, *bindings])
    return [trigger_of(tx, row) for row in rows]
