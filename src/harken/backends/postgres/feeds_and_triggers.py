"""Feeds and triggers: made current by a configuration, paused, resumed, reset, woken, and their state read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import decode_feed, decode_health, decode_trigger, micros, moment
from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.leases import begin_generation
from harken.backends.postgres.run_creation_and_admission import hold_gathering, release_flood, release_held
from harken.backends.postgres.transaction_with_row_cache import Transaction, TriggerRow
from harken.backends.remaining_budget import window
from harken.backends.rows import FEED, feed_of, trigger_of
from harken.errors import NotFound
from harken.feed import MEMORY_COUNTED, Feed, FeedState, Trigger, TriggerState
from harken.schedule import Every
from harken.store import FUTURE_SECONDS, Definitions, Listeners, MovedStart, Opened

__all__ = ["PostgresDefinitions", "feed_states", "trigger_states"]

FUTURE = round(FUTURE_SECONDS * 1_000_000)

OPEN_LOCK = 0x6861726B656F
"""The advisory lock of the transaction that makes a configuration current."""

_SPENT = "(SELECT amount FROM spent s WHERE s.trigger=t.id AND s.what='{}' AND s.since=${})"
TRIGGERS = f"""SELECT t.uid, t.name, t.epoch, t.start_line, t.paused, t.created_at,
t.fired + coalesce(n.fired, 0) AS fired,
greatest(t.last_fired_at, n.fired_at) AS last_fired_at, t.removed_at, t.reads_from, t.backfilling,
t.done + coalesce(n.done, 0) AS done, {_SPENT.format("runs", 1)} AS runs, {_SPENT.format("tokens", 2)} AS tokens,
{_SPENT.format("usd", 3)} AS usd FROM triggers t LEFT JOIN
(SELECT trigger, sum(fired)::bigint AS fired, sum(done)::bigint AS done, max(fired_at) AS fired_at
FROM tallies GROUP BY trigger) n
ON n.trigger=t.id"""

LISTENING = "(t.feed=${0} OR t.id IN (SELECT trigger FROM trigger_feeds WHERE feed=${0}))"

COUNT_MEMORY = f"""SELECT count(*) FROM
(SELECT 1 FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=$1) LIMIT {MEMORY_COUNTED}) counted"""


class PostgresDefinitions(DatabaseUser):
    """The protocol Feeds, but for leases and commits.

    Both SQL stores repeat its signatures on purpose, each beside its own SQL.
    """

    async def open(self, wanted: Definitions) -> Opened:
        return await self._database.write(_open, wanted)

    async def state(self, feed: str) -> FeedState:
        return await self._database.read(_feed_state, feed)

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


async def _open(tx: Transaction, definitions: Definitions) -> Opened:
    # replicas take turns, and no transaction commits under a revision that is about to change
    await tx.value("SELECT pg_advisory_xact_lock($1)", OPEN_LOCK)
    only = definitions.only
    feeds, triggers = (sorted(only.feeds), sorted(only.triggers)) if only else (None, None)
    known = await tx.rows(
        """SELECT name, id, definition, removed_at FROM feeds WHERE $1::text[] IS NULL OR name=ANY($1)
        ORDER BY id FOR UPDATE""",
        feeds,
    )
    changed = await _open_triggers(tx, definitions)
    await _open_feeds(tx, definitions, changed, {row["name"]: row for row in known})
    await _insert_workflows(tx, definitions.workflows)
    if only is not None:
        epoch = int(await tx.value("SELECT epoch FROM generation") or 0)
        opened = await feed_states(tx, "removed_at IS NULL AND name=ANY($1)", feeds)
        states = await trigger_states(tx, "t.removed_at IS NULL AND t.name=ANY($4)", triggers)
    else:
        # last, so that processes which renew their leases wait for a moment only
        epoch = await begin_generation(tx, definitions.generation, definitions.holder)
        opened, states = await feed_states(tx), await trigger_states(tx)
    return Opened(
        feeds={feed.name: feed for feed in opened}, triggers={trigger.name: trigger for trigger in states}, epoch=epoch
    )


async def _open_triggers(tx: Transaction, definitions: Definitions) -> set[str]:
    """Insert, update and remove triggers. Return the feeds whose listeners changed."""
    changed: set[str] = set()
    only = sorted(definitions.only.triggers) if definitions.only else None
    rows = await tx.rows(
        "SELECT name, id, feed, definition, removed_at FROM triggers WHERE $1::text[] IS NULL OR name=ANY($1)", only
    )
    known = {row["name"]: row for row in rows}
    there = {row["name"] for row in rows if row["removed_at"] is None}
    new = [trigger for trigger in definitions.triggers if trigger.name not in known]
    await _insert_triggers(tx, new)
    changed |= {feed for trigger in new for feed in trigger.feeds}
    for trigger in definitions.triggers:
        row = known.pop(trigger.name, None)
        if row is not None:
            changed |= await _update_trigger(tx, trigger, row, starting=definitions.starting)
    for row in known.values():
        if row["removed_at"] is None:
            changed |= set(await _feeds_of(tx, row["id"], row["feed"]))
            # should it be defined again, a backfill that was not finished must not go on
            await tx.do("UPDATE triggers SET removed_at=$1, backfilling=false WHERE id=$2", tx.now, row["id"])
            await tx.do("DELETE FROM trigger_feeds WHERE trigger=$1", row["id"])
    return changed | await _pause_on_arrival(tx, definitions.to_pause(there))


async def _insert_triggers(tx: Transaction, triggers: Sequence[Trigger]) -> None:
    rows = [
        (
            secrets.token_hex(8),
            trigger.name,
            trigger.feed,
            tx.shut_json(trigger),
            tx.now - round(trigger.backfill * 1_000_000),
            trigger.backfill > 0,
            tx.now,
        )
        for trigger in triggers
    ]
    await tx.each(
        """INSERT INTO triggers (uid, name, feed, definition, start_line, reads_from, backfilling, created_at)
        VALUES ($1, $2, $3, $4, $5, $5, $6, $7)""",
        rows,
    )
    for trigger in triggers:
        if len(trigger.feeds) > 1:
            id = await tx.value("SELECT id FROM triggers WHERE name=$1", trigger.name)
            await _write_feeds(tx, id, trigger.feeds, backfilling=trigger.backfill > 0)


async def _feeds_of(tx: Transaction, id: int, feed: str) -> list[str]:
    """The feeds that a trigger listens to; `feed` is its own."""
    further = await tx.rows("SELECT feed FROM trigger_feeds WHERE trigger=$1 ORDER BY feed", id)
    return [feed, *(row[0] for row in further)]


async def _write_feeds(tx: Transaction, id: int, feeds: Sequence[str], *, backfilling: bool) -> None:
    """Store the further feeds of a trigger; those that it has already keep their state."""
    further = list(feeds[1:])
    await tx.do("DELETE FROM trigger_feeds WHERE trigger=$1 AND feed<>ALL($2::text[])", id, further)
    await tx.do(
        """INSERT INTO trigger_feeds (trigger, feed, backfilling) SELECT $1, unnest($2::text[]), $3
        ON CONFLICT DO NOTHING""",
        id,
        further,
        backfilling,
    )


async def _update_trigger(tx: Transaction, trigger: Trigger, row: Any, *, starting: bool) -> set[str]:
    """Update the definition of a trigger, also of one that was removed before. Return the feeds that this concerns."""
    changed: set[str] = set()
    encoded, removed = msgspec.json.encode(trigger), row["removed_at"] is not None
    if removed or tx.seal.open(row["definition"]) != encoded:
        changed = {*trigger.feeds, *await _feeds_of(tx, row["id"], row["feed"])}
        await _write_feeds(tx, row["id"], trigger.feeds, backfilling=False)
        await tx.do(
            "UPDATE triggers SET feed=$1, definition=$2, removed_at=NULL WHERE id=$3",
            trigger.feed,
            tx.seal.shut(encoded),
            row["id"],
        )
    if removed and await tx.value("SELECT baselined FROM feeds WHERE name=$1", trigger.feed):
        # the first read of the feed ended while the trigger was removed, so its held runs were not released
        await release_flood(tx, row["id"], trigger.flood_limit)
    if starting and trigger.startup != "since_last":
        await _apply_startup(tx, trigger, row["id"])
        changed |= set(trigger.feeds)
    return changed


async def _apply_startup(tx: Transaction, trigger: Trigger, id: int) -> None:
    """Apply the trigger's startup mode, which moves its start line at every start."""
    if trigger.startup == "ignore_historical":
        # events from before are read all the same, and get the verdict `before_start`
        await tx.do("UPDATE triggers SET start_line=$1 WHERE id=$2", tx.now, id)
        return
    start = tx.now - round(trigger.backfill * 1_000_000)
    await tx.do(
        """UPDATE triggers SET start_line=greatest($1, reset_at), reads_from=greatest($1, reset_at), backfilling=true
        WHERE id=$2""",
        start,
        id,
    )
    await tx.do("UPDATE trigger_feeds SET backfilling=true WHERE trigger=$1", id)


