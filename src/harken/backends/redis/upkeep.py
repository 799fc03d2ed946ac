"""Housekeeping: expired claims, retention, a check of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harken.backends.redis.codec import decode_letter, decode_text
from harken.backends.redis.connection import Connection
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.errors import Refused
from harken.store import Erased, Space

__all__ = ["RedisUpkeep", "keys_beginning_with"]

PRUNED_PER_CALL = 100
"""Rows of a kind that one call deletes: a few milliseconds, in which nobody else is served."""

SLICES_PASSED = 50
"""How many slices without a row that may go are passed over before it is left for the next round."""

REQUEUED_PER_CALL = 500
FEEDS_PER_CALL = 50
KEYS_PER_SCAN = 1000


class RedisUpkeep(UsesSession):
    _connection: Connection

    @property
    def trouble(self) -> str:
        return self._connection.trouble

    @property
    def queued(self) -> int:
        return self._connection.waiting

    async def requeue_expired(self) -> int:
        session = await self._ready()
        total = 0
        while True:
            write = session.connection.write("upkeep.requeue_expired", session.arguments(), (REQUEUED_PER_CALL,))
            requeued: int = await write
            total += requeued
            if requeued < REQUEUED_PER_CALL:
                return total

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float, audit: float) -> int:
        session = await self._ready()
        connection, now = session.connection, await session.now()
        limits = [now - round(seconds * 1e6) for seconds in (runs, ticks, events, audit)]
        for _ in range(SLICES_PASSED):
            write = connection.write("upkeep.prune", session.arguments(), (*limits, PRUNED_PER_CALL))
            deleted, more = map(int, await write)
            if deleted or not more:
                break
        [feeds] = await connection.execute(("SMEMBERS", connection.key("pushed")))
        names = sorted(feed.decode() for feed in feeds)
        for begin in range(0, len(names), FEEDS_PER_CALL):
            some = names[begin : begin + FEEDS_PER_CALL]
            instructions = (now - round(pushed * 1e6), PRUNED_PER_CALL, some)
            deleted += int(await connection.write("upkeep.prune_pushed", session.arguments(), instructions))
        return deleted

    async def erase(self, events: Sequence[int], runs: Sequence[str], is_theirs: Callable[[str, str], bool]) -> Erased:
        session = await self._ready()
        args = session.arguments()
        instructions = ([int(event) for event in events], [args.run(run) for run in runs])
        gone_events, gone_runs = map(int, await session.connection.write("upkeep.erase", args, instructions))
        return Erased(events=gone_events, runs=gone_runs, letters=await _erase_letters(session, is_theirs))

    async def shrink(self) -> int:
        """Nothing: what was deleted is free memory at once."""
        return 0

    async def space(self) -> Space:
        """The memory of the whole server: Redis does not tell whose it is."""
        [info] = await (await self._ready()).connection.execute(("INFO", "memory"))
        return Space(bytes=int(info["used_memory"]))

    async def check(self) -> Sequence[str]:
        """Look at everything, a slice at a time. Rows that change meanwhile are checked as they are then."""
        session = await self._ready()
        findings: Counter[str] = Counter()
        for what in ("runs", "events"):
            place = 0
            while True:
                following, found = await session.connection.query("upkeep.check", session.arguments(), (what, place))
                findings.update(each.decode() for each in found)
                place = int(following)
                if not place:
                    break
        for what in ("slots", "moved"):
            cursor = "0"
            while True:
                following, found = await session.connection.query("upkeep.check", session.arguments(), (what, cursor))
                findings.update(each.decode() for each in found)
                cursor = following.decode()
                if cursor == "0":
                    break
        return [f"{what}: {count}" for what, count in findings.items()] + await _check_journals(session)

    async def backup(self, target: str) -> None:
        fix = "Let Redis do it (BGSAVE, then copy its dump file), or copy the store: harken store copy"
        raise Refused("a store in Redis is not backed up by Harken", fix=fix)

    async def close(self) -> None:
        await self._hints.close()
        await self._connection.close()


async def _erase_letters(session: Session, is_theirs: Callable[[str, str], bool]) -> int:
    connection, erased = session.connection, 0
    [numbers] = await connection.execute(("ZRANGE", connection.key("bz"), 0, -1))
    for number in numbers:
        [row] = await connection.execute(("HGET", connection.key("buried"), number))
        if row is None:
            continue
        _, key, _, payload = (decode_text(each) for each in decode_letter(session.seal.open(row[24:])))
        if is_theirs(key, payload):
            erased += int(await connection.write("runs.drop_refused_event", session.arguments(), (int(number),)))
    return erased


async def _check_journals(session: Session) -> list[str]:
    """Find journals whose run does not exist."""
    connection, cursor, orphans = session.connection, 0, 0
    prefix = connection.key("j:")
    while True:
        [[cursor, keys]] = await connection.execute(keys_beginning_with(prefix, cursor))
        alive = await connection.execute(*(("EXISTS", connection.key("r:") + key[len(prefix) :]) for key in keys))
        orphans += alive.count(0)
        if not cursor:
            return [f"journals that belong to no run: {orphans}"] if orphans else []


def keys_beginning_with(prefix: bytes, cursor: int) -> tuple[object, ...]:
    """The SCAN command for a page of these keys, with the special characters of patterns escaped."""
    literal = b"".join(b"\\" + bytes([char]) if char in b"*?[]^-\\" else bytes([char]) for char in prefix)
    return ("SCAN", cursor, "MATCH", literal + b"*", "COUNT", KEYS_PER_SCAN)
