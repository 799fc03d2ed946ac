"""Runs from claim to end: journaled, parked, answered, settled; and started, cancelled or retried by a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from harken.backends.codec import micros
from harken.backends.run_states_ids_and_reasons import (
    BLOCKED,
    CANCELLED,
    DEAD,
    DONE,
    FAILED,
    FINAL,
    GATHERING,
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
from harken.backends.sqlite.claims import SqliteClaims, count_run
from harken.backends.sqlite.commit import commit
from harken.backends.sqlite.documents_and_audit import get_document, put_document
from harken.backends.sqlite.record_queries import journal_of
from harken.backends.sqlite.run_creation_and_admission import admit, charge, free_slot, release_held, request_stop
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.sqlite.watched_run_changes import SqliteMoved, watch
from harken.errors import LeaseLost, NotFound
from harken.runs import BY_HAND, Again, Cancelled, Finished, Park, RunOutcome, StepRecord
from harken.store import Commit, NewRun, Settlement, Stale
from harken.store.document_kinds import RETRIED

__all__ = ["FINISH", "SqliteRuns"]

FINISH = """UPDATE runs SET state=?, finished_at=?, output=?, error=NULL, lease_until=NULL, answer=NULL
WHERE id=? AND token=? AND state=4 AND slot IS NULL AND parent IS NULL"""
"""Ends a successful run without slot and parent in one statement: nearly all runs are like this."""

STOPPED_OR = "CASE WHEN cancel_requested THEN coalesce(error, ?1) ELSE ?1 END"
"""The reason why the run was requested to stop, or else this error."""


class SqliteRuns(SqliteClaims, SqliteMoved):
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
        return await self._database.write(_answer, run_id, answer)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        return await self._database.write(_settle, settlements, savepoint=False)

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


def _journal(
    tx: Transaction,
    run_id: str,
    token: int,
    records: Sequence[StepRecord],
    caused: Sequence[Commit],
    start_runs: Sequence[NewRun],
) -> Stale | None:
    seq = _claimed_seq(tx, run_id, token)
    for wanted in caused:
        if tx.feed(wanted.feed).revision != wanted.revision:
            return Stale(tx.feed(wanted.feed).revision)
    for wanted in caused:
        answer = commit(tx, wanted)
        assert not isinstance(answer, Stale), "both are in one transaction"
    for new in start_runs:
        _start(tx, new)
    for record in records:
        _append(tx, seq, record)
    return None


def _append(tx: Transaction, seq: int, record: StepRecord) -> None:
    if (record.tokens or record.usd) and record not in journal_of(tx, seq):
        # a worker that lost the reply to its write repeats the record, which must not be charged twice
        charge(tx, seq, record)
    tx.execute(
        "INSERT INTO journal (run, n, record) VALUES (?, (SELECT coalesce(max(n), 0) + 1 FROM journal WHERE run=?), ?)",
        (seq, seq, tx.shut_json(record)),
    )


def _claimed_seq(tx: Transaction, run_id: str, token: int) -> int:
    row = tx.row("SELECT seq, token, state FROM runs WHERE id=?", (id_of(run_id),))
    if row is None or row[1] != token or row[2] != RUNNING:
        raise LeaseLost(f"run {run_id[:8]} is no longer ours")
    return int(row[0])


def _park(tx: Transaction, run_id: str, token: int, parked: Park, record: StepRecord | None) -> None:
    seq = _claimed_seq(tx, run_id, token)
    due = NEVER if parked.until is None else micros(parked.until)
    if record is not None:
        _append(tx, seq, record)
    tx.execute(
        """UPDATE runs SET state=?, since=?, due_at=?, waiting_for=?, answer=NULL, lease_until=NULL, holder=NULL
        WHERE seq=?""",
        (WAITING, tx.now(), due, parked.waiting_for, seq),
    )
    if parked.waiting_for.startswith("run:"):
        child = tx.row("SELECT state, output, error FROM runs WHERE id=?", (id_of(parked.waiting_for[4:]),))
        if child is not None and child[0] >= DONE:
            # the sub-run ended before its parent began to wait
            _wake_parent(tx, id_of(run_id), parked.waiting_for[4:], child[0], tx.json(child[1]), tx.text(child[2]))


def _answer(tx: Transaction, run_id: str, value: Any) -> bool:
    row = tx.row("SELECT seq, state, waiting_for FROM runs WHERE id=?", (id_of(run_id),))
    if row is None or row[1] != WAITING or not row[2]:
        return False
    tx.execute(
        "UPDATE runs SET answer=?1, state=?2, since=?3, due_at=?3 WHERE seq=?4",
        (tx.shut_json(value), READY, tx.now(), row[0]),
    )
    return True


def _wake_parent(tx: Transaction, parent: bytes, child: str, state: int, output: Any, error: str) -> None:
    """Wake the run if it waits for this sub-run; if it does not wait yet, `_park` finds the sub-run over."""
    waits = tx.value("SELECT waiting_for FROM runs WHERE id=? AND state=?", (parent, WAITING))
    if waits == f"run:{child}":
        _answer(tx, parent.hex(), {"run": child, "status": STATES[state], "output": output, "error": error})


def _settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Literal["settled", "lost"] | Stale]:
    now = tx.now()
    return [_settle_one(tx, settlement, now) for settlement in settlements]


def _settle_one(tx: Transaction, settlement: Settlement, now: int) -> Literal["settled", "lost"] | Stale:
    outcome = settlement.outcome
    if type(outcome) is Finished and settlement.record is None and not settlement.caused:
        output = None if outcome.output is None else tx.shut_json(outcome.output)
        tx.write(FINISH, (DONE, now, output, id_of(settlement.id), settlement.token))
        if tx.connection.changes():
            _count_done(tx, settlement, outcome)
            return "settled"
    claimed = (id_of(settlement.id), settlement.token, RUNNING)
    row = tx.row("SELECT seq, slot, parent FROM runs WHERE id=? AND token=? AND state=?", claimed)
    if row is None:
        return "lost"
    seq, slot, parent = row
    for wanted in settlement.caused:
        revision = tx.feed(wanted.feed).revision
        if revision != wanted.revision:
            return Stale(revision)
    for wanted in settlement.caused:
        commit(tx, wanted)
    if settlement.record is not None:
        _append(tx, seq, settlement.record)
    _write_outcome(tx, seq, outcome, now)
    if isinstance(outcome, Again):
        return "settled"
    if isinstance(outcome, Finished):
        _count_done(tx, settlement, outcome)
    if slot is not None:
        free_slot(tx, slot, seq)
    if parent is not None:
        _, output = error_and_output(outcome)
        error = tx.text(tx.value("SELECT error FROM runs WHERE seq=?", (seq,)))
        _wake_parent(tx, parent, settlement.id, FINAL[type(outcome)], output, error)
    return "settled"


def _count_done(tx: Transaction, settlement: Settlement, outcome: Finished) -> None:
    if settlement.trigger and not outcome.filtered:
        tx.count_done(settlement.trigger)


def _write_outcome(tx: Transaction, seq: int, outcome: RunOutcome, now: int) -> None:
    if isinstance(outcome, Again):
        tx.execute(
            f"""UPDATE runs SET error={STOPPED_OR}, state=?2, since=?3, due_at=?4, attempt=attempt+?5, lease_until=NULL,
            holder=NULL, answer=NULL WHERE seq=?6""",
            (tx.shut(outcome.error), READY, now, micros(outcome.at), 1 if outcome.counts else 0, seq),
        )
        return
    error, output = error_and_output(outcome)
    stored = STOPPED_OR if isinstance(outcome, Cancelled) else "?1"
    tx.execute(
        f"""UPDATE runs SET error={stored}, state=?2, finished_at=?3, output=?4, lease_until=NULL, holder=NULL,
        answer=NULL WHERE seq=?5""",
        (
            tx.shut(error) if error else None,
            FINAL[type(outcome)],
            now,
            None if output is None else tx.shut_json(output),
            seq,
        ),
    )


def _start(tx: Transaction, new: NewRun) -> str:
    trigger = tx.trigger_named(new.trigger) if new.trigger else None
    uid = trigger.uid if trigger else new.workflow
    run_id = run_id_of(tx.seal, uid, 0, new.id_key, "by hand")
    now = tx.now()
    seq = tx.next_run
    due = micros(new.due_at) if new.due_at else now
    first = new.event_ids[0] if len(new.event_ids) == 1 else None
    tx.execute(
        """INSERT OR IGNORE INTO runs (seq, id, trigger, workflow_rev, state, due_at, max_attempts, event, input,
        parent, replay_of, gathered, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            seq,
            run_id,
            trigger.id if trigger else 0,
            new.workflow_rev,
            READY,
            due,
            new.max_attempts,
            first,
            tx.seal.shut(new.input) if new.input else None,
            id_of(new.parent) if new.parent else None,
            id_of(new.replay_of) if new.replay_of else None,
            max(1, len(new.event_ids)),
            now,
        ),
    )
    if tx.connection.changes():
        tx.next_run = seq + 1
        if new.watched:
            watch(tx, seq)
        if first is None:
            for event_id in new.event_ids:
                tx.execute("INSERT OR IGNORE INTO run_events (run, event) VALUES (?,?)", (seq, event_id))
        for number, record in enumerate(new.journal, 1):
            tx.execute("INSERT INTO journal (run, n, record) VALUES (?,?,?)", (seq, number, tx.shut_json(record)))
    return run_id.hex()


