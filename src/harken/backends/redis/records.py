"""What people ask about: a closed list of queries, newest first, in keyset pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from struct import Struct
from typing import Any, TypeVar

import msgspec

from harken.backends.codec import dead_run, refused_event, steps
from harken.backends.redis.codec import ABSENT, BUCKET, known_of, moment, moment_or_none
from harken.backends.redis.commit import RESULTS
from harken.backends.redis.runs import WHY
from harken.backends.redis.transaction import Transaction
from harken.backends.run_states import DEAD, STATES
from harken.event import Known, Recorded
from harken.feed import TickSpan
from harken.runs import Run
from harken.store import DeadLetter, Page

__all__ = [
    "below",
    "counts",
    "dead",
    "event",
    "events",
    "events_after",
    "memory_of",
    "older",
    "page",
    "run",
    "runs",
    "ticks",
]


T = TypeVar("T")


async def page(
    some: Callable[[int | None], Awaitable[list[tuple[int, T | None]]]],
    wanted: Callable[[T], bool],
    before: int | None,
    limit: int,
) -> Page:
    """Read on until the page is full: what a filter drops must not look like the end."""
    items: list[T] = []
    while batch := await some(before):
        for number, item in batch:
            before = number
            if item is not None and wanted(item):
                items.append(item)
                if len(items) == limit:
                    return Page(items=items, next=before)
    return Page(items=items)


async def below(
    tx: Transaction, what: str, field: str, buckets: str, before: int | None, limit: int
) -> list[tuple[int, bytes]]:
    """Rows with a lower number, newest first."""
    found: list[tuple[int, bytes]] = []
    while True:
        asked = (what, field, buckets, before or False, limit - len(found))
        rows, following = await tx.connection.look("below", tx.ask(), asked)
        found += [(int(number), value) for number, value in rows]
        if not int(following):
            return found
        before = int(following)


async def older(tx: Transaction, key: str, before: int | None, limit: int, digits: int = 0) -> list[bytes]:
    rows: list[bytes] = await tx.connection.look("older", tx.ask(), (key, before or False, limit, digits))
    return rows


OPEN_STATES = STATES[:6]

ENDED_STATES = {"failed": 7, "dead": 8, "cancelled": 9}

Numbered = tuple[int, bytes]

"""A run's number and its id."""

_STAMP = Struct(">Q")


async def runs(
    tx: Transaction, trigger: str, status: str, workflow: str, event_id: int | None, before: int | None, limit: int
) -> Page:
    if status and status not in STATES:
        return Page(items=[])
    uid = await _uid_or_none(tx, trigger) if trigger else None
    if trigger and uid is None:
        return Page(items=[])

    async def some(before: int | None) -> list[tuple[int, Run | None]]:
        numbered = await _numbered(tx, uid, status, event_id, before, limit)
        found = {run.id: run for run in await _runs(tx, [run_id for _, run_id in numbered])}
        return [(number, found.get(run_id.hex())) for number, run_id in numbered]

    def concerns(found: Run) -> bool:
        of_event = event_id is None or event_id in found.event_ids
        of_trigger = not trigger or found.trigger == trigger
        return of_event and of_trigger and status in ("", found.status) and workflow in ("", found.workflow)

    return await page(some, concerns, before, limit)


async def _uid_or_none(tx: Transaction, trigger: str) -> str | None:
    [uid] = await tx.connection.read(("HGET", tx.connection.key("tn"), trigger))
    return uid.decode() if uid is not None else None


async def _numbered(
    tx: Transaction, uid: str | None, status: str, event_id: int | None, before: int | None, limit: int
) -> list[Numbered]:
    """Candidates from the narrowest index there is."""
    if event_id is not None:
        return await _of_event(tx, event_id, before)
    if status in OPEN_STATES or status in ENDED_STATES:
        key = tx.connection.key("open" if status in OPEN_STATES else f"ended:{ENDED_STATES[status]}")
        newest = "(inf" if before is None else f"({before}"
        [rows] = await tx.connection.read(("ZREVRANGEBYSCORE", key, newest, "-inf", "LIMIT", 0, limit))
        return [(int(row[:12]), row[12:]) for row in rows]
    if uid is not None:
        return [(int(row[:12]), row[12:]) for row in await older(tx, f"rt:{uid}", before, limit, 12)]
    return await below(tx, "rn:", "", "rb", before, limit)


async def _of_event(tx: Transaction, event_id: int, before: int | None) -> list[Numbered]:
    recorded = await tx.events([event_id])
    [by_hand] = await tx.connection.read(("SMEMBERS", tx.connection.key(f"er:{event_id}")))
    decided = {bytes.fromhex(verdict.run_id) for each in recorded for verdict in each.verdicts if verdict.run_id}
    ids = sorted(decided | set(by_hand))
    numbers = await tx.connection.read(*(("HGET", tx.connection.key("r:") + run_id, "seq") for run_id in ids))
    found = [(int(number), run_id) for number, run_id in zip(numbers, ids, strict=True) if number is not None]
    return sorted((each for each in found if before is None or each[0] < before), reverse=True)


