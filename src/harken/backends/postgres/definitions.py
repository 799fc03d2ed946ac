"""Making a configuration current: what is known keeps its place, what is new begins, what is gone rests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harken.backends.budgets import window
from harken.backends.codec import decode_feed, decode_health, decode_trigger
from harken.backends.postgres import leases
from harken.backends.postgres.queue import let_go, release_flood
from harken.backends.postgres.transaction import Transaction
from harken.backends.rows import FEED, feed_of, trigger_of
from harken.errors import NotFound
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.schedule import Every
from harken.store import Definitions, Listeners, Opened

__all__ = ["feed_states", "listeners", "open_all", "pause", "reset", "resume", "state", "trigger_states", "wake"]


_SPENT = "(SELECT amount FROM spent s WHERE s.trigger=t.id AND s.what='{}' AND s.since=${})"

TRIGGERS = f"""SELECT t.uid, t.name, t.epoch, t.start_line, t.paused, t.created_at,
t.fired + coalesce(n.fired, 0) AS fired,
greatest(t.last_fired_at, n.fired_at) AS last_fired_at, t.removed_at, t.reads_from, t.backfilling,
t.done + coalesce(n.done, 0) AS done, {_SPENT.format("runs", 1)} AS runs, {_SPENT.format("tokens", 2)} AS tokens,
{_SPENT.format("usd", 3)} AS usd FROM triggers t LEFT JOIN
(SELECT trigger, sum(fired)::bigint AS fired, sum(done)::bigint AS done, max(fired_at) AS fired_at
FROM tallies GROUP BY trigger) n
ON n.trigger=t.id"""


async def feed_states(tx: Transaction, where: str = "removed_at IS NULL", *bindings: Any) -> list[FeedState]:
    rows = await tx.rows(f"SELECT {FEED} FROM feeds WHERE {where} ORDER BY name", *bindings)
    return [feed_of(tx, row) for row in rows]


async def trigger_states(tx: Transaction, where: str = "t.removed_at IS NULL", *bindings: Any) -> list[TriggerState]:
    """`where` has its own bindings from $4 on."""
    windows = [window(what, tx.now) for what in ("runs", "tokens", "usd")]
    rows = await tx.rows(f"{TRIGGERS} WHERE {where} ORDER BY t.name", *windows, *bindings)
    return [trigger_of(tx, row) for row in rows]


async def state(tx: Transaction, feed: str) -> FeedState:
    found = await feed_states(tx, "name=$1", feed)
    if not found:
        raise NotFound(f"there is no feed {feed!r}")
    count = await tx.value("SELECT count(*) FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=$1)", feed)
    return msgspec.structs.replace(found[0], memory=count)


async def listeners(tx: Transaction, feed: str) -> Listeners:
    row = await tx.row("SELECT revision, definition FROM feeds WHERE name=$1", feed)
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    rows = await tx.rows("SELECT definition FROM triggers WHERE feed=$1 AND removed_at IS NULL ORDER BY name", feed)
    definitions = [decode_trigger(tx.seal.open(found[0])) for found in rows]
    states = await trigger_states(tx, "t.feed=$4 AND t.removed_at IS NULL", feed)
    definition = decode_feed(tx.seal.open(row[1]))
    return Listeners(revision=row[0], feed=definition, triggers=list(zip(definitions, states, strict=True)))


TURN = 0x6861726B656F

"""The advisory lock of whoever makes a configuration current."""


async def open_all(tx: Transaction, definitions: Definitions) -> Opened:
    # two replicas take turns, and nobody commits under a revision that is about to change
    await tx.value("SELECT pg_advisory_xact_lock($1)", TURN)
    known = await tx.rows("SELECT name, id, definition, removed_at FROM feeds ORDER BY id FOR UPDATE")
    changed = await _open_triggers(tx, definitions)
    await _open_feeds(tx, definitions, changed, {row["name"]: row for row in known})
    await _keep_workflows(tx, definitions.workflows)
    # last, so that those who renew their leases wait for a moment only
    epoch = await leases.begin(tx, definitions.generation, definitions.holder)
    return Opened(
        feeds={feed.name: feed for feed in await feed_states(tx)},
        triggers={trigger.name: trigger for trigger in await trigger_states(tx)},
        epoch=epoch,
    )


async def _keep_workflows(tx: Transaction, workflows: Mapping[str, tuple[str, bytes]]) -> None:
    rows = [
        (rev, tx.seal.shut(msgspec.json.encode({"name": name, "definition": msgspec.Raw(definition)})), tx.now)
        for name, (rev, definition) in workflows.items()
    ]
    await tx.each(
        """INSERT INTO documents (kind, name, value, revision, updated_at) VALUES ('workflow', $1, $2, 1, $3)
        ON CONFLICT DO NOTHING""",
        rows,
    )


async def _open_triggers(tx: Transaction, definitions: Definitions) -> set[str]:
    """Insert, update and remove triggers; the feeds whose listeners changed."""
    changed: set[str] = set()
    rows = await tx.rows("SELECT name, id, feed, definition, removed_at FROM triggers")
    known = {row["name"]: row for row in rows}
    new = [trigger for trigger in definitions.triggers if trigger.name not in known]
    await _insert_triggers(tx, new)
    changed |= {trigger.feed for trigger in new}
    for trigger in definitions.triggers:
        row = known.pop(trigger.name, None)
        if row is not None:
            changed |= await _keep_trigger(tx, trigger, row, starting=definitions.starting)
    for row in known.values():
        if row["removed_at"] is None:
            changed.add(row["feed"])
            # what it had yet to look back for is no longer wanted: it must not come back with a surprise
            await tx.do("UPDATE triggers SET removed_at=$1, backfilling=false WHERE id=$2", tx.now, row["id"])
    return changed | (await _pause(tx, definitions.pause) if definitions.starting else set())


async def _keep_trigger(tx: Transaction, trigger: Trigger, row: Any, *, starting: bool) -> set[str]:
    """Edit it, or bring it back as it was; the feeds that this concerns."""
    changed: set[str] = set()
    encoded, removed = msgspec.json.encode(trigger), row["removed_at"] is not None
    if removed or tx.seal.open(row["definition"]) != encoded:
        changed = {trigger.feed, row["feed"]}
        await tx.do(
            "UPDATE triggers SET feed=$1, definition=$2, removed_at=NULL WHERE id=$3",
            trigger.feed,
            tx.seal.shut(encoded),
            row["id"],
        )
    if removed and await tx.value("SELECT baselined FROM feeds WHERE name=$1", trigger.feed):
        # the first read came to its end without it, and nobody else will let its runs go
        await release_flood(tx, row["id"], trigger.flood_limit)
    if starting and trigger.startup != "since_last":
        await _start_again(tx, trigger, row["id"])
        changed.add(trigger.feed)
    return changed


async def _pause(tx: Transaction, reasons: Mapping[str, str]) -> set[str]:
    """Pause these before anyone can read for them; their feeds."""
    for name, reason in reasons.items():
        await tx.do("UPDATE triggers SET paused=$1 WHERE name=$2 AND paused=''", tx.shut(reason), name)
    return {(await tx.trigger_named(name)).feed for name in reasons}


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


async def _start_again(tx: Transaction, trigger: Trigger, id: int) -> None:
    """Apply the startup mode that the user chose for every start."""
    if trigger.startup == "ignore_historical":
        # what happened meanwhile is read all the same, so that each of it gets its verdict
        await tx.do("UPDATE triggers SET start_line=$1 WHERE id=$2", tx.now, id)
        return
    start = tx.now - round(trigger.backfill * 1_000_000)
    await tx.do(
        """UPDATE triggers SET start_line=greatest($1, reset_at), reads_from=greatest($1, reset_at), backfilling=true
        WHERE id=$2""",
        start,
        id,
    )


async def _open_feeds(tx: Transaction, definitions: Definitions, changed: set[str], known: dict[str, Any]) -> None:
    await _insert_feeds(tx, [feed for feed in definitions.feeds if feed.name not in known])
    for feed in definitions.feeds:
        row = known.pop(feed.name, None)
        if row is None:
            continue
        edited = row["removed_at"] is not None or tx.seal.open(row["definition"]) != msgspec.json.encode(feed)
        if edited or feed.name in changed:
            await _edit_feed(tx, feed, row)
    gone = [row["id"] for row in known.values() if row["removed_at"] is None]
    await tx.do("UPDATE feeds SET removed_at=$1, revision=revision+1 WHERE id=ANY($2::int[])", tx.now, gone)


async def _edit_feed(tx: Transaction, feed: Feed, row: Any) -> None:
    before = decode_feed(tx.seal.open(row["definition"]))
    await tx.do(
        "UPDATE feeds SET definition=$1, identity=$2, shard=$3, revision=revision+1, removed_at=NULL WHERE id=$4",
        tx.shut_json(feed),
        feed.identity,
        feed.shard,
        row["id"],
    )
    if before.identity != feed.identity:
        await _begin_anew(tx, feed, row["id"])
    # a shorter or longer interval is found out when the next read is planned
    regular = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    if before.schedule != feed.schedule and not regular:
        await _due_anew(tx, row["id"])


async def _due_anew(tx: Transaction, id: int) -> None:
    """What was due by the old schedule is not due by the new one. A wait after failures stays."""
    sealed = await tx.value("SELECT health FROM feeds WHERE id=$1", id)
    if sealed is None or decode_health(tx.seal.open(sealed)).clean:
        await tx.do("UPDATE feeds SET next_due=NULL WHERE id=$1", id)


async def _insert_feeds(tx: Transaction, feeds: Sequence[Feed]) -> None:
    await tx.each(
        """INSERT INTO feeds (name, identity, shard, definition, revision, pushed, created_at)
        VALUES ($1, $2, $3, $4, 1, $5, $6)""",
        [(feed.name, feed.identity, feed.shard, tx.shut_json(feed), feed.way != "poll", tx.now) for feed in feeds],
    )
    for feed in feeds:
        if feed.inherits:
            earlier = await tx.row("SELECT id, identity FROM feeds WHERE name=$1", feed.inherits)
            heir = await tx.value("SELECT id FROM feeds WHERE name=$1", feed.name)
            if earlier is not None:
                await _inherit(tx, feed, heir, earlier[0], same=earlier[1] == feed.identity)


async def _inherit(tx: Transaction, feed: Feed, heir: int, earlier: int, *, same: bool) -> None:
    await tx.do(
        """UPDATE feeds h SET cursor=e.cursor, watermark=e.watermark, next_due=e.next_due, reads=e.reads,
        baselined=e.baselined, last_success=e.last_success, cover_start=e.cover_start, cover_end=e.cover_end,
        coverage=e.coverage FROM feeds e WHERE e.id=$1 AND h.id=$2""",
        earlier,
        heir,
    )
    if not same:
        await _begin_anew(tx, feed, heir)
        return
    await tx.do(
        """INSERT INTO memory (feed, mid, state, absent, seq, event, first_seen, last_seen)
        SELECT $1, mid, state, absent, seq, event, first_seen, last_seen FROM memory WHERE feed=$2""",
        heir,
        earlier,
    )


async def _begin_anew(tx: Transaction, feed: Feed, id: int) -> None:
    """Another identity names everything differently: what was read up to now must not be found a second time."""
    await tx.do("DELETE FROM memory WHERE feed=$1", id)
    if feed.first == "baseline":
        await tx.do("UPDATE feeds SET baselined=false WHERE id=$1", id)
    last = await tx.value("SELECT last_success FROM feeds WHERE id=$1", id) or tx.now
    await tx.do(
        """UPDATE triggers SET epoch=epoch+1, epoch_event=nextval('event_ids'), start_line=greatest(start_line, $1),
        reads_from=greatest(reads_from, $1) WHERE feed=$2 AND removed_at IS NULL AND created_at<$3""",
        last,
        feed.name,
        tx.now,
    )


async def pause(tx: Transaction, trigger: str, reason: str) -> TriggerState:
    found = await tx.trigger_named(trigger)
    await _lock(tx, found.feed)
    await tx.do("UPDATE triggers SET paused=$1 WHERE id=$2", tx.shut(reason or "paused"), found.id)
    await _new_revision(tx, found.feed)
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def resume(tx: Transaction, trigger: str) -> TriggerState:
    found = await tx.trigger_named(trigger)
    await _lock(tx, found.feed)
    await _clear(tx, found.id, found.feed)
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def reset(tx: Transaction, trigger: str, cursor: bool) -> TriggerState:
    found = await tx.trigger_named(trigger)
    await _lock(tx, found.feed)
    if cursor:
        await tx.do(
            """UPDATE triggers SET epoch=epoch+1, epoch_event=nextval('event_ids'), start_line=$1, reads_from=$1,
            reset_at=$1, backfilling=false WHERE id=$2""",
            tx.now,
            found.id,
        )
        await tx.do("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=$1", found.feed)
        await _wipe_memory(tx, found.feed)
    await _clear(tx, found.id, found.feed)
    return (await trigger_states(tx, "t.id=$4", found.id))[0]


async def _lock(tx: Transaction, feed: str) -> None:
    """Wait for whoever writes to the feed under its revision of now."""
    await tx.value("SELECT 1 FROM feeds WHERE name=$1 FOR UPDATE", feed)


async def _clear(tx: Transaction, trigger: int, feed: str) -> None:
    """Nothing is paused and nothing failed; what the pause held goes."""
    await tx.do("UPDATE triggers SET paused='' WHERE id=$1", trigger)
    await let_go(tx, trigger, "paused")
    await tx.do("UPDATE feeds SET health=NULL, next_due=$1 WHERE name=$2", tx.now, feed)
    await _new_revision(tx, feed)


async def _wipe_memory(tx: Transaction, name: str) -> None:
    id, identity = await tx.row("SELECT id, identity FROM feeds WHERE name=$1", name)
    listening = await tx.value("SELECT count(*) FROM triggers WHERE feed=$1 AND removed_at IS NULL", name)
    if identity == "transition" and listening > 1:
        # keys count the changes of a subject: beginning again would give the others' next change an old key
        return
    await tx.do("DELETE FROM memory WHERE feed=$1", id)
    await tx.do("UPDATE feeds SET baselined=false WHERE id=$1", id)


async def _new_revision(tx: Transaction, feed: str) -> None:
    await tx.do("UPDATE feeds SET revision=revision+1 WHERE name=$1", feed)


async def wake(tx: Transaction, feed: str) -> FeedState:
    await tx.do("UPDATE feeds SET next_due=$1 WHERE name=$2", tx.now, feed)
    return await state(tx, feed)
