"""Events of an object by its name, see harken.backends.subject_index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.record_queries import event_of_id
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.subject_index import BUCKET, PART, hashes_of, hashes_to_try
from harken.event import Recorded
from harken.store.events_by_object_name import is_about, names_to_try

__all__ = ["SqliteObjects", "forget_objects"]

Entry = tuple[int, int, int]
"""Part, hash and event."""

NEXT_BUCKET = f"SELECT id/{BUCKET} FROM events WHERE id>=(SELECT bucket*{BUCKET} FROM indexed) ORDER BY id LIMIT 1"
IN_BUCKET = "SELECT e.id, f.name, e.subject, e.key FROM events e JOIN feeds f ON f.id=e.feed WHERE e.id>=? AND e.id<?"

# the join goes from part to part
BY_HASH = """WITH RECURSIVE p(n) AS (SELECT (SELECT max(part) FROM objects)
UNION ALL SELECT n-1 FROM p WHERE n>(SELECT min(part) FROM objects))
SELECT event FROM p CROSS JOIN objects o ON o.part=p.n AND o.hash=?"""
BY_KEY = "SELECT id FROM events WHERE kid=?"
UNBUCKETED = f"""SELECT id, subject, key FROM events WHERE feed=(SELECT id FROM feeds WHERE name=?)
AND id>=(SELECT bucket*{BUCKET} FROM indexed) ORDER BY id DESC"""


class SqliteObjects(DatabaseUser):
    async def events_about(self, feed: str, name: str, *, limit: int = 10) -> Sequence[Recorded]:
        return await self._database.read(_events_about, feed, name, limit)

    async def index_objects(self) -> int:
        found = await self._database.read(_next_entries)
        if found is None:
            return 0
        await self._database.write(_put, *found)
        return BUCKET


def _events_about(tx: Transaction, feed: str, name: str, limit: int) -> list[Recorded]:
    found: list[Recorded] = []
    for event_id in _candidates(tx, feed, name):
        event = event_of_id(tx, event_id)
        if event is not None and event.feed == feed and is_about(event.subject, event.key, name):
            found.append(event)
            if len(found) == limit:
                break
    return found


def _candidates(tx: Transaction, feed: str, name: str) -> Iterator[int]:
    """Ids of events that may be about it, the newest first."""
    newest = {
        id for id, subject, key in tx.execute(UNBUCKETED, (feed,)) if is_about(tx.text(subject), tx.text(key), name)
    }
    yield from sorted(newest, reverse=True)
    older = {row[0] for each in hashes_to_try(tx.seal, feed, name) for row in tx.execute(BY_HASH, (each,))}
    older |= {row[0] for each in names_to_try(name) for row in tx.execute(BY_KEY, (tx.seal.name(each),))}
    yield from sorted(older - newest, reverse=True)


def _next_entries(tx: Transaction) -> tuple[int, list[Entry]] | None:
    """The next bucket with its entries; None while it may still get events."""
    bucket = tx.value(NEXT_BUCKET)
    if bucket is None or tx.value("SELECT 1 FROM events WHERE id>=? LIMIT 1", ((bucket + 1) * BUCKET,)) is None:
        return None
    entries = [
        (id // PART, each, id)
        for id, feed, subject, key in tx.execute(IN_BUCKET, (bucket * BUCKET, (bucket + 1) * BUCKET))
        for each in hashes_of(tx.seal, feed, tx.text(subject), tx.text(key))
    ]
    return bucket, sorted(entries)


def _put(tx: Transaction, bucket: int, entries: Sequence[Entry]) -> None:
    tx.connection.executemany("INSERT OR IGNORE INTO objects (part, hash, event) VALUES (?,?,?)", entries)
    tx.execute("UPDATE indexed SET bucket=?", (bucket + 1,))


def forget_objects(tx: Transaction, events: Sequence[int]) -> None:
    """These events were deleted: delete the names of parts of which no event is left."""
    for part in {id // PART for id in events}:
        if tx.value("SELECT 1 FROM events WHERE id>=? AND id<? LIMIT 1", (part * PART, (part + 1) * PART)) is None:
            tx.execute("DELETE FROM objects WHERE part=?", (part,))