async def _pause_on_arrival(tx: Transaction, reasons: Mapping[str, str]) -> set[str]:
    """Pause these triggers before any feed is read for them. Return their feeds."""
    for name, reason in reasons.items():
        await tx.do("UPDATE triggers SET paused=$1 WHERE name=$2 AND paused=''", tx.shut(reason), name)
    feeds: set[str] = set()
    for name in reasons:
        paused = await tx.trigger_by_name(name)
        await hold_gathering(tx, paused.id)
        feeds |= set(await _feeds_of(tx, paused.id, paused.feed))
    return feeds


async def _open_feeds(tx: Transaction, definitions: Definitions, changed: set[str], known: dict[str, Any]) -> None:
    await _insert_feeds(tx, [feed for feed in definitions.feeds if feed.name not in known])
    for feed in definitions.feeds:
        row = known.pop(feed.name, None)
        if row is None:
            continue
        edited = row["removed_at"] is not None or tx.seal.open(row["definition"]) != msgspec.json.encode(feed)
        if edited or feed.name in changed:
            await _edit_feed(tx, feed, row)
    removed = [row["id"] for row in known.values() if row["removed_at"] is None]
    await tx.do("UPDATE feeds SET removed_at=$1, revision=revision+1 WHERE id=ANY($2::int[])", tx.now, removed)


