"""Where feeds and triggers stand, as rows become values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.errors import NotFound
from harken.event import Span
from harken.feed import FeedState, TriggerState
from harken.pace import Health
from harken.store import Listeners
from harken.stores.sqlite.books import (
    Books,
    decode_feed,
    decode_health,
    decode_spans,
    decode_trigger,
    merged,
    moment,
    moment_or_none,
)
from harken.stores.sqlite.spending import window

__all__ = ["feed_states", "listeners", "state", "trigger_states"]

FEED_COLUMNS = """name, revision, cursor, watermark, next_due, health, reads, baselined, last_success, last_tick,
cover_start, cover_end, coverage, created_at, seen"""
TRIGGER_COLUMNS = """uid, name, epoch, start_line, paused, created_at, fired, last_fired_at, removed_at, reads_from,
backfilling, done"""
SPENT = "(SELECT amount FROM spent s WHERE s.trigger=triggers.id AND what=? AND since=?)"


def feed_states(books: Books, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[FeedState]:
    rows = books.execute(f"SELECT {FEED_COLUMNS} FROM feeds WHERE {where} ORDER BY name", bindings)
    return [_feed_state(books, row) for row in rows]


def _feed_state(books: Books, row: tuple[Any, ...]) -> FeedState:
    spans: list[Span] = []
    if row[12] is not None:
        spans = decode_spans(books.seal.open(row[12]))
    if row[10] is not None:
        spans.append(Span(moment(row[10]), moment(row[11])))
    return FeedState(
        name=row[0],
        revision=row[1],
        cursor=books.json(row[2]),
        watermark=moment_or_none(row[3]),
        next_due=moment_or_none(row[4]),
        health=decode_health(books.seal.open(row[5])) if row[5] is not None else Health(),
        reads=row[6],
        baselined=bool(row[7]),
        last_success=moment_or_none(row[8]),
        last_tick=moment_or_none(row[9]),
        coverage=tuple(merged(spans)),
        created_at=moment(row[13]),
        seen=row[14],
    )


def trigger_states(books: Books, where: str = "removed_at IS NULL", bindings: Sequence[Any] = ()) -> list[TriggerState]:
    now = books.now()
    columns = f"{TRIGGER_COLUMNS}, {SPENT}, {SPENT}, {SPENT}"
    spans = [mark for what in ("runs", "tokens", "usd") for mark in (what, window(what, now))]
    rows = books.execute(f"SELECT {columns} FROM triggers WHERE {where} ORDER BY name", [*spans, *bindings])
    return [
        TriggerState(
            uid=row[0],
            name=row[1],
            epoch=row[2],
            start_line=moment(row[3]),
            # sealed like every text that a person wrote; a store from before has it plain
            paused=row[4] if isinstance(row[4], str) else books.text(row[4]),
            created_at=moment(row[5]),
            fired=row[6],
            last_fired_at=moment_or_none(row[7]),
            removed_at=moment_or_none(row[8]),
            reads_from=moment_or_none(row[9]),
            backfilling=bool(row[10]),
            done=row[11],
            runs_this_hour=int(row[12] or 0),
            tokens_today=int(row[13] or 0),
            usd_today=row[14] or 0.0,
        )
        for row in rows
    ]


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
