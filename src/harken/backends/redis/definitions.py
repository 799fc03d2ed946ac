"""Making a configuration current: what is known keeps its place, what is new begins, what is gone rests.

What changed is found out here, against definitions at one revision; the script refuses it if they moved on meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harken.backends.budgets import window
from harken.backends.codec import clock_micros, decode_feed, decode_health, decode_trigger
from harken.backends.redis.codec import Ask, fields, moment, moment_or_none
from harken.backends.redis.transaction import Transaction
from harken.backoff import Health
from harken.errors import NotFound, StoreBusy
from harken.event import Span
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.schedule import Every
from harken.store import Definitions, Listeners, Opened

__all__ = [
    "definition_of",
    "facts",
    "feed_states",
    "listeners",
    "now_of",
    "open_all",
    "rows_of",
    "state",
    "trigger_state",
    "trigger_states",
]


AT_ONCE = 500

Row = Mapping[str, bytes]


async def rows_of(tx: Transaction, keys: Sequence[str]) -> list[Row]:
    """Whole hashes, some at a time."""
    found: list[Row] = []
    for begin in range(0, len(keys), AT_ONCE):
        some = keys[begin : begin + AT_ONCE]
        for row in await tx.connection.read(*(("HGETALL", tx.connection.key(key)) for key in some)):
            found.append({field.decode(): value for field, value in row.items()})
    return found


async def now_of(tx: Transaction) -> int:
    """The store's time."""
    if tx.connection.clock:
        return clock_micros(tx.connection.clock.time())
    [[seconds, us]] = await tx.connection.read(("TIME",))
    return int(seconds) * 1_000_000 + int(us)


async def feed_states(tx: Transaction) -> list[FeedState]:
    [names] = await tx.connection.read(("SMEMBERS", tx.connection.key("feeds")))
    known = sorted(name.decode() for name in names)
    rows = await rows_of(tx, [f"f:{name}" for name in known])
    return [_feed_state(tx, name, row) for name, row in zip(known, rows, strict=True) if "removed" not in row]