async def _insert_feeds(tx: Transaction, feeds: Sequence[Feed]) -> None:
    await tx.each(
        """INSERT INTO feeds (name, identity, shard, definition, revision, pushed, created_at)
        VALUES ($1, $2, $3, $4, 1, $5, $6)""",
        [(feed.name, feed.identity, feed.shard, tx.shut_json(feed), feed.way != "poll", tx.now) for feed in feeds],
    )
    for feed in feeds:
        if feed.inherits:
            earlier = await tx.row("SELECT id, identity FROM feeds WHERE name=$1", feed.inherits)
            new = await tx.value("SELECT id FROM feeds WHERE name=$1", feed.name)
            if earlier is not None:
                await _inherit(tx, feed, new, earlier[0], same_identity=earlier[1] == feed.identity)


async def _inherit(tx: Transaction, feed: Feed, new: int, earlier: int, *, same_identity: bool) -> None:
    """Give the new feed the cursor and the coverage of an earlier one, and its memory if that has the same identity."""
    await tx.do(
        """UPDATE feeds n SET cursor=e.cursor, watermark=e.watermark, next_due=e.next_due, reads=e.reads,
        baselined=e.baselined, last_success=e.last_success, cover_start=e.cover_start, cover_end=e.cover_end,
        coverage=e.coverage FROM feeds e WHERE e.id=$1 AND n.id=$2""",
        earlier,
        new,
    )
    if not same_identity:
        await _begin_epoch(tx, feed, new)
        return
    await tx.do(
        """INSERT INTO memory (feed, mid, state, absent, seq, event, first_seen, last_seen)
        SELECT $1, mid, state, absent, seq, event, first_seen, last_seen FROM memory WHERE feed=$2""",
        new,
        earlier,
    )


async def _edit_feed(tx: Transaction, feed: Feed, row: Any) -> None:
    before = decode_feed(tx.seal.open(row["definition"]))
    await tx.do(
        """UPDATE feeds SET definition=$1, identity=$2, shard=$3, pushed=$4, revision=revision+1, removed_at=NULL
        WHERE id=$5""",
        tx.shut_json(feed),
        feed.identity,
        feed.shard,
        feed.way != "poll",
        row["id"],
    )
    if before.identity != feed.identity:
        await _begin_epoch(tx, feed, row["id"])
    # the scheduler applies a changed interval by itself when it plans the next read
    intervals = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    if before.schedule != feed.schedule and not intervals:
        await _clear_due(tx, row["id"])


async def _clear_due(tx: Transaction, id: int) -> None:
    """Forget when the feed was due by its old schedule, unless it waits after failures."""
    sealed = await tx.value("SELECT health FROM feeds WHERE id=$1", id)
    if sealed is None or decode_health(tx.seal.open(sealed)).clean:
        await tx.do("UPDATE feeds SET next_due=NULL WHERE id=$1", id)


