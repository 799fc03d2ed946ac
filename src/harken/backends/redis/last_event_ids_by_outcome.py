"""The event bank in Redis: verdicts are read and understood here, and what changes is written by one script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harken.backends.last_event_ids_by_outcome import (
    GONE_SECONDS,
    Listed,
    add_to_lists,
    decode_ids,
    encode_ids,
    list_events,
)
from harken.backends.redis.codec import BUCKET, EVENT_HEAD, verdicts_of
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.event import Verdict

__all__ = ["RedisBank"]

SLICE = 200
LISTS_CHECKED = 300


class RedisBank(UsesSession):
    async def bank_events(self, keep: int) -> int:
        session = await self._ready()
        if keep <= 0:
            await session.connection.write("event_bank.close", session.arguments(), ())
            return 0
        fields = ("banked", "bank_keep", "event")
        [found] = await session.connection.execute(("HMGET", session.connection.key("n"), *fields))
        after, kept, following = (int(value or 0) for value in found)
        events, last = await _next_slice(session, after, following - 1)
        if last == after and kept == keep:
            return await _drop_gone(session)
        new = list_events(events, keep)
        changed, lists = add_to_lists(new, await _stored(session, list(new)), keep)
        args = session.arguments()
        rows = [(_field(listed), args.text(encode_ids(ids))) for listed, ids in changed.items()]
        await session.connection.write("event_bank.put", args, (after, last, keep, rows, list(lists.items())))
        return last - after

    async def banked_events(self, trigger: str) -> Mapping[str, Sequence[int]]:
        session = await self._ready()
        wanted: list[Listed] = [(trigger, name) for name in ("fired", "filtered", "error")]
        return {name: ids[::-1] for (_, name), ids in (await _stored(session, wanted)).items()}


async def _next_slice(session: Session, after: int, newest: int) -> tuple[list[tuple[int, Sequence[Verdict]]], int]:
    """Events after this one with their verdicts, and the last id that was looked at."""
    connection, key = session.connection, session.connection.key
    [buckets] = await connection.execute(("ZRANGEBYSCORE", key("eb"), (after + 1) // BUCKET, "+inf", "LIMIT", 0, 1))
    if not buckets:
        return [], after
    begin = max(after + 1, int(buckets[0]) * BUCKET)
    last = min(begin + SLICE - 1, (int(buckets[0]) + 1) * BUCKET - 1, newest)
    if last < begin:
        return [], after
    ids = range(begin, last + 1)
    [heads] = await connection.execute(("HMGET", key(f"e:{int(buckets[0])}"), *(f"v{id}" for id in ids)))
    found = [(id, _verdicts(session, head)) for id, head in zip(ids, heads, strict=True) if head is not None]
    return found, last


def _verdicts(session: Session, head: bytes) -> Sequence[Verdict]:
    return verdicts_of(session.seal, head[EVENT_HEAD.size + EVENT_HEAD.unpack_from(head)[2] :])


def _field(listed: Listed) -> str:
    trigger, name = listed
    return f"{name}:{trigger}"


async def _stored(session: Session, wanted: Sequence[Listed]) -> dict[Listed, list[int]]:
    if not wanted:
        return {}
    [found] = await session.connection.execute(
        ("HMGET", session.connection.key("banks"), *(_field(listed) for listed in wanted))
    )
    return {listed: decode_ids(ids) for listed, ids in zip(wanted, found, strict=True) if ids is not None}


async def _drop_gone(session: Session) -> int:
    """Drop lists of triggers that are gone; a call looks at some of them."""
    connection, dropped = session.connection, 0
    scan = ("HSCAN", connection.key("banks"), session.banks_checked, "COUNT", LISTS_CHECKED)
    [[following, found]] = await connection.execute(scan)
    session.banks_checked = int(following)
    before = await session.now() - round(GONE_SECONDS * 1e6)
    rows = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    for field, ids in list(rows):
        trigger = field.decode().partition(":")[2]
        instructions = (field.decode(), trigger, before, decode_ids(ids))
        dropped += int(await connection.write("event_bank.drop", session.arguments(), instructions))
    return dropped
