"""The configured feeds and triggers: made current, looked at, paused, resumed and reset.

What `open` has to change is computed here from the definitions at one revision; the script refuses it if they changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import decode_feed, decode_health, decode_trigger, micros
from harken.backends.redis.codec import (
    Arguments,
    Row,
    coverage_spans,
    fields_of_reply,
    hash_fields,
    moment,
    moment_or_none,
)
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.backends.remaining_budget import window
from harken.circuit_breaker import Health
from harken.errors import NotFound, StoreBusy
from harken.event import Span
from harken.feed import MEMORY_COUNTED, Feed, FeedState, Trigger, TriggerState
from harken.schedule import Every
from harken.store import FUTURE_SECONDS, Definitions, Listeners, MovedStart, Opened

__all__ = ["RedisDefinitions", "trigger_facts"]

FUTURE = round(FUTURE_SECONDS * 1_000_000)

OPEN_ATTEMPTS = 20
UIDS_PER_READ = 5_000

FEED_STATE = (
    "revision", "cursor", "watermark", "due", "health", "reads", "base", "ok", "tick", "cover_start", "cover_end",
    "coverage", "made", "seen", "removed",
)  # fmt: skip
TRIGGER_STATE = (
    "name", "epoch", "start", "paused", "made", "fired", "fired_at", "removed", "reads", "backfilling", "done",
)  # fmt: skip
FEED_ROW = (*FEED_STATE, "definition")
TRIGGER_ROW = (*TRIGGER_STATE, "definition", "feed", "feeds")


class RedisDefinitions(UsesSession):
    async def open(self, wanted: Definitions) -> Opened:
        session = await self._ready()
        for _ in range(OPEN_ATTEMPTS):
            stored = await _open(session, wanted)
            if stored is not None:
                break
        else:
            raise StoreBusy("others change the definitions all the time", after=1.0)
        triggers = await _trigger_states(session, [stored.triggers[name] for name in sorted(stored.triggers)])
        return Opened(
            feeds={feed.name: feed for feed in _feed_states(session, sorted(stored.feeds.items()))},
            triggers={trigger.name: trigger for trigger in triggers},
            epoch=stored.epoch,
        )

    async def state(self, feed: str) -> FeedState:
        return await _state(await self._ready(), feed)

    async def listeners(self, feed: str) -> Listeners:
        session = await self._ready()
        reply = await session.connection.query("definitions.listeners", session.arguments(), (feed,))
        revision, definition, found, now = reply
        pairs = []
        for uid, flat, spent in found:
            row = fields_of_reply(flat)
            known = _trigger_state(session, uid.decode(), row, fields_of_reply(spent), int(now))
            if row["feed"].decode() != feed:
                known = msgspec.structs.replace(known, backfilling=row.get(f"backfilling:{feed}") == b"1")
            pairs.append((decode_trigger(session.seal.open(row["definition"])), known))
        pairs.sort(key=lambda pair: pair[0].name)
        return Listeners(revision=int(revision), feed=decode_feed(session.seal.open(definition)), triggers=pairs)

    async def feeds(self, *, names: Collection[str] | None = None) -> Sequence[FeedState]:
        return await self._feeds(None if names is None else list(names))

    async def triggers(
        self, *, names: Collection[str] | None = None, after: str = "", limit: int | None = None
    ) -> Sequence[TriggerState]:
        if names is not None or (not after and limit is None):
            return await self._triggers(None if names is None else list(names))
        [known] = await (session := await self._ready()).connection.execute(("HKEYS", session.connection.key("tn")))
        following = sorted(name for found in known if (name := found.decode()) > after)
        if limit is None:
            return await self._triggers(following)
        found: list[TriggerState] = []
        # removed ones have a name too
        for begin in range(0, len(following), limit):
            found += await self._triggers(following[begin : begin + limit])
            if len(found) >= limit:
                break
        return found[:limit]

    async def _feeds(self, only: Collection[str] | None) -> Sequence[FeedState]:
        session = await self._ready()
        names = sorted(await _feed_names(session, only))
        rows = await session.fields([f"f:{name}" for name in names], FEED_STATE)
        return _feed_states(session, zip(names, rows, strict=True))

    async def _triggers(self, only: Collection[str] | None) -> Sequence[TriggerState]:
        session = await self._ready()
        uids = [uid for _, uid in sorted((await _trigger_uids(session, only)).items())]
        rows = await session.fields([f"tr:{uid}" for uid in uids], TRIGGER_STATE)
        return await _trigger_states(session, list(zip(uids, rows, strict=True)))

    async def pause(self, trigger: str, reason: str) -> TriggerState:
        session = await self._ready()
        args = session.arguments()
        return await _steer(session, args, "pause", trigger, args.shut(reason or "paused"))

    async def resume(self, trigger: str) -> TriggerState:
        session = await self._ready()
        return await _steer(session, session.arguments(), "resume", trigger, False)

    async def reset(self, trigger: str, *, cursor: bool) -> TriggerState:
        session = await self._ready()
        return await _steer(session, session.arguments(), "reset", trigger, cursor)

    async def move_start_lines(self, lines: Mapping[str, datetime]) -> Sequence[MovedStart]:
        session = await self._ready()
        instructions = ([(trigger, micros(lines[trigger])) for trigger in sorted(lines)], FUTURE)
        moved = await session.connection.write("definitions.move_start_lines", session.arguments(), instructions)
        return [
            MovedStart(trigger=trigger.decode(), feed=feed.decode(), was=moment(was), start_line=moment(line))
            for trigger, feed, was, line in moved
        ]

    async def seek(
        self, trigger: str, start_line: datetime, *, revision: int, back: bool, cursor: Any = None
    ) -> TriggerState | None:
        session = await self._ready()
        args = session.arguments()
        place = False if cursor is None else args.shut_json(cursor)
        instructions = (trigger, micros(start_line), revision, back, place)
        uid = (await session.connection.write("definitions.seek", args, instructions)).decode()
        if not uid:
            return None
        row, spent = await session.hashes([f"tr:{uid}", f"sp:{uid}"])
        return _trigger_state(session, uid, row, spent, await session.now())

    async def wake(self, feed: str) -> FeedState:
        session = await self._ready()
        await session.connection.write("definitions.wake", session.arguments(), (feed,))
        return await _state(session, feed)


async def _steer(session: Session, args: Arguments, how: str, trigger: str, option: int | bool) -> TriggerState:
    uid = (await session.connection.write("definitions.steer", args, (how, trigger, option))).decode()
    row, spent = await session.hashes([f"tr:{uid}", f"sp:{uid}"])
    return _trigger_state(session, uid, row, spent, await session.now())


async def _state(session: Session, feed: str) -> FeedState:
    key = session.connection.key
    row, count = await session.connection.execute(("HGETALL", key(f"f:{feed}")), ("HLEN", key(f"m:{feed}")))
    if not row:
        raise NotFound(f"there is no feed {feed!r}")
    return msgspec.structs.replace(_feed_state(session, feed, hash_fields(row)), memory=min(count, MEMORY_COUNTED))


def _feed_states(session: Session, rows: Iterable[tuple[str, Row]]) -> list[FeedState]:
    return [_feed_state(session, name, row) for name, row in rows if row and "removed" not in row]


def _feed_state(session: Session, name: str, row: Row) -> FeedState:
    return FeedState(
        name=name,
        revision=int(row["revision"]),
        cursor=session.json(row["cursor"]) if "cursor" in row else None,
        watermark=moment_or_none(row.get("watermark")),
        next_due=moment_or_none(row.get("due")),
        health=decode_health(session.seal.open(row["health"])) if "health" in row else Health(),
        reads=int(row.get("reads", 0)),
        baselined=row.get("base") == b"1",
        last_success=moment_or_none(row.get("ok")),
        last_tick=moment_or_none(row.get("tick")),
        coverage=tuple(Span(moment(begin), moment(end)) for begin, end in coverage_spans(row)),
        created_at=moment(row["made"]),
        seen=int(row.get("seen", 0)),
    )


async def _trigger_states(session: Session, rows: Sequence[tuple[str, Row]]) -> list[TriggerState]:
    """Of triggers by their uids."""
    there = [(uid, row) for uid, row in rows if "removed" not in row]
    now = await session.now()
    spent = await _spending(session, [uid for uid, _ in there])
    return [_trigger_state(session, uid, row, spent.get(uid, {}), now) for uid, row in there]


async def _spending(session: Session, uids: Sequence[str]) -> dict[str, Row]:
    """What the runs of these triggers have spent; most have spent nothing."""
    spent: dict[str, Row] = {}
    for begin in range(0, len(uids), UIDS_PER_READ):
        some = uids[begin : begin + UIDS_PER_READ]
        found = await session.connection.query("definitions.spending", session.arguments(), (some,))
        spent |= {uid.decode(): fields_of_reply(flat) for uid, flat in found}
    return spent


def _trigger_state(session: Session, uid: str, row: Row, used: Row, now: int) -> TriggerState:
    return TriggerState(
        uid=uid,
        name=row["name"].decode(),
        epoch=int(row["epoch"]),
        start_line=moment(row["start"]),
        paused=session.text(row["paused"]) if row["paused"] else "",
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
    if not used or int(used.get(f"{what}@", 0)) != window(what, now):
        return 0.0
    return float(used[what])


async def _feed_names(session: Session, only: Collection[str] | None) -> list[str]:
    """The names of all feeds, or those of a part, which need not exist."""
    if only is not None:
        return list(only)
    [found] = await session.connection.execute(("SMEMBERS", session.connection.key("feeds")))
    return [name.decode() for name in found]


async def _trigger_uids(session: Session, only: Collection[str] | None) -> dict[str, str]:
    """The uids of all triggers by name, or of those of a part that exist."""
    key = session.connection.key("tn")
    if only is None:
        [found] = await session.connection.execute(("HGETALL", key))
        return {name.decode(): uid.decode() for name, uid in found.items()}
    if not only:
        return {}
    [uids] = await session.connection.execute(("HMGET", key, *only))
    return {name: uid.decode() for name, uid in zip(only, uids, strict=True) if uid is not None}


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The hashes of feeds and triggers, those of triggers with their uids, all by name."""

    epoch: int
    feeds: dict[str, Row]
    triggers: dict[str, tuple[str, Row]]


