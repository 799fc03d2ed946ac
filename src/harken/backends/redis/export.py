"""The keys of the store as rows that go to another home. Nobody writes meanwhile: see moving.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from struct import Struct

import msgspec

from harken.backends.redis.codec import ABSENT_STATE, NO_STATE, PLAIN_STATE, event_fields, verdicts_of
from harken.backends.redis.commit import RESULTS
from harken.backends.redis.connection import Link
from harken.backends.redis.moving_ledger import audits, letters, text, ticks
from harken.backends.redis.moving_runs import numbered, runs
from harken.backends.redis.standing import Row, rows_of
from harken.backends.redis.transaction import Home
from harken.backends.redis.upkeep import literal
from harken.store.export_rows import (
    Beginning,
    Chunk,
    MovedDocument,
    MovedEvent,
    MovedFeed,
    MovedTrigger,
    Remembered,
    Resting,
    Spent,
)
from harken.store.transfer import UNMOVED, chunks_of

__all__ = ["BODY", "DOCUMENT", "HEAD", "MEMORY", "all_rows", "document_kinds"]

DOCUMENT = Struct(">IQ")
MEMORY = Struct(">QQQIBH")
HEAD = Struct(">Q16sH")
BODY = tuple[bytes, bytes, bytes | None, str, int | None, bytes]

AT_ONCE = 200
_body = msgspec.msgpack.Decoder(BODY).decode


async def all_rows(home: Home, identity: bytes) -> AsyncIterator[Chunk]:
    """Chunk by chunk, in no more time than reading them takes."""
    yield [await _beginning(home, identity)]
    feeds = [feed async for feed in _feeds(home)]
    for rows in (
        _each(feeds),
        _triggers(home),
        _documents(home),
        _events(home),
        _memory(home, [feed.name for feed in feeds]),
        runs(home),
        ticks(home),
        letters(home),
        audits(home),
    ):
        async for chunk in chunks_of(rows):
            yield chunk


async def _each(feeds: Sequence[MovedFeed]) -> AsyncIterator[MovedFeed]:
    for feed in feeds:
        yield feed


async def _beginning(home: Home, identity: bytes) -> Beginning:
    key = home.link.key
    numbers, generation, known = await home.link.read(
        ("HMGET", key("n"), "event", "run"),
        ("HMGET", key("gen"), "epoch", "name", "since"),
        ("SMEMBERS", key("shards")),
    )
    # a store from before has the only shard that there was
    shards = sorted({0, *map(int, known)})
    tokens = await home.link.read(*(("HGET", key(f"lease:{shard}"), "token") for shard in shards))
    return Beginning(
        identity=identity,
        next_event=int(numbers[0] or 1),
        next_run=int(numbers[1] or 1),
        epoch=int(generation[0] or 0),
        generation=(generation[1] or b"").decode(),
        since=_number(generation[2]),
        tokens=tuple((shard, int(token)) for shard, token in zip(shards, tokens, strict=True) if token),
    )


def _number(found: bytes | None) -> int | None:
    return int(found) if found else None


async def _feeds(home: Home) -> AsyncIterator[MovedFeed]:
    [found] = await home.link.read(("SMEMBERS", home.link.key("feeds")))
    names = [name.decode() for name in found]
    rows = zip(names, await rows_of(home, [f"f:{name}" for name in names]), strict=True)
    for name, row in sorted(rows, key=lambda pair: (int(pair[1]["made"]), pair[0])):
        yield MovedFeed(
            name=name,
            definition=home.seal.open(row["definition"]),
            revision=int(row["revision"]),
            cursor=home.seal.open(row["cursor"]) if "cursor" in row else None,
            watermark=_number(row.get("watermark")),
            next_due=_number(row.get("due")),
            health=home.seal.open(row["health"]) if "health" in row else None,
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


def _resting(row: Row) -> Resting | None:
    if "span" not in row:
        return None
    start, end, count, seen = (int(row[f"span_{field}"]) for field in ("start", "end", "count", "seen"))
    return Resting(result=RESULTS[int(row["span"])], start=start, end=end, count=count, seen=seen)


async def _triggers(home: Home) -> AsyncIterator[MovedTrigger]:
    [named] = await home.link.read(("HGETALL", home.link.key("tn")))
    uids = [uid.decode() for uid in named.values()]
    rows = await rows_of(home, [f"tr:{uid}" for uid in uids])
    spent = await rows_of(home, [f"sp:{uid}" for uid in uids])
    together = zip(uids, rows, spent, strict=True)
    for uid, row, used in sorted(together, key=lambda each: (int(each[1]["made"]), each[1]["name"])):
        yield MovedTrigger(
            uid=uid,
            name=row["name"].decode(),
            feed=row["feed"].decode(),
            definition=home.seal.open(row["definition"]),
            epoch=int(row["epoch"]),
            epoch_event=int(row.get("epoch_event", 0)),
            start_line=int(row["start"]),
            reads_from=_number(row.get("reads")),
            reset_at=_number(row.get("reset")),
            backfilling=row.get("backfilling") == b"1",
            paused=home.text(row["paused"]) if row.get("paused") else "",
            fired=int(row.get("fired", 0)),
            last_fired_at=_number(row.get("fired_at")),
            done=int(row.get("done", 0)),
            created_at=int(row["made"]),
            removed_at=_number(row.get("removed")),
            spent=tuple(
                Spent(what=what, since=int(used[f"{what}@"]), amount=float(used[what]))
                for what in ("runs", "tokens", "usd")
                if what in used
            ),
        )


async def document_kinds(link: Link) -> list[bytes]:
    """The kinds of documents that move."""
    prefix = link.key("d:")
    found: set[bytes] = set()
    cursor = 0
    while True:
        [[cursor, keys]] = await link.read(("SCAN", cursor, "MATCH", literal(prefix) + b"*", "COUNT", 1000))
        found |= {key[len(prefix) :] for key in keys}
        if not cursor:
            return sorted(kind for kind in found if kind.decode() not in UNMOVED)


async def _fields(home: Home, key: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
    """Each field of a large hash once, however often the server shows it."""
    cursor, seen = 0, set[bytes]()
    while True:
        [[cursor, some]] = await home.link.read(("HSCAN", key, cursor, "COUNT", AT_ONCE))
        for field, value in some.items():
            if field not in seen:
                seen.add(field)
                yield field, value
        if not cursor:
            return


async def _documents(home: Home) -> AsyncIterator[MovedDocument]:
    for kind in await document_kinds(home.link):
        async for name, row in _fields(home, home.link.key("d:") + kind):
            revision, at = DOCUMENT.unpack_from(row)
            yield MovedDocument(
                kind=kind.decode(),
                name=name.decode(),
                value=home.seal.open(row[DOCUMENT.size :]),
                revision=revision,
                updated_at=at,
            )


async def _events(home: Home) -> AsyncIterator[MovedEvent]:
    async for bucket, numbers in numbered(home, "eb"):
        key = home.link.key(f"e:{bucket}")
        found = await home.link.read(*(("HMGET", key, *event_fields(number)) for number in numbers))
        for number, (body, head, repeats) in zip(numbers, found, strict=True):
            if body is not None and head is not None:
                yield _event(home, number, body, head, repeats)


def _event(home: Home, number: int, body: bytes, head: bytes, repeats: bytes | None) -> MovedEvent:
    key, subject, state, kind, at, data = _body(home.seal.open(body))
    recorded_at, _, size = HEAD.unpack_from(head)
    times, _, last = repeats.partition(b":") if repeats else (b"0", b"", b"")
    verdicts = HEAD.size + size
    return MovedEvent(
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
        verdicts=verdicts_of(home.seal, head[verdicts:]),
        data=data,
    )


async def _memory(home: Home, feeds: Sequence[str]) -> AsyncIterator[Remembered]:
    for feed in feeds:
        async for mid, value in _fields(home, home.link.key(f"m:{feed}")):
            first, last, event, seq, kind, size = MEMORY.unpack_from(value)
            mark, sealed = value[MEMORY.size : MEMORY.size + size], value[MEMORY.size + size :]
            state: str | None = None
            if kind not in (NO_STATE, ABSENT_STATE):
                state = text(mark if kind == PLAIN_STATE else home.seal.open(sealed))
            yield Remembered(
                feed=feed,
                mid=mid,
                state=state,
                absent=kind == ABSENT_STATE,
                seq=seq,
                event=event,
                first_seen=first,
                last_seen=last,
            )
