"""Writes the rows of another store into an empty Redis store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harken.backends.codec import decode_feed, decode_health, decode_trigger
from harken.backends.redis.codec import (
    ABSENT_STATE,
    BUCKET,
    DOCUMENT,
    EVENT_HEAD,
    MEMORY,
    NEVER,
    RESULTS,
    STAMP,
    TICK,
    Arguments,
    encode_body,
    encode_frames,
    encode_letter,
    encode_msgpack,
    encode_state,
    encode_text,
    mark_value,
    parts_text,
    step_charge,
)
from harken.backends.redis.connection_and_name_cache import Session
from harken.backends.redis.feeds_and_triggers import trigger_facts
from harken.backends.run_states_ids_and_reasons import STATES
from harken.runs import StepRecord
from harken.store.transfer_rows import (
    Chunk,
    ExportedAudit,
    ExportedDeadLetter,
    ExportedDocument,
    ExportedEvent,
    ExportedFeed,
    ExportedMark,
    ExportedMemory,
    ExportedRun,
    ExportedTick,
    ExportedTrigger,
    ExportHeader,
)

__all__ = ["Loader"]

Command = tuple[Any, ...]
MEMORIES_PER_CALL = 500

_decode_step = msgspec.json.Decoder(StepRecord).decode


class Loader:
    """Call `begin`, `take` for each chunk, then `end`. Until then nothing else may use the store."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._key = session.connection.key
        self._execute = session.connection.execute
        self._seal = session.seal
        self._pushed: set[str] = set()
        self._uids: dict[str, str] = {}
        self._last_letter = 0
        self._kinds: dict[type, Callable[[Any], list[Command]]] = {
            ExportedFeed: self._feed,
            ExportedTrigger: self._trigger,
            ExportedDocument: self._document,
            ExportedEvent: self._event,
            ExportedMemory: self._memory,
            ExportedTick: self._tick,
            ExportedDeadLetter: self._letter,
            ExportedAudit: self._audit,
        }

    async def begin(self, header: ExportHeader) -> None:
        key = self._key
        numbers = {"event": header.next_event, "run": header.next_run}
        numbers["token"] = max((token for _, token in header.tokens), default=0)
        generation = {"epoch": header.epoch, "name": header.generation, "since": header.since or ""}
        commands = [("SET", key("defs"), 1), _hash(key("n"), numbers), _hash(key("gen"), generation)]
        for shard, token in header.tokens:
            commands += [_hash(key(f"lease:{shard}"), {"holder": "", "token": token, "until": 0})]
            commands += [("SADD", key("shards"), shard)]
        await self._execute(*commands)

    async def take(self, chunk: Chunk) -> None:
        if isinstance(chunk[0], ExportedRun):
            await _write_runs(self._session, [row for row in chunk if isinstance(row, ExportedRun)])
            return
        commands_of = self._kinds[type(chunk[0])]
        await self._execute(*(command for row in chunk for command in commands_of(row)))

    async def end(self) -> None:
        """Write what depends on all rows: the order of pushed memories, and the last number of a refused event."""
        for feed in sorted(self._pushed):
            await self._order_memory(feed)
        await self._execute(_hash(self._key("n"), {"buried": self._last_letter}))

    async def _order_memory(self, feed: str) -> None:
        """Write the memory of a pushed feed in the order of time, as pruning needs it."""
        sorted_key = self._key(f"moving:{feed}")
        begin = 0
        while True:
            [noted] = await self._execute(("ZRANGE", sorted_key, begin, begin + MEMORIES_PER_CALL - 1))
            if not noted:
                break
            await self._execute(("RPUSH", self._key(f"mo:{feed}"), *noted))
            begin += MEMORIES_PER_CALL
        await self._execute(("UNLINK", sorted_key))

    def _shut(self, text: str) -> bytes:
        return self._seal.shut(encode_text(text))

    def _feed(self, row: ExportedFeed) -> list[Command]:
        definition, key = decode_feed(row.definition), self._key(f"f:{row.name}")
        pushed = definition.way != "poll"
        fields: dict[str, Any] = {
            "definition": self._seal.shut(row.definition),
            "pushed": "1" if pushed else "",
            "identity": definition.identity,
            "shard": definition.shard,
            "revision": row.revision,
            "made": row.created_at,
            "due": "" if row.next_due is None else row.next_due,
            "reads": row.reads,
            "seen": row.seen,
            "base": "1" if row.baselined else "",
        }
        known = {"watermark": row.watermark, "ok": row.last_success, "tick": row.last_tick, "removed": row.removed_at}
        fields |= {field: value for field, value in known.items() if value is not None}
        if row.cursor is not None:
            fields["cursor"] = self._seal.shut(row.cursor)
        if row.health is not None:
            fields["health"] = self._seal.shut(row.health)
            fields["clean"] = "1" if decode_health(row.health).clean else ""
        if pushed:
            self._pushed.add(row.name)
        fields |= _coverage(row) | _idle_span(row)
        commands = [_hash(key, fields), ("SADD", self._key("feeds"), row.name)]
        return commands + ([("SADD", self._key("pushed"), row.name)] if pushed else [])

    def _trigger(self, row: ExportedTrigger) -> list[Command]:
        flat = iter(trigger_facts(decode_trigger(row.definition)))
        fields: dict[str, Any] = {
            **dict(zip(flat, flat, strict=True)),
            "name": row.name,
            "feed": row.feed,
            "definition": self._seal.shut(row.definition),
            "epoch": row.epoch,
            "epoch_event": row.epoch_event,
            "start": row.start_line,
            "reads": row.start_line if row.reads_from is None else row.reads_from,
            "made": row.created_at,
            "paused": self._shut(row.paused) if row.paused else "",
            "backfilling": "1" if row.backfilling else "",
            "fired": row.fired,
            "done": row.done,
        }
        if row.backfilling:
            fields |= {f"backfilling:{feed}": "1" for feed in decode_trigger(row.definition).feeds[1:]}
        known = {"fired_at": row.last_fired_at, "reset": row.reset_at, "removed": row.removed_at}
        fields |= {field: value for field, value in known.items() if value is not None}
        self._uids[row.name] = row.uid
        spent = {
            field: value for one in row.spent for field, value in ((one.what, one.amount), (f"{one.what}@", one.since))
        }
        return [
            _hash(self._key(f"tr:{row.uid}"), fields),
            ("HSET", self._key("tn"), row.name, row.uid),
            ("SADD", self._key(f"ft:{row.feed}"), row.uid),
            *([_hash(self._key(f"sp:{row.uid}"), spent)] if spent else []),
            *(("SADD", self._key(f"ft:{feed}"), row.uid) for feed in decode_trigger(row.definition).feeds[1:]),
            *(command for mark in row.marks for command in self._mark(row.uid, mark)),
        ]

    def _mark(self, uid: str, mark: ExportedMark) -> list[Command]:
        value = mark_value(mark.until, mark.times or b"", mark.run or b"")
        return [
            ("HSET", self._key(f"mk:{uid}"), mark.key, value),
            ("ZADD", self._key("mx"), mark.until, mark.key + uid.encode()),
        ]

    def _document(self, row: ExportedDocument) -> list[Command]:
        value = DOCUMENT.pack(row.revision, row.updated_at) + self._seal.shut(row.value)
        return [("HSET", self._key(f"d:{row.kind}"), row.name, value)]

    def _event(self, row: ExportedEvent) -> list[Command]:
        body = encode_body(self._seal, row.key, row.subject, row.state, row.type, row.occurred_at, row.data)
        feed, name = row.feed.encode(), self._seal.name(row.key)
        head = EVENT_HEAD.pack(row.recorded_at, name, len(feed)) + feed
        fields: dict[str, Any] = {str(row.id): body, f"v{row.id}": head + encode_frames(self._seal, row.verdicts)}
        if row.repeats:
            fields[f"r{row.id}"] = f"{row.repeats}:{row.last_repeat_at or ''}"
        bucket = row.id // BUCKET
        return [
            _hash(self._key(f"e:{bucket}"), fields),
            ("ZADD", self._key("eb"), bucket, bucket),
            ("RPUSH", self._key(f"ef:{row.feed}"), row.id),
            ("ZADD", self._key("ek"), 0, name + STAMP.pack(row.id)),
            ("HINCRBY", self._key("n"), "events", 1),
            *self._gathered(row, name),
        ]

    def _gathered(self, row: ExportedEvent, name: bytes) -> list[Command]:
        """Note which run gathered the occurrence, so that it is not gathered twice."""
        commands: list[Command] = []
        for verdict in row.verdicts:
            uid = self._uids.get(verdict.trigger)
            if verdict.outcome == "gathered" and uid is not None:
                noted = STAMP.pack(row.id)
                commands += [("HSET", self._key(f"gb:{uid}"), name, noted + bytes.fromhex(verdict.run_id))]
                commands += [("RPUSH", self._key("gq"), noted + name + uid.encode())]
        return commands

    def _memory(self, row: ExportedMemory) -> list[Command]:
        kind, mark, state = (ABSENT_STATE, b"", b"") if row.absent else encode_state(self._seal, row.state)
        value = MEMORY.pack(row.first_seen, row.last_seen, row.event, row.seq, kind, len(mark)) + mark + state
        commands: list[Command] = [("HSET", self._key(f"m:{row.feed}"), row.mid, value)]
        if row.feed in self._pushed:
            commands.append(("ZADD", self._key(f"moving:{row.feed}"), 0, STAMP.pack(row.last_seen) + row.mid))
        if row.absent:
            commands.append(("ZADD", self._key("ma"), row.last_seen, row.mid + row.feed.encode()))
        return commands

    def _tick(self, row: ExportedTick) -> list[Command]:
        times = (row.started_at, row.ended_at, row.count, RESULTS.index(row.result), row.seen, row.new, row.seconds)
        packed = TICK.pack(*times) + (self._shut(row.error) if row.error else b"")
        return [("RPUSH", self._key(f"t:{row.feed}"), packed), ("RPUSH", self._key("tq"), row.feed)]

    def _letter(self, row: ExportedDeadLetter) -> list[Command]:
        self._last_letter = max(self._last_letter, row.id)
        name = self._seal.name(f"{row.feed}\0{row.key}")
        letter = STAMP.pack(row.at) + name + encode_letter(self._seal, row.feed, row.key, row.reason, row.payload)
        return [
            ("HSET", self._key("buried"), row.id, letter),
            ("ZADD", self._key("bz"), row.id, row.id),
            ("HSET", self._key("bk"), name, "1"),
        ]

    def _audit(self, row: ExportedAudit) -> list[Command]:
        entry = encode_msgpack((row.who, row.did, row.what, self._seal.shut(row.detail)))
        return [("RPUSH", self._key("audit"), STAMP.pack(row.at) + entry)]


