"""Listings for people and metrics: events, runs, dead letters and ticks, newest first, in keyset pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from harken.backends.codec import dead_run, decode_steps, micros, micros_or_none, refused_event
from harken.backends.columnar_event_history import MARGIN_US, HistoryRow, as_history, first_id_since, outcome_of
from harken.backends.redis.codec import (
    ABSENT,
    BUCKET,
    END_REASONS,
    RESULTS,
    STAMP,
    TICK,
    Row,
    decode_letter,
    hash_fields,
    known_of,
    moment,
    moment_or_none,
    parts_of,
)
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.backends.run_states_ids_and_reasons import (
    CANCELLED,
    DEAD,
    FAILED,
    HELD,
    MOST_COUNTED,
    READY,
    STATES,
    backlogs_of,
)
from harken.event import Known, Recorded
from harken.feed import TickSpan
from harken.runs import Run
from harken.store import Backlog, DeadLetter, History, Page
from harken.store.gathering_rules import part_numbers

__all__ = ["RedisRecords", "ids_of_feed", "ids_of_key"]

OPEN_STATES = STATES[:6]
ENDED_STATES = {STATES[state]: state for state in (FAILED, DEAD, CANCELLED)}
"""States that have a sorted set of their own; done runs have none."""

RUNS_PER_CALL = 1_000
LARGEST_ID = 2**53
NO_ENTRIES = -(2**31)
"""The end of a list range that is empty."""

Numbered = tuple[int, bytes]
"""A run's number and its id."""

T = TypeVar("T")


