"""Runs in the hands of a worker: journaled, extended, parked, settled. The claim's token is checked in the write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harken.backends.codec import micros
from harken.backends.postgres.commit import commit
from harken.backends.postgres.queue import admit, charge, count_run, free_slot, let_go, lock_slot
from harken.backends.postgres.records import journals_of
from harken.backends.postgres.statements import Spread
from harken.backends.postgres.transaction import Transaction, Withdrawn
from harken.backends.run_states import (
    BY_HAND,
    CANCELLED,
    DEAD,
    DONE,
    FAILED,
    FINAL,
    HELD,
    NEVER,
    READY,
    RUNNING,
    STATES,
    WAITING,
    id_of,
    last_words,
    run_id_of,
)
from harken.errors import LeaseLost, NotFound
from harken.runs import Again, Finished, Park, RunOutcome, StepRecord
from harken.store import Commit, NewRun, Settlement, Stale

__all__ = [
    "answer",
    "cancel",
    "drop_dead_letter",
    "extend",
    "is_plain",
    "journal",
    "lock_around",
    "park",
    "release",
    "retry",
    "settle",
    "settle_plain",
    "start",
    "tell_parent",
]


Answer = Literal["settled", "lost"] | Stale

Claim = tuple[str, int]

_OURS = f"SELECT seq FROM runs WHERE id=$1 AND token=$2 AND state={RUNNING} FOR UPDATE"

ROWS = Spread(
    id="bytea", token="bigint", state="smallint", error="bytea", output="bytea", record="bytea", counts="text"
)

QUICK = f"""WITH u AS ({{}}),
s AS (UPDATE runs r SET state=u.state, finished_at=coalesce($1, harken_now()), error=u.error, output=u.output,
lease_until=NULL, holder=NULL, answer=NULL FROM u
WHERE r.id=u.id AND r.token=u.token AND r.state::int={RUNNING} AND r.slot IS NULL AND r.parent IS NULL
RETURNING r.id, r.seq, r.token, u.record, u.counts),
j AS (INSERT INTO journal (run, n, record) SELECT s.seq,
coalesce((SELECT max(n) FROM journal WHERE run=s.seq), 0) + 1, s.record FROM s WHERE s.record IS NOT NULL),
t AS (INSERT INTO tallies (trigger, fired, done) SELECT t.id, 0, n.done FROM triggers t JOIN
(SELECT counts, count(*) AS done FROM s WHERE counts<>'' GROUP BY counts) n ON t.name=n.counts)
SELECT id, token FROM s"""


async def settle(tx: Transaction, settlements: Sequence[Settlement], settled: frozenset[Claim]) -> list[Answer]:
    """One by one, but for those that `settle_plain` has settled already."""
    answers: list[Answer] = []
    left = set(settled)
    for one in settlements:
        quick = (one.id, one.token) in left and is_plain(one)
        # of two for the same claim only the first counts
        left.discard((one.id, one.token))
        answers.append("settled" if quick else await _settle_apart(tx, one))
    return answers


def is_plain(one: Settlement) -> bool:
    """Nothing is caused by it, nothing is charged, and it is not tried again."""
    charges = one.record is not None and (one.record.tokens or one.record.usd)
    return not (one.caused or charges or isinstance(one.outcome, Again))


async def settle_plain(tx: Transaction, settlements: Sequence[Settlement]) -> frozenset[Claim]:
    """End all that no slot and no parent depends on, with one statement."""
    values = [
        (
            id_of(one.id),
            one.token,
            FINAL[type(one.outcome)],
            *_last_bytes(tx, one.outcome),
            None if one.record is None else tx.shut_json(one.record),
            _counted(one),
        )
        for one in settlements
    ]
    text, parameters = ROWS.of(values, fixed=1)
    rows = await tx.rows(QUICK.format(text), tx.given_now, *parameters)
    return frozenset((row[0].hex(), row[1]) for row in rows)


async def _settle_apart(tx: Transaction, one: Settlement) -> Answer:
    """A stale one is undone by itself; the others stay."""
    if not one.caused:
        return await _settle(tx, one)
    await tx.connection.execute("SAVEPOINT settlement")
    try:
        answer = await _settle(tx, one)
    except Withdrawn as withdrawn:
        await tx.connection.execute("ROLLBACK TO SAVEPOINT settlement")
        answer = withdrawn.answer
    await tx.connection.execute("RELEASE SAVEPOINT settlement")
    return answer


async def _settle(tx: Transaction, one: Settlement) -> Answer:
    slot, parent = await lock_around(tx, id_of(one.id))
    seq = await tx.value(_OURS, id_of(one.id), one.token)
    if seq is None:
        return "lost"
    for wanted in one.caused:
        answer = await commit(tx, wanted)
        if isinstance(answer, Stale):
            raise Withdrawn(answer)
    if one.record is not None:
        await _append(tx, seq, one.record)
    await _write_outcome(tx, seq, one.outcome)
    if isinstance(one.outcome, Again):
        return "settled"
    await _count(tx, one)
    if slot is not None:
        await free_slot(tx, slot, seq)
    if parent is not None:
        error, output = last_words(one.outcome)
        await tell_parent(tx, parent, one.id, FINAL[type(one.outcome)], output, error)
    return "settled"


def _counted(one: Settlement) -> str:
    """The trigger for which this is a good end."""
    return one.trigger if isinstance(one.outcome, Finished) and not one.outcome.filtered else ""


async def _count(tx: Transaction, one: Settlement) -> None:
    name = _counted(one)
    if name:
        sql = "INSERT INTO tallies (trigger, fired, done) SELECT id, 0, 1 FROM triggers WHERE name=$1"
        await tx.do(sql, name)


async def _write_outcome(tx: Transaction, seq: int, outcome: RunOutcome) -> None:
    if isinstance(outcome, Again):
        await tx.do(
            f"""UPDATE runs SET state={READY}, due_at=$1, attempt=attempt+$2, error=$3, lease_until=NULL, holder=NULL,
            answer=NULL WHERE seq=$4""",
            micros(outcome.at),
            1 if outcome.counts else 0,
            tx.shut(outcome.error),
            seq,
        )
        return
    await tx.do(
        """UPDATE runs SET state=$1, finished_at=$2, error=$3, output=$4, lease_until=NULL, holder=NULL, answer=NULL
        WHERE seq=$5""",
        FINAL[type(outcome)],
        tx.now,
        *_last_bytes(tx, outcome),
        seq,
    )


def _last_bytes(tx: Transaction, outcome: RunOutcome) -> tuple[bytes | None, bytes | None]:
    error, output = last_words(outcome)
    return tx.shut(error) if error else None, None if output is None else tx.shut_json(output)


async def journal(
    tx: Transaction,
    run_id: str,
    token: int,
    records: Sequence[StepRecord],
    caused: Sequence[Commit],
    start_runs: Sequence[NewRun],
) -> Stale | None:
    seq = await _ours(tx, run_id, token)
    for wanted in caused:
        answer = await commit(tx, wanted)
        if isinstance(answer, Stale):
            raise Withdrawn(answer)
    for new in start_runs:
        await start(tx, new)
    for record in records:
        await _append(tx, seq, record)
    return None


async def _append(tx: Transaction, seq: int, record: StepRecord) -> None:
    # a worker that does not know whether its write was taken writes the same record again
    if (record.tokens or record.usd) and record not in (await journals_of(tx, [seq])).get(seq, ()):
        await charge(tx, seq, record)
    await tx.do(
        """INSERT INTO journal (run, n, record)
        VALUES ($1, (SELECT coalesce(max(n), 0) + 1 FROM journal WHERE run=$1), $2)""",
        seq,
        tx.shut_json(record),
    )


async def _ours(tx: Transaction, run_id: str, token: int) -> int:
    """Its seq. The run stays ours until this transaction is over."""
    seq = await tx.value(_OURS, id_of(run_id), token)
    if seq is None:
        raise LeaseLost(f"run {run_id[:8]} is no longer ours")
    return int(seq)


async def extend(
    tx: Transaction, claims: Mapping[str, int], seconds: float
) -> dict[str, Literal["kept", "lost", "cancel"]]:
    rows = await tx.rows(
        f"""UPDATE runs r SET lease_until=coalesce($3, harken_now()) + $4
        FROM unnest($1::bytea[], $2::bigint[]) AS u(id, token)
        WHERE r.id=u.id AND r.token=u.token AND r.state::int={RUNNING} RETURNING r.id, r.cancel_requested""",
        [id_of(run_id) for run_id in claims],
        list(claims.values()),
        tx.given_now,
        round(seconds * 1_000_000),
    )
    kept = {row[0].hex(): row[1] for row in rows}
    return {run_id: "lost" if run_id not in kept else "cancel" if kept[run_id] else "kept" for run_id in claims}


async def park(tx: Transaction, run_id: str, token: int, parked: Park, record: StepRecord | None) -> None:
    seq = await _ours(tx, run_id, token)
    if record is not None:
        await _append(tx, seq, record)
    await tx.do(
        f"""UPDATE runs SET state={WAITING}, due_at=$1, waiting_for=$2, answer=NULL, lease_until=NULL, holder=NULL
        WHERE seq=$3""",
        NEVER if parked.until is None else micros(parked.until),
        parked.waiting_for,
        seq,
    )
    if parked.waiting_for.startswith("run:"):
        await _look_for_child(tx, id_of(run_id), parked.waiting_for[4:])


async def _look_for_child(tx: Transaction, parent: bytes, child: str) -> None:
    """The sub-run may be over before its parent lay down; locked, so that it does not end between the two."""
    found = await tx.row("SELECT state, output, error FROM runs WHERE id=$1 FOR SHARE", id_of(child))
    if found is not None and found[0] >= DONE:
        await tell_parent(tx, parent, child, found[0], tx.json(found[1]), tx.text(found[2]))


ANSWER = f"""UPDATE runs SET answer=$2, state={READY}, due_at=coalesce($3, harken_now())
WHERE id=$1 AND state={WAITING} AND waiting_for<>''"""


async def start(tx: Transaction, new: NewRun) -> str:
    trigger = await tx.trigger_named(new.trigger) if new.trigger else None
    run_id = run_id_of(tx.seal, trigger.uid if trigger else new.workflow, 0, new.id_key, "by hand")
    first = new.event_ids[0] if len(new.event_ids) == 1 else None
    seq = await tx.value(
        f"""INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, max_attempts, event, input, parent,
        replay_of, gathered, created_at) VALUES (nextval('run_seqs'), $1, $2, $3, {READY}, $4, $5, $6, $7, $8, $9, $10,
        $11) ON CONFLICT DO NOTHING RETURNING seq""",
        run_id,
        trigger.id if trigger else 0,
        new.workflow_rev,
        micros(new.due_at) if new.due_at else tx.now,
        new.max_attempts,
        first,
        tx.seal.shut(new.input) if new.input else None,
        id_of(new.parent) if new.parent else None,
        id_of(new.replay_of) if new.replay_of else None,
        max(1, len(new.event_ids)),
        tx.now,
    )
    if seq is not None:
        rows = [(seq, event_id) for event_id in new.event_ids]
        await tx.each("INSERT INTO run_events (run, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", rows)
    tx.wakes = True
    return run_id.hex()


async def lock_around(tx: Transaction, run_id: bytes) -> tuple[bytes | None, bytes | None]:
    """Slot and parent of a run that is about to end, locked in the order in which everybody locks them."""
    row = await tx.row("SELECT slot, parent FROM runs WHERE id=$1", run_id)
    if row is None:
        return None, None
    if row["parent"] is not None:
        await tx.value("SELECT 1 FROM runs WHERE id=$1 FOR UPDATE", row["parent"])
    if row["slot"] is not None:
        await lock_slot(tx, row["slot"])
    return row["slot"], row["parent"]


async def cancel(tx: Transaction, run_id: str) -> bool:
    slot, parent = await lock_around(tx, id_of(run_id))
    row = await tx.row("SELECT seq, state FROM runs WHERE id=$1 FOR UPDATE", id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state == RUNNING:
        await tx.do("UPDATE runs SET cancel_requested=true WHERE seq=$1", seq)
        return True
    if state > WAITING:
        return False
    reason = tx.shut(BY_HAND)
    await tx.do(f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2 WHERE seq=$3", tx.now, reason, seq)
    if slot is not None:
        await free_slot(tx, slot, seq)
    if parent is not None:
        await tell_parent(tx, parent, run_id, CANCELLED, None, BY_HAND)
    return True


async def retry(tx: Transaction, run_id: str, workflow_rev: str) -> bool:
    await lock_around(tx, id_of(run_id))
    row = await tx.row("SELECT seq, state FROM runs WHERE id=$1 FOR UPDATE", id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state not in (FAILED, DEAD, CANCELLED):
        return False
    if workflow_rev:
        await tx.do("DELETE FROM journal WHERE run=$1", seq)
        await tx.do("UPDATE runs SET workflow_rev=$1 WHERE seq=$2", workflow_rev, seq)
    await tx.do(
        """UPDATE runs SET attempt=1, error=NULL, finished_at=NULL, cancel_requested=false, due_at=$1, budgeted=false,
        quiet_from=NULL, quiet_until=NULL WHERE seq=$2""",
        tx.now,
        seq,
    )
    await admit(tx, seq)
    return True


async def release(tx: Transaction, trigger: str, drop: bool, hold: str) -> int:
    """A person decides: what is let go counts, but no budget holds it again."""
    found = await tx.trigger_named(trigger)
    if not drop:
        held = f"SELECT seq FROM runs WHERE trigger=$1 AND state={HELD} AND budgeted AND ($2='' OR hold=$2) FOR UPDATE"
        for (seq,) in await tx.rows(held, found.id, hold):
            await count_run(tx, seq, found.id)
    return await let_go(tx, found.id, hold, drop=drop)


async def drop_dead_letter(tx: Transaction, run_id: str) -> bool:
    if run_id.startswith("event-"):
        return bool(await tx.do("DELETE FROM buried WHERE id=$1", int(run_id[6:])))
    dropped = f"UPDATE runs SET state={CANCELLED} WHERE id=$1 AND state={DEAD}"
    return bool(await tx.do(dropped, id_of(run_id)))


async def answer(tx: Transaction, run_id: str, value: Any) -> bool:
    """A single statement: of two answers only one finds the run waiting."""
    return bool(await tx.do(ANSWER, id_of(run_id), tx.shut_json(value), tx.given_now))


async def tell_parent(tx: Transaction, parent: bytes, child: str, state: int, output: Any, error: str) -> None:
    """Wake the run that waits for this sub-run; one that does not wait yet will look when it does."""
    told = tx.shut_json({"run": child, "status": STATES[state], "output": output, "error": error})
    if await tx.do(f"{ANSWER} AND waiting_for=$4", parent, told, tx.given_now, f"run:{child}"):
        tx.wakes = True
