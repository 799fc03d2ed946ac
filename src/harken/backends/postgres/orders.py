"""What people and steps order of runs: start, cancel, retry, release, drop, answer."""

from __future__ import annotations

from typing import Any

from harken.backends.codec import micros
from harken.backends.postgres.holding import let_go
from harken.backends.postgres.slots import admit, free_slot, lock_slot
from harken.backends.postgres.spending import count_run
from harken.backends.postgres.transaction import Books
from harken.backends.run_states import (
    BY_HAND,
    CANCELLED,
    DEAD,
    FAILED,
    HELD,
    READY,
    RUNNING,
    STATES,
    WAITING,
    id_of,
    run_id_of,
)
from harken.errors import NotFound
from harken.store import NewRun

__all__ = ["answer", "cancel", "drop_dead", "lock_around", "release", "retry", "start", "tell_parent"]

ANSWER = f"""UPDATE runs SET answer=$2, state={READY}, due_at=coalesce($3, harken_now())
WHERE id=$1 AND state={WAITING} AND waiting_for<>''"""


async def start(books: Books, new: NewRun) -> str:
    trigger = await books.trigger_named(new.trigger) if new.trigger else None
    run_id = run_id_of(books.seal, trigger.uid if trigger else new.workflow, 0, new.id_key, "by hand")
    first = new.event_ids[0] if len(new.event_ids) == 1 else None
    seq = await books.value(
        f"""INSERT INTO runs (seq, id, trigger, workflow_rev, state, due_at, max_attempts, event, input, parent,
        replay_of, gathered, created_at) VALUES (nextval('run_seqs'), $1, $2, $3, {READY}, $4, $5, $6, $7, $8, $9, $10,
        $11) ON CONFLICT DO NOTHING RETURNING seq""",
        run_id,
        trigger.id if trigger else 0,
        new.workflow_rev,
        micros(new.due_at) if new.due_at else books.now,
        new.max_attempts,
        first,
        books.seal.shut(new.input) if new.input else None,
        id_of(new.parent) if new.parent else None,
        id_of(new.replay_of) if new.replay_of else None,
        max(1, len(new.event_ids)),
        books.now,
    )
    if seq is not None:
        rows = [(seq, event_id) for event_id in new.event_ids]
        await books.each("INSERT INTO run_events (run, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", rows)
    books.wakes = True
    return run_id.hex()


async def lock_around(books: Books, run_id: bytes) -> tuple[bytes | None, bytes | None]:
    """Slot and parent of a run that is about to end, locked in the order in which everybody locks them."""
    row = await books.row("SELECT slot, parent FROM runs WHERE id=$1", run_id)
    if row is None:
        return None, None
    if row["parent"] is not None:
        await books.value("SELECT 1 FROM runs WHERE id=$1 FOR UPDATE", row["parent"])
    if row["slot"] is not None:
        await lock_slot(books, row["slot"])
    return row["slot"], row["parent"]


async def cancel(books: Books, run_id: str) -> bool:
    slot, parent = await lock_around(books, id_of(run_id))
    row = await books.row("SELECT seq, state FROM runs WHERE id=$1 FOR UPDATE", id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state == RUNNING:
        await books.do("UPDATE runs SET cancel_requested=true WHERE seq=$1", seq)
        return True
    if state > WAITING:
        return False
    reason = books.shut(BY_HAND)
    await books.do(f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2 WHERE seq=$3", books.now, reason, seq)
    if slot is not None:
        await free_slot(books, slot, seq)
    if parent is not None:
        await tell_parent(books, parent, run_id, CANCELLED, None, BY_HAND)
    return True


async def retry(books: Books, run_id: str, workflow_rev: str) -> bool:
    await lock_around(books, id_of(run_id))
    row = await books.row("SELECT seq, state FROM runs WHERE id=$1 FOR UPDATE", id_of(run_id))
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    seq, state = row
    if state not in (FAILED, DEAD, CANCELLED):
        return False
    if workflow_rev:
        await books.do("DELETE FROM journal WHERE run=$1", seq)
        await books.do("UPDATE runs SET workflow_rev=$1 WHERE seq=$2", workflow_rev, seq)
    await books.do(
        """UPDATE runs SET attempt=1, error=NULL, finished_at=NULL, cancel_requested=false, due_at=$1, budgeted=false,
        quiet_from=NULL, quiet_until=NULL WHERE seq=$2""",
        books.now,
        seq,
    )
    await admit(books, seq)
    return True


async def release(books: Books, trigger: str, drop: bool, hold: str) -> int:
    """A person decides: what is let go counts, but no budget holds it again."""
    found = await books.trigger_named(trigger)
    if not drop:
        held = f"SELECT seq FROM runs WHERE trigger=$1 AND state={HELD} AND budgeted AND ($2='' OR hold=$2) FOR UPDATE"
        for (seq,) in await books.rows(held, found.id, hold):
            await count_run(books, seq, found.id)
    return await let_go(books, found.id, hold, drop=drop)


async def drop_dead(books: Books, run_id: str) -> bool:
    if run_id.startswith("event-"):
        return bool(await books.do("DELETE FROM buried WHERE id=$1", int(run_id[6:])))
    dropped = f"UPDATE runs SET state={CANCELLED} WHERE id=$1 AND state={DEAD}"
    return bool(await books.do(dropped, id_of(run_id)))


async def answer(books: Books, run_id: str, value: Any) -> bool:
    """A single statement: of two answers only one finds the run waiting."""
    return bool(await books.do(ANSWER, id_of(run_id), books.shut_json(value), books.given_now))


async def tell_parent(books: Books, parent: bytes, child: str, state: int, output: Any, error: str) -> None:
    """Wake the run that waits for this sub-run; one that does not wait yet will look when it does."""
    told = books.shut_json({"run": child, "status": STATES[state], "output": output, "error": error})
    if await books.do(f"{ANSWER} AND waiting_for=$4", parent, told, books.given_now, f"run:{child}"):
        books.wakes = True
