"""Where feeds and triggers stand, as rows become values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.backends.budgets import window
from harken.backends.codec import decode_feed, decode_trigger
from harken.backends.rows import FEED, feed_of, trigger_of
from harken.backends.sqlite.transaction import Books
from harken.errors import NotFound
from harken.feed import FeedState, TriggerState
from harken.store import Listeners

__all__ = ["feed_states", "listeners", "state", "trigger_states"]

TRIGGER_COLUMNS = """uid, name, epoch, start_line, paused, created_at, fired, last_fired_at, removed_at, reads_from,
backfilling, done"""
SPENT = "(SELECT amount FROM spent s WHERE s.trigger=triggers.id AND what=? AND since=?)"


def feed_states(books: Books, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[FeedState]:
    rows = books.execute(f"SELECT {FEED} FROM feeds WHERE {where} ORDER BY name", bindings)
    return [feed_of(books, row) for row in rows]


def trigger_states(books: Books, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[TriggerState]:
    now = books.now()
    columns = f"{TRIGGER_COLUMNS}, {SPENT}, {SPENT}, {SPENT}"
    spans = [mark for what in ("runs", "tokens", "usd") for mark in (what, window(what, now))]
    rows = books.execute(f"SELECT {columns} FROM triggers WHERE {where} ORDER BY name", [*spans, *bindings])
    return [trigger_of(books, row) for row in rows]


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
    definitions = [decode_trigger(books.seal.open(found[0])) for found in rows]
    states = trigger_states(books, "feed=? AND removed_at IS NULL", (feed,))
    definition = decode_feed(books.seal.open(row[1]))
    pairs = list(zip(definitions, states, strict=True))
    return Listeners(revision=row[0], feed=definition, triggers=pairs)
