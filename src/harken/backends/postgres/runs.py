"""Runs after they were claimed, and what a person does with a run.

A worker's claim is checked by its token in each write: journal, park, settle. A transaction that ends a run locks its
parent, then its slot, then the run, so that none wait in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from harken.backends.codec import micros
from harken.backends.postgres.claims import PostgresClaims
from harken.backends.postgres.commit import write_commit
from harken.backends.postgres.documents_and_audit import get_document, put_document
from harken.backends.postgres.record_queries import journals_of
from harken.backends.postgres.run_creation_and_admission import (
    admit,
    charge_step,
    count_run,
    free_slot,
    lock_slot,
    release_held,
    request_stop,
)
from harken.backends.postgres.statement_builder import UnnestRows
from harken.backends.postgres.transaction_with_row_cache import Rollback, Transaction
from harken.backends.postgres.watched_run_changes import PostgresMoved, watch
from harken.backends.run_states_ids_and_reasons import (
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
    error_and_output,
    id_of,
    run_id_of,
)
from harken.errors import LeaseLost, NotFound
from harken.runs import BY_HAND, Again, Cancelled, Finished, Park, RunOutcome, StepRecord
from harken.store import Commit, NewRun, Settlement, Stale
from harken.store.document_kinds import RETRIED

__all__ = ["PostgresRuns"]

Settled = Literal["settled", "lost"] | Stale
Claim = tuple[str, int]
"""The id of a run and the token of its claim."""

LOCK_CLAIMED = f"SELECT seq FROM runs WHERE id=$1 AND token=$2 AND state={RUNNING} FOR UPDATE"

SETTLEMENT_ROWS = UnnestRows(
    id="bytea", token="bigint", state="smallint", error="bytea", output="bytea", record="bytea", counts="text"
)
SETTLE_PLAIN = f"""WITH u AS ({{}}),
s AS (UPDATE runs r SET state=u.state, finished_at=coalesce($1, harken_now()), output=u.output,
error=CASE WHEN r.cancel_requested AND u.state={CANCELLED} THEN coalesce(r.error, u.error) ELSE u.error END,
lease_until=NULL, holder=NULL, answer=NULL FROM u
WHERE r.id=u.id AND r.token=u.token AND r.state::int={RUNNING} AND r.slot IS NULL AND r.parent IS NULL
RETURNING r.id, r.seq, r.token, u.record, u.counts),
j AS (INSERT INTO journal (run, n, record) SELECT s.seq,
coalesce((SELECT max(n) FROM journal WHERE run=s.seq), 0) + 1, s.record FROM s WHERE s.record IS NOT NULL),
t AS (INSERT INTO tallies (trigger, fired, done) SELECT t.id, 0, n.done FROM triggers t JOIN
(SELECT counts, count(*) AS done FROM s WHERE counts<>'' GROUP BY counts) n ON t.name=n.counts)
SELECT id, token FROM s"""

STOPPED_OR = "CASE WHEN cancel_requested THEN coalesce(error, {0}) ELSE {0} END"
"""The reason why the run was requested to stop, or else this error."""

ANSWER = f"""UPDATE runs SET answer=$2, state={READY}, since=coalesce($3, harken_now()),
due_at=coalesce($3, harken_now()) WHERE id=$1 AND state={WAITING} AND waiting_for<>''"""


class PostgresRuns(PostgresClaims, PostgresMoved):
    """The protocol Runs, but for claims and what moved.

    Both SQL stores repeat its signatures on purpose, each beside its own SQL.
    """

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        return await self._database.write(_journal, run_id, token, records, caused, start)

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        await self._database.write(_park, run_id, token, park, record)

    async def answer(self, run_id: str, answer: Any) -> bool:
        return await self._database.autocommit(_answer, run_id, answer)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        # settlements are independent, so plain ones need no transaction around them
        plain = [one for one in settlements if _is_plain(one)]
        settled = await self._database.autocommit(_settle_plain, plain) if plain else frozenset()
        if len(settled) == len(settlements):
            return ["settled"] * len(settlements)
        return await self._database.write(_settle, settlements, settled)

    async def start(self, run: NewRun) -> str:
        return await self._database.write(_start, run)

    async def cancel(self, run_id: str, reason: str = BY_HAND) -> bool:
        return await self._database.write(_cancel, run_id, reason)

    async def retry(self, run_id: str, *, workflow_rev: str = "", tries: int = 3, request: str = "") -> bool:
        return await self._database.write(_retry, run_id, workflow_rev, tries, request)

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        return await self._database.write(_release, trigger, drop, hold)

    async def release_run(self, run_id: str) -> bool:
        return await self._database.write(_release_run, run_id)

    async def drop_dead_letter(self, run_id: str) -> bool:
        return await self._database.write(_drop_dead_letter, run_id)


async def _journal(
    tx: Transaction,
    run_id: str,
    token: int,
    records: Sequence[StepRecord],
    caused: Sequence[Commit],
    start_runs: Sequence[NewRun],
) -> Stale | None:
    seq = await _lock_claimed(tx, run_id, token)
    for wanted in caused:
        answer = await write_commit(tx, wanted)
        if isinstance(answer, Stale):
            raise Rollback(answer)
    for new in start_runs:
        await _start(tx, new)
    for record in records:
        await _append_step(tx, seq, record)
    return None


async def _append_step(tx: Transaction, seq: int, record: StepRecord) -> None:
    # a worker that does not know whether its write succeeded writes the same record again: charge it once
    if (record.tokens or record.usd) and record not in (await journals_of(tx, [seq])).get(seq, ()):
        await charge_step(tx, seq, record)
    await tx.do(
        """INSERT INTO journal (run, n, record)
        VALUES ($1, (SELECT coalesce(max(n), 0) + 1 FROM journal WHERE run=$1), $2)""",
        seq,
        tx.shut_json(record),
    )


async def _lock_claimed(tx: Transaction, run_id: str, token: int) -> int:
    """Return the run's seq. The claim cannot be lost until this transaction ends."""
    seq = await tx.value(LOCK_CLAIMED, id_of(run_id), token)
    if seq is None:
        raise LeaseLost(f"run {run_id[:8]} is no longer ours")
    return int(seq)