def _hash(key: bytes, fields: dict[str, Any]) -> Command:
    return ("HSET", key, *(part for pair in fields.items() for part in pair))


def _coverage(row: ExportedFeed) -> dict[str, Any]:
    if not row.coverage:
        return {}
    *older, (start, end) = row.coverage
    return {"cover_start": start, "cover_end": end, "coverage": ",".join(f"{begin}-{last}" for begin, last in older)}


def _idle_span(row: ExportedFeed) -> dict[str, Any]:
    idle = row.resting
    if idle is None:
        return {}
    return {
        "span": RESULTS.index(idle.result),
        "span_start": idle.start,
        "span_end": idle.end,
        "span_count": idle.count,
        "span_seen": idle.seen,
    }


async def _write_runs(session: Session, chunk: Sequence[ExportedRun]) -> None:
    args = session.arguments()
    await session.connection.write("load.load_runs", args, ([_run(args, run) for run in chunk],))


def _run(args: Arguments, run: ExportedRun) -> tuple[Any, ...]:
    names = {"id": run.id, "slot": run.slot, "gather": run.gather, "parent": run.parent, "replay": run.replay_of}
    if run.waiting_for.startswith("run:"):
        names["wait_run"] = bytes.fromhex(run.waiting_for[4:])
    texts = {"input": run.input, "output": run.output, "answer": run.answer}
    if run.error:
        texts["error"] = encode_text(run.error)
    positions = {field: args.text(args.seal.shut(text)) for field, text in texts.items() if text is not None}
    return (
        _run_fields(run, bool(positions)),
        {field: args.raw_name(name) for field, name in names.items() if name is not None},
        run.seq,
        positions,
        [args.text(args.seal.shut(step)) for step in run.journal],
        [charge for step in run.journal if (charge := step_charge(args, _decode_step(step), step))],
        list(run.events),
        run.by_hand,
        run.has_slot,
        run.moved,
    )


def _since(run: ExportedRun) -> int:
    """When the run came into its state."""
    return max(filter(None, (run.created_at, run.since, run.finished_at)))


def _run_fields(run: ExportedRun, has_texts: bool) -> dict[str, Any]:
    """The hash of the run; fields without a value are left out."""
    optional = {
        "prio": str(run.priority) if run.priority else None,
        "tries": run.attempt if run.attempt > 1 else None,
        "event": run.event,
        "overlap": run.overlap or None,
        "gathered": run.gathered if run.gather is not None else None,
        "parts": parts_text(run.parts) if run.parts is not None else None,
        "hold": run.hold or None,
        "qfrom": run.quiet_from,
        "qtil": run.quiet_until,
        "budget": "1" if run.budgeted else None,
        "stop": "1" if run.cancel_requested else None,
        "wait": run.waiting_for or None,
        "begun": run.started_at,
        "over": run.finished_at,
        "since": _since(run) if run.watched else None,
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
    return always | {field: value for field, value in optional.items() if value is not None}
