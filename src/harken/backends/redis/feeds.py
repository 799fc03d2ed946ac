"""Reading feeds: recalled, failing, resting, forgetting; and what people do to them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import micros
from harken.backends.redis.codec import Ask, known_of, micros_or_false
from harken.backends.redis.commit import RESULTS
from harken.backends.redis.definitions import state, trigger_state
from harken.backends.redis.transaction import Transaction
from harken.event import Event, Known
from harken.feed import FeedState, TriggerState
from harken.store import Failure, IdleRead

__all__ = ["dead_letter", "fail", "forget", "recall", "record_idle", "steer", "wake"]

AT_ONCE = 200
NAMES_AT_ONCE = 500


async def recall(tx: Transaction, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
    if not memory_ids:
        return {}
    key, names = tx.connection.key(f"m:{feed}"), list(dict.fromkeys(memory_ids))
    slices = [names[begin : begin + NAMES_AT_ONCE] for begin in range(0, len(names), NAMES_AT_ONCE)]
    rows = await tx.connection.read(*(("HMGET", key, *map(tx.seal.name, some)) for some in slices))
    found = (value for some in rows for value in some)
    return {name: known_of(tx.seal, value)[0] for name, value in zip(names, found, strict=True) if value is not None}


async def fail(tx: Transaction, failure: Failure) -> None:
    ask = tx.ask()
    instructions = (
        failure.feed,
        False if failure.token is None else failure.token,
        ask.shut_json(failure.health),
        failure.health.clean,
        micros_or_false(failure.next_due),
        micros(failure.started_at),
        RESULTS.index(failure.result),
        failure.seconds,
        ask.shut(failure.error),
    )
    await tx.connection.write("fail", ask, instructions)


async def record_idle(tx: Transaction, reads: Sequence[IdleRead]) -> list[str]:
    stale: list[str] = []
    for begin in range(0, len(reads), AT_ONCE):
        ask = tx.ask()
        instructions = [_rest(ask, one) for one in reads[begin : begin + AT_ONCE]]
        _, *left = await tx.connection.write("record_idle", ask, instructions)
        stale += [name.decode() for name in left]
    return stale


def _rest(ask: Ask, one: IdleRead) -> tuple[Any, ...]:
    return (
        one.feed,
        one.token,
        one.count,
        RESULTS.index(one.result),
        one.seen,
        micros(one.first_at),
        micros(one.last_at),
        micros_or_false(one.next_due),
        False if one.cursor is msgspec.UNSET else ask.shut_json(one.cursor),
        micros_or_false(one.watermark),
        micros(one.covered.start) if one.covered else False,
        micros(one.covered.end) if one.covered else False,
        False if one.health is None else ask.shut_json(one.health),
        one.health is not None and one.health.clean,
        False if one.revision is None else one.revision,
    )


async def forget(tx: Transaction, feed: str, token: int, listed: Sequence[str], before: datetime) -> int:
    """First all that is listed counts as seen, then what was not seen goes: a stop in between forgets too little."""
    for begin in range(0, max(1, len(listed)), NAMES_AT_ONCE):
        ask = tx.ask()
        some = [ask.name(each) for each in listed[begin : begin + NAMES_AT_ONCE]]
        await tx.connection.write("listed", ask, (feed, token, len(some)))
    gone, cursor = 0, "0"
    while True:
        following, some_gone = await tx.connection.write("forget", tx.ask(), (feed, token, micros(before), cursor))
        gone, cursor = gone + int(some_gone), following.decode()
        if cursor == "0":
            return gone


async def dead_letter(tx: Transaction, feed: str, event: Event, reason: str) -> None:
    ask = tx.ask()
    payload = repr(dict(event.data))[:10_000]
    key = event.key or event.subject
    plain = [each.encode("utf-8", "backslashreplace") for each in (feed, key, reason, payload)]
    letter = ask.text(tx.seal.shut(msgspec.msgpack.encode(plain)))
    await tx.connection.write("dead_letter", ask, (feed, ask.name(f"{feed}\0{key}"), letter))


async def steer(tx: Transaction, how: str, trigger: str, more: Any = False) -> TriggerState:
    """Pause (with a reason), resume or reset (with or without the cursor)."""
    ask = tx.ask()
    asked = ask.shut(more or "paused") if how == "pause" else bool(more)
    uid = await tx.connection.write("steer", ask, (how, trigger, asked))
    return await trigger_state(tx, uid.decode())


async def wake(tx: Transaction, feed: str) -> FeedState:
    await tx.connection.write("wake", tx.ask(), (feed,))
    return await state(tx, feed)