async def _park(tx: Transaction, run_id: str, token: int, park: Park, record: StepRecord | None) -> None:
    seq = await _lock_claimed(tx, run_id, token)
    if record is not None:
        await _append_step(tx, seq, record)
    await tx.do(
        f"""UPDATE runs SET state={WAITING}, since=$4, due_at=$1, waiting_for=$2, answer=NULL, lease_until=NULL,
        holder=NULL WHERE seq=$3""",
        NEVER if park.until is None else micros(park.until),
        park.waiting_for,
        seq,
        tx.now,
    )
    if park.waiting_for.startswith("run:"):
        await _answer_if_over(tx, id_of(run_id), park.waiting_for[4:])


async def _answer_if_over(tx: Transaction, parent: bytes, child: str) -> None:
    """Answer the parent at once if the sub-run is over. The lock keeps it from ending between the two statements."""
    found = await tx.row("SELECT state, output, error FROM runs WHERE id=$1 FOR SHARE", id_of(child))
    if found is not None and found[0] >= DONE:
        await _answer_parent(tx, parent, child, found[0], tx.json(found[1]), tx.text(found[2]))


async def _answer(tx: Transaction, run_id: str, value: Any) -> bool:
    """A single statement, so that only one of two answers finds the run waiting."""
    return bool(await tx.do(ANSWER, id_of(run_id), tx.shut_json(value), tx.given_now))


async def _answer_parent(tx: Transaction, parent: bytes, child: str, state: int, output: Any, error: str) -> None:
    """Make the run ready that waits for this sub-run. If it is not parked yet, it checks when it parks."""
    answer = tx.shut_json({"run": child, "status": STATES[state], "output": output, "error": error})
    if await tx.do(f"{ANSWER} AND waiting_for=$4", parent, answer, tx.given_now, f"run:{child}"):
        tx.made_ready = True


def _is_plain(one: Settlement) -> bool:
    """Whether it causes no event, charges no budget and ends the run for good."""
    charges = one.record is not None and (one.record.tokens or one.record.usd)
    return not (one.caused or charges or isinstance(one.outcome, Again))


async def _settle_plain(tx: Transaction, settlements: Sequence[Settlement]) -> frozenset[Claim]:
    """End the runs that have no slot and no parent with one statement. Return the claims that were settled."""
    values = [
        (
            id_of(one.id),
            one.token,
            FINAL[type(one.outcome)],
            *_sealed_result(tx, one.outcome),
            None if one.record is None else tx.shut_json(one.record),
            _done_for(one),
        )
        for one in settlements
    ]
    query, parameters = SETTLEMENT_ROWS.select(values, after=1)
    rows = await tx.rows(SETTLE_PLAIN.format(query), tx.given_now, *parameters)
    return frozenset((row[0].hex(), row[1]) for row in rows)


