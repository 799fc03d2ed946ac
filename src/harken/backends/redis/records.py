"""What people ask about: a closed list of queries, newest first, in keyset pages."""

from __future__ import annotations

from datetime import datetime
from struct import Struct

from harken.backends.redis.codec import ABSENT, BUCKET, known_of, moment
from harken.backends.redis.commit import RESULTS
from harken.backends.redis.paging import below, older, page
from harken.backends.redis.transaction import Home
from harken.backends.run_states import STATES
from harken.event import Known, Recorded
from harken.feed import TickSpan
from harken.store import Page

__all__ = ["counts", "event", "events", "events_after", "sighting", "ticks"]

LARGEST = 2**53

_TICK = Struct(">QQIBIId")
_STAMP = Struct(">Q")


async def events(
    home: Home, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    if trigger:
        feed = await _feed_of(home, trigger) or feed

    async def some(before: int | None) -> list[tuple[int, Recorded | None]]:
        if key:
            ids = await _of_key(home, key, before, limit)
        elif feed:
            ids = [int(each) for each in await older(home, f"ef:{feed}", before, limit)]
        else:
            ids = [number for number, _ in await below(home, "e:", "v", "eb", before, limit)]
        found = {event.id: event for event in await home.events(ids)}
        return [(each, found.get(each)) for each in ids]

    def concerns(found: Recorded) -> bool:
        ours = not feed or found.feed == feed
        recent = since is None or found.recorded_at >= since
        return ours and recent and (not trigger or any(verdict.trigger == trigger for verdict in found.verdicts))

    return await page(some, concerns, before, limit)


async def _feed_of(home: Home, trigger: str) -> str:
    [uid] = await home.link.read(("HGET", home.link.key("tn"), trigger))
    if uid is None:
        return ""
    [feed] = await home.link.read(("HGET", home.link.key("tr:") + uid, "feed"))
    return str(feed.decode())


async def _of_key(home: Home, key: str, before: int | None, limit: int) -> list[int]:
    name = home.seal.name(key)
    newest = b"(" + name + _STAMP.pack(LARGEST if before is None else before)
    command = ("ZREVRANGEBYLEX", home.link.key("ek"), newest, b"[" + name, "LIMIT", 0, limit)
    [rows] = await home.link.read(command)
    return [_STAMP.unpack_from(row, 16)[0] for row in rows]


async def events_after(home: Home, after: int, limit: int) -> list[Recorded]:
    [last] = await home.link.read(("HGET", home.link.key("n"), "event"))
    found: list[Recorded] = []
    while len(found) < limit and after + 1 < int(last or 1):
        first = await _next_there(home, after + 1)
        ids = range(first, min(first + limit, int(last)))
        found += await home.events(ids)
        after = first + limit - 1
    return found[:limit]


async def _next_there(home: Home, event_id: int) -> int:
    """Where to look for the first event from here on: whole buckets of them may be gone."""
    command = ("ZRANGEBYSCORE", home.link.key("eb"), event_id // BUCKET, "+inf", "LIMIT", 0, 1)
    [buckets] = await home.link.read(command)
    return max(event_id, int(buckets[0]) * BUCKET) if buckets else LARGEST


async def event(home: Home, event_id: int) -> Recorded | None:
    found = await home.events([event_id])
    return found[0] if found else None


async def sighting(home: Home, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    [value] = await home.link.read(("HGET", home.link.key(f"m:{feed}"), home.seal.name(memory_id)))
    if value is None:
        return None
    known, first, last = known_of(home.seal, value)
    state = None if known.state == ABSENT else known.state
    return Known(state, known.seq), moment(first), moment(last)


async def ticks(home: Home, feed: str, limit: int) -> list[TickSpan]:
    key = home.link.key(f"f:{feed}")
    span, rows = await home.link.read(
        ("HMGET", key, "span_start", "span_end", "span_count", "span", "span_seen"),
        ("LRANGE", home.link.key(f"t:{feed}"), -limit, -1),
    )
    closed = [(*_TICK.unpack_from(row), row[_TICK.size :]) for row in reversed(rows)]
    current = [(*(int(each) for each in span), 0, 0.0, b"")] if span[3] is not None else []
    return [
        TickSpan(
            feed=feed,
            started_at=moment(row[0]),
            ended_at=moment(row[1]),
            count=row[2],
            result=RESULTS[row[3]],
            seen=row[4],
            new=row[5],
            seconds=row[6],
            error=home.text(row[7]) if row[7] else "",
        )
        for row in [*current, *closed][:limit]
    ]


async def counts(home: Home) -> dict[str, int]:
    rows, buried = await home.link.read(("HGETALL", home.link.key("n")), ("HLEN", home.link.key("buried")))
    found = {"events": int(rows.get(b"events", 0)), "refused_events": buried}
    for state, name in enumerate(STATES):
        number = int(rows.get(f"s{state}".encode(), 0))
        if number:
            found[f"runs_{name}"] = number
    return found
