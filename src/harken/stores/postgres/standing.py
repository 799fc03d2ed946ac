"""Where feeds and triggers stand, as rows become values."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.errors import NotFound
from harken.event import Span
from harken.feed import FeedState, TriggerState
from harken.pace import Health
from harken.store import Listeners
from harken.stores.postgres.books import (
    Books,
    decode_feed,
    decode_health,
    decode_spans,
    decode_trigger,
    merged,
    moment,
    moment_or_none,
)
from harken.stores.postgres.spending import window

__all__ = ["feed_states", "listeners", "state", "trigger_states"]

FEED_COLUMNS = """name, revision, cursor, watermark, next_due, health, reads, baselined, last_success, last_tick,
cover_start, cover_end, coverage, created_at, seen"""

_SPENT = "(SELECT amount FROM spent s WHERE s.trigger=t.id AND s.what='{}' AND s.since=${})"
TRIGGERS = f"""SELECT t.uid, t.name, t.epoch, t.start_line, t.paused, t.created_at,
t.fired + coalesce(n.fired, 0) AS fired,
greatest(t.last_fired_at, n.fired_at) AS last_fired_at, t.removed_at, t.reads_from, t.backfilling,
t.done + coalesce(n.done, 0) AS done, {_SPENT.format("runs", 1)} AS runs, {_SPENT.format("tokens", 2)} AS tokens,
{_SPENT.format("usd", 3)} AS usd FROM triggers t LEFT JOIN
(SELECT trigger, sum(fired)::bigint AS fired, sum(done)::bigint AS done, max(fired_at) AS fired_at
FROM tallies GROUP BY trigger) n
ON n.trigger=t.id"""


async def feed_states(books: Books, where: str = "removed_at IS NULL", *bindings: Any) -> list[FeedState]:
    rows = await books.rows(f"SELECT {FEED_COLUMNS} FROM feeds WHERE {where} ORDER BY name", *bindings)
    return [_feed_state(books, row) for row in rows]


def _feed_state(books: Books, row: Any) -> FeedState:
    spans: list[Span] = []
    if row["coverage"] is not None:
        spans = decode_spans(books.seal.open(row["coverage"]))
    if row["cover_start"] is not None:
        spans.append(Span(moment(row["cover_start"]), moment(row["cover_end"])))
    return FeedState(
        name=row["name"],
        revision=row["revision"],
        cursor=books.json(row["cursor"]),
        watermark=moment_or_none(row["watermark"]),
        next_due=moment_or_none(row["next_due"]),
        health=decode_health(books.seal.open(row["health"])) if row["health"] is not None else Health(),
        reads=row["reads"],
        baselined=row["baselined"],
        last_success=moment_or_none(row["last_success"]),
        last_tick=moment_or_none(row["last_tick"]),
        coverage=tuple(merged(spans)),
        created_at=moment(row["created_at"]),
        seen=row["seen"],
    )


async def trigger_states(books: Books, where: str = "t.removed_at IS NULL", *bindings: Any) -> list[TriggerState]:
    """`where` has its own bindings from $4 on."""
    windows = [window(what, books.now) for what in ("runs", "tokens", "usd")]
    rows = await books.rows(f"{TRIGGERS} WHERE {where} ORDER BY t.name", *windows, *bindings)
    return [
        TriggerState(
            uid=row["uid"],
            name=row["name"],
            epoch=row["epoch"],
            start_line=moment(row["start_line"]),
            paused=books.text(row["paused"]) if row["paused"] else "",
            created_at=moment(row["created_at"]),
            fired=row["fired"],
            last_fired_at=moment_or_none(row["last_fired_at"]),
            removed_at=moment_or_none(row["removed_at"]),
            reads_from=moment(row["reads_from"]),
            backfilling=row["backfilling"],
            done=row["done"],
            runs_this_hour=int(row["runs"] or 0),
            tokens_today=int(row["tokens"] or 0),
            usd_today=row["usd"] or 0.0,
        )
        for row in rows
    ]


async def state(books: Books, feed: str) -> FeedState:
    found = await feed_states(books, "name=$1", feed)
    if not found:
        raise NotFound(f"there is no feed {feed!r}")
    count = await books.value("SELECT count(*) FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=$1)", feed)
    return msgspec.structs.replace(found[0], memory=count)


async def listeners(books: Books, feed: str) -> Listeners:
    row = await books.row("SELECT revision, definition FROM feeds WHERE name=$1", feed)
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    rows = await books.rows("SELECT definition FROM triggers WHERE feed=$1 AND removed_at IS NULL ORDER BY name", feed)
    definitions = [decode_trigger(books.seal.open(found[0])) for found in rows]
    states = await trigger_states(books, "t.feed=$4 AND t.removed_at IS NULL", feed)
    definition = decode_feed(books.seal.open(row[1]))
    return Listeners(revision=row[0], feed=definition, triggers=list(zip(definitions, states, strict=True)))
