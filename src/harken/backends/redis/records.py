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
    "older",
    "page",
    "run",
    "runs",
    "sighting",
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
    home: Transaction, what: str, field: str, buckets: str, before: int | None, limit: int
) -> list[tuple[int, bytes]]:
    """Rows with a lower number, newest first."""
    found: list[tuple[int, bytes]] = []
    while True:
        asked = (what, field, buckets, before or False, limit - len(found))
        rows, following = await home.link.look("below", home.ask(), asked)
        found += [(int(number), value) for number, value in rows]
        if not int(following):
            return found
        before = int(following)


async def older(home: Transaction, key: str, before: int | None, limit: int, digits: int = 0) -> list[bytes]:
    rows: list[bytes] = await home.link.look("older", home.ask(), (key, before or False, limit, digits))
    return rows


OPEN_STATES = STATES[:6]

ENDED_STATES = {"failed": 7, "dead": 8, "cancelled": 9}

Numbered = tuple[int, bytes]

"""A run's number and its id."""

_STAMP = Struct(">Q")


async def runs(
    home: Transaction, trigger: str, status: str, workflow: str, event_id: int | None, before: int | None, limit: int
) -> Page:
    if status and status not in STATES:
        return Page(items=[])
    uid = await _uid_or_none(home, trigger) if trigger else None
    if trigger and uid is None:
        return Page(items=[])

    async def some(before: int | None) -> list[tuple[int, Run | None]]:
        numbered = await _numbered(home, uid, status, event_id, before, limit)
        found = {run.id: run for run in await _runs(home, [run_id for _, run_id in numbered])}
        return [(number, found.get(run_id.hex())) for number, run_id in numbered]

    def concerns(found: Run) -> bool:
        of_event = event_id is None or event_id in found.event_ids
        of_trigger = not trigger or found.trigger == trigger
        return of_event and of_trigger and status in ("", found.status) and workflow in ("", found.workflow)

    return await page(some, concerns, before, limit)


async def _uid_or_none(home: Transaction, trigger: str) -> str | None:
    [uid] = await home.link.read(("HGET", home.link.key("tn"), trigger))
    return uid.decode() if uid is not None else None


async def _numbered(
    home: Transaction, uid: str | None, status: str, event_id: int | None, before: int | None, limit: int
) -> list[Numbered]:
    """Candidates from the narrowest index there is."""
    if event_id is not None:
        return await _of_event(home, event_id, before)
    if status in OPEN_STATES or status in ENDED_STATES:
        key = home.link.key("open" if status in OPEN_STATES else f"ended:{ENDED_STATES[status]}")
        newest = "(inf" if before is None else f"({before}"
        [rows] = await home.link.read(("ZREVRANGEBYSCORE", key, newest, "-inf", "LIMIT", 0, limit))
        return [(int(row[:12]), row[12:]) for row in rows]
    if uid is not None:
        return [(int(row[:12]), row[12:]) for row in await older(home, f"rt:{uid}", before, limit, 12)]
    return await below(home, "rn:", "", "rb", before, limit)


async def _of_event(home: Transaction, event_id: int, before: int | None) -> list[Numbered]:
    recorded = await home.events([event_id])
    [by_hand] = await home.link.read(("SMEMBERS", home.link.key(f"er:{event_id}")))
    decided = {bytes.fromhex(verdict.run_id) for each in recorded for verdict in each.verdicts if verdict.run_id}
    ids = sorted(decided | set(by_hand))
    numbers = await home.link.read(*(("HGET", home.link.key("r:") + run_id, "seq") for run_id in ids))
    found = [(int(number), run_id) for number, run_id in zip(numbers, ids, strict=True) if number is not None]
    return sorted((each for each in found if before is None or each[0] < before), reverse=True)


