"""Where feeds and triggers stand, as rows become values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harken.backends.budgets import window
from harken.backends.codec import decode_feed, decode_health, decode_trigger
from harken.backends.redis.codec import fields, moment, moment_or_none
from harken.backends.redis.transaction import Home
from harken.backoff import Health
from harken.errors import NotFound
from harken.event import Span
from harken.feed import FeedState, Trigger, TriggerState
from harken.store import Listeners

__all__ = [
    "definition_of",
    "feed_states",
    "listeners",
    "now_of",
    "rows_of",
    "state",
    "trigger_state",
    "trigger_states",
]

AT_ONCE = 500
Row = Mapping[str, bytes]


async def rows_of(home: Home, keys: Sequence[str]) -> list[Row]:
    """Whole hashes, some at a time."""
    found: list[Row] = []
    for begin in range(0, len(keys), AT_ONCE):
        some = keys[begin : begin + AT_ONCE]
        for row in await home.link.read(*(("HGETALL", home.link.key(key)) for key in some)):
            found.append({field.decode(): value for field, value in row.items()})
    return found


async def now_of(home: Home) -> int:
    """The store's time."""
    if home.link.clock:
        return int(home.link.clock.time() * 1_000_000)
    [[seconds, us]] = await home.link.read(("TIME",))
    return int(seconds) * 1_000_000 + int(us)


async def feed_states(home: Home) -> list[FeedState]:
    [names] = await home.link.read(("SMEMBERS", home.link.key("feeds")))
    known = sorted(name.decode() for name in names)
    rows = await rows_of(home, [f"f:{name}" for name in known])
    return [_feed_state(home, name, row) for name, row in zip(known, rows, strict=True) if "removed" not in row]


def _feed_state(home: Home, name: str, row: Row) -> FeedState:
    return FeedState(
        name=name,
        revision=int(row["revision"]),
        cursor=home.json(row["cursor"]) if "cursor" in row else None,
        watermark=moment_or_none(row.get("watermark")),
        next_due=moment_or_none(row.get("due")),
        health=decode_health(home.seal.open(row["health"])) if "health" in row else Health(),
        reads=int(row.get("reads", 0)),
        baselined=row.get("base") == b"1",
        last_success=moment_or_none(row.get("ok")),
        last_tick=moment_or_none(row.get("tick")),
        coverage=tuple(_coverage(row)),
        created_at=moment(row["made"]),
        seen=int(row.get("seen", 0)),
    )


def _coverage(row: Row) -> list[Span]:
    """The newest span stands apart from those that a gap separates from it."""
    older = [each.split(b"-") for each in row.get("coverage", b"").split(b",") if each]
    newest = [[row["cover_start"], row["cover_end"]]] if "cover_start" in row else []
    return [Span(moment(begin), moment(end)) for begin, end in [*older, *newest]]


async def state(home: Home, feed: str) -> FeedState:
    row, count = await home.link.read(("HGETALL", home.link.key(f"f:{feed}")), ("HLEN", home.link.key(f"m:{feed}")))
    if not row:
        raise NotFound(f"there is no feed {feed!r}")
    found = _feed_state(home, feed, {field.decode(): value for field, value in row.items()})
    return msgspec.structs.replace(found, memory=count)


async def trigger_states(home: Home) -> list[TriggerState]:
    [named] = await home.link.read(("HGETALL", home.link.key("tn")))
    uids = [uid.decode() for _, uid in sorted(named.items())]
    now = await now_of(home)
    rows = await rows_of(home, [f"tr:{uid}" for uid in uids])
    spent = await rows_of(home, [f"sp:{uid}" for uid in uids])
    return [
        _trigger_state(home, uid, row, used, now)
        for uid, row, used in zip(uids, rows, spent, strict=True)
        if "removed" not in row
    ]


async def trigger_state(home: Home, uid: str) -> TriggerState:
    row, used = await rows_of(home, [f"tr:{uid}", f"sp:{uid}"])
    return _trigger_state(home, uid, row, used, await now_of(home))


def _trigger_state(home: Home, uid: str, row: Row, used: Row, now: int) -> TriggerState:
    return TriggerState(
        uid=uid,
        name=row["name"].decode(),
        epoch=int(row["epoch"]),
        start_line=moment(row["start"]),
        paused=home.text(row["paused"]) if row["paused"] else "",
        created_at=moment(row["made"]),
        fired=int(row.get("fired", 0)),
        last_fired_at=moment_or_none(row.get("fired_at")),
        removed_at=moment_or_none(row.get("removed")),
        reads_from=moment_or_none(row.get("reads")),
        backfilling=row.get("backfilling") == b"1",
        runs_this_hour=int(_spent(used, "runs", now)),
        tokens_today=int(_spent(used, "tokens", now)),
        usd_today=_spent(used, "usd", now),
        done=int(row.get("done", 0)),
    )


def _spent(used: Row, what: str, now: int) -> float:
    if int(used.get(f"{what}@", 0)) != window(what, now):
        return 0.0
    return float(used[what])


async def listeners(home: Home, feed: str) -> Listeners:
    revision, definition, found, now = await home.link.look("listeners", home.ask(), (feed,))
    pairs = []
    for uid, flat, used in found:
        row = fields(flat)
        known = _trigger_state(home, uid.decode(), row, fields(used), int(now))
        pairs.append((decode_trigger(home.seal.open(row["definition"])), known))
    pairs.sort(key=lambda pair: pair[0].name)
    return Listeners(revision=int(revision), feed=decode_feed(home.seal.open(definition)), triggers=pairs)


async def definition_of(home: Home, uid: str) -> Trigger:
    [sealed] = await home.link.read(("HGET", home.link.key(f"tr:{uid}"), "definition"))
    return decode_trigger(home.seal.open(sealed))