async def _open(session: Session, wanted: Definitions) -> Stored | None:
    """What is stored afterwards; None if the definitions changed between our read and our write."""
    only = wanted.only
    [revision] = await session.connection.execute(("GET", session.connection.key("defs")))
    known = await _feed_names(session, only.feeds if only else None)
    named = await _trigger_uids(session, only.triggers if only else None)
    found = await session.fields([f"f:{name}" for name in known], FEED_ROW)
    feeds = {name: row for name, row in zip(known, found, strict=True) if row}
    rows = dict(zip(named, await session.fields([f"tr:{uid}" for uid in named.values()], TRIGGER_ROW), strict=True))
    args = session.arguments()
    changed: set[str] = set()
    trigger_changes = _trigger_changes(args, wanted, named, rows, changed)
    pauses = _pauses(args, wanted, rows, changed)
    feed_changes = _feed_changes(args, wanted, feeds, changed)
    instructions = (
        int(revision or 0),
        trigger_changes,
        feed_changes,
        await _workflow_changes(session, args, wanted.workflows),
        pauses,
        wanted.generation if only is None else False,
        wanted.holder,
    )
    epoch = int(await session.connection.write("definitions.open", args, instructions))
    if epoch < 0:
        return None
    # only what was changed is read again: a start with many triggers usually changes none of them
    touched = changed | {change[1] for change in feed_changes}
    uids = {name: named[name] for name, row in rows.items() if touched and not touched.isdisjoint(_feeds_of(row))}
    uids |= {change[2]: change[1] for change in trigger_changes if change[0] == "new"}
    feeds |= dict(zip(touched, await session.fields([f"f:{name}" for name in touched], FEED_ROW), strict=True))
    rows |= dict(zip(uids, await session.fields([f"tr:{uid}" for uid in uids.values()], TRIGGER_ROW), strict=True))
    all_uids = named | uids
    return Stored(epoch=epoch, feeds=feeds, triggers={name: (all_uids[name], row) for name, row in rows.items()})