class RedisRecords(UsesSession):
    async def events(
        self,
        *,
        feed: str = "",
        key: str = "",
        trigger: str = "",
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page:
        session = await self._ready()
        if trigger:
            feed = await _feed_of(session, trigger) or feed

        async def batch_below(before: int | None) -> list[tuple[int, Recorded | None]]:
            if key:
                ids = await ids_of_key(session, key, before, limit)
            elif feed:
                ids = await ids_of_feed(session, feed, before, limit)
            else:
                ids = [number for number, _ in await _rows_below(session, "e:", "v", "eb", before, limit)]
            found = {event.id: event for event in await session.events(ids)}
            return [(each, found.get(each)) for each in ids]

        def matches(found: Recorded) -> bool:
            of_feed = not feed or found.feed == feed
            recent = since is None or found.recorded_at >= since
            return of_feed and recent and (not trigger or any(verdict.trigger == trigger for verdict in found.verdicts))

        return await _page(batch_below, matches, before, limit)

    async def events_after(self, after: int, limit: int = 200) -> Sequence[Recorded]:
        session = await self._ready()
        [last] = await session.connection.execute(("HGET", session.connection.key("n"), "event"))
        found: list[Recorded] = []
        while len(found) < limit and after + 1 < int(last or 1):
            first = await _skip_deleted(session, after + 1)
            ids = range(first, min(first + limit, int(last)))
            found += await session.events(ids)
            after = first + limit - 1
        return found[:limit]

    async def event(self, event_id: int) -> Recorded | None:
        found = await (await self._ready()).events([event_id])
        return found[0] if found else None

    async def events_by_id(self, event_ids: Sequence[int]) -> Sequence[Recorded]:
        return await (await self._ready()).events(sorted(set(event_ids), reverse=True))

    async def history(
        self,
        feed: str,
        trigger: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        limit: int = 1000,
        brief: bool = False,
    ) -> History:
        session = await self._ready()
        begin, end = micros(since) if since else 0, micros(until) if until else LARGEST_ID
        if begin and not after:
            after = await _first_since(session, feed, begin) - 1
        rows: list[HistoryRow] = []
        while len(rows) < limit:
            ids = await _ids_after(session, feed, after, limit)
            for event in await session.events(ids):
                at = micros(event.recorded_at)
                if at >= end + 2 * MARGIN_US:
                    # what follows was recorded later, also if the clock was set back a little
                    return as_history(rows, limit + 1)
                if begin <= at < end and len(rows) < limit:
                    outcome = outcome_of(event.verdicts, trigger)
                    happened = micros_or_none(event.occurred_at)
                    rows.append((event.id, event.type, happened, at, msgspec.json.encode(event.data), outcome))
            if len(ids) < limit:
                break
            after = ids[-1]
        return as_history(rows, limit)

    async def memory_of(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        session = await self._ready()
        key, name = session.connection.key(f"m:{feed}"), session.seal.name(memory_id)
        [value] = await session.connection.execute(("HGET", key, name))
        if value is None:
            return None
        known, first, last = known_of(session.seal, value)
        state = None if known.state == ABSENT else known.state
        return Known(state, known.seq), moment(first), moment(last)

    async def runs(
        self,
        *,
        trigger: str = "",
        status: str = "",
        workflow: str = "",
        event_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
        journals: bool = False,
    ) -> Page:
        session = await self._ready()
        if status and status not in STATES:
            return Page(items=[])
        uid = await _uid_or_none(session, trigger) if trigger else None
        if trigger and uid is None:
            return Page(items=[])

        async def batch_below(before: int | None) -> list[tuple[int, Run | None]]:
            numbered = await _numbered_runs(session, uid, status, event_id, before, limit)
            ids = [run_id for _, run_id in numbered]
            found = {run.id: run for run in await _load_runs(session, ids, with_journal=journals)}
            return [(number, found.get(run_id.hex())) for number, run_id in numbered]

        def matches(found: Run) -> bool:
            of_event = event_id is None or event_id in found.event_ids
            of_trigger = not trigger or found.trigger == trigger
            return of_event and of_trigger and status in ("", found.status) and workflow in ("", found.workflow)

        return await _page(batch_below, matches, before, limit)

    async def run(self, run_id: str) -> Run | None:
        session = await self._ready()
        prefix = run_id.lower()
        if len(prefix) > 32 or any(char not in "0123456789abcdef" for char in prefix):
            return None
        ids = [bytes.fromhex(prefix)] if len(prefix) == 32 else await _ids_beginning_with(session, prefix)
        if len(ids) != 1:
            return None
        found = await _load_runs(session, ids, with_journal=True)
        return found[0] if found else None

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page:
        """Dead runs, newest first, then refused events. A negative `before` is the number of a refused event."""
        session = await self._ready()
        connection = session.connection
        letters: list[DeadLetter] = []
        if before is None or before > 0:
            numbered = await _numbered_runs(session, None, STATES[DEAD], None, before, limit)
            letters = [dead_run(found) for found in await _load_runs(session, [run_id for _, run_id in numbered])]
            if len(numbered) == limit:
                return Page(items=letters, next=numbered[-1][0])
        newest = f"({-before}" if before is not None and before < 0 else "+inf"
        command = ("ZREVRANGEBYSCORE", connection.key("bz"), newest, "-inf", "LIMIT", 0, limit - len(letters))
        [numbers] = await connection.execute(command)
        rows = await connection.execute(*(("HGET", connection.key("buried"), number) for number in numbers))
        letters += [_refused_event(session, int(number), row) for number, row in zip(numbers, rows, strict=True)]
        return Page(items=letters, next=-int(numbers[-1]) if len(letters) == limit and numbers else None)

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]:
        session = await self._ready()
        key = session.connection.key
        span, rows = await session.connection.execute(
            ("HMGET", key(f"f:{feed}"), "span_start", "span_end", "span_count", "span", "span_seen"),
            ("LRANGE", key(f"t:{feed}"), -limit, -1),
        )
        closed = [(*TICK.unpack_from(row), row[TICK.size :]) for row in reversed(rows)]
        current = [(*(int(each) for each in span), 0, 0.0, b"")] if span[3] is not None else []
        return [_tick_span(session, feed, row) for row in [*current, *closed][:limit]]

    async def backlogs(self) -> Mapping[str, Backlog]:
        session = await self._ready()
        [named] = await session.connection.execute(("HGETALL", session.connection.key("tn")))
        names = {uid: name.decode() for name, uid in named.items()}
        rows = [*await _held_by_trigger(session, names), *await _retrying_and_dead(session, names)]
        return backlogs_of(rows)

    async def counts(self) -> Mapping[str, int]:
        connection = (await self._ready()).connection
        rows, refused = await connection.execute(("HGETALL", connection.key("n")), ("HLEN", connection.key("buried")))
        found = {"events": int(rows.get(b"events", 0)), "refused_events": refused}
        for state, name in enumerate(STATES):
            number = int(rows.get(f"s{state}".encode(), 0))
            if number:
                found[f"runs_{name}"] = number
        return found


BacklogRow = tuple[str, int, str, int]
"""A trigger's name, the state of its runs, why they are held, and how many."""


async def _held_by_trigger(session: Session, names: Mapping[bytes, str]) -> list[BacklogRow]:
    connection, uids = session.connection, list(names)
    holds = await connection.execute(*(("SMEMBERS", connection.key("hk:") + uid) for uid in uids))
    pairs = [(uid, hold) for uid, found in zip(uids, holds, strict=True) for hold in sorted(found)]
    counts = await connection.execute(*(("ZCARD", connection.key("h:") + uid + b":" + hold) for uid, hold in pairs))
    found = zip(pairs, counts, strict=True)
    return [(names[uid], HELD, hold.decode(), number) for (uid, hold), number in found if number]


async def _retrying_and_dead(session: Session, names: Mapping[bytes, str]) -> list[BacklogRow]:
    connection = session.connection
    [priorities] = await connection.execute(("SMEMBERS", connection.key("prios")))
    # what is tried again is due later than what is new, so it is among those that are due last
    queues = [connection.key("q:") + each for each in sorted({*priorities, b"0"})]
    lists = await connection.execute(
        ("ZREVRANGE", connection.key(f"ended:{DEAD}"), 0, MOST_COUNTED - 1),
        *(("ZREVRANGE", queue, 0, MOST_COUNTED - 1) for queue in queues),
    )
    members = [(DEAD if at == 0 else READY, member[12:]) for at, found in enumerate(lists) for member in found]
    found: Counter[tuple[str, int]] = Counter()
    for first in range(0, len(members), RUNS_PER_CALL):
        part = members[first : first + RUNS_PER_CALL]
        rows = await connection.execute(
            *(("HMGET", connection.key("r:") + run_id, "trigger", "tries") for _, run_id in part)
        )
        for (state, _), (uid, tries) in zip(part, rows, strict=True):
            if uid in names and (state == DEAD or int(tries or 1) > 1):
                found[names[uid], state] += 1
    return [(name, state, "", number) for (name, state), number in found.items()]


async def _page(
    batch_below: Callable[[int | None], Awaitable[list[tuple[int, T | None]]]],
    matches: Callable[[T], bool],
    before: int | None,
    limit: int,
) -> Page:
    """Read batches until the page is full or nothing is left: a filter may drop whole batches."""
    items: list[T] = []
    while batch := await batch_below(before):
        for number, item in batch:
            before = number
            if item is not None and matches(item):
                items.append(item)
                if len(items) == limit:
                    return Page(items=items, next=before)
    return Page(items=items)


async def _rows_below(
    session: Session, prefix: str, field: str, buckets: str, before: int | None, limit: int
) -> list[tuple[int, bytes]]:
    """Rows in buckets with a lower number, newest first."""
    found: list[tuple[int, bytes]] = []
    while True:
        instructions = (prefix, field, buckets, before or False, limit - len(found))
        rows, following = await session.connection.query("records.rows_below", session.arguments(), instructions)
        found += [(int(number), value) for number, value in rows]
        if not int(following):
            return found
        before = int(following)


async def _entries_below(session: Session, key: str, before: int | None, limit: int, digits: int = 0) -> list[bytes]:
    """Entries of a list with a lower number, newest first; `digits` as the script has it."""
    instructions = (key, before or False, limit, digits)
    rows: list[bytes] = await session.connection.query("records.entries_below", session.arguments(), instructions)
    return rows


async def _uid_or_none(session: Session, trigger: str) -> str | None:
    [uid] = await session.connection.execute(("HGET", session.connection.key("tn"), trigger))
    return uid.decode() if uid is not None else None


async def _feed_of(session: Session, trigger: str) -> str:
    uid = await _uid_or_none(session, trigger)
    if uid is None:
        return ""
    [feed] = await session.connection.execute(("HGET", session.connection.key(f"tr:{uid}"), "feed"))
    return str(feed.decode())


async def ids_of_feed(session: Session, feed: str, before: int | None, limit: int) -> list[int]:
    """Events of this feed, newest first."""
    return [int(each) for each in await _entries_below(session, f"ef:{feed}", before, limit)]


async def _ids_after(session: Session, feed: str, after: int, limit: int) -> list[int]:
    """Events of this feed with a higher id, oldest first."""
    instructions = (f"ef:{feed}", after, limit)
    rows = await session.connection.query("records.entries_above", session.arguments(), instructions)
    return [int(row) for row in rows]


async def _first_since(session: Session, feed: str, since: int) -> int:
    newest = await ids_of_feed(session, feed, None, 1)
    search = first_id_since(since, newest[0] if newest else 0)
    try:
        wanted = next(search)
        while True:
            found = await session.events(await _ids_after(session, feed, wanted - 1, 1))
            wanted = search.send(micros(found[0].recorded_at) if found else None)
    except StopIteration as found_id:
        return int(found_id.value)


async def ids_of_key(session: Session, key: str, before: int | None, limit: int) -> list[int]:
    """Events with this key: `ek` is sorted by the name of the key, then by id."""
    name = session.seal.name(key)
    newest = b"(" + name + STAMP.pack(LARGEST_ID if before is None else before)
    command = ("ZREVRANGEBYLEX", session.connection.key("ek"), newest, b"[" + name, "LIMIT", 0, limit)
    [rows] = await session.connection.execute(command)
    return [STAMP.unpack_from(row, 16)[0] for row in rows]


async def _skip_deleted(session: Session, event_id: int) -> int:
    """This id, or the first of the next bucket that exists."""
    command = ("ZRANGEBYSCORE", session.connection.key("eb"), event_id // BUCKET, "+inf", "LIMIT", 0, 1)
    [buckets] = await session.connection.execute(command)
    return max(event_id, int(buckets[0]) * BUCKET) if buckets else LARGEST_ID


async def _numbered_runs(
    session: Session, uid: str | None, status: str, event_id: int | None, before: int | None, limit: int
) -> list[Numbered]:
    """Candidates for a page, from the narrowest index."""
    if event_id is not None:
        return await _runs_of_event(session, event_id, before)
    if status in OPEN_STATES or status in ENDED_STATES:
        key = session.connection.key("open" if status in OPEN_STATES else f"ended:{ENDED_STATES[status]}")
        newest = "(inf" if before is None else f"({before}"
        [rows] = await session.connection.execute(("ZREVRANGEBYSCORE", key, newest, "-inf", "LIMIT", 0, limit))
        return [(int(row[:12]), row[12:]) for row in rows]
    if uid is not None:
        rows = await _entries_below(session, f"rt:{uid}", before, limit, 12)
        return [(int(row[:12]), row[12:]) for row in rows]
    return await _rows_below(session, "rn:", "", "rb", before, limit)


async def _runs_of_event(session: Session, event_id: int, before: int | None) -> list[Numbered]:
    connection = session.connection
    recorded = await session.events([event_id])
    [by_hand] = await connection.execute(("SMEMBERS", connection.key(f"er:{event_id}")))
    decided = {bytes.fromhex(verdict.run_id) for each in recorded for verdict in each.verdicts if verdict.run_id}
    ids = sorted(decided | set(by_hand))
    numbers = await connection.execute(*(("HGET", connection.key("r:") + run_id, "seq") for run_id in ids))
    found = [(int(number), run_id) for number, run_id in zip(numbers, ids, strict=True) if number is not None]
    return sorted((each for each in found if before is None or each[0] < before), reverse=True)


async def _ids_beginning_with(session: Session, prefix: str) -> list[bytes]:
    """The ids with this prefix; stops after the bucket with the second one, because the prefix is ambiguous then."""
    connection = session.connection
    found: list[bytes] = []
    [buckets] = await connection.execute(("ZREVRANGE", connection.key("rb"), 0, -1))
    for bucket in buckets:
        [ids] = await connection.execute(("HVALS", connection.key("rn:") + bucket))
        found += [run_id for run_id in ids if run_id.hex().startswith(prefix)]
        if len(found) > 1:
            break
    return found


async def _load_runs(session: Session, ids: Sequence[bytes], *, with_journal: bool = False) -> list[Run]:
    connection = session.connection
    commands: list[tuple[Any, ...]] = []
    for run_id in ids:
        commands += [
            ("HGETALL", connection.key("r:") + run_id),
            ("HMGET", connection.key("x:") + run_id, "input", "output", "error"),
            ("LRANGE", connection.key("re:") + run_id, 0, -1),
            ("LRANGE", connection.key("j:") + run_id, 0, -1 if with_journal else NO_ENTRIES),
        ]
    replies = await connection.execute(*commands)
    rows = [
        (run_id, hash_fields(replies[4 * at]), *replies[4 * at + 1 : 4 * at + 4])
        for at, run_id in enumerate(ids)
        if replies[4 * at]
    ]
    await session.learn_names(row["trigger"] for _, row, *_ in rows)
    workflows = await session.workflow_names(row["rev"].decode() for _, row, *_ in rows)
    keys = await _event_keys(session, rows)
    return [_run(session, row, workflows, keys) for row in rows]


async def _event_keys(session: Session, rows: Iterable[Sequence[Any]]) -> dict[int, str]:
    """The keys of the runs' events, by event id."""
    wanted = {event_id for _, row, _, gathered, _ in rows for event_id in _event_ids(row, gathered)}
    return {event.id: event.key for event in await session.events(sorted(wanted))}


def _event_ids(row: Row, gathered: Sequence[bytes]) -> list[int]:
    return [int(row["event"])] if "event" in row else sorted({int(each) for each in gathered})


def _run(session: Session, found: Sequence[Any], workflows: dict[str, str], keys: dict[int, str]) -> Run:
    run_id, row, (value, output, error), gathered, journal = found
    state = int(row["state"])
    ids = [each for each in _event_ids(row, gathered) if each in keys]
    return Run(
        id=run_id.hex(),
        trigger=session.trigger_name(row["trigger"]),
        workflow=workflows[row["rev"].decode()],
        workflow_rev=row["rev"].decode(),
        status=STATES[state],  # type: ignore[arg-type]
        event_keys=tuple(keys[each] for each in ids),
        event_ids=tuple(ids),
        input=session.json(value),
        output=session.json(output),
        attempt=int(row.get("tries", 1)),
        priority=int(row.get("prio", 0)),
        hold=row.get("hold", b"").decode(),
        due_at=moment(row["due"]),
        created_at=moment(row["made"]),
        started_at=moment_or_none(row.get("begun")),
        finished_at=moment_or_none(row.get("over")),
        error=END_REASONS.get(row.get("why", b""), "") or session.text(error),
        cancel_requested="stop" in row,
        waiting_for=row.get("wait", b"").decode() if STATES[state] == "waiting" else "",
        parent=row.get("parent", b"").hex(),
        replay_of=row.get("replay", b"").hex(),
        parts=part_numbers(parts_of(row["parts"])) if "parts" in row else (),
        journal=decode_steps(map(session.seal.open, journal)),
    )


def _refused_event(session: Session, number: int, row: bytes) -> DeadLetter:
    feed, key, reason, _ = (each.decode() for each in decode_letter(session.seal.open(row[24:])))
    at = moment(STAMP.unpack_from(row)[0])
    return refused_event(number, feed, key, reason, at)


def _tick_span(session: Session, feed: str, row: Sequence[Any]) -> TickSpan:
    started_at, ended_at, count, result, seen, new, seconds, error = row
    return TickSpan(
        feed=feed,
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        count=count,
        result=RESULTS[result],
        seen=seen,
        new=new,
        seconds=seconds,
        error=session.text(error) if error else "",
    )