async def _settle(tx: Transaction, settlements: Sequence[Settlement], settled: frozenset[Claim]) -> list[Settled]:
    """Settle one by one, but for the claims in `settled`, which `_settle_plain` has settled already."""
    answers: list[Settled] = []
    left = set(settled)
    for one in settlements:
        is_settled = (one.id, one.token) in left and _is_plain(one)
        # of two settlements of the same claim only the first counts
        left.discard((one.id, one.token))
        answers.append("settled" if is_settled else await _settle_one(tx, one))
    return answers


async def _settle_one(tx: Transaction, one: Settlement) -> Settled:
    """If it is stale it is rolled back alone; the other settlements stay."""
    if not one.caused:
        return await _write_settlement(tx, one)
    await tx.connection.execute("SAVEPOINT settlement")
    try:
        answer = await _write_settlement(tx, one)
    except Rollback as rollback:
        await tx.connection.execute("ROLLBACK TO SAVEPOINT settlement")
        answer = rollback.answer
    await tx.connection.execute("RELEASE SAVEPOINT settlement")
    return answer


async def _write_settlement(tx: Transaction, one: Settlement) -> Settled:
    slot, parent = await _lock_slot_and_parent(tx, id_of(one.id))
    seq = await tx.value(LOCK_CLAIMED, id_of(one.id), one.token)
    if seq is None:
        return "lost"
    for wanted in one.caused:
        answer = await write_commit(tx, wanted)
        if isinstance(answer, Stale):
            raise Rollback(answer)
    if one.record is not None:
        await _append_step(tx, seq, one.record)
    await _write_outcome(tx, seq, one.outcome)
    if isinstance(one.outcome, Again):
        return "settled"
    await _count_done(tx, one)
    if slot is not None:
        await free_slot(tx, slot, seq)
    if parent is not None:
        _, output = error_and_output(one.outcome)
        error = tx.text(await tx.value("SELECT error FROM runs WHERE seq=$1", seq))
        await _answer_parent(tx, parent, one.id, FINAL[type(one.outcome)], output, error)
    return "settled"


async def _write_outcome(tx: Transaction, seq: int, outcome: RunOutcome) -> None:
    if isinstance(outcome, Again):
        await tx.do(
            f"""UPDATE runs SET state={READY}, since=$5, due_at=$1, attempt=attempt+$2, lease_until=NULL, holder=NULL,
            answer=NULL, error={STOPPED_OR.format("$3")} WHERE seq=$4""",
            micros(outcome.at),
            1 if outcome.counts else 0,
            tx.shut(outcome.error),
            seq,
            tx.now,
        )
        return
    error = STOPPED_OR.format("$3") if isinstance(outcome, Cancelled) else "$3"
    await tx.do(
        f"""UPDATE runs SET state=$1, finished_at=$2, error={error}, output=$4, lease_until=NULL, holder=NULL,
        answer=NULL WHERE seq=$5""",
        FINAL[type(outcome)],
        tx.now,
        *_sealed_result(tx, outcome),
        seq,
    )


def _sealed_result(tx: Transaction, outcome: RunOutcome) -> tuple[bytes | None, bytes | None]:
    error, output = error_and_output(outcome)
    return tx.shut(error) if error else None, None if output is None else tx.shut_json(output)


def _done_for(one: Settlement) -> str:
    """The name of the trigger for which this counts as done; empty if it does not count."""
    return one.trigger if isinstance(one.outcome, Finished) and not one.outcome.filtered else ""


async def _count_done(tx: Transaction, one: Settlement) -> None:
    name = _done_for(one)
    if name:
        sql = "INSERT INTO tallies (trigger, fired, done) SELECT id, 0, 1 FROM triggers WHERE name=$1"
        await tx.do(sql, name)