def _feed_state(tx: Transaction, name: str, row: Row) -> FeedState:
    return FeedState(
        name=name,
        revision=int(row["revision"]),
        cursor=tx.json(row["cursor"]) if "cursor" in row else None,
        watermark=moment_or_none(row.get("watermark")),
        next_due=moment_or_none(row.get("due")),
        health=decode_health(tx.seal.open(row["health"])) if "health" in row else Health(),
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


async def state(tx: Transaction, feed: str) -> FeedState:
    row, count = await tx.connection.read(
        ("HGETALL", tx.connection.key(f"f:{feed}")), ("HLEN", tx.connection.key(f"m:{feed}"))
    )
    if not row:
        raise NotFound(f"there is no feed {feed!r}")
    found = _feed_state(tx, feed, {field.decode(): value for field, value in row.items()})
    return msgspec.structs.replace(found, memory=count)


async def trigger_states(tx: Transaction) -> list[TriggerState]:
    [named] = await tx.connection.read(("HGETALL", tx.connection.key("tn")))
    uids = [uid.decode() for _, uid in sorted(named.items())]
    now = await now_of(tx)
    rows = await rows_of(tx, [f"tr:{uid}" for uid in uids])
    spent = await rows_of(tx, [f"sp:{uid}" for uid in uids])
    return [
        _trigger_state(tx, uid, row, used, now)
        for uid, row, used in zip(uids, rows, spent, strict=True)
        if "removed" not in row
    ]


async def trigger_state(tx: Transaction, uid: str) -> TriggerState:
    row, used = await rows_of(tx, [f"tr:{uid}", f"sp:{uid}"])
    return _trigger_state(tx, uid, row, used, await now_of(tx))


def _trigger_state(tx: Transaction, uid: str, row: Row, used: Row, now: int) -> TriggerState:
    return TriggerState(
        uid=uid,
        name=row["name"].decode(),
        epoch=int(row["epoch"]),
        start_line=moment(row["start"]),
        paused=tx.text(row["paused"]) if row["paused"] else "",
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


async def listeners(tx: Transaction, feed: str) -> Listeners:
    revision, definition, found, now = await tx.connection.look("listeners", tx.ask(), (feed,))
    pairs = []
    for uid, flat, used in found:
        row = fields(flat)
        known = _trigger_state(tx, uid.decode(), row, fields(used), int(now))
        pairs.append((decode_trigger(tx.seal.open(row["definition"])), known))
    pairs.sort(key=lambda pair: pair[0].name)
    return Listeners(revision=int(revision), feed=decode_feed(tx.seal.open(definition)), triggers=pairs)


async def definition_of(tx: Transaction, uid: str) -> Trigger:
    [sealed] = await tx.connection.read(("HGET", tx.connection.key(f"tr:{uid}"), "definition"))
    return decode_trigger(tx.seal.open(sealed))


TRIES = 20


async def open_all(tx: Transaction, wanted: Definitions) -> Opened:
    for _ in range(TRIES):
        epoch = await _open(tx, wanted)
        if epoch is not None:
            break
    else:
        raise StoreBusy("others change the definitions all the time", after=1.0)
    return Opened(
        feeds={feed.name: feed for feed in await feed_states(tx)},
        triggers={trigger.name: trigger for trigger in await trigger_states(tx)},
        epoch=epoch,
    )


async def _open(tx: Transaction, wanted: Definitions) -> int | None:
    """The store's epoch; None when somebody else opened something between our look and our write."""
    revision, names, uids = await tx.connection.read(
        ("GET", tx.connection.key("defs")),
        ("SMEMBERS", tx.connection.key("feeds")),
        ("HGETALL", tx.connection.key("tn")),
    )
    known = [name.decode() for name in names]
    feeds = dict(zip(known, await rows_of(tx, [f"f:{name}" for name in known]), strict=True))
    named = {name.decode(): uid.decode() for name, uid in uids.items()}
    rows = await rows_of(tx, [f"tr:{uid}" for uid in named.values()])
    ask = tx.ask()
    changed: set[str] = set()
    triggers = _triggers(ask, wanted, named, dict(zip(named, rows, strict=True)), changed)
    pauses = _pauses(ask, wanted, named, changed)
    instructions = (
        int(revision or 0),
        triggers,
        _feeds(ask, wanted, feeds, changed),
        [(rev, _workflow(ask, name, definition)) for name, (rev, definition) in wanted.workflows.items()],
        pauses,
        wanted.generation,
        wanted.holder,
    )
    epoch = int(await tx.connection.write("open", ask, instructions))
    return epoch if epoch >= 0 else None


def _workflow(ask: Ask, name: str, definition: bytes) -> int:
    return ask.shut_json({"name": name, "definition": msgspec.Raw(definition)})


def _triggers(
    ask: Ask, wanted: Definitions, named: Mapping[str, str], known: Mapping[str, Row], changed: set[str]
) -> list[tuple[Any, ...]]:
    """What happens to each trigger that is new, other, gone or begins again; its feed is noted as changed."""
    found: list[tuple[Any, ...]] = []
    for trigger in wanted.triggers:
        row, encoded = known.get(trigger.name), msgspec.json.encode(trigger)
        removed = row is not None and "removed" in row
        earlier = "" if row is None else row["feed"].decode()
        startup = trigger.startup if wanted.starting and trigger.startup != "since_last" else ""
        if row is None:
            how = "new"
        elif removed or ask.seal.open(row["definition"]) != encoded:
            how = "edit"
        elif startup:
            how = "keep"
        else:
            continue
        changed |= {trigger.feed, earlier}
        uid = secrets.token_hex(8) if row is None else named[trigger.name]
        definition = ask.text(ask.seal.shut(encoded))
        found.append(
            (
                how,
                uid,
                trigger.name,
                trigger.feed,
                definition,
                earlier,
                facts(trigger),
                round(trigger.backfill * 1e6),
                trigger.flood_limit,
                startup,
                removed,
            )
        )
    for name in known.keys() - {trigger.name for trigger in wanted.triggers}:
        if "removed" not in known[name]:
            changed.add(known[name]["feed"].decode())
            found.append(("remove", named[name]))
    return found


def facts(trigger: Trigger) -> list[str]:
    """What Lua has to know of the definition, as fields of its hash."""
    budget = trigger.budget
    limits = (budget.runs_per_hour, budget.tokens_per_day, budget.usd_per_day) if budget else (None, None, None)
    flat = ["shares", "1" if trigger.max_age > 0 else "", "budget", "1" if budget else ""]
    flat += ["quiet", "1" if trigger.quiet else ""]
    for field, limit in zip(("brun", "btok", "busd"), limits, strict=True):
        flat += [field, "" if limit is None else str(limit)]
    return flat


def _pauses(ask: Ask, wanted: Definitions, named: Mapping[str, str], changed: set[str]) -> list[tuple[str, int]]:
    """Triggers that wait for a person from the start, before anyone can read for them."""
    if not wanted.starting:
        return []
    feeds = {trigger.name: trigger.feed for trigger in wanted.triggers}
    for name in wanted.pause:
        if name not in feeds:
            raise NotFound(f"there is no trigger {name!r}")
        changed.add(feeds[name])
    return [(name, ask.shut(reason)) for name, reason in wanted.pause.items()]


def _feeds(ask: Ask, wanted: Definitions, known: Mapping[str, Row], changed: set[str]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for feed in wanted.feeds:
        row, encoded = known.get(feed.name), msgspec.json.encode(feed)
        if row is None:
            heir = known.get(feed.inherits) if feed.inherits else None
            before = decode_feed(ask.seal.open(heir["definition"])) if heir else None
            found.append(_feed(ask, "new", feed, encoded, before))
        elif feed.name in changed or "removed" in row or ask.seal.open(row["definition"]) != encoded:
            found.append(_feed(ask, "edit", feed, encoded, decode_feed(ask.seal.open(row["definition"]))))
    for name in known.keys() - {feed.name for feed in wanted.feeds}:
        if "removed" not in known[name]:
            found.append(("remove", name))
    return found


def _feed(ask: Ask, how: str, feed: Feed, encoded: bytes, before: Feed | None) -> tuple[Any, ...]:
    return (
        how,
        feed.name,
        ask.text(ask.seal.shut(encoded)),
        feed.way != "poll",
        feed.identity,
        feed.inherits if before else False,
        before is None or before.identity == feed.identity,
        feed.first == "baseline",
        before is not None and _is_timed_otherwise(before, feed),
        feed.shard,
    )


def _is_timed_otherwise(before: Feed, feed: Feed) -> bool:
    # a shorter or longer interval is found out when the next read is planned
    regular = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    return before.schedule != feed.schedule and not regular
