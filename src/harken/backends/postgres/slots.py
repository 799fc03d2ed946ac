"""Who may run now for one concurrency key. Never looked up first and taken later: the row is ours or it is not.

Whoever needs both locks a slot before its runs, so that two replicas do not wait for each other.
"""

from __future__ import annotations

from harken.backends.postgres.transaction import Books
from harken.backends.run_states import BLOCKED, CANCELLED, HELD, NOT_OVER, READY, REPLACED, WAITING

__all__ = ["admit", "free_slot", "lock_slot", "take_slot"]


async def take_slot(books: Books, slot: bytes, overlap: str, seq: int) -> bool | None:
    """True: the slot is ours. False: wait behind it. None: give way."""
    while True:
        taken = "INSERT INTO slots (key, run) VALUES ($1, $2) ON CONFLICT DO NOTHING"
        if await books.do(taken, slot, seq):
            return True
        current = await lock_slot(books, slot)
        if current == seq:
            return True
        if current is not None:
            break
        # it was freed between the two statements
    if overlap == "skip":
        return None
    if overlap == "cancel_previous":
        return await _push_out(books, slot, current, seq)
    return False


async def lock_slot(books: Books, slot: bytes) -> int | None:
    """The run that has the slot. Nobody else takes or frees it until we are done."""
    found: int | None = await books.value("SELECT run FROM slots WHERE key=$1 FOR UPDATE", slot)
    return found


async def _push_out(books: Books, slot: bytes, current: int, seq: int) -> bool:
    reason = books.shut(REPLACED)
    cancel = f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2"
    await books.do(f"{cancel} WHERE state={BLOCKED} AND slot=$3", books.now, reason, slot)
    before = f"state IN ({HELD}, {READY}, {WAITING})"
    if await books.do(f"{cancel} WHERE seq=$3 AND {before}", books.now, reason, current):
        await books.do("UPDATE slots SET run=$1 WHERE key=$2", seq, slot)
        return True
    await books.do("UPDATE runs SET cancel_requested=true WHERE seq=$1", current)
    return False


async def free_slot(books: Books, slot: bytes, seq: int) -> None:
    """The holder is over: the next blocked run of the slot becomes ready."""
    if await lock_slot(books, slot) != seq:
        return
    following = await books.value(
        f"""SELECT seq FROM runs WHERE state={BLOCKED} AND slot=$1 ORDER BY priority DESC, due_at, seq LIMIT 1
        FOR UPDATE""",
        slot,
    )
    if following is None:
        await books.do("DELETE FROM slots WHERE key=$1", slot)
        return
    await books.do("UPDATE slots SET run=$1 WHERE key=$2", following, slot)
    await books.do(f"UPDATE runs SET state={READY} WHERE seq=$1", following)
    books.wakes = True


async def admit(books: Books, seq: int, due: int | None = None) -> None:
    """Make a run ready, or blocked behind its slot; one that may not overlap and comes second is cancelled."""
    slot, overlap, due_at = await books.row("SELECT slot, overlap, due_at FROM runs WHERE seq=$1", seq)
    state: int = READY
    if slot is not None:
        taken = await take_slot(books, slot, overlap, seq)
        if taken is None:
            reason = books.shut(NOT_OVER)
            await books.do(
                f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2, hold=NULL WHERE seq=$3",
                books.now,
                reason,
                seq,
            )
            return
        state = READY if taken else BLOCKED
    when = due if due is not None else min(due_at, books.now)
    await books.do("UPDATE runs SET state=$1, due_at=$2, hold=NULL WHERE seq=$3", state, when, seq)
    books.wakes = True