async def run(tx: Transaction, run_id: str) -> Run | None:
    prefix = run_id.lower()
    if len(prefix) > 32 or any(char not in "0123456789abcdef" for char in prefix):
        return None
    ids = [bytes.fromhex(prefix)] if len(prefix) == 32 else await _beginning_with(tx, prefix)
    if len(ids) != 1:
        return None
    found = await _runs(tx, ids, with_journal=True)
    return found[0] if found else None


async def _beginning_with(tx: Transaction, prefix: str) -> list[bytes]:
    """At most two ids: one that is alone is the one that was meant."""
    found: list[bytes] = []
    [buckets] = await tx.connection.read(("ZREVRANGE", tx.connection.key("rb"), 0, -1))
    for bucket in buckets:
        [ids] = await tx.connection.read(("HVALS", tx.connection.key("rn:") + bucket))
        found += [run_id for run_id in ids if run_id.hex().startswith(prefix)]
        if len(found) > 1:
            break
    return found


async def _runs(tx: Transaction, ids: Sequence[bytes], *, with_journal: bool = False) -> list[Run]:
    connection = tx.connection
    commands: list[tuple[Any, ...]] = []
    for run_id in ids:
        commands += [
            ("HGETALL", connection.key("r:") + run_id),
            ("HMGET", connection.key("x:") + run_id, "input", "output", "error"),
            ("LRANGE", connection.key("re:") + run_id, 0, -1),
            ("LRANGE", connection.key("j:") + run_id, 0, -1 if with_journal else -(2**31)),
        ]
    replies = await connection.read(*commands)
    rows = [
        (run_id, {field.decode(): value for field, value in replies[4 * at].items()}, *replies[4 * at + 1 : 4 * at + 4])
        for at, run_id in enumerate(ids)
        if replies[4 * at]
    ]
    await tx.learn_names(row["trigger"] for _, row, *_ in rows)
    workflows = await tx.workflow_names(row["rev"].decode() for _, row, *_ in rows)
    keys = await _keys(tx, rows)
    return [_run(tx, row, workflows, keys) for row in rows]


async def _keys(tx: Transaction, rows: Iterable[Sequence[Any]]) -> dict[int, str]:
    """The keys of the runs' events, by id."""
    wanted = {event_id for _, row, _, gathered, _ in rows for event_id in _event_ids(row, gathered)}
    return {event.id: event.key for event in await tx.events(sorted(wanted))}


def _event_ids(row: dict[str, bytes], gathered: Sequence[bytes]) -> list[int]:
    return [int(row["event"])] if "event" in row else sorted({int(each) for each in gathered})


def _run(tx: Transaction, found: Sequence[Any], workflows: dict[str, str], keys: dict[int, str]) -> Run:
    run_id, row, said, gathered, journal = found
    state = int(row["state"])
    ids = [each for each in _event_ids(row, gathered) if each in keys]
    value, output, error = said
    return Run(
        id=run_id.hex(),
        trigger=tx.trigger_name(row["trigger"]),
        workflow=workflows[row["rev"].decode()],
        workflow_rev=row["rev"].decode(),
        status=STATES[state],  # type: ignore[arg-type]
        event_keys=tuple(keys[each] for each in ids),
        event_ids=tuple(ids),
        input=tx.json(value),
        output=tx.json(output),
        attempt=int(row.get("tries", 1)),
        priority=int(row.get("prio", 0)),
        hold=row.get("hold", b"").decode(),
        due_at=moment(row["due"]),
        created_at=moment(row["made"]),
        started_at=moment_or_none(row.get("begun")),
        finished_at=moment_or_none(row.get("over")),
        error=WHY.get(row.get("why", b""), "") or tx.text(error),
        cancel_requested="stop" in row,
        waiting_for=row.get("wait", b"").decode() if STATES[state] == "waiting" else "",
        parent=row.get("parent", b"").hex(),
        replay_of=row.get("replay", b"").hex(),
        journal=steps(map(tx.seal.open, journal)),
    )