async def _begin_epoch(tx: Transaction, feed: Feed, id: int) -> None:
    """The feed has another identity, so its memory is useless: triggers begin a new epoch at its last success.

    That way nothing is found twice.
    """
    await tx.do("DELETE FROM memory WHERE feed=$1", id)
    if feed.first == "baseline":
        await tx.do("UPDATE feeds SET baselined=false WHERE id=$1", id)
    last = await tx.value("SELECT last_success FROM feeds WHERE id=$1", id) or tx.now
    await tx.do(
        f"""UPDATE triggers t SET epoch=epoch+1, epoch_event=nextval('event_ids'), start_line=greatest(start_line, $1),
        reads_from=greatest(reads_from, $1) WHERE {LISTENING.format(2)} AND removed_at IS NULL AND created_at<$3""",
        last,
        feed.name,
        tx.now,
    )


async def _insert_workflows(tx: Transaction, workflows: Mapping[str, tuple[str, bytes]]) -> None:
    rows = [
        (rev, tx.seal.shut(msgspec.json.encode({"name": name, "definition": msgspec.Raw(definition)})), tx.now)
        for name, (rev, definition) in workflows.items()
    ]
    await tx.each(
        """INSERT INTO documents (kind, name, value, revision, updated_at) VALUES ('workflow', $1, $2, 1, $3)
        ON CONFLICT DO NOTHING""",
        rows,
    )


async def _feed_state(tx: Transaction, feed: str) -> FeedState:
    found = await feed_states(tx, "name=$1", feed)
    if not found:
        raise NotFound(f"there is no feed {feed!r}")
    count = await tx.value(COUNT_MEMORY, feed)
    return msgspec.structs.replace(found[0], memory=count)


async def _listeners(tx: Transaction, feed: str) -> Listeners:
    row = await tx.row("SELECT revision, definition FROM feeds WHERE name=$1", feed)
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    rows = await tx.rows(
        f"SELECT definition FROM triggers t WHERE {LISTENING.format(1)} AND removed_at IS NULL ORDER BY name", feed
    )
    definitions = [decode_trigger(tx.seal.open(found[0])) for found in rows]
    further = await tx.rows(
        "SELECT t.uid, f.backfilling FROM trigger_feeds f JOIN triggers t ON t.id=f.trigger WHERE f.feed=$1", feed
    )
    flags = {uid: backfilling for uid, backfilling in further}
    states = [
        msgspec.structs.replace(state, backfilling=flags.get(state.uid, state.backfilling))
        for state in await trigger_states(tx, f"{LISTENING.format(4)} AND t.removed_at IS NULL", feed)
    ]
    definition = decode_feed(tx.seal.open(row[1]))
    return Listeners(revision=row[0], feed=definition, triggers=list(zip(definitions, states, strict=True)))


async def feed_states(tx: Transaction, where: str = "removed_at IS NULL", *bindings: Any) -> list[FeedState]:
    rows = await tx.rows(f"SELECT {FEED} FROM feeds WHERE {where} ORDER BY name", *bindings)
    return [feed_of(tx, row) for row in rows]


async def trigger_states(tx: Transaction, where: str = "t.removed_at IS NULL", *bindings: Any) -> list[TriggerState]:
    """The bindings of `where` are numbered from $4."""
    windows = [window(what, tx.now) for what in ("runs", "tokens", "usd")]
    rows = await tx.rows(f"{TRIGGERS} WHERE {where} ORDER BY t.name", *windows, *bindings)
    return [trigger_of(tx, row) for row in rows]


async def _pause(tx: Transaction, trigger: str, reason: str) -> TriggerState:
    found = await tx.trigger_by_name(trigger)
    feeds = await _lock_feeds(tx, found)
    await tx.do("UPDATE triggers SET paused=$1 WHERE id=$2", tx.shut(reason or "paused"), found.id)
    await hold_gathering(tx, found.id)
    for feed in feeds:
        await _raise_revision(tx, feed)
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def _resume(tx: Transaction, trigger: str) -> TriggerState:
    found = await tx.trigger_by_name(trigger)
    await _clear_trouble(tx, found.id, await _lock_feeds(tx, found))
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def _reset(tx: Transaction, trigger: str, cursor: bool) -> TriggerState:
    found = await tx.trigger_by_name(trigger)
    feeds = await _lock_feeds(tx, found)
    if cursor:
        await tx.do(
            """UPDATE triggers SET epoch=epoch+1, epoch_event=nextval('event_ids'), start_line=$1, reads_from=$1,
            reset_at=$1, backfilling=false WHERE id=$2""",
            tx.now,
            found.id,
        )
        await tx.do("UPDATE trigger_feeds SET backfilling=false WHERE trigger=$1", found.id)
        for feed in feeds:
            await tx.do("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=$1", feed)
            await _wipe_memory(tx, feed)
    await _clear_trouble(tx, found.id, feeds)
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def _lock_revision(tx: Transaction, feed: str) -> None:
    """Wait for transactions that write to the feed under its current revision."""
    await tx.value("SELECT 1 FROM feeds WHERE name=$1 FOR UPDATE", feed)