async def run(home: Transaction, run_id: str) -> Run | None:
    prefix = run_id.lower()
    if len(prefix) > 32 or any(char not in "0123456789abcdef" for char in prefix):
        return None
    ids = [bytes.fromhex(prefix)] if len(prefix) == 32 else await _beginning_with(home, prefix)
    if len(ids) != 1:
        return None
    found = await _runs(home, ids, with_journal=True)
    return found[0] if found else None


async def _beginning_with(home: Transaction, prefix: str) -> list[bytes]:
    """At most two ids: one that is alone is the one that was meant."""
    found: list[bytes] = []
    [buckets] = await home.link.read(("ZREVRANGE", home.link.key("rb"), 0, -1))
    for bucket in buckets:
        [ids] = await home.link.read(("HVALS", home.link.key("rn:") + bucket))
        found += [run_id for run_id in ids if run_id.hex().startswith(prefix)]
        if len(found) > 1:
            break
    return found


async def _runs(home: Transaction, ids: Sequence[bytes], *, with_journal: bool = False) -> list[Run]:
    link = home.link
    commands: list[tuple[Any, ...]] = []
    for run_id in ids:
        commands += [
            ("HGETALL", link.key("r:") + run_id),
            ("HMGET", link.key("x:") + run_id, "input", "output", "error"),
            ("LRANGE", link.key("re:") + run_id, 0, -1),
            ("LRANGE", link.key("j:") + run_id, 0, -1 if with_journal else -(2**31)),
        ]
    replies = await link.read(*commands)
    rows = [
        (run_id, {field.decode(): value for field, value in replies[4 * at].items()}, *replies[4 * at + 1 : 4 * at + 4])
        for at, run_id in enumerate(ids)
        if replies[4 * at]
    ]
    await home.learn_names(row["trigger"] for _, row, *_ in rows)
    workflows = await home.workflow_names(row["rev"].decode() for _, row, *_ in rows)
    keys = await _keys(home, rows)
    return [_run(home, row, workflows, keys) for row in rows]


async def _keys(home: Transaction, rows: Iterable[Sequence[Any]]) -> dict[int, str]:
    """The keys of the runs' events, by id."""
    wanted = {event_id for _, row, _, gathered, _ in rows for event_id in _event_ids(row, gathered)}
    return {event.id: event.key for event in await home.events(sorted(wanted))}


def _event_ids(row: dict[str, bytes], gathered: Sequence[bytes]) -> list[int]:
    return [int(row["event"])] if "event" in row else sorted({int(each) for each in gathered})


def _run(home: Transaction, found: Sequence[Any], workflows: dict[str, str], keys: dict[int, str]) -> Run:
    run_id, row, said, gathered, journal = found
    state = int(row["state"])
    ids = [each for each in _event_ids(row, gathered) if each in keys]
    value, output, error = said
    return Run(
        id=run_id.hex(),
        trigger=home.trigger_name(row["trigger"]),
        workflow=workflows[row["rev"].decode()],
        workflow_rev=row["rev"].decode(),
        status=STATES[state],  # type: ignore[arg-type]
        event_keys=tuple(keys[each] for each in ids),
        event_ids=tuple(ids),
        input=home.json(value),
        output=home.json(output),
        attempt=int(row.get("tries", 1)),
        priority=int(row.get("prio", 0)),
        hold=row.get("hold", b"").decode(),
        due_at=moment(row["due"]),
        created_at=moment(row["made"]),
        started_at=moment_or_none(row.get("begun")),
        finished_at=moment_or_none(row.get("over")),
        error=WHY.get(row.get("why", b""), "") or home.text(error),
        cancel_requested="stop" in row,
        waiting_for=row.get("wait", b"").decode() if STATES[state] == "waiting" else "",
        parent=row.get("parent", b"").hex(),
        replay_of=row.get("replay", b"").hex(),
        journal=steps(map(home.seal.open, journal)),
    )


