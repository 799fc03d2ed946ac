"""Rows from another home, written as the keys that the verbs look for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harken.backends.codec import decode_feed, decode_health, decode_trigger
from harken.backends.redis.codec import (
    ABSENT_STATE,
    BUCKET,
    FRAME,
    GIVEN,
    NO_STATE,
    OUTCOMES,
    PLAIN_STATE,
    SEALED_STATE,
    SHORT_STATE,
)
from harken.backends.redis.commit import RESULTS
from harken.backends.redis.definitions import facts
from harken.backends.redis.export import DOCUMENT, HEAD, MEMORY, STAMP, TICK, write_runs
from harken.backends.redis.transaction import Transaction
from harken.event import Verdict
from harken.store.export_rows import (
    Chunk,
    ExportedAudit,
    ExportedDeadLetter,
    ExportedDocument,
    ExportedEvent,
    ExportedFeed,
    ExportedMemory,
    ExportedRun,
    ExportedTick,
    ExportedTrigger,
    ExportHeader,
)

__all__ = ["Loader"]

Command = tuple[Any, ...]
AT_ONCE = 500

_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


class Loader:
    """Writes chunk after chunk; until `end` nothing may use the store."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._key = tx.connection.key
        self._seal = tx.seal
        self._pushed: set[str] = set()
        self._uids: dict[str, str] = {}
        self._last_letter = 0
        self._kinds: dict[type, Callable[[Any], list[Command]]] = {
            ExportedFeed: self._feed,
            ExportedTrigger: self._trigger,
            ExportedDocument: self._document,
            ExportedEvent: self._event,
            ExportedMemory: self._remembered,
            ExportedTick: self._tick,
            ExportedDeadLetter: self._letter,
            ExportedAudit: self._audit,
        }

    async def _do(self, commands: Sequence[Command]) -> None:
        await self._tx.connection.read(*commands)

    async def begin(self, beginning: ExportHeader) -> None:
        key = self._key
        numbers = {"event": beginning.next_event, "run": beginning.next_run}
        numbers["token"] = max((token for _, token in beginning.tokens), default=0)
        generation = {"epoch": beginning.epoch, "name": beginning.generation, "since": beginning.since or ""}
        commands = [("SET", key("defs"), 1), _hash(key("n"), numbers), _hash(key("gen"), generation)]
        for shard, token in beginning.tokens:
            commands += [_hash(key(f"lease:{shard}"), {"holder": "", "token": token, "until": 0})]
            commands += [("SADD", key("shards"), shard)]
        await self._do(commands)

    async def take(self, chunk: Chunk) -> None:
        if isinstance(chunk[0], ExportedRun):
            await write_runs(self._tx, [row for row in chunk if isinstance(row, ExportedRun)])
            return
        commands_of = self._kinds[type(chunk[0])]
        await self._do([command for row in chunk for command in commands_of(row)])

    async def end(self) -> None:
        """What had to be known as a whole: the order in which pushes are forgotten, and the last number of letters."""
        for feed in sorted(self._pushed):
            await self._order_memory(feed)
        await self._do([_hash(self._key("n"), {"buried": self._last_letter})])

    async def _order_memory(self, feed: str) -> None:
        waiting = self._key(f"moving:{feed}")
        begin = 0
        while True:
            [noted] = await self._tx.connection.read(("ZRANGE", waiting, begin, begin + AT_ONCE - 1))
            if not noted:
                break
            await self._do([("RPUSH", self._key(f"mo:{feed}"), *noted)])
            begin += AT_ONCE
        await self._do([("UNLINK", waiting)])

    def _shut(self, text: str) -> bytes:
        return self._seal.shut(text.encode("utf-8", "surrogatepass"))

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
        fields |= _covered(row) | _resting(row)
        commands = [_hash(key, fields), ("SADD", self._key("feeds"), row.name)]
        return commands + ([("SADD", self._key("pushed"), row.name)] if pushed else [])

    def _trigger(self, row: ExportedTrigger) -> list[Command]:
        flat = iter(facts(decode_trigger(row.definition)))
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
        ]

    def _document(self, row: ExportedDocument) -> list[Command]:
        value = DOCUMENT.pack(row.revision, row.updated_at) + self._seal.shut(row.value)
        return [("HSET", self._key(f"d:{row.kind}"), row.name, value)]

    def _event(self, row: ExportedEvent) -> list[Command]:
        texts = [text.encode("utf-8", "surrogatepass") for text in (row.key, row.subject)]
        state = None if row.state is None else row.state.encode("utf-8", "surrogatepass")
        body = self._seal.shut(_encode((*texts, state, row.type, row.occurred_at, row.data)))
        feed, name = row.feed.encode(), self._seal.name(row.key)
        head = HEAD.pack(row.recorded_at, name, len(feed)) + feed
        fields: dict[str, Any] = {str(row.id): body, f"v{row.id}": head + b"".join(map(self._frame, row.verdicts))}
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

    def _frame(self, verdict: Verdict) -> bytes:
        """A verdict as matching gives it, and beside it the run, for whoever has to know whether that is over."""
        trigger, run = verdict.trigger.encode(), bytes.fromhex(verdict.run_id)
        reason = self._seal.shut(_encode_json(verdict))
        sizes = (OUTCOMES.index(verdict.outcome), len(trigger), len(run), len(reason), GIVEN)
        return FRAME.pack(*sizes) + trigger + run + reason

    def _gathered(self, row: ExportedEvent, name: bytes) -> list[Command]:
        """An occurrence that was gathered is known by its key for as long as its event is there."""
        commands: list[Command] = []
        for verdict in row.verdicts:
            uid = self._uids.get(verdict.trigger)
            if verdict.outcome == "gathered" and uid is not None:
                noted = STAMP.pack(row.id)
                commands += [("HSET", self._key(f"gb:{uid}"), name, noted + bytes.fromhex(verdict.run_id))]
                commands += [("RPUSH", self._key("gq"), noted + name + uid.encode())]
        return commands

    def _remembered(self, row: ExportedMemory) -> list[Command]:
        kind, mark, state = NO_STATE, b"", b""
        if row.absent:
            kind = ABSENT_STATE
        elif row.state is not None:
            plain = row.state.encode("utf-8", "surrogatepass")
            if not self._seal.encrypted and len(plain) <= SHORT_STATE:
                kind, mark = PLAIN_STATE, plain
            else:
                kind, mark, state = SEALED_STATE, self._seal.name(row.state), self._seal.shut(plain)
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
        plain = [text.encode("utf-8", "backslashreplace") for text in (row.feed, row.key, row.reason)]
        name = self._seal.name(f"{row.feed}\0{row.key}")
        letter = STAMP.pack(row.at) + name + self._seal.shut(_encode((*plain, row.payload)))
        return [
            ("HSET", self._key("buried"), row.id, letter),
            ("ZADD", self._key("bz"), row.id, row.id),
            ("HSET", self._key("bk"), name, "1"),
        ]

    def _audit(self, row: ExportedAudit) -> list[Command]:
        entry = _encode((row.who, row.did, row.what, self._seal.shut(row.detail)))
        return [("RPUSH", self._key("audit"), STAMP.pack(row.at) + entry)]


def _hash(key: bytes, fields: dict[str, Any]) -> Command:
    return ("HSET", key, *(part for pair in fields.items() for part in pair))


def _covered(row: ExportedFeed) -> dict[str, Any]:
    if not row.coverage:
        return {}
    *older, (start, end) = row.coverage
    return {"cover_start": start, "cover_end": end, "coverage": ",".join(f"{begin}-{last}" for begin, last in older)}


def _resting(row: ExportedFeed) -> dict[str, Any]:
    now = row.resting
    if now is None:
        return {}
    span = RESULTS.index(now.result)
    return {"span": span, "span_start": now.start, "span_end": now.end, "span_count": now.count, "span_seen": now.seen}
