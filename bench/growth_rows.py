"""Many rows at once: events that fired, their runs, which are done, and what their feed remembers of them."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import apsw
import asyncpg  # type: ignore[import-untyped]

from bench.store_rounds import BODY

__all__ = ["empty_file", "fill_file", "fill_postgres", "fill_with"]

# the verdicts are those of an event that is there, so that they are as this version writes them
SAMPLE = "SELECT max(id), verdicts FROM events WHERE verdicts<>CAST('[]' AS BLOB)"
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<:rows)"
FILE_ROWS = (
    f"""{NUMBERS} INSERT INTO events (id, feed, kid, key, subject, type, recorded_at, verdicts, data)
    SELECT :event+i, :feed, randomblob(16), CAST('bulk-'||i||'@open' AS BLOB), CAST('bulk-'||i AS BLOB), 'mail', :now,
    :verdicts, :body FROM n""",
    f"""{NUMBERS} INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, event, created_at, started_at,
    finished_at, gathered)
    SELECT :run+i, randomblob(16), :trigger, 'r1', 6, :now, :event+i, :now, :now, :now, 1 FROM n""",
    f"""{NUMBERS} INSERT INTO memory (feed, mid, seq, event, first_seen, last_seen)
    SELECT :feed, randomblob(16), 1, :event+i, :now, :now FROM n""",
)
POSTGRES_ROWS = (
    """INSERT INTO events (id, feed, kid, key, subject, type, recorded_at, verdicts, data)
    SELECT nextval('event_ids'), feed, decode(md5(random()::text), 'hex'), key, convert_to('bulk-' || n, 'UTF8'),
    'mail', harken_now(), verdicts, data
    FROM (SELECT * FROM events ORDER BY id DESC LIMIT 1) sample, generate_series(1, $1::bigint) AS s(n)""",
    """INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, event, created_at, started_at, finished_at)
    SELECT nextval('run_seqs'), decode(md5(random()::text), 'hex'), trigger, workflow_rev, 6, created_at, event,
    harken_now(), harken_now(), harken_now()
    FROM (SELECT * FROM runs ORDER BY seq DESC LIMIT 1) sample, generate_series(1, $1::bigint)""",
    """INSERT INTO memory (feed, mid, seq, event, first_seen, last_seen)
    SELECT feed, decode(md5(random()::text), 'hex'), 1, event, harken_now(), harken_now()
    FROM (SELECT * FROM memory ORDER BY event DESC LIMIT 1) sample, generate_series(1, $1::bigint)""",
)
PAGE = 200


def fill_file(path: Path, rows: int) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA synchronous=OFF; PRAGMA cache_size=-200000")
        [(event, verdicts)] = connection.execute(SAMPLE)
        [(feed, trigger)] = connection.execute("SELECT feed, (SELECT id FROM triggers) FROM events LIMIT 1")
        [(run,)] = connection.execute("SELECT max(seq) FROM runs")
        known = {"event": event, "run": run, "feed": feed, "trigger": trigger, "verdicts": verdicts, "body": BODY}
        with connection:
            for sql in FILE_ROWS:
                bindings = {**known, "rows": rows, "now": round(time.time() * 1e6)}
                connection.execute(sql, {name: value for name, value in bindings.items() if f":{name}" in sql})
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # what is still on its way to the disk would disturb the measurement
    with path.open("rb") as file:
        os.fsync(file.fileno())


def empty_file(path: Path) -> None:
    """Delete nearly all rows at once, as retention would in the course of time."""
    with closing(apsw.Connection(str(path))) as connection, connection:
        for table, key in (("events", "id"), ("runs", "seq"), ("memory", "event")):
            connection.execute(f"DELETE FROM {table} WHERE {key}<(SELECT max({key})-100 FROM {table})")


async def fill_postgres(url: str, rows: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        for sql in POSTGRES_ROWS:
            await connection.execute(sql, rows)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def fill_with(page: Callable[[int], Awaitable[None]], rows: int) -> None:
    """Through the store itself, in pages."""
    for begin in range(0, rows, PAGE):
        await page(min(PAGE, rows - begin))
