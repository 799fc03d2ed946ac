"""Durable events per second through the PostgreSQL store, beside bare asyncpg on the same tables in the same run.

`python -m bench.postgres [BATCH] [ROUNDS]`. Ours: commit, claim, settle; or a commit that hands its runs over, settle.
Bare: the same rows inserted in one transaction, then dequeued by SKIP LOCKED with their events. Batches alternate, so
that noise hits all alike, and the bare sessions have the same planner settings.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

import uvloop

from harken.clock import SystemClock
from harken.event import Event
from harken.runs import Finished
from harken.store import Commit, Committed, Entry, Intent, Lease, Opened, Settlement, Tick
from harken.stores.postgres import PostgresStore
from harken.stores.postgres.door import LOOK_UPS
from harken.testing.store.given import definitions
from tests.servers import postgres

BODY = b'{"title": "something happened", "text": "' + b"a" * 300 + b'"}'
DURABLE = "-c shared_buffers=128MB -c max_wal_size=2GB"

BARE_EVENTS = """INSERT INTO events (id, feed, kid, key, subject, type, recorded_at, verdicts, data)
SELECT nextval('event_ids'), 1, k, s::bytea, s::bytea, 'mail', 1, '[]', d
FROM unnest($1::bytea[], $2::text[], $3::bytea[]) AS u(k, s, d) RETURNING id"""
BARE_MEMORY = """INSERT INTO memory (feed, mid, seq, event, first_seen, last_seen)
SELECT 1, k, 1, i, 1, 1 FROM unnest($1::bytea[], $2::bigint[]) AS u(k, i)"""
BARE_RUNS = """INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, event, created_at)
SELECT nextval('run_seqs'), k, 1, 'r1', 2, 1, i, 1 FROM unnest($1::bytea[], $2::bigint[]) AS u(k, i)"""
BARE_DEQUEUE = """WITH r AS (UPDATE runs SET state=6, finished_at=1 WHERE seq=ANY(ARRAY(SELECT seq FROM runs
WHERE state=2 AND priority=0 AND due_at<=2 ORDER BY due_at, seq LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, event)
SELECT r.id, e.key, e.data FROM r JOIN events e ON e.id=r.event"""


def events(count: int, tag: str) -> list[Event]:
    now = SystemClock().now()
    return [
        Event(subject=f"{tag}-{n}", key=f"{tag}-{n}", type="mail", data={}, raw=BODY, occurred_at=now)
        for n in range(count)
    ]


class Ours:
    def __init__(self, store: PostgresStore, opened: Opened, lease: Lease, *, hand: bool) -> None:
        self.store, self.opened, self.lease, self.hand = store, opened, lease, hand

    async def batch(self, shown: list[Event]) -> None:
        trigger, now = self.opened.triggers["mail"], SystemClock().now()
        fields: dict[str, Any] = {"trigger": trigger.uid, "epoch": trigger.epoch, "workflow_rev": "r1", "due_at": now}
        entries = [
            Entry(event=one, memory_id=one.subject, decisions=(Intent(run_key=one.key, **fields),)) for one in shown
        ]
        page = Commit(
            feed="inbox",
            revision=self.opened.feeds["inbox"].revision,
            token=self.lease.token,
            entries=entries,
            cursor=[shown[-1].key],
            next_due=now,
            tick=Tick(result="events", started_at=now, new=len(shown)),
            done=True,
            claim=len(shown) if self.hand else 0,
            holder="w",
        )
        answer = await self.store.commit(page)
        assert isinstance(answer, Committed)
        claimed = answer.claimed if self.hand else await self.store.claim("w", len(shown), 60)
        ends = [Settlement(id=one.id, token=one.token, outcome=Finished(), trigger="mail") for one in claimed]
        assert list(await self.store.settle(ends)) == ["settled"] * len(shown)


class Bare:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def batch(self, shown: list[Event]) -> None:
        names = [blake2b(one.key.encode(), digest_size=16).digest() for one in shown]
        async with self.connection.transaction():
            texts, bodies = [one.key for one in shown], [one.raw for one in shown]
            ids = [row[0] for row in await self.connection.fetch(BARE_EVENTS, names, texts, bodies)]
            await self.connection.execute(BARE_MEMORY, names, ids)
            await self.connection.execute(BARE_RUNS, names, ids)
        assert len(await self.connection.fetch(BARE_DEQUEUE, len(shown))) == len(shown)


async def timed(work: Callable[[list[Event]], Awaitable[None]], shown: list[Event]) -> float:
    begun = time.perf_counter()
    await work(shown)
    return time.perf_counter() - begun


async def measure(batch: int, rounds: int) -> None:
    postgres.QUICK = DURABLE
    with postgres.PostgresServer() as server:
        stores = [PostgresStore.at(server.url(await server.database())) for _ in range(3)]
        opened = [await store.open(definitions()) for store in stores]
        leases = [await store.lease(0, "a", 3600) for store in stores]
        assert leases[0] is not None
        assert leases[1] is not None
        # the third database has only its schema from us
        connection = await server.connect("test_3")
        for name, value in {**LOOK_UPS, "plan_cache_mode": "force_generic_plan"}.items():
            await connection.execute(f"SET {name} = {value}")
        ways = {
            "bare": Bare(connection).batch,
            "commit, claim, settle": Ours(stores[0], opened[0], leases[0], hand=False).batch,
            "commit that hands over, settle": Ours(stores[1], opened[1], leases[1], hand=True).batch,
        }
        spent = dict.fromkeys(ways, 0.0)
        for number in range(rounds + 10):
            for name, work in ways.items():
                seconds = await timed(work, events(batch, f"{number}"))
                spent[name] += seconds if number >= 10 else 0.0
        for name, seconds in spent.items():
            ratio = spent["bare"] / seconds
            print(f"{name}: {batch * rounds / seconds:.0f} events/s, {ratio:.2f} of bare")
        await connection.close()
        for store in stores:
            await store.close()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    uvloop.run(measure(*(numbers + [100, 100][len(numbers) :])))