async def _lock_slot_and_parent(tx: Transaction, run_id: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the slot and the parent of a run that is about to end, both locked."""
    row = await tx.row("SELECT slot, parent FROM runs WHERE id=$1", run_id)
    if row is None:
        return None, None
    if row["parent"] is not None:
        await tx.value("SELECT 1 FROM runs WHERE id=$1 FOR UPDATE", row["parent"])
    if row["slot"] is not None:
        await lock_slot(tx, row["slot"])
    return row["slot"], row["parent"]


async def _start(tx: Transaction, new: NewRun) -> str:
    trigger = await tx.trigger_by_name(new.trigger) if new.trigger else None
    run_id = run_id_of(tx.seal, trigger.uid if trigger else new.workflow, 0, new.id_key, "by hand")
    first = new.event_ids[0] if len(new.event_ids) == 1 else None
    seq = await tx.value(
        f"""INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, max_attempts, event, input, parent,
        replay_of, gathered, created_at, token) VALUES (nextval('run_seqs'), $1, $2, $3, {READY}, $4, $5, $6, $7, $8,
        $9, $10, $11, $12) ON CONFLICT DO NOTHING RETURNING seq""",
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
        # a claim looks for a journal only if it is not the first one
        1 if new.journal else 0,
    )
    if seq is not None:
        rows = [(seq, event_id) for event_id in new.event_ids]
        await tx.each("INSERT INTO run_events (run, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", rows)
        steps = [(seq, number, tx.shut_json(record)) for number, record in enumerate(new.journal, 1)]
        await tx.each("INSERT INTO journal (run, n, record) VALUES ($1, $2, $3)", steps)
        if new.watched:
            await watch(tx, [seq])
    tx.made_ready = True
    return run_id.hex()


async def _cancel(tx: Transaction, run_id: str, reason: str) -> bool:
    slot, parent = await _lock_slot_and_parent(tx, id_of(run_id))
    row = await tx.row("SELECT seq, state FROM runs WHERE id=$1 FOR UPDATE", id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state == RUNNING:
        await request_stop(tx, seq, reason)
        return True
    if state > WAITING:
        return False
    ended = f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2 WHERE seq=$3"
    await tx.do(ended, tx.now, tx.shut(reason), seq)
    if slot is not None:
        await free_slot(tx, slot, seq)
    if parent is not None:
        await _answer_parent(tx, parent, run_id, CANCELLED, None, reason)
    return True


async def _retry(tx: Transaction, run_id: str, workflow_rev: str, tries: int, request: str) -> bool:
    await _lock_slot_and_parent(tx, id_of(run_id))
    row = await tx.row("SELECT seq, state, attempt, started_at FROM runs WHERE id=$1 FOR UPDATE", id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, attempt, started_at = row
    if request and await get_document(tx, RETRIED, request) is not None:
        return True
    if state not in (FAILED, DEAD, CANCELLED):
        return False
    if request:
        await put_document(tx, RETRIED, request, {}, expect=0)
    if workflow_rev:
        await tx.do("DELETE FROM journal WHERE run=$1", seq)
        await tx.do("UPDATE runs SET workflow_rev=$1 WHERE seq=$2", workflow_rev, seq)
    before = attempt if started_at is not None else 0
    await tx.do(
        """UPDATE runs SET attempt=$3, max_attempts=$4, error=NULL, finished_at=NULL, cancel_requested=false, due_at=$1,
        budgeted=false, quiet_from=NULL, quiet_until=NULL WHERE seq=$2""",
        tx.now,
        seq,
        before + 1,
        before + tries,
    )
    await admit(tx, seq)
    return True


async def _release(tx: Transaction, trigger: str, drop: bool, hold: str) -> int:
    """The released runs count against their budget, but are not held by it again: a person has decided."""
    found = await tx.trigger_by_name(trigger)
    if not drop:
        held = f"SELECT seq FROM runs WHERE trigger=$1 AND state={HELD} AND budgeted AND ($2='' OR hold=$2) FOR UPDATE"
        for (seq,) in await tx.rows(held, found.id, hold):
            await count_run(tx, seq, found.id)
    return await release_held(tx, found.id, hold, drop=drop)


async def _release_run(tx: Transaction, run_id: str) -> bool:
    sql = "SELECT seq, state, due_at, trigger, budgeted FROM runs WHERE id=$1 FOR UPDATE"
    row = await tx.row(sql, id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, due, trigger, budgeted = row
    if state != HELD:
        return False
    if budgeted:
        await count_run(tx, seq, trigger)
    await admit(tx, seq, due=due)
    return True


async def _drop_dead_letter(tx: Transaction, run_id: str) -> bool:
    if run_id.startswith("event-"):
        return bool(await tx.do("DELETE FROM buried WHERE id=$1", int(run_id[6:])))
    drop = f"UPDATE runs SET state={CANCELLED}, since=$2 WHERE id=$1 AND state={DEAD}"
    return bool(await tx.do(drop, id_of(run_id), tx.now))