async def _lock_feeds(tx: Transaction, trigger: TriggerRow) -> list[str]:
    """Lock the revisions of the feeds that a trigger listens to, always in the same order. Return their names."""
    feeds = sorted(await _feeds_of(tx, trigger.id, trigger.feed))
    for feed in feeds:
        await _lock_revision(tx, feed)
    return feeds


async def _clear_trouble(tx: Transaction, trigger: int, feeds: Sequence[str]) -> None:
    """Unpause the trigger, release the runs that the pause held, forget its feeds' errors and make them due now."""
    await tx.do("UPDATE triggers SET paused='' WHERE id=$1", trigger)
    await release_held(tx, trigger, "paused")
    for feed in feeds:
        await tx.do("UPDATE feeds SET health=NULL, next_due=$1 WHERE name=$2", tx.now, feed)
        await _raise_revision(tx, feed)


async def _wipe_memory(tx: Transaction, name: str) -> None:
    id, identity = await tx.row("SELECT id, identity FROM feeds WHERE name=$1", name)
    listeners = await tx.value(
        f"SELECT count(*) FROM triggers t WHERE {LISTENING.format(1)} AND removed_at IS NULL", name
    )
    if identity == "transition" and listeners > 1:
        # keys count the changes of a subject: for the other triggers the next change would get an old key
        return
    await tx.do("DELETE FROM memory WHERE feed=$1", id)
    await tx.do("UPDATE feeds SET baselined=false WHERE id=$1", id)


async def _raise_revision(tx: Transaction, feed: str) -> None:
    await tx.do("UPDATE feeds SET revision=revision+1 WHERE name=$1", feed)


async def _move_start_lines(tx: Transaction, lines: Mapping[str, datetime]) -> list[MovedStart]:
    found = """SELECT id, name, feed, start_line FROM triggers
        WHERE removed_at IS NULL AND start_line>$1 AND name=ANY($2::text[]) ORDER BY name"""
    ahead = await tx.rows(found, tx.now + FUTURE, list(lines))
    feeds = {feed for row in ahead for feed in await _feeds_of(tx, row["id"], row["feed"])}
    for feed in sorted(feeds):
        await _lock_revision(tx, feed)
        await _raise_revision(tx, feed)
    moved = []
    # again, as another replica may have moved them before we had the locks
    for id, name, feed, start in await tx.rows(found, tx.now + FUTURE, list(lines)):
        line = min(micros(lines[name]), tx.now)
        await tx.do(
            """UPDATE triggers SET start_line=$1, reads_from=least(reads_from, $1), created_at=least(created_at, $1),
            reset_at=CASE WHEN reset_at>$1 THEN $1 ELSE reset_at END, backfilling=true WHERE id=$2""",
            line,
            id,
        )
        await tx.do("UPDATE trigger_feeds SET backfilling=true WHERE trigger=$1", id)
        moved.append(MovedStart(trigger=name, feed=feed, was=moment(start), start_line=moment(line)))
    return moved


async def _seek(
    tx: Transaction, trigger: str, start_line: datetime, revision: int, back: bool, cursor: Any
) -> TriggerState | None:
    found, line = await tx.trigger_by_name(trigger), micros(start_line)
    if await tx.value("SELECT revision FROM feeds WHERE name=$1 FOR UPDATE", found.feed) != revision:
        return None
    await tx.do("UPDATE triggers SET start_line=$1 WHERE id=$2", line, found.id)
    if back:
        looks = "UPDATE triggers SET reads_from=least(reads_from, $1), backfilling=true WHERE id=$2"
        await tx.do(looks, line, found.id)
    if back or cursor is not None:
        place = None if cursor is None else tx.shut_json(cursor)
        await tx.do("UPDATE feeds SET cursor=$3, next_due=$1 WHERE name=$2", tx.now, found.feed, place)
    await _raise_revision(tx, found.feed)
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def _wake(tx: Transaction, feed: str) -> FeedState:
    await tx.do("UPDATE feeds SET next_due=$1 WHERE name=$2", tx.now, feed)
    return await _feed_state(tx, feed)
