"""The rounds on PostgreSQL: our store, and bare asyncpg with the same planner settings and only the necessary SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from bench.store_rounds import BARE, SHORTER, Asked, Meter, Way, ours, rounds_of, told
from harken.backends.postgres import PostgresStore
from harken.backends.postgres.connection import PLANNER_SETTINGS
from harken.event import Event

__all__ = ["rounds_on_postgres"]

EVENTS = """INSERT INTO events (id, feed, kid, key, subject, type, recorded_at, verdicts, data)
SELECT nextval('event_ids'), 1, k, s::bytea, s::bytea, 'mail', 1, '[]', d
FROM unnest($1::bytea[], $2::text[], $3::bytea[]) AS u(k, s, d) RETURNING id"""
MEMORY = """INSERT INTO memory (feed, mid, seq, event, first_seen, last_seen)
SELECT 1, k, 1, i, 1, 1 FROM unnest($1::bytea[], $2::bigint[]) AS u(k, i)"""
RUNS = """INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, event, created_at)
SELECT nextval('run_seqs'), k, 1, 'r1', 2, 1, i, 1 FROM unnest($1::bytea[], $2::bigint[]) AS u(k, i)"""
DEQUEUE = """WITH r AS (UPDATE runs SET state=4, token=token+1, lease_until=9, holder='w', started_at=1
WHERE seq=ANY(ARRAY(SELECT seq FROM runs WHERE state=2 AND priority=0 AND due_at<=2
ORDER BY due_at, seq LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, token, event)
SELECT r.id, r.token, e.key, e.data FROM r JOIN events e ON e.id=r.event"""
DEQUEUE_AND_SETTLE = DEQUEUE.replace("state=4", "state=6, finished_at=1")
SETTLE = """UPDATE runs SET state=6, finished_at=1, lease_until=NULL
FROM unnest($1::bytea[], $2::bigint[]) AS u(i, t) WHERE id=u.i AND token=u.t"""
SESSIONS = "SELECT pid, pg_database_size($1) FROM pg_stat_activity WHERE datname=$1 AND pid <> pg_backend_pid()"


class Bare:
    """With `shorter` a run is done as soon as it is dequeued: a crash after that loses it."""

    def __init__(self, connection: Any, *, shorter: bool) -> None:
        self.connection = connection
        self.shorter = shorter

    async def batch(self, events: list[Event]) -> None:
        names = [blake2b(event.key.encode(), digest_size=16).digest() for event in events]
        async with self.connection.transaction():
            texts, bodies = [event.key for event in events], [event.raw for event in events]
            ids = [row[0] for row in await self.connection.fetch(EVENTS, names, texts, bodies)]
            await self.connection.execute(MEMORY, names, ids)
            await self.connection.execute(RUNS, names, ids)
        rows = await self.connection.fetch(DEQUEUE_AND_SETTLE if self.shorter else DEQUEUE, len(events))
        if self.shorter:
            return
        done = await self.connection.execute(SETTLE, [row[0] for row in rows], [row[1] for row in rows])
        if done != f"UPDATE {len(events)}":
            raise RuntimeError(f"not every row was settled: {done}")


async def rounds_on_postgres(asked: Asked) -> Any:
    watch = await asyncpg.connect(asked.urls[BARE].rpartition("/")[0] + "/postgres")
    meters = {name: _meter(watch, urlsplit(url).path[1:]) for name, url in asked.urls.items()}
    connections = {name: await _session(asked.urls[name]) for name in (BARE, SHORTER)}
    bare = [
        Way(name=name, batch=Bare(connection, shorter=name == SHORTER).batch, meter=meters[name])
        for name, connection in connections.items()
    ]
    stores = {name: PostgresStore.at(url) for name, url in asked.urls.items() if name not in connections}
    try:
        return await rounds_of([*bare, *await ours(stores, meters)], asked)
    finally:
        for closing in (*stores.values(), *connections.values(), watch):
            await closing.close()


async def _session(url: str) -> Any:
    """A connection to a database that has our schema and no rows."""
    await (schema := PostgresStore.at(url)).connect()
    await schema.close()
    return await asyncpg.connect(url, server_settings={**PLANNER_SETTINGS, "plan_cache_mode": "force_generic_plan"})


def _meter(watch: Any, database: str) -> Callable[[], Awaitable[Meter]]:
    async def read() -> Meter:
        rows = await watch.fetch(SESSIONS, database)
        return Meter(server=sum(_seconds(row[0]) for row in rows), bytes=max((row[1] for row in rows), default=0))

    return read


def _seconds(pid: int) -> float:
    """CPU seconds of a session's process, without the background processes of the server."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    told(rounds_on_postgres)