async def dead(home: Transaction, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is a place among the latter."""
    letters: list[DeadLetter] = []
    if before is None or before > 0:
        numbered = await _numbered(home, None, STATES[DEAD], None, before, limit)
        letters = [dead_run(found) for found in await _runs(home, [run_id for _, run_id in numbered])]
        if len(numbered) == limit:
            return Page(items=letters, next=numbered[-1][0])
    newest = f"({-before}" if before is not None and before < 0 else "+inf"
    command = ("ZREVRANGEBYSCORE", home.link.key("bz"), newest, "-inf", "LIMIT", 0, limit - len(letters))
    [numbers] = await home.link.read(command)
    rows = await home.link.read(*(("HGET", home.link.key("buried"), number) for number in numbers))
    letters += [_buried(home, int(number), row) for number, row in zip(numbers, rows, strict=True)]
    return Page(items=letters, next=-int(numbers[-1]) if len(letters) == limit and numbers else None)


def _buried(home: Transaction, number: int, row: bytes) -> DeadLetter:
    feed, key, reason, _ = (each.decode() for each in msgspec.msgpack.decode(home.seal.open(row[24:])))
    at = moment(_STAMP.unpack_from(row)[0])
    return refused_event(number, feed, key, reason, at)


LARGEST = 2**53

_TICK = Struct(">QQIBIId")


async def events(
    home: Transaction, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
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


async def _feed_of(home: Transaction, trigger: str) -> str:
    [uid] = await home.link.read(("HGET", home.link.key("tn"), trigger))
    if uid is None:
        return ""
    [feed] = await home.link.read(("HGET", home.link.key("tr:") + uid, "feed"))
    return str(feed.decode())


async def _of_key(home: Transaction, key: str, before: int | None, limit: int) -> list[int]:
    name = home.seal.name(key)
    newest = b"(" + name + _STAMP.pack(LARGEST if before is None else before)
    command = ("ZREVRANGEBYLEX", home.link.key("ek"), newest, b"[" + name, "LIMIT", 0, limit)
    [rows] = await home.link.read(command)
    return [_STAMP.unpack_from(row, 16)[0] for row in rows]


async def events_after(home: Transaction, after: int, limit: int) -> list[Recorded]:
    [last] = await home.link.read(("HGET", home.link.key("n"), "event"))
    found: list[Recorded] = []
    while len(found) < limit and after + 1 < int(last or 1):
        first = await _next_there(home, after + 1)
        ids = range(first, min(first + limit, int(last)))
        found += await home.events(ids)
        after = first + limit - 1
    return found[:limit]


async def _next_there(home: Transaction, event_id: int) -> int:
    """Where to look for the first event from here on: whole buckets of them may be gone."""
    command = ("ZRANGEBYSCORE", home.link.key("eb"), event_id // BUCKET, "+inf", "LIMIT", 0, 1)
    [buckets] = await home.link.read(command)
    return max(event_id, int(buckets[0]) * BUCKET) if buckets else LARGEST


async def event(home: Transaction, event_id: int) -> Recorded | None:
    found = await home.events([event_id])
    return found[0] if found else None


async def sighting(home: Transaction, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    [value] = await home.link.read(("HGET", home.link.key(f"m:{feed}"), home.seal.name(memory_id)))
    if value is None:
        return None
    known, first, last = known_of(home.seal, value)
    state = None if known.state == ABSENT else known.state
    return Known(state, known.seq), moment(first), moment(last)


async def ticks(home: Transaction, feed: str, limit: int) -> list[TickSpan]:
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


async def counts(home: Transaction) -> dict[str, int]:
    rows, buried = await home.link.read(("HGETALL", home.link.key("n")), ("HLEN", home.link.key("buried")))
    found = {"events": int(rows.get(b"events", 0)), "refused_events": buried}
    for state, name in enumerate(STATES):
        number = int(rows.get(f"s{state}".encode(), 0))
        if number:
            found[f"runs_{name}"] = number
    return found
