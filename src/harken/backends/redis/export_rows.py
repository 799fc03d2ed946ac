"""All rows of a Redis store, as any other store can load them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec

from harken.backends.redis.codec import (
    ABSENT_STATE,
    BUCKET,
    DOCUMENT,
    END_REASONS,
    EVENT_HEAD,
    MEMORY,
    NEVER,
    NO_STATE,
    PLAIN_STATE,
    RESULTS,
    STAMP,
    TICK,
    Row,
    coverage_spans,
    decode_audit,
    decode_body,
    decode_letter,
    decode_text,
    event_fields,
    hash_fields,
    parts_of,
    read_mark,
    verdicts_of,
)
from harken.backends.redis.connection import Connection
from harken.backends.redis.connection_and_name_cache import Session
from harken.backends.redis.upkeep import keys_beginning_with
from harken.backends.run_states_ids_and_reasons import STATES
from harken.runs import RunState
from harken.store.document_kinds import NOT_COPIED
from harken.store.transfer_protocol_and_exclusive_access import chunks_of
from harken.store.transfer_rows import (
    Chunk,
    ExportedAudit,
    ExportedDeadLetter,
    ExportedDocument,
    ExportedEvent,
    ExportedFeed,
    ExportedIdleSpan,
    ExportedMark,
    ExportedMemory,
    ExportedRun,
    ExportedSpending,
    ExportedTick,
    ExportedTrigger,
    ExportHeader,
)

__all__ = ["all_rows", "document_kinds"]

ENTRIES_PER_READ = 200
NUMBERS_PER_READ = 50


async def all_rows(session: Session, identity: bytes) -> AsyncIterator[Chunk]:
    """In chunks, in the order in which a store is loaded."""
    yield [await _header(session, identity)]
    feeds = [feed async for feed in _feeds(session)]
    for rows in (
        _each(feeds),
        _triggers(session),
        _documents(session),
        _events(session),
        _memory(session, [feed.name for feed in feeds]),
        _runs(session),
        _ticks(session),
        _letters(session),
        _audits(session),
    ):
        async for chunk in chunks_of(rows):
            yield chunk


async def _each(feeds: Sequence[ExportedFeed]) -> AsyncIterator[ExportedFeed]:
    for feed in feeds:
        yield feed


async def _header(session: Session, identity: bytes) -> ExportHeader:
    key = session.connection.key
    numbers, generation, known = await session.connection.execute(
        ("HMGET", key("n"), "event", "run"),
        ("HMGET", key("gen"), "epoch", "name", "since"),
        ("SMEMBERS", key("shards")),
    )
    # stores without a set of shards have one shard
    shards = sorted({0, *map(int, known)})
    tokens = await session.connection.execute(*(("HGET", key(f"lease:{shard}"), "token") for shard in shards))
    return ExportHeader(
        identity=identity,
        next_event=int(numbers[0] or 1),
        next_run=int(numbers[1] or 1),
        epoch=int(generation[0] or 0),
        generation=(generation[1] or b"").decode(),
        since=_number(generation[2]),
        tokens=tuple((shard, int(token)) for shard, token in zip(shards, tokens, strict=True) if token),
    )


async def _feeds(session: Session) -> AsyncIterator[ExportedFeed]:
    [found] = await session.connection.execute(("SMEMBERS", session.connection.key("feeds")))
    names = [name.decode() for name in found]
    rows = zip(names, await session.hashes([f"f:{name}" for name in names]), strict=True)
    for name, row in sorted(rows, key=lambda pair: (int(pair[1]["made"]), pair[0])):
        yield ExportedFeed(
            name=name,
            definition=session.seal.open(row["definition"]),
            revision=int(row["revision"]),
            cursor=session.seal.open(row["cursor"]) if "cursor" in row else None,
            watermark=_number(row.get("watermark")),
            next_due=_number(row.get("due")),
            health=session.seal.open(row["health"]) if "health" in row else None,
            reads=int(row.get("reads", 0)),
            seen=int(row.get("seen", 0)),
            baselined=row.get("base") == b"1",
            last_success=_number(row.get("ok")),
            last_tick=_number(row.get("tick")),
            coverage=tuple(coverage_spans(row)),
            resting=_idle_span(row),
            created_at=int(row["made"]),
            removed_at=_number(row.get("removed")),
        )


def _idle_span(row: Row) -> ExportedIdleSpan | None:
    if "span" not in row:
        return None
    start, end, count, seen = (int(row[f"span_{field}"]) for field in ("start", "end", "count", "seen"))
    return ExportedIdleSpan(result=RESULTS[int(row["span"])], start=start, end=end, count=count, seen=seen)


async def _triggers(session: Session) -> AsyncIterator[ExportedTrigger]:
    [named] = await session.connection.execute(("HGETALL", session.connection.key("tn")))
    uids = [uid.decode() for uid in named.values()]
    rows = await session.hashes([f"tr:{uid}" for uid in uids])
    spent = await session.hashes([f"sp:{uid}" for uid in uids])
    found = zip(uids, rows, spent, strict=True)
    for uid, row, used in sorted(found, key=lambda each: (int(each[1]["made"]), each[1]["name"])):
        yield ExportedTrigger(
            uid=uid,
            name=row["name"].decode(),
            feed=row["feed"].decode(),
            definition=session.seal.open(row["definition"]),
            epoch=int(row["epoch"]),
            epoch_event=int(row.get("epoch_event", 0)),
            start_line=int(row["start"]),
            reads_from=_number(row.get("reads")),
            reset_at=_number(row.get("reset")),
            backfilling=row.get("backfilling") == b"1",
            paused=session.text(row["paused"]) if row.get("paused") else "",
            fired=int(row.get("fired", 0)),
            last_fired_at=_number(row.get("fired_at")),
            done=int(row.get("done", 0)),
            created_at=int(row["made"]),
            removed_at=_number(row.get("removed")),
            spent=tuple(
                ExportedSpending(what=what, since=int(used[f"{what}@"]), amount=float(used[what]))
                for what in ("runs", "tokens", "usd")
                if what in used
            ),
            marks=tuple([mark async for mark in _marks(session, uid)]),
        )


async def _marks(session: Session, uid: str) -> AsyncIterator[ExportedMark]:
    async for key, value in _fields(session, session.connection.key(f"mk:{uid}")):
        until, times, run = read_mark(value)
        yield ExportedMark(key=key, until=until, run=run or None, times=times or None)


async def _documents(session: Session) -> AsyncIterator[ExportedDocument]:
    for kind in await document_kinds(session.connection):
        async for name, row in _fields(session, session.connection.key("d:") + kind):
            revision, at = DOCUMENT.unpack_from(row)
            yield ExportedDocument(
                kind=kind.decode(),
                name=name.decode(),
                value=session.seal.open(row[DOCUMENT.size :]),
                revision=revision,
                updated_at=at,
            )


async def document_kinds(connection: Connection) -> list[bytes]:
    """The kinds of documents that belong to a copy."""
    prefix = connection.key("d:")
    found: set[bytes] = set()
    cursor = 0
    while True:
        [[cursor, keys]] = await connection.execute(keys_beginning_with(prefix, cursor))
        found |= {key[len(prefix) :] for key in keys}
        if not cursor:
            return sorted(kind for kind in found if kind.decode() not in NOT_COPIED)


async def _events(session: Session) -> AsyncIterator[ExportedEvent]:
    async for bucket, numbers in _numbers(session, "eb"):
        key = session.connection.key(f"e:{bucket}")
        found = await session.connection.execute(*(("HMGET", key, *event_fields(number)) for number in numbers))
        for number, (body, head, repeats) in zip(numbers, found, strict=True):
            if body is not None and head is not None:
                yield _event(session, number, body, head, repeats)


def _event(session: Session, number: int, body: bytes, head: bytes, repeats: bytes | None) -> ExportedEvent:
    key, subject, state, kind, at, data = decode_body(session.seal.open(body))
    recorded_at, _, size = EVENT_HEAD.unpack_from(head)
    times, _, last = repeats.partition(b":") if repeats else (b"0", b"", b"")
    verdicts = EVENT_HEAD.size + size
    return ExportedEvent(
        id=number,
        feed=head[EVENT_HEAD.size : verdicts].decode(),
        key=decode_text(key),
        subject=decode_text(subject),
        state=None if state is None else decode_text(state),
        type=kind,
        occurred_at=at,
        recorded_at=recorded_at,
        repeats=int(times),
        last_repeat_at=_number(last),
        verdicts=verdicts_of(session.seal, head[verdicts:]),
        data=data,
    )


async def _memory(session: Session, feeds: Sequence[str]) -> AsyncIterator[ExportedMemory]:
    for feed in feeds:
        async for mid, value in _fields(session, session.connection.key(f"m:{feed}")):
            first, last, event, seq, kind, size = MEMORY.unpack_from(value)
            mark, sealed = value[MEMORY.size : MEMORY.size + size], value[MEMORY.size + size :]
            state: str | None = None
            if kind not in (NO_STATE, ABSENT_STATE):
                state = decode_text(mark if kind == PLAIN_STATE else session.seal.open(sealed))
            yield ExportedMemory(
                feed=feed,
                mid=mid,
                state=state,
                absent=kind == ABSENT_STATE,
                seq=seq,
                event=event,
                first_seen=first,
                last_seen=last,
            )


async def _runs(session: Session) -> AsyncIterator[ExportedRun]:
    async for bucket, numbers in _numbers(session, "rb"):
        [ids] = await session.connection.execute(("HMGET", session.connection.key(f"rn:{bucket}"), *numbers))
        found = [(number, id) for number, id in zip(numbers, ids, strict=True) if id is not None]
        for run in await _load_runs(session, found):
            yield run


async def _load_runs(session: Session, numbered: Sequence[tuple[int, bytes]]) -> list[ExportedRun]:
    connection = session.connection
    commands: list[tuple[Any, ...]] = []
    for _, id in numbered:
        commands += [
            ("HGETALL", connection.key("r:") + id),
            ("HGETALL", connection.key("x:") + id),
            ("LRANGE", connection.key("re:") + id, 0, -1),
            ("LRANGE", connection.key("j:") + id, 0, -1),
        ]
    replies = await connection.execute(*commands)
    rows = [hash_fields(reply) for reply in replies[::4]]
    commands = []
    for (_, id), row in zip(numbered, rows, strict=True):
        commands += [
            ("HGET", connection.key("slots"), row.get("slot", b"")),
            ("SISMEMBER", connection.key("er:") + row.get("event", b""), id),
            ("ZSCORE", connection.key("moved"), id),
        ]
    answers = await connection.execute(*commands)
    return [
        _run(session, *numbered[at], row, replies[4 * at + 1 : 4 * at + 4], answers[3 * at : 3 * at + 3])
        for at, row in enumerate(rows)
    ]


def _run(
    session: Session, number: int, id: bytes, row: Row, parts: Sequence[Any], relations: Sequence[Any]
) -> ExportedRun:
    """A run from its hash, its `parts` (texts, gathered events, journal), the holder of its slot, whether a person
    started it for its event, and its place among those that moved."""
    texts, gathered, journal = hash_fields(parts[0]), parts[1], parts[2]
    slot_holder, by_hand, listed = relations
    state = STATES[int(row["state"])]
    due = int(row["due"])
    events = tuple(sorted({int(event) for event in gathered}))
    return ExportedRun(
        seq=number,
        id=id,
        trigger=row["trigger"].decode(),
        workflow_rev=row["rev"].decode(),
        state=cast(RunState, "ready" if state == "running" else state),
        priority=int(row.get("prio", 0)),
        due_at=None if due >= NEVER else due,
        attempt=int(row.get("tries", 1)),
        max_attempts=int(row.get("max", 3)),
        token=int(row.get("token", 0)),
        event=_number(row.get("event")),
        events=events,
        by_hand=bool(by_hand) if "event" in row else bool(events) and "gather" not in row,
        gathered=int(row.get("gathered", max(1, len(events)))),
        input=_open(session, texts, "input"),
        slot=row.get("slot"),
        has_slot="slot" in row and slot_holder == id,
        overlap=row.get("overlap", b"").decode(),
        gather=row.get("gather"),
        parts=parts_of(row["parts"]) if "parts" in row else None,
        hold=row.get("hold", b"").decode(),
        quiet_from=_number(row.get("qfrom")),
        quiet_until=_number(row.get("qtil")),
        budgeted=row.get("budget") == b"1",
        cancel_requested="stop" in row,
        waiting_for=row.get("wait", b"").decode(),
        answer=_answer(session, texts),
        parent=row.get("parent"),
        replay_of=row.get("replay"),
        created_at=int(row["made"]),
        started_at=_number(row.get("begun")),
        finished_at=_number(row.get("over")),
        since=_number(row.get("since")),
        watched="since" in row,
        moved="since" in row and (listed is not None or state == "running"),
        error=END_REASONS.get(row.get("why", b""), "") or (session.text(texts["error"]) if "error" in texts else ""),
        output=_open(session, texts, "output"),
        journal=tuple(session.seal.open(record) for record in journal),
    )


def _open(session: Session, texts: Row, field: str) -> bytes | None:
    return session.seal.open(texts[field]) if field in texts else None


def _answer(session: Session, texts: Row) -> bytes | None:
    """The answer of a person, or the result of the sub-run that the run waited for."""
    if "answer" in texts or "told" not in texts:
        return _open(session, texts, "answer")
    error = session.text(texts["told_error"]) if "told_error" in texts else ""
    result = {
        "run": texts["told"].hex(),
        "status": STATES[int(texts["told_state"])],
        "output": session.json(texts["told_output"]) if "told_output" in texts else None,
        "error": END_REASONS.get(texts["told_why"], "") or error,
    }
    return msgspec.json.encode(result)


async def _ticks(session: Session) -> AsyncIterator[ExportedTick]:
    """In the order of time over all feeds, as `tq` lists them for pruning."""
    places: dict[str, int] = {}
    async for some in _entries(session, "tq"):
        names = [feed.decode() for feed in some]
        commands = []
        for feed in names:
            place = places[feed] = places.get(feed, -1) + 1
            commands.append(("LINDEX", session.connection.key(f"t:{feed}"), place))
        for feed, row in zip(names, await session.connection.execute(*commands), strict=True):
            if row is not None:
                yield _tick(session, feed, row)


def _tick(session: Session, feed: str, row: bytes) -> ExportedTick:
    started_at, ended_at, count, result, seen, new, seconds = TICK.unpack_from(row)
    return ExportedTick(
        feed=feed,
        started_at=started_at,
        ended_at=ended_at,
        count=count,
        result=RESULTS[result],
        seen=seen,
        new=new,
        error=session.text(row[TICK.size :]) if len(row) > TICK.size else "",
        seconds=seconds,
    )


async def _letters(session: Session) -> AsyncIterator[ExportedDeadLetter]:
    [numbers] = await session.connection.execute(("ZRANGE", session.connection.key("bz"), 0, -1))
    for begin in range(0, len(numbers), ENTRIES_PER_READ):
        some = numbers[begin : begin + ENTRIES_PER_READ]
        [rows] = await session.connection.execute(("HMGET", session.connection.key("buried"), *some))
        for number, row in zip(some, rows, strict=True):
            feed, key, reason, payload = decode_letter(session.seal.open(row[24:]))
            yield ExportedDeadLetter(
                id=int(number),
                feed=decode_text(feed),
                key=decode_text(key),
                reason=decode_text(reason),
                payload=payload,
                at=STAMP.unpack_from(row)[0],
            )


async def _audits(session: Session) -> AsyncIterator[ExportedAudit]:
    async for some in _entries(session, "audit"):
        for row in some:
            who, did, what, sealed = decode_audit(row[STAMP.size :])
            detail = session.seal.open(sealed)
            yield ExportedAudit(at=STAMP.unpack_from(row)[0], who=who, did=did, what=what, detail=detail)


async def _numbers(session: Session, buckets: str) -> AsyncIterator[tuple[int, list[int]]]:
    """Each bucket with a slice of the numbers that it may hold, in rising order."""
    [found] = await session.connection.execute(("ZRANGE", session.connection.key(buckets), 0, -1))
    for bucket in map(int, found):
        for begin in range(bucket * BUCKET, (bucket + 1) * BUCKET, NUMBERS_PER_READ):
            yield bucket, list(range(begin, begin + NUMBERS_PER_READ))


async def _entries(session: Session, key: str) -> AsyncIterator[list[Any]]:
    """The entries of a long list, in slices."""
    begin = 0
    while True:
        command = ("LRANGE", session.connection.key(key), begin, begin + ENTRIES_PER_READ - 1)
        [some] = await session.connection.execute(command)
        if not some:
            return
        yield some
        begin += ENTRIES_PER_READ


async def _fields(session: Session, key: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
    """The fields of a large hash. HSCAN may return one several times; this yields it once."""
    cursor, seen = 0, set[bytes]()
    while True:
        [[cursor, some]] = await session.connection.execute(("HSCAN", key, cursor, "COUNT", ENTRIES_PER_READ))
        for field, value in some.items():
            if field not in seen:
                seen.add(field)
                yield field, value
        if not cursor:
            return


def _number(found: bytes | None) -> int | None:
    return int(found) if found else None
