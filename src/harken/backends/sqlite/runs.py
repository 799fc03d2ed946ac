"""Runs in the hands of a worker: claimed, journaled, parked, settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from harken.backends.budgets import HOUR
from harken.backends.codec import micros, moment, moment_or_none
from harken.backends.run_states import (
    BLOCKED,
    BY_HAND,
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
    id_of,
    last_words,
    run_id_of,
)
from harken.backends.sqlite.admission import count_run, let_in, may_start
from harken.backends.sqlite.commit import commit
from harken.backends.sqlite.queue import admit, charge, close_gathering, free_slot, let_go
from harken.backends.sqlite.records import events_of, journal_of
from harken.backends.sqlite.transaction import Transaction
from harken.errors import LeaseLost, NotFound
from harken.runs import Again, Claimed, Finished, Park, RunOutcome, StepRecord
from harken.store import Commit, NewRun, Settlement, Stale

__all__ = [
    "answer",
    "cancel",
    "claim",
    "drop_dead_letter",
    "extend",
    "journal",
    "next_due",
    "park",
    "release",
    "retry",
    "settle",
    "start",
    "tell_parent",
]


# `state<6` stands in the SQL word for word, or SQLite does not know that the partial index of open runs applies
READY_NOW = f"""SELECT seq, budgeted, quiet_from<=? FROM runs
WHERE state<6 AND state={READY} AND priority=? AND due_at<=? ORDER BY due_at, seq LIMIT ?"""


def claim(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed]:
    now = tx.now()
    _close_due(tx, now)
    tx.know_short()
    if tx.short:
        let_in(tx, limit, now)
    until = now + round(seconds * 1_000_000)
    claimed: list[Claimed] = []
    for priority in sorted(list(tx.priorities), reverse=True):
        room = limit - len(claimed)
        for seq, budgeted, quiet in tx.execute(READY_NOW, (now, priority, now, room)).fetchall():
            if not (quiet or budgeted) or may_start(tx, seq, now):
                claimed.append(_claim_one(tx, seq, holder, until, now))
        if len(claimed) >= limit:
            break
    return claimed


def _close_due(tx: Transaction, now: int) -> None:
    for state in (GATHERING, WAITING):
        for priority in list(tx.priorities):
            due = tx.execute(
                f"SELECT seq FROM runs WHERE state<6 AND state={state} AND priority=? AND due_at<=?", (priority, now)
            ).fetchall()
            for (seq,) in due:
                if state == GATHERING:
                    close_gathering(tx, seq, now)
                else:
                    tx.execute("UPDATE runs SET state=? WHERE seq=?", (READY, seq))


def _claim_one(tx: Transaction, seq: int, holder: str, until: int, now: int) -> Claimed:
    tx.execute(
        """UPDATE runs SET state=?, token=token+1, holder=?, lease_until=?, started_at=coalesce(started_at, ?)
        WHERE seq=?""",
        (RUNNING, holder, until, now, seq),
    )
    row = tx.row(
        """SELECT id, token, trigger, workflow_rev, attempt, max_attempts, event, input, answer, parent, created_at,
        cancel_requested FROM runs WHERE seq=?""",
        (seq,),
    )
    assert row is not None
    return Claimed(
        id=row[0].hex(),
        token=row[1],
        trigger=tx.trigger_name(row[2]),
        workflow_rev=row[3],
        attempt=row[4],
        max_attempts=row[5],
        events=tuple(events_of(tx, seq, row[6])),
        input=tx.json(row[7]),
        journal=journal_of(tx, seq),
        answer=tx.json(row[8]),
        parent=row[9].hex() if row[9] else "",
        created_at=moment(row[10]),
        cancel_requested=bool(row[11]),
    )


def next_due(tx: Transaction) -> datetime | None:
    found = [
        tx.value(f"SELECT min(due_at) FROM runs WHERE state<6 AND state={state} AND priority=?", (priority,))
        for state in (READY, GATHERING, WAITING)
        for priority in list(tx.priorities)
    ]
    if tx.short:
        # every budget begins anew with an hour or a day, and every day with an hour
        now = tx.now()
        found.append(now - now % HOUR + HOUR)
    due = min((due for due in found if due is not None and due < NEVER), default=None)
    return moment_or_none(due)


def journal(
    tx: Transaction,
    run_id: str,
    token: int,
    records: Sequence[StepRecord],
    caused: Sequence[Commit],
    start_runs: Sequence[NewRun],
) -> Stale | None:
    seq = _ours(tx, run_id, token)
    for wanted in caused:
        if tx.feed(wanted.feed).revision != wanted.revision:
            return Stale(tx.feed(wanted.feed).revision)
    for wanted in caused:
        answer = commit(tx, wanted)
        assert not isinstance(answer, Stale), "nobody else writes between the check and the commit"
    for new in start_runs:
        start(tx, new)
    for record in records:
        _append(tx, seq, record)
    return None


def _append(tx: Transaction, seq: int, record: StepRecord) -> None:
    if (record.tokens or record.usd) and record not in journal_of(tx, seq):
        # a worker that does not know whether its write was taken writes the same record again
        charge(tx, seq, record)
    tx.execute(
        "INSERT INTO journal (run, n, record) VALUES (?, (SELECT coalesce(max(n), 0) + 1 FROM journal WHERE run=?), ?)",
        (seq, seq, tx.shut_json(record)),
    )


def _ours(tx: Transaction, run_id: str, token: int) -> int:
    row = tx.row("SELECT seq, token, state FROM runs WHERE id=?", (id_of(run_id),))
    if row is None or row[1] != token or row[2] != RUNNING:
        raise LeaseLost(f"run {run_id[:8]} is no longer ours")
    return int(row[0])


def extend(tx: Transaction, claims: Mapping[str, int], seconds: float) -> dict[str, Literal["kept", "lost", "cancel"]]:
    until = tx.now() + round(seconds * 1_000_000)
    answers: dict[str, Literal["kept", "lost", "cancel"]] = {}
    for run_id, token in claims.items():
        row = tx.row("SELECT seq, token, state, cancel_requested FROM runs WHERE id=?", (id_of(run_id),))
        if row is None or row[1] != token or row[2] != RUNNING:
            answers[run_id] = "lost"
            continue
        tx.execute("UPDATE runs SET lease_until=? WHERE seq=?", (until, row[0]))
        answers[run_id] = "cancel" if row[3] else "kept"
    return answers


def park(tx: Transaction, run_id: str, token: int, parked: Park, record: StepRecord | None) -> None:
    seq = _ours(tx, run_id, token)
    due = NEVER if parked.until is None else micros(parked.until)
    if record is not None:
        _append(tx, seq, record)
    tx.execute(
        "UPDATE runs SET state=?, due_at=?, waiting_for=?, answer=NULL, lease_until=NULL, holder=NULL WHERE seq=?",
        (WAITING, due, parked.waiting_for, seq),
    )
    if parked.waiting_for.startswith("run:"):
        child = tx.row("SELECT state, output, error FROM runs WHERE id=?", (id_of(parked.waiting_for[4:]),))
        if child is not None and child[0] >= DONE:
            # the sub-run was over before its parent lay down
            tell_parent(tx, id_of(run_id), parked.waiting_for[4:], child[0], tx.json(child[1]), tx.text(child[2]))


FINISH = """UPDATE runs SET state=?, finished_at=?, output=?, error=NULL, lease_until=NULL, answer=NULL
WHERE id=? AND token=? AND state=4 AND slot IS NULL AND parent IS NULL"""


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Literal["settled", "lost"] | Stale]:
    now = tx.now()
    return [_settle(tx, one, now) for one in settlements]


def _settle(tx: Transaction, one: Settlement, now: int) -> Literal["settled", "lost"] | Stale:
    outcome = one.outcome
    if type(outcome) is Finished and one.record is None and not one.caused:
        output = None if outcome.output is None else tx.shut_json(outcome.output)
        tx.execute(FINISH, (DONE, now, output, id_of(one.id), one.token))
        if tx.connection.changes():
            _count(tx, one, outcome)
            return "settled"
    row = tx.row(
        "SELECT seq, slot, parent FROM runs WHERE id=? AND token=? AND state=?", (id_of(one.id), one.token, RUNNING)
    )
    if row is None:
        return "lost"
    seq, slot, parent = row
    for wanted in one.caused:
        revision = tx.feed(wanted.feed).revision
        if revision != wanted.revision:
            return Stale(revision)
    for wanted in one.caused:
        commit(tx, wanted)
    if one.record is not None:
        _append(tx, seq, one.record)
    _write_outcome(tx, seq, outcome, now)
    if isinstance(outcome, Again):
        return "settled"
    if isinstance(outcome, Finished):
        _count(tx, one, outcome)
    if slot is not None:
        free_slot(tx, slot, seq)
    if parent is not None:
        error, output = last_words(outcome)
        tell_parent(tx, parent, one.id, FINAL[type(outcome)], output, error)
    return "settled"


def _count(tx: Transaction, one: Settlement, outcome: Finished) -> None:
    if one.trigger and not outcome.filtered:
        tx.count_done(one.trigger)


def _write_outcome(tx: Transaction, seq: int, outcome: RunOutcome, now: int) -> None:
    if isinstance(outcome, Again):
        tx.execute(
            """UPDATE runs SET state=?, due_at=?, attempt=attempt+?, error=?, lease_until=NULL, holder=NULL, answer=NULL
            WHERE seq=?""",
            (READY, micros(outcome.at), 1 if outcome.counts else 0, tx.shut(outcome.error), seq),
        )
        return
    error, output = last_words(outcome)
    tx.execute(
        """UPDATE runs SET state=?, finished_at=?, error=?, output=?, lease_until=NULL, holder=NULL, answer=NULL
        WHERE seq=?""",
        (
            FINAL[type(outcome)],
            now,
            tx.shut(error) if error else None,
            None if output is None else tx.shut_json(output),
            seq,
        ),
    )


def start(tx: Transaction, new: NewRun) -> str:
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
        if first is None:
            for event_id in new.event_ids:
                tx.execute("INSERT OR IGNORE INTO run_events (run, event) VALUES (?,?)", (seq, event_id))
    return run_id.hex()


def cancel(tx: Transaction, run_id: str) -> bool:
    row = tx.row("SELECT seq, state, slot, parent FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, slot, parent = row
    if state == RUNNING:
        tx.execute("UPDATE runs SET cancel_requested=1 WHERE seq=?", (seq,))
        return True
    if state not in (GATHERING, HELD, READY, BLOCKED, WAITING):
        return False
    reason = tx.shut(BY_HAND)
    tx.execute("UPDATE runs SET state=?, finished_at=?, error=? WHERE seq=?", (CANCELLED, tx.now(), reason, seq))
    if slot is not None:
        free_slot(tx, slot, seq)
    if parent is not None:
        tell_parent(tx, parent, run_id, CANCELLED, None, BY_HAND)
    return True


def retry(tx: Transaction, run_id: str, workflow_rev: str) -> bool:
    row = tx.row("SELECT seq, state FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state not in (FAILED, DEAD, CANCELLED):
        return False
    if workflow_rev:
        tx.execute("DELETE FROM journal WHERE run=?", (seq,))
        tx.execute("UPDATE runs SET workflow_rev=? WHERE seq=?", (workflow_rev, seq))
    tx.execute(
        """UPDATE runs SET attempt=1, error=NULL, finished_at=NULL, cancel_requested=0, due_at=?, budgeted=0,
        quiet_from=NULL, quiet_until=NULL WHERE seq=?""",
        (tx.now(), seq),
    )
    admit(tx, seq, tx.now())
    return True


def release(tx: Transaction, trigger: str, drop: bool, hold: str) -> int:
    """A person decides: what is let go counts, but no budget holds it again."""
    found, now = tx.trigger_named(trigger), tx.now()
    if not drop:
        held = f"SELECT seq FROM runs WHERE trigger=? AND state={HELD} AND budgeted AND (?='' OR hold=?)"
        for (seq,) in tx.execute(held, (found.id, hold, hold)).fetchall():
            count_run(tx, seq, found.id, now)
    return let_go(tx, found, hold, now, drop=drop)


def drop_dead_letter(tx: Transaction, run_id: str) -> bool:
    if run_id.startswith("event-"):
        tx.execute("DELETE FROM buried WHERE id=?", (int(run_id[6:]),))
    else:
        tx.execute("UPDATE runs SET state=? WHERE id=? AND state=?", (CANCELLED, id_of(run_id), DEAD))
    return bool(tx.connection.changes())


def answer(tx: Transaction, run_id: str, value: Any) -> bool:
    row = tx.row("SELECT seq, state, waiting_for FROM runs WHERE id=?", (id_of(run_id),))
    if row is None or row[1] != WAITING or not row[2]:
        return False
    tx.execute(
        "UPDATE runs SET answer=?, state=?, due_at=? WHERE seq=?", (tx.shut_json(value), READY, tx.now(), row[0])
    )
    return True


def tell_parent(tx: Transaction, parent: bytes, child: str, state: int, output: Any, error: str) -> None:
    """Wake the run that waits for this sub-run; one that does not wait yet will look when it does."""
    waits = tx.value("SELECT waiting_for FROM runs WHERE id=? AND state=?", (parent, WAITING))
    if waits == f"run:{child}":
        answer(tx, parent.hex(), {"run": child, "status": STATES[state], "output": output, "error": error})
