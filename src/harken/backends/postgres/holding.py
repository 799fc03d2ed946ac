"""Runs that are held or still gather, and how they are let go."""

from __future__ import annotations

from harken.backends.postgres.slots import admit, free_slot, lock_slot
from harken.backends.postgres.transaction import Books
from harken.backends.run_states import CANCELLED, DROPPED, GATHERING, HELD

__all__ = ["close_gathering", "let_go", "release_flood"]


async def close_gathering(books: Books, seq: int) -> None:
    """The window is over or full: the run is due, unless it is held."""
    if await books.value("SELECT hold FROM runs WHERE seq=$1", seq):
        await books.do(f"UPDATE runs SET state={HELD}, due_at=$1 WHERE seq=$2", books.now, seq)
    else:
        await admit(books, seq)


async def release_flood(books: Books, trigger: int, limit: int) -> None:
    """The first read is complete: few enough held runs go, too many wait for a person."""
    held = await books.value(
        f"SELECT count(*) FROM runs WHERE trigger=$1 AND state IN ({HELD}, {GATHERING}) AND hold='flood'", trigger
    )
    if 0 < held <= limit:
        await let_go(books, trigger, "flood")


async def let_go(books: Books, trigger: int, hold: str, *, drop: bool = False) -> int:
    """Release (or cancel) the trigger's held runs, oldest first; how many."""
    which = "AND ($2='' OR hold=$2)"
    if not drop:
        await books.do(f"UPDATE runs SET hold=NULL WHERE trigger=$1 AND state={GATHERING} {which}", trigger, hold)
    held = await books.rows(
        f"SELECT seq, due_at, slot FROM runs WHERE trigger=$1 AND state={HELD} {which} ORDER BY due_at, seq FOR UPDATE",
        trigger,
        hold,
    )
    for seq, due, slot in held:
        if drop:
            await _drop(books, seq, slot)
        else:
            await admit(books, seq, due=due)
    return len(held)


async def _drop(books: Books, seq: int, slot: bytes | None) -> None:
    if slot is not None:
        await lock_slot(books, slot)
    reason = books.shut(DROPPED)
    await books.do(f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2 WHERE seq=$3", books.now, reason, seq)
    if slot is not None:
        await free_slot(books, slot, seq)
