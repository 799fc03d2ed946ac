"""Who may start: not in quiet hours, and not beyond the trigger's budget, which every run is counted against."""

from __future__ import annotations

from harken.backends.codec import micros, moment
from harken.backends.run_states import HELD
from harken.backends.sqlite.queue import admit, has_room, room, spend
from harken.backends.sqlite.transaction import Transaction
from harken.schedule import quiet_hours

__all__ = ["count_run", "let_in", "may_start"]


def may_start(tx: Transaction, seq: int, now: int) -> bool:
    """Count the run and let it start; or postpone or hold it, and the slot that it may have stays its own."""
    row = tx.row("SELECT trigger, budgeted, started_at, quiet_from, quiet_until FROM runs WHERE seq=?", (seq,))
    assert row is not None
    trigger, budgeted, started_at, quiet_from, quiet_until = row
    if started_at is None and quiet_from is not None:
        until = quiet_until if quiet_from <= now < quiet_until else _quiet_until(tx, trigger, now)
        if now < until:
            tx.execute("UPDATE runs SET due_at=? WHERE seq=?", (until, seq))
            return False
    return not budgeted or _enters(tx, seq, trigger, now)


def _quiet_until(tx: Transaction, trigger: int, now: int) -> int:
    """The end of the quiet hours that it is now, for a run that has waited past those it was told of; else now."""
    quiet = tx.quiet(trigger)
    if quiet is None:
        return now
    begin, end = quiet_hours(quiet, moment(now))
    return micros(end) if micros(begin) <= now else now


def _enters(tx: Transaction, seq: int, trigger: int, now: int) -> bool:
    budget = tx.budget(trigger)
    if budget is None or has_room(tx, trigger, budget, now):
        count_run(tx, seq, trigger, now)
        return True
    tx.execute("UPDATE runs SET state=?, hold='budget' WHERE seq=?", (HELD, seq))
    tx.short.add(trigger)
    return False


def count_run(tx: Transaction, seq: int, trigger: int, now: int) -> None:
    spend(tx, trigger, "runs", 1, now)
    tx.execute("UPDATE runs SET budgeted=0 WHERE seq=?", (seq,))


def let_in(tx: Transaction, limit: int, now: int) -> None:
    """Make held runs ready for which there is room again, oldest first, a few at a time."""
    for trigger in sorted(tx.short):
        if tx.value("SELECT paused FROM triggers WHERE id=?", (trigger,)):
            continue
        budget = tx.budget(trigger)
        few = int(min(limit, room(tx, trigger, budget, now) if budget else limit))
        if few <= 0:
            continue
        rows = tx.execute(
            f"""SELECT seq, due_at FROM runs WHERE state<6 AND state={HELD} AND trigger=? AND hold='budget'
            ORDER BY due_at, seq LIMIT ?""",
            (trigger, few + 1),
        ).fetchall()
        for seq, due in rows[:few]:
            admit(tx, seq, now, due=due)
        if len(rows) <= few:
            tx.short.discard(trigger)
