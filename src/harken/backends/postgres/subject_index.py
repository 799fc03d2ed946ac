"""Events of an object by its name, see harken.backends.subject_index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.record_queries import events_of_ids, oldest_writer
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.backends.subject_index import BUCKET, CANDIDATES, PART, hashes_of, hashes_to_try
from harken.event import Recorded
from harken.store.events_by_object_name import is_about, names_to_try

__all__ = ["PostgresObjects", "forget_objects"]

Entry = tuple[int, int, int]
"""Part, hash and event."""

NEXT_BUCKET = f"SELECT id/{BUCKET} FROM events WHERE id>=(SELECT bucket*{BUCKET} FROM indexed) ORDER BY id LIMIT 1"
AFTER_BUCKET = "SELECT written_at FROM events WHERE id>=$1 ORDER BY id LIMIT 1"
IN_BUCKET = "SELECT e.id, f.name, e.subject, e.key FROM events e JOIN feeds f ON f.id=e.feed WHERE e.id>=$1 AND e.id<$2"
PUT = """WITH entries AS (INSERT INTO objects (part, hash, event)
SELECT * FROM unnest($2::bigint[], $3::int[], $4::bigint[]) ON CONFLICT DO NOTHING)
UPDATE indexed SET bucket=greatest(bucket, $1)"""

BY_HASH = """SELECT o.event FROM generate_series((SELECT min(part) FROM objects), (SELECT max(part) FROM objects))
AS p(n) CROSS JOIN LATERAL (SELECT event FROM objects WHERE part=p.n AND hash=ANY($1::int[])) o"""
BY_KEY = "SELECT id FROM events WHERE kid=ANY($1::bytea[])"
UNBUCKETED = f"""SELECT id, subject, key FROM events WHERE feed=(SELECT id FROM feeds WHERE name=$1)
AND id>=(SELECT bucket*{BUCKET} FROM indexed) AND id<$2 ORDER BY id DESC LIMIT {BUCKET}"""
NEWEST = 2**62

FORGET = f"""DELETE FROM objects WHERE part=ANY(ARRAY(SELECT p.n FROM unnest($1::bigint[]) AS p(n)
WHERE NOT EXISTS (SELECT 1 FROM events WHERE id>=p.n*{PART} AND id<(p.n+1)*{PART})))"""


class PostgresObjects(DatabaseUser):
    async def events_about(self, feed: str, name: str, *, limit: int = 10) -> Sequence[Recorded]:
        return await self._database.read(_events_about, feed, name, limit)

    async def index_objects(self) -> int:
        return await self._database.autocommit(_index_objects)


async def _events_about(tx: Transaction, feed: str, name: str, limit: int) -> list[Recorded]:
    found: list[Recorded] = []
    async for some in _candidates(tx, feed, name):
        for begin in range(0, len(some), CANDIDATES):
            events = await events_of_ids(tx, some[begin : begin + CANDIDATES])
            found += [each for each in events if each.feed == feed and is_about(each.subject, each.key, name)]
            if len(found) >= limit:
                return found[:limit]
    return found


async def _candidates(tx: Transaction, feed: str, name: str) -> AsyncIterator[list[int]]:
    """Ids of events that may be about it, the newest first."""
    newest: set[int] = set()
    before = NEWEST
    while rows := await tx.rows(UNBUCKETED, feed, before):
        before = rows[-1][0]
        newest |= {id for id, subject, key in rows if is_about(tx.text(subject), tx.text(key), name)}
    yield sorted(newest, reverse=True)
    older = {row[0] for row in await tx.rows(BY_HASH, list(hashes_to_try(tx.seal, feed, name)))}
    older |= {row[0] for row in await tx.rows(BY_KEY, [tx.seal.name(each) for each in names_to_try(name)])}
    yield sorted(older - newest, reverse=True)


async def _index_objects(tx: Transaction) -> int:
    """Not in one transaction: who writes must be known before the rows are read."""
    oldest = await oldest_writer(tx)
    bucket = await tx.value(NEXT_BUCKET)
    if bucket is None:
        return 0
    following = await tx.value(AFTER_BUCKET, (bucket + 1) * BUCKET)
    if following is None or following >= oldest:
        # a transaction that is under way may still add to the bucket
        return 0
    entries: list[Entry] = []
    for id, feed, subject, key in await tx.rows(IN_BUCKET, bucket * BUCKET, (bucket + 1) * BUCKET):
        entries += [(id // PART, each, id) for each in hashes_of(tx.seal, feed, tx.text(subject), tx.text(key))]
    entries.sort()
    columns = [[entry[at] for entry in entries] for at in range(3)]
    await tx.do(PUT, bucket + 1, *columns)
    return BUCKET


async def forget_objects(tx: Transaction, events: Sequence[int]) -> None:
    """These events were deleted: delete the names of parts of which no event is left."""
    await tx.do(FORGET, list({id // PART for id in events}))