async def dead(tx: Transaction, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is a place among the latter."""
    letters: list[DeadLetter] = []
    if before is None or before > 0:
        numbered = await _numbered(tx, None, STATES[DEAD], None, before, limit)
        letters = [dead_run(found) for found in await _runs(tx, [run_id for _, run_id in numbered])]
        if len(numbered) == limit:
            return Page(items=letters, next=numbered[-1][0])
    newest = f"({-before}" if before is not None and before < 0 else "+inf"
    command = ("ZREVRANGEBYSCORE", tx.connection.key("bz"), newest, "-inf", "LIMIT", 0, limit - len(letters))
    [numbers] = await tx.connection.read(command)
    rows = await tx.connection.read(*(("HGET", tx.connection.key("buried"), number) for number in numbers))
    letters += [_buried(tx, int(number), row) for number, row in zip(numbers, rows, strict=True)]
    return Page(items=letters, next=-int(numbers[-1]) if len(letters) == limit and numbers else None)


def _buried(tx: Transaction, number: int, row: bytes) -> DeadLetter:
    feed, key, reason, _ = (each.decode() for each in msgspec.msgpack.decode(tx.seal.open(row[24:])))
    at = moment(_STAMP.unpack_from(row)[0])
    return refused_event(number, feed, key, reason, at)


LARGEST = 2**53

_TICK = Struct(">QQIBIId")


async def events(
    tx: Transaction, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    if trigger:
        feed = await _feed_of(tx, trigger) or feed

    async def some(before: int | None) -> list[tuple[int, Recorded | None]]:
        if key:
            ids = await _of_key(tx, key, before, limit)
        elif feed:
            ids = [int(each) for each in await older(tx, f"ef:{feed}", before, limit)]
        else:
            ids = [number for number, _ in await below(tx, "e:", "v", "eb", before, limit)]
        found = {event.id: event for event in await tx.events(ids)}
        return [(each, found.get(each)) for each in ids]

    def concerns(found: Recorded) -> bool:
        ours = not feed or found.feed == feed
        recent = since is None or found.recorded_at >= since
        return ours and recent and (not trigger or any(verdict.trigger == trigger for verdict in found.verdicts))

    return await page(some, concerns, before, limit)


async def _feed_of(tx: Transaction, trigger: str) -> str:
    [uid] = await tx.connection.read(("HGET", tx.connection.key("tn"), trigger))
    if uid is None:
        return ""
    [feed] = await tx.connection.read(("HGET", tx.connection.key("tr:") + uid, "feed"))
    return str(feed.decode())


async def _of_key(tx: Transaction, key: str, before: int | None, limit: int) -> list[int]:
    name = tx.seal.name(key)
    newest = b"(" + name + _STAMP.pack(LARGEST if before is None else before)
    command = ("ZREVRANGEBYLEX", tx.connection.key("ek"), newest, b"[" + name, "LIMIT", 0, limit)
    [rows] = await tx.connection.read(command)
    return [_STAMP.unpack_from(row, 16)[0] for row in rows]


async def events_after(tx: Transaction, after: int, limit: int) -> list[Recorded]:
    [last] = await tx.connection.read(("HGET", tx.connection.key("n"), "event"))
    found: list[Recorded] = []
    while len(found) < limit and after + 1 < int(last or 1):
        first = await _next_there(tx, after + 1)
        ids = range(first, min(first + limit, int(last)))
        found += await tx.events(ids)
        after = first + limit - 1
    return found[:limit]


async def _next_there(tx: Transaction, event_id: int) -> int:
    """Where to look for the first event from here on: whole buckets of them may be gone."""
    command = ("ZRANGEBYSCORE", tx.connection.key("eb"), event_id // BUCKET, "+inf", "LIMIT", 0, 1)
    [buckets] = await tx.connection.read(command)
    return max(event_id, int(buckets[0]) * BUCKET) if buckets else LARGEST


async def event(tx: Transaction, event_id: int) -> Recorded | None:
    found = await tx.events([event_id])
    return found[0] if found else None


async def memory_of(tx: Transaction, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    [value] = await tx.connection.read(("HGET", tx.connection.key(f"m:{feed}"), tx.seal.name(memory_id)))
    if value is None:
        return None
    known, first, last = known_of(tx.seal, value)
    state = None if known.state == ABSENT else known.state
    return Known(state, known.seq), moment(first), moment(last)


async def ticks(tx: Transaction, feed: str, limit: int) -> list[TickSpan]:
    key = tx.connection.key(f"f:{feed}")
    span, rows = await tx.connection.read(
        ("HMGET", key, "span_start", "span_end", "span_count", "span", "span_seen"),
        ("LRANGE", tx.connection.key(f"t:{feed}"), -limit, -1),
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
            error=tx.text(row[7]) if row[7] else "",
        )
        for row in [*current, *closed][:limit]
    ]


async def counts(tx: Transaction) -> dict[str, int]:
    rows, buried = await tx.connection.read(("HGETALL", tx.connection.key("n")), ("HLEN", tx.connection.key("buried")))
    found = {"events": int(rows.get(b"events", 0)), "refused_events": buried}
    for state, name in enumerate(STATES):
        number = int(rows.get(f"s{state}".encode(), 0))
        if number:
            found[f"runs_{name}"] = number
    return found
