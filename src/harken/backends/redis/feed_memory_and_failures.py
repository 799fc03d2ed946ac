"""What readers of a feed need and write besides commits: memory, failures, idle reads, refused events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import micros
from harken.backends.redis.codec import RESULTS, Arguments, encode_letter, known_of, micros_or_false
from harken.backends.redis.connection_and_name_cache import UsesSession
from harken.event import Event, Known
from harken.store import Failure, IdleRead

__all__ = ["RedisFeeds"]

NAMES_PER_CALL = 500
IDLE_READS_PER_CALL = 200
LETTER_CHARACTERS = 10_000


class RedisFeeds(UsesSession):
    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
        session = await self._ready()
        if not memory_ids:
            return {}
        key, names = session.connection.key(f"m:{feed}"), list(dict.fromkeys(memory_ids))
        slices = [names[begin : begin + NAMES_PER_CALL] for begin in range(0, len(names), NAMES_PER_CALL)]
        rows = await session.connection.execute(*(("HMGET", key, *map(session.seal.name, some)) for some in slices))
        found = zip(names, (value for some in rows for value in some), strict=True)
        return {name: known_of(session.seal, value)[0] for name, value in found if value is not None}

    async def fail(self, failure: Failure) -> None:
        session = await self._ready()
        args = session.arguments()
        instructions = (
            failure.feed,
            False if failure.token is None else failure.token,
            args.shut_json(failure.health),
            failure.health.clean,
            micros_or_false(failure.next_due),
            micros(failure.started_at),
            RESULTS.index(failure.result),
            failure.seconds,
            args.shut(failure.error),
        )
        await session.connection.write("feeds.fail", args, instructions)

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        session = await self._ready()
        stale: list[str] = []
        for begin in range(0, len(reads), IDLE_READS_PER_CALL):
            args = session.arguments()
            rows = [_idle_read(args, read) for read in reads[begin : begin + IDLE_READS_PER_CALL]]
            _, *names = await session.connection.write("feeds.record_idle", args, (rows,))
            stale += [name.decode() for name in names]
        return stale

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime | None) -> int:
        session = await self._ready()
        # mark what is listed before anything is deleted: an interruption then forgets too little, never too much
        for begin in range(0, max(1, len(listed)), NAMES_PER_CALL):
            args = session.arguments()
            some = [args.name(each) for each in listed[begin : begin + NAMES_PER_CALL]]
            await session.connection.write("feeds.mark_listed", args, (feed, token, len(some)))
        if before is None:
            return 0
        total, cursor = 0, "0"
        while True:
            instructions = (feed, token, micros(before), cursor)
            following, forgotten = await session.connection.write("feeds.forget", session.arguments(), instructions)
            total, cursor = total + int(forgotten), following.decode()
            if cursor == "0":
                return total

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        session = await self._ready()
        args = session.arguments()
        payload = repr(dict(event.data))[:LETTER_CHARACTERS].encode("utf-8", "backslashreplace")
        key = event.key or event.subject
        letter = args.text(encode_letter(session.seal, feed, key, reason, payload))
        await session.connection.write("feeds.dead_letter", args, (feed, args.name(f"{feed}\0{key}"), letter))


def _idle_read(args: Arguments, read: IdleRead) -> tuple[Any, ...]:
    return (
        read.feed,
        read.token,
        read.count,
        RESULTS.index(read.result),
        read.seen,
        micros(read.first_at),
        micros(read.last_at),
        micros_or_false(read.next_due),
        False if read.cursor is msgspec.UNSET else args.shut_json(read.cursor),
        micros_or_false(read.watermark),
        micros(read.covered.start) if read.covered else False,
        micros(read.covered.end) if read.covered else False,
        False if read.health is None else args.shut_json(read.health),
        read.health is not None and read.health.clean,
        False if read.revision is None else read.revision,
    )
