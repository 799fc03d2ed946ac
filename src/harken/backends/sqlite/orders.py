"""What people and steps order of runs: start, cancel, retry, release, drop."""

from __future__ import annotations

from typing import Any

from harken.backends.codec import micros
from harken.backends.run_states import (
    BLOCKED,
    BY_HAND,
    CANCELLED,
    DEAD,
    FAILED,
    GATHERING,
    HELD,
    READY,
    RUNNING,
    STATES,
    WAITING,
    id_of,
    run_id_of,
)
from harken.backends.sqlite.admission import count_run
from harken.backends.sqlite.queue import admit, free_slot, let_go
from harken.backends.sqlite.transaction import Books
from harken.errors import NotFound
from harken.store import NewRun

__all__ = ["answer", "cancel", "drop_dead", "release", "retry", "start", "tell_parent"]


def start(books: Books, new: NewRun) -> str:
    trigger = books.trigger_named(new.trigger) if new.trigger else None
    uid = trigger.uid if trigger else new.workflow
    run_id = run_id_of(books.seal, uid, 0, new.id_key, "by hand")
    now = books.now()
    seq = books.next_run
    due = micros(new.due_at) if new.due_at else now
    first = new.event_ids[0] if len(new.event_ids) == 1 else None
    books.execute(
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
            books.seal.shut(new.input) if new.input else None,
            id_of(new.parent) if new.parent else None,
            id_of(new.replay_of) if new.replay_of else None,
            max(1, len(new.event_ids)),
            now,
        ),
    )
    if books.connection.changes():
        books.next_run = seq + 1
        if first is None:
            for event_id in new.event_ids:
                books.execute("INSERT OR IGNORE INTO run_events (run, event) VALUES (?,?)", (seq, event_id))
    return run_id.hex()


def cancel(books: Books, run_id: str) -> bool:
    row = books.row("SELECT seq, state, slot, parent FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state, slot, parent = row
    if state == RUNNING:
        books.execute("UPDATE runs SET cancel_requested=1 WHERE seq=?", (seq,))
        return True
    if state not in (GATHERING, HELD, READY, BLOCKED, WAITING):
        return False
    reason = books.shut(BY_HAND)
    books.execute("UPDATE runs SET state=?, finished_at=?, error=? WHERE seq=?", (CANCELLED, books.now(), reason, seq))
    if slot is not None:
        free_slot(books, slot, seq)
    if parent is not None:
        tell_parent(books, parent, run_id, CANCELLED, None, BY_HAND)
    return True


def retry(books: Books, run_id: str, workflow_rev: str) -> bool:
    row = books.row("SELECT seq, state FROM runs WHERE id=?", (id_of(run_id),))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state not in (FAILED, DEAD, CANCELLED):
        return False
    if workflow_rev:
        books.execute("DELETE FROM journal WHERE run=?", (seq,))
        books.execute("UPDATE runs SET workflow_rev=? WHERE seq=?", (workflow_rev, seq))
    books.execute(
        """UPDATE runs SET attempt=1, error=NULL, finished_at=NULL, cancel_requested=0, due_at=?, budgeted=0,
        quiet_from=NULL, quiet_until=NULL WHERE seq=?""",
        (books.now(), seq),
    )
    admit(books, seq, books.now())
    return True


def release(books: Books, trigger: str, drop: bool, hold: str) -> int:
    """A person decides: what is let go counts, but no budget holds it again."""
    found, now = books.trigger_named(trigger), books.now()
    if not drop:
        held = f"SELECT seq FROM runs WHERE trigger=? AND state={HELD} AND budgeted AND (?='' OR hold=?)"
        for (seq,) in books.execute(held, (found.id, hold, hold)).fetchall():
            count_run(books, seq, found.id, now)
    return let_go(books, found, hold, now, drop=drop)


def drop_dead(books: Books, run_id: str) -> bool:
    if run_id.startswith("event-"):
        books.execute("DELETE FROM buried WHERE id=?", (int(run_id[6:]),))
    else:
        books.execute("UPDATE runs SET state=? WHERE id=? AND state=?", (CANCELLED, id_of(run_id), DEAD))
    return bool(books.connection.changes())


def answer(books: Books, run_id: str, value: Any) -> bool:
    row = books.row("SELECT seq, state, waiting_for FROM runs WHERE id=?", (id_of(run_id),))
    if row is None or row[1] != WAITING or not row[2]:
        return False
    books.execute(
        "UPDATE runs SET answer=?, state=?, due_at=? WHERE seq=?", (books.shut_json(value), READY, books.now(), row[0])
    )
    return True


def tell_parent(books: Books, parent: bytes, child: str, state: int, output: Any, error: str) -> None:
    """Wake the run that waits for this sub-run; one that does not wait yet will look when it does."""
    waits = books.value("SELECT waiting_for FROM runs WHERE id=? AND state=?", (parent, WAITING))
    if waits == f"run:{child}":
        answer(books, parent.hex(), {"run": child, "status": STATES[state], "output": output, "error": error})