async def _workflow_changes(
    session: Session, args: Arguments, workflows: Mapping[str, tuple[str, bytes]]
) -> list[tuple[str, int]]:
    """The revisions that the store does not have yet. A revision is written once, and stays."""
    revisions = [revision for revision, _ in workflows.values()]
    found = await session.connection.query("definitions.unknown_workflows", session.arguments(), (revisions,))
    missing = {revision.decode() for revision in found}
    return [
        (revision, _workflow_text(args, name, definition))
        for name, (revision, definition) in workflows.items()
        if revision in missing
    ]


def _workflow_text(args: Arguments, name: str, definition: bytes) -> int:
    return args.shut_json({"name": name, "definition": msgspec.Raw(definition)})


def _trigger_changes(
    args: Arguments, wanted: Definitions, named: Mapping[str, str], known: Mapping[str, Row], changed: set[str]
) -> list[tuple[Any, ...]]:
    """The change of each trigger that is new, edited, removed or has a startup mode. Adds their feeds to `changed`."""
    found: list[tuple[Any, ...]] = []
    for trigger in wanted.triggers:
        row, encoded = known.get(trigger.name), msgspec.json.encode(trigger)
        removed = row is not None and "removed" in row
        startup = trigger.startup if wanted.starting and trigger.startup != "since_last" else ""
        if row is None:
            op = "new"
        elif removed or args.seal.open(row["definition"]) != encoded:
            op = "edit"
        elif startup:
            op = "keep"
        else:
            continue
        earlier = [] if row is None else _feeds_of(row)
        changed |= {*trigger.feeds, *earlier}
        uid = secrets.token_hex(8) if row is None else named[trigger.name]
        definition = args.text(args.seal.shut(encoded))
        found.append(
            (
                op,
                uid,
                trigger.name,
                trigger.feed,
                definition,
                earlier,
                trigger_facts(trigger),
                round(trigger.backfill * 1e6),
                trigger.flood_limit,
                startup,
                removed,
                list(trigger.feeds[1:]),
            )
        )
    for name in known.keys() - {trigger.name for trigger in wanted.triggers}:
        if "removed" not in known[name]:
            changed |= set(_feeds_of(known[name]))
            found.append(("remove", named[name]))
    return found


