"""What the keys of a Redis store hold, as the rows that any other store can load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from struct import Struct
from typing import Any, cast

import msgspec

from harken.backends.redis.codec import ABSENT_STATE, BUCKET, NO_STATE, PLAIN_STATE, Ask, event_fields, verdicts_of
from harken.backends.redis.commit import RESULTS
from harken.backends.redis.connection import Connection
from harken.backends.redis.definitions import Row, rows_of
from harken.backends.redis.runs import WHY
from harken.backends.redis.transaction import Transaction
from harken.backends.redis.upkeep import literal
from harken.backends.run_states import STATES
from harken.runs import RunState, StepRecord
from harken.store.documents import NOT_COPIED
from harken.store.export_rows import (
    Chunk,
    ExportedAudit,
    ExportedDeadLetter,
    ExportedDocument,
    ExportedEvent,
    ExportedFeed,
    ExportedIdleSpan,
    ExportedMemory,
    ExportedRun,
    ExportedSpending,
    ExportedTick,
    ExportedTrigger,
    ExportHeader,
)
from harken.store.transfer import chunks_of

__all__ = [
    "BODY",
    "DOCUMENT",
    "HEAD",
    "MEMORY",
    "NEVER",
    "STAMP",
    "TICK",
    "all_rows",
    "audits",
    "document_kinds",
    "letters",
    "numbered",
    "runs",
    "text",
    "ticks",
    "write_runs",
]


STAMP = Struct(">Q")

TICK = Struct(">QQIBIId")

AT_ONCE = 200

_letter = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes, bytes]).decode

_audit = msgspec.msgpack.Decoder(tuple[str, str, str, bytes]).decode


def text(plain: bytes) -> str:
    return plain.decode("utf-8", "surrogatepass")


async def _list(tx: Transaction, key: str) -> AsyncIterator[list[Any]]:
    """A long list, some entries at a time."""
    begin = 0
    while True:
        [some] = await tx.connection.read(("LRANGE", tx.connection.key(key), begin, begin + AT_ONCE - 1))
        if not some:
            return
        yield some
        begin += AT_ONCE


async def ticks(tx: Transaction) -> AsyncIterator[ExportedTick]:
    """In the order of time over all feeds, which is that of the queue in which they wait to be forgotten."""
    places: dict[str, int] = {}
    async for turns in _list(tx, "tq"):
        names = [feed.decode() for feed in turns]
        commands = []
        for feed in names:
            place = places[feed] = places.get(feed, -1) + 1
            commands.append(("LINDEX", tx.connection.key(f"t:{feed}"), place))
        for feed, row in zip(names, await tx.connection.read(*commands), strict=True):
            if row is not None:
                yield _tick(tx, feed, row)


def _tick(tx: Transaction, feed: str, row: bytes) -> ExportedTick:
    started_at, ended_at, count, result, seen, new, seconds = TICK.unpack_from(row)
    return ExportedTick(
        feed=feed,
        started_at=started_at,
        ended_at=ended_at,
        count=count,
        result=RESULTS[result],
        seen=seen,
        new=new,
        error=tx.text(row[TICK.size :]) if len(row) > TICK.size else "",
        seconds=seconds,
    )


async def letters(tx: Transaction) -> AsyncIterator[ExportedDeadLetter]:
    [numbers] = await tx.connection.read(("ZRANGE", tx.connection.key("bz"), 0, -1))
    for begin in range(0, len(numbers), AT_ONCE):
        some = numbers[begin : begin + AT_ONCE]
        [rows] = await tx.connection.read(("HMGET", tx.connection.key("buried"), *some))
        for number, row in zip(some, rows, strict=True):
            feed, key, reason, payload = _letter(tx.seal.open(row[24:]))
            said = {"feed": text(feed), "key": text(key), "reason": text(reason)}
            yield ExportedDeadLetter(id=int(number), payload=payload, at=STAMP.unpack_from(row)[0], **said)


async def audits(tx: Transaction) -> AsyncIterator[ExportedAudit]:
    async for some in _list(tx, "audit"):
        for row in some:
            who, did, what, sealed = _audit(row[STAMP.size :])
            yield ExportedAudit(at=STAMP.unpack_from(row)[0], who=who, did=did, what=what, detail=tx.seal.open(sealed))


RUNS_AT_ONCE = 50

NEVER = 9007199254740992

"""The due time of a run that only an answer can wake."""

_step = msgspec.json.Decoder(StepRecord).decode


async def numbered(tx: Transaction, buckets: str) -> AsyncIterator[tuple[int, list[int]]]:
    """A bucket of rows and some of the numbers that may be in it, in the order of the numbers."""
    [found] = await tx.connection.read(("ZRANGE", tx.connection.key(buckets), 0, -1))
    for bucket in map(int, found):
        for begin in range(bucket * BUCKET, (bucket + 1) * BUCKET, RUNS_AT_ONCE):
            yield bucket, list(range(begin, begin + RUNS_AT_ONCE))


async def runs(tx: Transaction) -> AsyncIterator[ExportedRun]:
    async for bucket, numbers in numbered(tx, "rb"):
        [ids] = await tx.connection.read(("HMGET", tx.connection.key(f"rn:{bucket}"), *numbers))
        there = [(number, id) for number, id in zip(numbers, ids, strict=True) if id is not None]
        for run in await _some(tx, there):
            yield run


async def _some(tx: Transaction, there: Sequence[tuple[int, bytes]]) -> list[ExportedRun]:
    connection = tx.connection
    commands: list[tuple[Any, ...]] = []
    for _, id in there:
        commands += [
            ("HGETALL", connection.key("r:") + id),
            ("HGETALL", connection.key("x:") + id),
            ("LRANGE", connection.key("re:") + id, 0, -1),
            ("LRANGE", connection.key("j:") + id, 0, -1),
        ]
    replies = await connection.read(*commands)
    rows = [_named(reply) for reply in replies[::4]]
    more: list[tuple[Any, ...]] = []
    for (_, id), row in zip(there, rows, strict=True):
        more += [
            ("HGET", connection.key("slots"), row.get("slot", b"")),
            ("SISMEMBER", connection.key("er:") + row.get("event", b""), id),
        ]
    answers = await connection.read(*more)
    return [
        _run(
            tx,
            *there[at],
            rows[at],
            [_named(replies[4 * at + 1]), *replies[4 * at + 2 : 4 * at + 4]],
            answers[2 * at :],
        )
        for at in range(len(there))
    ]


def _named(reply: dict[bytes, bytes]) -> Row:
    return {field.decode(): value for field, value in reply.items()}


def _run(tx: Transaction, number: int, id: bytes, row: Row, lists: Sequence[Any], found: Sequence[Any]) -> ExportedRun:
    said, gathered, journal = lists
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
        by_hand=bool(found[1]) if "event" in row else bool(events) and "gather" not in row,
        gathered=int(row.get("gathered", max(1, len(events)))),
        input=_open(tx, said, "input"),
        slot=row.get("slot"),
        has_slot="slot" in row and found[0] == id,
        overlap=row.get("overlap", b"").decode(),
        gather=row.get("gather"),
        hold=row.get("hold", b"").decode(),
        quiet_from=_number(row.get("qfrom")),
        quiet_until=_number(row.get("qtil")),
        budgeted=row.get("budget") == b"1",
        cancel_requested="stop" in row,
        waiting_for=row.get("wait", b"").decode(),
        answer=_answer(tx, said),
        parent=row.get("parent"),
        replay_of=row.get("replay"),
        created_at=int(row["made"]),
        started_at=_number(row.get("begun")),
        finished_at=_number(row.get("over")),
        error=WHY.get(row.get("why", b""), "") or (tx.text(said["error"]) if "error" in said else ""),
        output=_open(tx, said, "output"),
        journal=tuple(tx.seal.open(record) for record in journal),
    )


def _number(found: bytes | None) -> int | None:
    return int(found) if found else None


def _open(tx: Transaction, said: Row, field: str) -> bytes | None:
    return tx.seal.open(said[field]) if field in said else None


def _answer(tx: Transaction, said: Row) -> bytes | None:
    """What a person said, or what became of the sub-run."""
    if "answer" in said or "told" not in said:
        return _open(tx, said, "answer")
    error = WHY.get(said["told_why"], "") or (tx.text(said["told_error"]) if "told_error" in said else "")
    output = tx.json(said["told_output"]) if "told_output" in said else None
    told = {"run": said["told"].hex(), "status": STATES[int(said["told_state"])], "output": output, "error": error}
    return msgspec.json.encode(told)


async def write_runs(tx: Transaction, chunk: Sequence[ExportedRun]) -> None:
    ask = tx.ask()
    await tx.connection.write("moving_runs", ask, [_instructions(ask, run) for run in chunk])


def _instructions(ask: Ask, run: ExportedRun) -> tuple[Any, ...]:
    names = {"id": run.id, "slot": run.slot, "gather": run.gather, "parent": run.parent, "replay": run.replay_of}
    if run.waiting_for.startswith("run:"):
        names["wait_run"] = bytes.fromhex(run.waiting_for[4:])
    texts = {"input": run.input, "output": run.output, "answer": run.answer}
    if run.error:
        texts["error"] = run.error.encode("utf-8", "surrogatepass")
    placed = {field: ask.text(ask.seal.shut(text)) for field, text in texts.items() if text is not None}
    return (
        _run_fields(run, bool(placed)),
        {field: ask.named(name) for field, name in names.items() if name is not None},
        run.seq,
        placed,
        [ask.text(ask.seal.shut(step)) for step in run.journal],
        [ask.name(f"step\0{step.decode('utf-8', 'surrogateescape')}") for step in run.journal if _was_charged(step)],
        list(run.events),
        run.by_hand,
        run.has_slot,
    )


def _was_charged(step: bytes) -> bool:
    record = _step(step)
    return bool(record.tokens or record.usd)


def _run_fields(run: ExportedRun, has_texts: bool) -> dict[str, Any]:
    """What Lua and listings look at; what is absent is left out."""
    facts = {
        "prio": str(run.priority) if run.priority else None,
        "tries": run.attempt if run.attempt > 1 else None,
        "event": run.event,
        "overlap": run.overlap or None,
        "gathered": run.gathered if run.gather is not None else None,
        "hold": run.hold or None,
        "qfrom": run.quiet_from,
        "qtil": run.quiet_until,
        "budget": "1" if run.budgeted else None,
        "stop": "1" if run.cancel_requested else None,
        "wait": run.waiting_for or None,
        "begun": run.started_at,
        "over": run.finished_at,
        "x": "1" if has_texts else None,
        "ans": "1" if run.answer is not None else None,
        "journal": "1" if run.journal else None,
    }
    always = {
        "state": STATES.index(run.state),
        "token": run.token,
        "trigger": run.trigger,
        "rev": run.workflow_rev,
        "due": NEVER if run.due_at is None else run.due_at,
        "max": run.max_attempts,
        "made": run.created_at,
    }
    return always | {field: value for field, value in facts.items() if value is not None}


DOCUMENT = Struct(">IQ")

MEMORY = Struct(">QQQIBH")

HEAD = Struct(">Q16sH")

BODY = tuple[bytes, bytes, bytes | None, str, int | None, bytes]

_body = msgspec.msgpack.Decoder(BODY).decode


async def all_rows(tx: Transaction, identity: bytes) -> AsyncIterator[Chunk]:
    """Chunk by chunk, in no more time than reading them takes."""
    yield [await _beginning(tx, identity)]
    feeds = [feed async for feed in _feeds(tx)]
    for rows in (
        _each(feeds),
        _triggers(tx),
        _documents(tx),
        _events(tx),
        _memory(tx, [feed.name for feed in feeds]),
        runs(tx),
        ticks(tx),
        letters(tx),
        audits(tx),
    ):
        async for chunk in chunks_of(rows):
            yield chunk


async def _each(feeds: Sequence[ExportedFeed]) -> AsyncIterator[ExportedFeed]:
    for feed in feeds:
        yield feed


async def _beginning(tx: Transaction, identity: bytes) -> ExportHeader:
    key = tx.connection.key
    numbers, generation, known = await tx.connection.read(
        ("HMGET", key("n"), "event", "run"),
        ("HMGET", key("gen"), "epoch", "name", "since"),
        ("SMEMBERS", key("shards")),
    )
    # a store from before has the only shard that there was
    shards = sorted({0, *map(int, known)})
    tokens = await tx.connection.read(*(("HGET", key(f"lease:{shard}"), "token") for shard in shards))
    return ExportHeader(
        identity=identity,
        next_event=int(numbers[0] or 1),
        next_run=int(numbers[1] or 1),
        epoch=int(generation[0] or 0),
        generation=(generation[1] or b"").decode(),
        since=_number(generation[2]),
        tokens=tuple((shard, int(token)) for shard, token in zip(shards, tokens, strict=True) if token),
    )


async def _feeds(tx: Transaction) -> AsyncIterator[ExportedFeed]:
    [found] = await tx.connection.read(("SMEMBERS", tx.connection.key("feeds")))
    names = [name.decode() for name in found]
    rows = zip(names, await rows_of(tx, [f"f:{name}" for name in names]), strict=True)
    for name, row in sorted(rows, key=lambda pair: (int(pair[1]["made"]), pair[0])):
        yield ExportedFeed(
            name=name,
            definition=tx.seal.open(row["definition"]),
            revision=int(row["revision"]),
            cursor=tx.seal.open(row["cursor"]) if "cursor" in row else None,
            watermark=_number(row.get("watermark")),
            next_due=_number(row.get("due")),
            health=tx.seal.open(row["health"]) if "health" in row else None,
            reads=int(row.get("reads", 0)),
            seen=int(row.get("seen", 0)),
            baselined=row.get("base") == b"1",
            last_success=_number(row.get("ok")),
            last_tick=_number(row.get("tick")),
            coverage=_coverage(row),
            resting=_resting(row),
            created_at=int(row["made"]),
            removed_at=_number(row.get("removed")),
        )


def _coverage(row: Row) -> tuple[tuple[int, int], ...]:
    older = [each.split(b"-") for each in row.get("coverage", b"").split(b",") if each]
    newest = [[row["cover_start"], row["cover_end"]]] if "cover_start" in row else []
    return tuple((int(start), int(end)) for start, end in [*older, *newest])


def _resting(row: Row) -> ExportedIdleSpan | None:
    if "span" not in row:
        return None
    start, end, count, seen = (int(row[f"span_{field}"]) for field in ("start", "end", "count", "seen"))
    return ExportedIdleSpan(result=RESULTS[int(row["span"])], start=start, end=end, count=count, seen=seen)


async def _triggers(tx: Transaction) -> AsyncIterator[ExportedTrigger]:
    [named] = await tx.connection.read(("HGETALL", tx.connection.key("tn")))
    uids = [uid.decode() for uid in named.values()]
    rows = await rows_of(tx, [f"tr:{uid}" for uid in uids])
    spent = await rows_of(tx, [f"sp:{uid}" for uid in uids])
    together = zip(uids, rows, spent, strict=True)
    for uid, row, used in sorted(together, key=lambda each: (int(each[1]["made"]), each[1]["name"])):
        yield ExportedTrigger(
            uid=uid,
            name=row["name"].decode(),
            feed=row["feed"].decode(),
            definition=tx.seal.open(row["definition"]),
            epoch=int(row["epoch"]),
            epoch_event=int(row.get("epoch_event", 0)),
            start_line=int(row["start"]),
            reads_from=_number(row.get("reads")),
            reset_at=_number(row.get("reset")),
            backfilling=row.get("backfilling") == b"1",
            paused=tx.text(row["paused"]) if row.get("paused") else "",
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
        )


async def document_kinds(connection: Connection) -> list[bytes]:
    """The kinds of documents that move."""
    prefix = connection.key("d:")
    found: set[bytes] = set()
    cursor = 0
    while True:
        [[cursor, keys]] = await connection.read(("SCAN", cursor, "MATCH", literal(prefix) + b"*", "COUNT", 1000))
        found |= {key[len(prefix) :] for key in keys}
        if not cursor:
            return sorted(kind for kind in found if kind.decode() not in NOT_COPIED)


async def _fields(tx: Transaction, key: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
    """Each field of a large hash once, however often the server shows it."""
    cursor, seen = 0, set[bytes]()
    while True:
        [[cursor, some]] = await tx.connection.read(("HSCAN", key, cursor, "COUNT", AT_ONCE))
        for field, value in some.items():
            if field not in seen:
                seen.add(field)
                yield field, value
        if not cursor:
            return


async def _documents(tx: Transaction) -> AsyncIterator[ExportedDocument]:
    for kind in await document_kinds(tx.connection):
        async for name, row in _fields(tx, tx.connection.key("d:") + kind):
            revision, at = DOCUMENT.unpack_from(row)
            yield ExportedDocument(
                kind=kind.decode(),
                name=name.decode(),
                value=tx.seal.open(row[DOCUMENT.size :]),
                revision=revision,
                updated_at=at,
            )


async def _events(tx: Transaction) -> AsyncIterator[ExportedEvent]:
    async for bucket, numbers in numbered(tx, "eb"):
        key = tx.connection.key(f"e:{bucket}")
        found = await tx.connection.read(*(("HMGET", key, *event_fields(number)) for number in numbers))
        for number, (body, head, repeats) in zip(numbers, found, strict=True):
            if body is not None and head is not None:
                yield _event(tx, number, body, head, repeats)


def _event(tx: Transaction, number: int, body: bytes, head: bytes, repeats: bytes | None) -> ExportedEvent:
    key, subject, state, kind, at, data = _body(tx.seal.open(body))
    recorded_at, _, size = HEAD.unpack_from(head)
    times, _, last = repeats.partition(b":") if repeats else (b"0", b"", b"")
    verdicts = HEAD.size + size
    return ExportedEvent(
        id=number,
        feed=head[HEAD.size : verdicts].decode(),
        key=text(key),
        subject=text(subject),
        state=None if state is None else text(state),
        type=kind,
        occurred_at=at,
        recorded_at=recorded_at,
        repeats=int(times),
        last_repeat_at=_number(last),
        verdicts=verdicts_of(tx.seal, head[verdicts:]),
        data=data,
    )


async def _memory(tx: Transaction, feeds: Sequence[str]) -> AsyncIterator[ExportedMemory]:
    for feed in feeds:
        async for mid, value in _fields(tx, tx.connection.key(f"m:{feed}")):
            first, last, event, seq, kind, size = MEMORY.unpack_from(value)
            mark, sealed = value[MEMORY.size : MEMORY.size + size], value[MEMORY.size + size :]
            state: str | None = None
            if kind not in (NO_STATE, ABSENT_STATE):
                state = text(mark if kind == PLAIN_STATE else tx.seal.open(sealed))
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
