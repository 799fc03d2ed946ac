"""Ticks, dead letters and the audit trail, as rows that go to another home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from struct import Struct
from typing import Any

import msgspec

from harken.backends.redis.commit import RESULTS
from harken.backends.redis.transaction import Home
from harken.store.export_rows import Audit, Letter, MovedTick

__all__ = ["STAMP", "TICK", "audits", "letters", "text", "ticks"]

STAMP = Struct(">Q")
TICK = Struct(">QQIBIId")
AT_ONCE = 200

_letter = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes, bytes]).decode
_audit = msgspec.msgpack.Decoder(tuple[str, str, str, bytes]).decode


def text(plain: bytes) -> str:
    return plain.decode("utf-8", "surrogatepass")


async def _list(home: Home, key: str) -> AsyncIterator[list[Any]]:
    """A long list, some entries at a time."""
    begin = 0
    while True:
        [some] = await home.link.read(("LRANGE", home.link.key(key), begin, begin + AT_ONCE - 1))
        if not some:
            return
        yield some
        begin += AT_ONCE


async def ticks(home: Home) -> AsyncIterator[MovedTick]:
    """In the order of time over all feeds, which is that of the queue in which they wait to be forgotten."""
    places: dict[str, int] = {}
    async for turns in _list(home, "tq"):
        names = [feed.decode() for feed in turns]
        commands = []
        for feed in names:
            place = places[feed] = places.get(feed, -1) + 1
            commands.append(("LINDEX", home.link.key(f"t:{feed}"), place))
        for feed, row in zip(names, await home.link.read(*commands), strict=True):
            if row is not None:
                yield _tick(home, feed, row)


def _tick(home: Home, feed: str, row: bytes) -> MovedTick:
    started_at, ended_at, count, result, seen, new, seconds = TICK.unpack_from(row)
    return MovedTick(
        feed=feed,
        started_at=started_at,
        ended_at=ended_at,
        count=count,
        result=RESULTS[result],
        seen=seen,
        new=new,
        error=home.text(row[TICK.size :]) if len(row) > TICK.size else "",
        seconds=seconds,
    )


async def letters(home: Home) -> AsyncIterator[Letter]:
    [numbers] = await home.link.read(("ZRANGE", home.link.key("bz"), 0, -1))
    for begin in range(0, len(numbers), AT_ONCE):
        some = numbers[begin : begin + AT_ONCE]
        [rows] = await home.link.read(("HMGET", home.link.key("buried"), *some))
        for number, row in zip(some, rows, strict=True):
            feed, key, reason, payload = _letter(home.seal.open(row[24:]))
            said = {"feed": text(feed), "key": text(key), "reason": text(reason)}
            yield Letter(id=int(number), payload=payload, at=STAMP.unpack_from(row)[0], **said)


async def audits(home: Home) -> AsyncIterator[Audit]:
    async for some in _list(home, "audit"):
        for row in some:
            who, did, what, sealed = _audit(row[STAMP.size :])
            yield Audit(at=STAMP.unpack_from(row)[0], who=who, did=did, what=what, detail=home.seal.open(sealed))