def _feeds_of(row: Row) -> list[str]:
    """The feeds that a trigger listens to, its own first."""
    further = row.get("feeds", b"").decode().split("\n")
    return [row["feed"].decode(), *(feed for feed in further if feed)]


def trigger_facts(trigger: Trigger) -> list[str]:
    """What scripts need of the definition, as fields and values of its hash."""
    budget = trigger.budget
    limits = (budget.runs_per_hour, budget.tokens_per_day, budget.usd_per_day) if budget else (None, None, None)
    flat = ["shares", "1" if trigger.max_age > 0 else "", "budget", "1" if budget else ""]
    flat += ["quiet", "1" if trigger.quiet else "", "feeds", "\n".join(trigger.feeds[1:])]
    for field, limit in zip(("brun", "btok", "busd"), limits, strict=True):
        flat += [field, "" if limit is None else str(limit)]
    return flat


def _pauses(args: Arguments, wanted: Definitions, known: Mapping[str, Row], changed: set[str]) -> list[tuple[str, int]]:
    """Triggers that are paused before anything is read for them."""
    reasons = wanted.to_pause({name for name, row in known.items() if "removed" not in row})
    if not reasons:
        return []
    feeds = {trigger.name: trigger.feeds for trigger in wanted.triggers}
    for name in reasons:
        if name not in feeds:
            raise NotFound(f"there is no trigger {name!r}")
        changed |= set(feeds[name])
    return [(name, args.shut(reason)) for name, reason in reasons.items()]


def _feed_changes(
    args: Arguments, wanted: Definitions, known: Mapping[str, Row], changed: set[str]
) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for feed in wanted.feeds:
        row, encoded = known.get(feed.name), msgspec.json.encode(feed)
        if row is None:
            replaced = known.get(feed.inherits) if feed.inherits else None
            before = decode_feed(args.seal.open(replaced["definition"])) if replaced else None
            found.append(_feed_change(args, "new", feed, encoded, before))
        elif feed.name in changed or "removed" in row or args.seal.open(row["definition"]) != encoded:
            found.append(_feed_change(args, "edit", feed, encoded, decode_feed(args.seal.open(row["definition"]))))
    for name in known.keys() - {feed.name for feed in wanted.feeds}:
        if "removed" not in known[name]:
            found.append(("remove", name))
    return found


def _feed_change(args: Arguments, op: str, feed: Feed, encoded: bytes, before: Feed | None) -> tuple[Any, ...]:
    return (
        op,
        feed.name,
        args.text(args.seal.shut(encoded)),
        feed.way != "poll",
        feed.identity,
        feed.inherits if before else False,
        before is None or before.identity == feed.identity,
        feed.first == "baseline",
        before is not None and _is_rescheduled(before, feed),
        feed.shard,
    )


def _is_rescheduled(before: Feed, feed: Feed) -> bool:
    # another interval counts from the next read on
    regular = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    return before.schedule != feed.schedule and not regular
