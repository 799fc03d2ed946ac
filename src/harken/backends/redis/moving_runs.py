"""Runs that go to another home, and that come from one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec

from harken.backends.redis.codec import BUCKET, Ask
from harken.backends.redis.runs import WHY
from harken.backends.redis.standing import Row
from harken.backends.redis.transaction import Home
from harken.backends.run_states import STATES
from harken.runs import RunState, StepRecord
from harken.store.export_rows import MovedRun

__all__ = ["NEVER", "numbered", "runs", "write_runs"]

AT_ONCE = 50
NEVER = 9007199254740992
"""The due time of a run that only an answer can wake."""

_step = msgspec.json.Decoder(StepRecord).decode


async def numbered(home: Home, buckets: str) -> AsyncIterator[tuple[int, list[int]]]:
    """A bucket of rows and some of the numbers that may be in it, in the order of the numbers."""
    [found] = await home.link.read(("ZRANGE", home.link.key(buckets), 0, -1))
    for bucket in map(int, found):
        for begin in range(bucket * BUCKET, (bucket + 1) * BUCKET, AT_ONCE):
            yield bucket, list(range(begin, begin + AT_ONCE))


async def runs(home: Home) -> AsyncIterator[MovedRun]:
    async for bucket, numbers in numbered(home, "rb"):
        [ids] = await home.link.read(("HMGET", home.link.key(f"rn:{bucket}"), *numbers))
        there = [(number, id) for number, id in zip(numbers, ids, strict=True) if id is not None]
        for run in await _some(home, there):
            yield run


async def _some(home: Home, there: Sequence[tuple[int, bytes]]) -> list[MovedRun]:
    link = home.link
    commands: list[tuple[Any, ...]] = []
    for _, id in there:
        commands += [
            ("HGETALL", link.key("r:") + id),
            ("HGETALL", link.key("x:") + id),
            ("LRANGE", link.key("re:") + id, 0, -1),
            ("LRANGE", link.key("j:") + id, 0, -1),
        ]
    replies = await link.read(*commands)
    rows = [_named(reply) for reply in replies[::4]]
    more: list[tuple[Any, ...]] = []
    for (_, id), row in zip(there, rows, strict=True):
        more += [
            ("HGET", link.key("slots"), row.get("slot", b"")),
            ("SISMEMBER", link.key("er:") + row.get("event", b""), id),
        ]
    answers = await link.read(*more)
    return [
        _run(
            home,
            *there[at],
            rows[at],
            [_named(replies[4 * at + 1]), *replies[4 * at + 2 : 4 * at + 4]],
            answers[2 * at :],
        )
        for at in range(len(there))
    ]


def _named(reply: dict[bytes, bytes]) -> Row:
    return {field.decode(): value for field, value in reply.items()}


def _run(home: Home, number: int, id: bytes, row: Row, lists: Sequence[Any], found: Sequence[Any]) -> MovedRun:
    said, gathered, journal = lists
    state = STATES[int(row["state"])]
    due = int(row["due"])
    events = tuple(sorted({int(event) for event in gathered}))
    return MovedRun(
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
        input=_open(home, said, "input"),
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
        answer=_answer(home, said),
        parent=row.get("parent"),
        replay_of=row.get("replay"),
        created_at=int(row["made"]),
        started_at=_number(row.get("begun")),
        finished_at=_number(row.get("over")),
        error=WHY.get(row.get("why", b""), "") or (home.text(said["error"]) if "error" in said else ""),
        output=_open(home, said, "output"),
        journal=tuple(home.seal.open(record) for record in journal),
    )


def _number(found: bytes | None) -> int | None:
    return int(found) if found else None


def _open(home: Home, said: Row, field: str) -> bytes | None:
    return home.seal.open(said[field]) if field in said else None


def _answer(home: Home, said: Row) -> bytes | None:
    """What a person said, or what became of the sub-run."""
    if "answer" in said or "told" not in said:
        return _open(home, said, "answer")
    error = WHY.get(said["told_why"], "") or (home.text(said["told_error"]) if "told_error" in said else "")
    output = home.json(said["told_output"]) if "told_output" in said else None
    told = {"run": said["told"].hex(), "status": STATES[int(said["told_state"])], "output": output, "error": error}
    return msgspec.json.encode(told)


async def write_runs(home: Home, chunk: Sequence[MovedRun]) -> None:
    ask = home.ask()
    await home.link.write("moving_runs", ask, [_instructions(ask, run) for run in chunk])


def _instructions(ask: Ask, run: MovedRun) -> tuple[Any, ...]:
    names = {"id": run.id, "slot": run.slot, "gather": run.gather, "parent": run.parent, "replay": run.replay_of}
    if run.waiting_for.startswith("run:"):
        names["wait_run"] = bytes.fromhex(run.waiting_for[4:])
    texts = {"input": run.input, "output": run.output, "answer": run.answer}
    if run.error:
        texts["error"] = run.error.encode("utf-8", "surrogatepass")
    placed = {field: ask.text(ask.seal.shut(text)) for field, text in texts.items() if text is not None}
    return (
        _fields(run, bool(placed)),
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


def _fields(run: MovedRun, has_texts: bool) -> dict[str, Any]:
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
