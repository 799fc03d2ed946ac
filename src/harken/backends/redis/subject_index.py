"""Events of an object by its name, see harken.backends.subject_index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from struct import Struct

from harken.backends.redis.codec import EVENT_HEAD, decode_body, decode_text
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.backends.redis.record_queries import ids_of_feed, ids_of_key
from harken.backends.subject_index import BUCKET, CANDIDATES, PART, hashes_of, hashes_to_try
from harken.event import Recorded
from harken.store.events_by_object_name import is_about, names_to_try

__all__ = ["RedisObjects"]

ENTRY = Struct(">iH")
"""The hash of a name, and the place of its event in the part."""

PARTS_PER_CALL = 200
"""Nobody else is served while a script runs."""

BODIES_PER_READ = 100
"""While a bucket is made: bodies may be large."""


class RedisObjects(UsesSession):
    async def events_about(self, feed: str, name: str, *, limit: int = 10) -> Sequence[Recorded]:
        session = await self._ready()
        found: list[Recorded] = []
        async for some in _candidates(session, feed, name):
            for begin in range(0, len(some), CANDIDATES):
                events = await session.events(some[begin : begin + CANDIDATES])
                found += [each for each in events if each.feed == feed and is_about(each.subject, each.key, name)]
                if len(found) >= limit:
                    return found[:limit]
        return found

    async def index_objects(self) -> int:
        session = await self._ready()
        key = session.connection.key
        [[following, last]] = await session.connection.execute(("HMGET", key("n"), "objects", "event"))
        [buckets] = await session.connection.execute(
            ("ZRANGEBYSCORE", key("eb"), int(following or 0), "+inf", "LIMIT", 0, 1)
        )
        if not buckets or int(last) < (int(buckets[0]) + 1) * BUCKET:
            return 0
        args, bucket = session.arguments(), int(buckets[0])
        groups: dict[int, list[bytes]] = {}
        async for entry in _entries(session, bucket):
            groups.setdefault(entry[0] >> 2, []).append(entry)
        instructions = (bucket, [(number, args.text(b"".join(some))) for number, some in groups.items()])
        await session.connection.write("objects.put", args, instructions)
        return BUCKET


async def _candidates(session: Session, feed: str, name: str) -> AsyncIterator[list[int]]:
    """Ids of events that may be about it, the newest first."""
    [following] = await session.connection.execute(("HGET", session.connection.key("n"), "objects"))
    bucket = int(following or 0)
    newest: set[int] = set()
    before: int | None = None
    while ids := [id for id in await ids_of_feed(session, feed, before, BUCKET) if id >= bucket * BUCKET]:
        before = ids[-1]
        newest |= {id for id, subject, key in await _named(session, ids) if is_about(subject, key, name)}
    yield sorted(newest, reverse=True)
    older = {id for each in names_to_try(name) for id in await ids_of_key(session, each, None, CANDIDATES)}
    older.update(await _ids_of_hashes(session, feed, name))
    yield sorted(older - newest, reverse=True)


async def _ids_of_hashes(session: Session, feed: str, name: str) -> list[int]:
    hashes = [each % 2**32 for each in hashes_to_try(session.seal, feed, name)]
    found: list[int] = []
    before: int | bool = False
    while True:
        instructions = ([(each, each >> 26) for each in hashes], before, PARTS_PER_CALL)
        below, ids = await session.connection.query("objects.find", session.arguments(), instructions)
        found += map(int, ids)
        before = int(below)
        if not before:
            return found


async def _named(session: Session, ids: Sequence[int]) -> list[tuple[int, str, str]]:
    """Id, subject and key of these events, without those that were deleted."""
    by_bucket: dict[int, list[int]] = {}
    for id in ids:
        by_bucket.setdefault(id // BUCKET, []).append(id)
    key = session.connection.key
    replies = await session.connection.execute(
        *(("HMGET", key(f"e:{each}"), *some) for each, some in by_bucket.items())
    )
    bodies = [
        (id, decode_body(session.seal.open(body)))
        for some, found in zip(by_bucket.values(), replies, strict=True)
        for id, body in zip(some, found, strict=True)
        if body is not None
    ]
    return [(id, decode_text(body[1]), decode_text(body[0])) for id, body in bodies]


async def _entries(session: Session, bucket: int) -> AsyncIterator[bytes]:
    key = session.connection.key(f"e:{bucket}")
    for begin in range(bucket * BUCKET, (bucket + 1) * BUCKET, BODIES_PER_READ):
        ids = range(begin, begin + BODIES_PER_READ)
        [heads] = await session.connection.execute(("HMGET", key, *(f"v{id}" for id in ids)))
        feeds = dict(zip(ids, heads, strict=True))
        for id, subject, name in await _named(session, ids):
            if feeds[id] is not None:
                for each in hashes_of(session.seal, _feed_of(feeds[id]), subject, name):
                    yield ENTRY.pack(each, id % PART)


def _feed_of(head: bytes) -> str:
    size = EVENT_HEAD.unpack_from(head)[2]
    return head[EVENT_HEAD.size : EVENT_HEAD.size + size].decode()
