"""Where feeds and triggers stand, as rows become values."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.backends.budgets import window
from harken.backends.codec import decode_feed, decode_trigger
from harken.backends.postgres.transaction import Books
from harken.backends.rows import FEED, feed_of, trigger_of
from harken.errors import NotFound
from harken.feed import FeedState, TriggerState
from harken.store import Listeners

__all__ = ["feed_states", "listeners", "state", "trigger_states"]

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
    rows = await books.rows(f"SELECT {FEED} FROM feeds WHERE {where} ORDER BY name", *bindings)
    return [feed_of(books, row) for row in rows]


async def trigger_states(books: Books, where: str = "t.removed_at IS NULL", *bindings: Any) -> list[TriggerState]:
    """`where` has its own bindings from $4 on."""
    windows = [window(what, books.now) for what in ("runs", "tokens", "usd")]
    rows = await books.rows(f"{TRIGGERS} WHERE {where} ORDER BY t.name", *windows, *bindings)
    return [trigger_of(books, row) for row in rows]


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
