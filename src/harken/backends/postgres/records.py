"""What people ask about: a closed list of queries, newest first, in keyset pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from harken.backends.codec import micros, steps
from harken.backends.keyset import Filling
from harken.backends.postgres.transaction import Books
from harken.backends.postgres.where import Where
from harken.backends.rows import RECORDED, SIGHTING, recorded, sighting_of, tick_of
from harken.backends.run_states import STATES
from harken.event import Known, Recorded
from harken.feed import TickSpan
from harken.runs import StepRecord
from harken.store import Page

__all__ = [
    "counts",
    "event",
    "events",
    "events_after",
    "events_of",
    "full_page",
    "journals_of",
    "sighting",
    "ticks",
]

_EVENTS = "FROM events e JOIN feeds f ON f.id=e.feed"

TAIL_PATIENCE_US = 30_000_000
"""How long the tail waits for a lower id; no transaction of ours takes that long, whatever else the server does."""

OLDEST_WRITER = """SELECT greatest(harken_now() - $1, coalesce(min((extract(epoch FROM xact_start) * 1000000)::bigint),
9223372036854775807)) FROM pg_stat_activity
WHERE datname=current_database() AND backend_xid IS NOT NULL AND pid<>pg_backend_pid()"""


async def events(
    books: Books, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    if trigger:
        feed = await books.value("SELECT feed FROM triggers WHERE name=$1", trigger) or feed
    kid = books.seal.name(key) if key else None
    begin = micros(since) if since is not None else None

    async def some(before: int | None) -> list[Recorded]:
        where = Where().and_("e.id<{}", before).and_("e.kid={}", kid).and_("e.recorded_at>={}", begin)
        where.and_("e.feed=(SELECT id FROM feeds WHERE name={})", feed or None)
        ends, bindings = where.ends("e.id DESC", limit)
        return [recorded(books, row) for row in await books.rows(f"SELECT {RECORDED} {_EVENTS} {ends}", *bindings)]

    def concerns(found: Recorded) -> bool:
        return not trigger or any(verdict.trigger == trigger for verdict in found.verdicts)

    return await full_page(some, Filling(concerns, lambda found: found.id, before, limit))


async def full_page(some: Callable[[int | None], Awaitable[list[Any]]], filling: Filling) -> Page:
    while not filling.done:
        filling.add(await some(filling.before))
    return filling.page()


async def events_after(books: Books, after: int, limit: int) -> list[Recorded]:
    """Up to the first event below which another commit may still put one: the tail misses nothing.

    Not in one transaction: whoever writes must be looked for before the rows are."""
    oldest = await books.value(OLDEST_WRITER, TAIL_PATIENCE_US)
    rows = await books.rows(
        f"SELECT {RECORDED}, e.written_at {_EVENTS} WHERE e.id>$1 ORDER BY e.id LIMIT $2", after, limit
    )
    return [recorded(books, row) for row in takewhile(lambda row: row["written_at"] < oldest, rows)]


async def event(books: Books, event_id: int) -> Recorded | None:
    row = await books.row(f"SELECT {RECORDED} {_EVENTS} WHERE e.id=$1", event_id)
    return recorded(books, row) if row is not None else None


async def events_of(books: Books, seqs: Sequence[int]) -> dict[int, list[Recorded]]:
    """The events of runs that gathered several, oldest first."""
    found: dict[int, list[Recorded]] = {}
    if seqs:
        rows = await books.rows(
            f"""SELECT {RECORDED}, g.run FROM run_events g JOIN events e ON e.id=g.event JOIN feeds f ON f.id=e.feed
            WHERE g.run=ANY($1::bigint[]) ORDER BY e.id""",
            seqs,
        )
        for row in rows:
            found.setdefault(row["run"], []).append(recorded(books, row))
    return found


async def journals_of(books: Books, seqs: Sequence[int]) -> dict[int, tuple[StepRecord, ...]]:
    found: dict[int, list[bytes]] = {}
    if seqs:
        rows = await books.rows("SELECT run, record FROM journal WHERE run=ANY($1::bigint[]) ORDER BY run, n", seqs)
        for run, sealed in rows:
            found.setdefault(run, []).append(books.seal.open(sealed))
    return {run: steps(records) for run, records in found.items()}


async def sighting(books: Books, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    row = await books.row(
        f"SELECT {SIGHTING} FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=$1) AND mid=$2",
        feed,
        books.seal.name(memory_id),
    )
    return None if row is None else sighting_of(books, row)


async def ticks(books: Books, feed: str, limit: int) -> list[TickSpan]:
    rows = await books.rows(
        """(SELECT span_start, span_end, span_count, span_result, span_seen, 0::bigint, NULL::bytea, 0.0::float8
        FROM feeds WHERE name=$1 AND span_result IS NOT NULL)
        UNION ALL
        (SELECT started_at, ended_at, count, result, seen, new, error, seconds FROM ticks
        WHERE feed=(SELECT id FROM feeds WHERE name=$1) ORDER BY id DESC LIMIT $2) LIMIT $2""",
        feed,
        limit,
    )
    return [tick_of(books, feed, row) for row in rows]


async def counts(books: Books) -> dict[str, int]:
    rows = await books.rows("SELECT state, count(*) FROM runs GROUP BY state")
    found = {f"runs_{STATES[state]}": count for state, count in rows}
    found["events"] = await books.value("SELECT count(*) FROM events")
    found["refused_events"] = await books.value("SELECT count(*) FROM buried")
    return found