def _cancel(tx: Transaction, run_id: str, reason: str) -> bool:
    row = tx.row("SELECT seq, state, slot, parent FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, slot, parent = row
    if state == RUNNING:
        request_stop(tx, seq, reason)
        return True
    if state not in (GATHERING, HELD, READY, BLOCKED, WAITING):
        return False
    ended = (CANCELLED, tx.now(), tx.shut(reason), seq)
    tx.execute("UPDATE runs SET state=?, finished_at=?, error=? WHERE seq=?", ended)
    if slot is not None:
        free_slot(tx, slot, seq)
    if parent is not None:
        _wake_parent(tx, parent, run_id, CANCELLED, None, reason)
    return True


def _retry(tx: Transaction, run_id: str, workflow_rev: str, tries: int, request: str) -> bool:
    row = tx.row("SELECT seq, state, attempt, started_at FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, attempt, started_at = row
    if request and get_document(tx, RETRIED, request) is not None:
        return True
    if state not in (FAILED, DEAD, CANCELLED):
        return False
    if request:
        put_document(tx, RETRIED, request, {}, expect=0)
    if workflow_rev:
        tx.execute("DELETE FROM journal WHERE run=?", (seq,))
        tx.execute("UPDATE runs SET workflow_rev=? WHERE seq=?", (workflow_rev, seq))
    before = attempt if started_at is not None else 0
    tx.execute(
        """UPDATE runs SET attempt=?, max_attempts=?, error=NULL, finished_at=NULL, cancel_requested=0, due_at=?,
        budgeted=0, quiet_from=NULL, quiet_until=NULL WHERE seq=?""",
        (before + 1, before + tries, tx.now(), seq),
    )
    admit(tx, seq, tx.now())
    return True


def _release(tx: Transaction, trigger: str, drop: bool, hold: str) -> int:
    """Released by a person: the runs count against the budget, but it does not hold them again."""
    found, now = tx.trigger_named(trigger), tx.now()
    if not drop:
        held = f"SELECT seq FROM runs WHERE trigger=? AND state={HELD} AND budgeted AND (?='' OR hold=?)"
        for (seq,) in tx.execute(held, (found.id, hold, hold)).fetchall():
            count_run(tx, seq, found.id, now)
    return release_held(tx, found, hold, now, drop=drop)


def _release_run(tx: Transaction, run_id: str) -> bool:
    row = tx.row("SELECT seq, state, due_at, trigger, budgeted FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, due, trigger, budgeted = row
    if state != HELD:
        return False
    if budgeted:
        count_run(tx, seq, trigger, tx.now())
    admit(tx, seq, tx.now(), due=due)
    return True


def _drop_dead_letter(tx: Transaction, run_id: str) -> bool:
    if run_id.startswith("event-"):
        tx.execute("DELETE FROM buried WHERE id=?", (int(run_id[6:]),))
    else:
        drop = "UPDATE runs SET state=?, since=? WHERE id=? AND state=?"
        tx.execute(drop, (CANCELLED, tx.now(), id_of(run_id), DEAD))
    return bool(tx.connection.changes())
