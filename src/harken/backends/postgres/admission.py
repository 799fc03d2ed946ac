"""Who may start: not in quiet hours, and not beyond the trigger's budget, which every run is counted against."""

from __future__ import annotations

from typing import Any

from harken.backends.codec import micros, moment
from harken.backends.postgres.slots import admit
from harken.backends.postgres.spending import count_run, has_room, lock_budget, room
from harken.backends.postgres.transaction import Books
from harken.backends.run_states import HELD
from harken.schedule import quiet_hours

__all__ = ["let_in", "may_start"]


async def may_start(books: Books, run: Any) -> bool:
    """Count the run and let it start; or postpone or hold it, and the slot that it may have stays its own."""
    now = books.now
    if run["started_at"] is None and run["quiet_from"] is not None:
        inside = run["quiet_from"] <= now < run["quiet_until"]
        until = run["quiet_until"] if inside else await _quiet_until(books, run["trigger"])
        if now < until:
            await books.do("UPDATE runs SET due_at=$1 WHERE seq=$2", until, run["seq"])
            return False
    return not run["budgeted"] or await _enters(books, run["seq"], run["trigger"])


async def _quiet_until(books: Books, trigger: int) -> int:
    """The end of the quiet hours that it is now, for a run that has waited past those it was told of; else now."""
    found = await books.trigger_numbered(trigger)
    if found is None or found.definition.quiet is None:
        return books.now
    begin, end = quiet_hours(found.definition.quiet, moment(books.now))
    return micros(end) if micros(begin) <= books.now else books.now


async def _enters(books: Books, seq: int, trigger: int) -> bool:
    await lock_budget(books, trigger)
    found = await books.trigger_numbered(trigger)
    if found is None or found.budget is None or await has_room(books, trigger, found.budget):
        await count_run(books, seq, trigger)
        return True
    await books.do(f"UPDATE runs SET state={HELD}, hold='budget' WHERE seq=$1", seq)
    return False


async def let_in(books: Books, limit: int) -> None:
    """Make held runs ready for which there is room again, oldest first, a few at a time."""
    short = await books.rows(
        f"""SELECT id FROM triggers WHERE paused='' AND id IN (SELECT trigger FROM runs WHERE state={HELD}
        AND hold='budget') ORDER BY id"""
    )
    for (trigger,) in short:
        await lock_budget(books, trigger)
        found = await books.trigger_numbered(trigger)
        few = limit
        if found is not None and found.budget is not None:
            few = int(min(limit, await room(books, trigger, found.budget)))
        if few <= 0:
            continue
        rows = await books.rows(
            f"""SELECT seq, due_at FROM runs WHERE state={HELD} AND trigger=$1 AND hold='budget'
            ORDER BY due_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED""",
            trigger,
            few,
        )
        for seq, due in rows:
            await admit(books, seq, due=due)
