"""Runs in the hands of a worker: claimed, journaled, parked, settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.backends.codec import micros, steps
from harken.backends.redis.codec import Ask, micros_or_false, moment, moment_or_none, recorded
from harken.backends.redis.commit import caused as caused_commits
from harken.backends.redis.definitions import definition_of
from harken.backends.redis.transaction import Transaction
from harken.backends.run_states import BY_HAND, DROPPED, FINAL, NOT_OVER, READY, REPLACED, STATES, last_words, run_id_of
from harken.errors import NotFound
from harken.event import Recorded
from harken.runs import Again, Claimed, Finished, Park, StepRecord
from harken.schedule import quiet_hours
from harken.store import Commit, NewRun, Settlement, Stale

__all__ = [
    "WHY",
    "answer",
    "cancel",
    "claim",
    "drop_dead_letter",
    "extend",
    "journal",
    "new_run",
    "next_due",
    "park",
    "release",
    "retry",
    "settle",
    "start",
]


AT_ONCE = 200

WHY = {
    b"replaced": REPLACED,
    b"overlap": NOT_OVER,
    b"cancelled": BY_HAND,
    b"dropped": DROPPED,
}

"""Why the store itself ended a run: Lua knows the word, and only we know the seal."""


async def claim(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed]:
    claimed: list[Claimed] = []
    spans: list[tuple[str, int, int, int]] = []
    while len(claimed) < limit:
        room = min(limit - len(claimed), AT_ONCE)
        first = holder not in tx.greeted
        asked = (holder, tx.life, room, round(seconds * 1e6), first, spans)
        rows, unknown, now = await tx.connection.write("claim", tx.ask(), asked)
        tx.greeted.add(holder)
        claimed += await _claims(tx, rows)
        # only the trigger's calendar knows the quiet hours of a later day; the script checks what we tell it
        spans = [await _quiet_span(tx, uid.decode(), int(now)) for uid in unknown]
        if len(rows) < room and not spans:
            break
    return claimed


async def _quiet_span(tx: Transaction, uid: str, now: int) -> tuple[str, int, int, int]:
    definition = await definition_of(tx, uid)
    if definition.quiet is None:
        # nobody asked for quiet any more: it begins when it ends
        return uid, now, now + 1_000_000, now + 1_000_000
    begin, end = quiet_hours(definition.quiet, moment(now))
    return uid, now, micros(begin), micros(end)


async def _claims(tx: Transaction, rows: Sequence[Any]) -> list[Claimed]:
    await tx.learn_names(row[2] for row in rows)
    return [await _claimed(tx, row) for row in rows]


async def _claimed(tx: Transaction, row: Sequence[Any]) -> Claimed:
    run_id, token, trigger, rev, tries, most, parent, made, stop, event, found, gathered, extra, journal = row
    events: list[Recorded] = []
    if event:
        alone = recorded(tx.seal, int(event), found)
        events = [alone] if alone else []
    elif gathered:
        events = await tx.events(sorted({int(each) for each in gathered}))
    return Claimed(
        id=run_id.hex(),
        token=token,
        trigger=tx.trigger_name(trigger),
        workflow_rev=rev.decode(),
        attempt=int(tries),
        max_attempts=int(most),
        events=tuple(events),
        input=tx.json(extra[0]) if extra else None,
        journal=steps(map(tx.seal.open, journal)),
        answer=_answer(tx, extra) if extra else None,
        parent=parent.hex(),
        created_at=moment(made),
        cancel_requested=bool(stop),
    )


def _answer(tx: Transaction, extra: Sequence[bytes | None]) -> Any:
    """What a person said, or what became of the sub-run."""
    _, answer, child, state, why, output, error = extra
    if answer is not None:
        return tx.json(answer)
    if child is None or state is None:
        return None
    said = WHY.get(why or b"", "") or (tx.text(error) if error else "")
    return {"run": child.hex(), "status": STATES[int(state)], "output": tx.json(output), "error": said}


async def next_due(tx: Transaction) -> datetime | None:
    return moment_or_none(await tx.connection.look("next_due", tx.ask(), ()))


async def journal(
    tx: Transaction,
    run_id: str,
    token: int,
    records: Sequence[StepRecord],
    caused: Sequence[Commit],
    start: Sequence[NewRun],
) -> Stale | None:
    ask = tx.ask()
    instructions = (
        ask.run(run_id),
        token,
        [_step(ask, record) for record in records],
        caused_commits(tx, ask, caused),
        [(await new_run(tx, ask, new))[1] for new in start],
    )
    reply = await tx.connection.write("journal", ask, instructions)
    return Stale(reply[1]) if reply[0] == b"stale" else None


def _step(ask: Ask, record: StepRecord) -> tuple[Any, ...]:
    encoded = msgspec.json.encode(record)
    spent = bool(record.tokens or record.usd)
    name = ask.name(f"step\0{encoded.decode('utf-8', 'surrogateescape')}") if spent else False
    return ask.text(ask.seal.shut(encoded)), record.tokens, record.usd, name


async def extend(
    tx: Transaction, claims: Mapping[str, int], seconds: float
) -> dict[str, Literal["kept", "lost", "cancel"]]:
    answers: dict[str, Literal["kept", "lost", "cancel"]] = {}
    held = list(claims.items())
    for begin in range(0, len(held), AT_ONCE):
        ask, some = tx.ask(), held[begin : begin + AT_ONCE]
        pairs = [(ask.run(run_id), token) for run_id, token in some]
        reply = await tx.connection.write("extend", ask, (round(seconds * 1e6), pairs))
        answers.update((run_id, said.decode()) for (run_id, _), said in zip(some, reply, strict=True))
    return answers


async def park(tx: Transaction, run_id: str, token: int, parked: Park, record: StepRecord | None) -> None:
    ask = tx.ask()
    child = ask.run(parked.waiting_for[4:]) if parked.waiting_for.startswith("run:") else False
    step = False if record is None else _step(ask, record)
    due = micros_or_false(parked.until)
    await tx.connection.write("park", ask, (ask.run(run_id), token, due, parked.waiting_for, child, step))


async def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Literal["settled", "lost"] | Stale]:
    answers: list[Literal["settled", "lost"] | Stale] = []
    for begin in range(0, len(settlements), AT_ONCE):
        ask = tx.ask()
        instructions = [_settlement(tx, ask, one) for one in settlements[begin : begin + AT_ONCE]]
        reply = await tx.connection.write("settle", ask, instructions)
        answers += [Stale(said[1]) if isinstance(said, list) else said.decode() for said in reply]
    return answers


def _settlement(tx: Transaction, ask: Ask, one: Settlement) -> tuple[Any, ...]:
    outcome = one.outcome
    error, output = last_words(outcome)
    again = isinstance(outcome, Again)
    counts = bool(one.trigger) and isinstance(outcome, Finished) and not outcome.filtered
    return (
        ask.run(one.id),
        one.token,
        READY if again else FINAL[type(outcome)],
        micros(outcome.at) if isinstance(outcome, Again) else 0,
        isinstance(outcome, Again) and outcome.counts,
        ask.shut(error) if error or again else False,
        False if output is None else ask.shut_json(output),
        False if one.record is None else _step(ask, one.record),
        caused_commits(tx, ask, one.caused),
        one.trigger if counts else False,
    )


async def new_run(tx: Transaction, ask: Ask, new: NewRun) -> tuple[str, tuple[Any, ...]]:
    """The id of the run, and how Lua is told of it."""
    uid = await tx.uid_of(new.trigger) if new.trigger else ""
    run_id = run_id_of(tx.seal, uid or new.workflow, 0, new.id_key, "by hand")
    return run_id.hex(), (
        uid,
        ask.named(run_id),
        new.workflow_rev,
        micros_or_false(new.due_at),
        new.max_attempts,
        list(new.event_ids),
        ask.text(ask.seal.shut(new.input)) if new.input else False,
        ask.run(new.parent) if new.parent else False,
        ask.run(new.replay_of) if new.replay_of else False,
    )


async def start(tx: Transaction, new: NewRun) -> str:
    ask = tx.ask()
    run_id, instructions = await new_run(tx, ask, new)
    await tx.connection.write("start", ask, instructions)
    return run_id


async def cancel(tx: Transaction, run_id: str) -> bool:
    return await _of_run(tx, "cancel", run_id)


async def retry(tx: Transaction, run_id: str, workflow_rev: str) -> bool:
    return await _of_run(tx, "retry", run_id, workflow_rev)


async def _of_run(tx: Transaction, verb: str, run_id: str, *more: Any) -> bool:
    ask = tx.ask()
    try:
        return bool(await tx.connection.write(verb, ask, (ask.run(run_id), *more)))
    except NotFound:
        raise NotFound(f"there is no run {run_id!r}") from None


async def release(tx: Transaction, trigger: str, drop: bool, hold: str) -> int:
    return int(await tx.connection.write("release", tx.ask(), (trigger, drop, hold)))


async def drop_dead_letter(tx: Transaction, run_id: str) -> bool:
    if run_id.startswith("event-"):
        return bool(await tx.connection.write("drop_refused_event", tx.ask(), (int(run_id[6:]),)))
    return await _of_run(tx, "drop_dead_letter", run_id)


async def answer(tx: Transaction, run_id: str, value: Any) -> bool:
    ask = tx.ask()
    return bool(await tx.connection.write("answer", ask, (ask.run(run_id), ask.shut_json(value))))
