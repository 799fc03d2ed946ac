"""Claims: workers take due runs for a time. Quiet hours and budgets decide here whether a run may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from harken.backends.codec import micros, moment, moment_or_none
from harken.backends.remaining_budget import HOUR
from harken.backends.run_states_ids_and_reasons import GATHERING, HELD, NEVER, READY, RUNNING, WAITING, id_of
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.record_queries import events_of, journal_of
from harken.backends.sqlite.run_creation_and_admission import admit, close_gathering, has_room, room, spend
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.runs import Claimed
from harken.schedule import quiet_hours

__all__ = ["SqliteClaims", "claim", "count_run"]

# SQLite uses the partial index of open runs only where `state<6` is written in the query
READY_NOW = f"""SELECT seq, budgeted, quiet_from<=? FROM runs
WHERE state<6 AND state={READY} AND priority=? AND due_at<=? ORDER BY due_at, seq LIMIT ?"""


class SqliteClaims(DatabaseUser):
    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        return await self._database.write(claim, holder, limit, seconds)

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        return await self._database.write(_extend, claims, seconds)

    async def next_due(self) -> datetime | None:
        return _next_due(self._database.loop_reader)


def claim(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed]:
    now = tx.now()
    _close_due(tx, now)
    tx.load_over_budget()
    if tx.over_budget:
        _release_for_budget(tx, limit, now)
    until = now + round(seconds * 1_000_000)
    claimed: list[Claimed] = []
    for priority in sorted(list(tx.priorities), reverse=True):
        wanted = limit - len(claimed)
        for seq, budgeted, quiet in tx.execute(READY_NOW, (now, priority, now, wanted)).fetchall():
            if not (quiet or budgeted) or _may_start(tx, seq, now):
                claimed.append(_claim_one(tx, seq, holder, until, now))
        if len(claimed) >= limit:
            break
    return claimed


def _close_due(tx: Transaction, now: int) -> None:
    """Close gathering runs whose window is over, and wake waiting runs whose time has come."""
    for state in (GATHERING, WAITING):
        for priority in list(tx.priorities):
            due = tx.execute(
                f"SELECT seq FROM runs WHERE state<6 AND state={state} AND priority=? AND due_at<=?", (priority, now)
            ).fetchall()
            for (seq,) in due:
                if state == GATHERING:
                    close_gathering(tx, seq, now)
                else:
                    tx.execute("UPDATE runs SET state=?, since=? WHERE seq=?", (READY, now, seq))


def _release_for_budget(tx: Transaction, limit: int, now: int) -> None:
    """Release runs that their budget held and now allows, oldest first."""
    for trigger in sorted(tx.over_budget):
        if tx.value("SELECT paused FROM triggers WHERE id=?", (trigger,)):
            continue
        budget = tx.budget(trigger)
        allowed = int(min(limit, room(tx, trigger, budget, now) if budget else limit))
        if allowed <= 0:
            continue
        rows = tx.execute(
            f"""SELECT seq, due_at FROM runs WHERE state<6 AND state={HELD} AND trigger=? AND hold='budget'
            ORDER BY due_at, seq LIMIT ?""",
            (trigger, allowed + 1),
        ).fetchall()
        for seq, due in rows[:allowed]:
            admit(tx, seq, now, due=due)
        if len(rows) <= allowed:
            tx.over_budget.discard(trigger)


def _may_start(tx: Transaction, seq: int, now: int) -> bool:
    """Count the run against the budget and return True; or postpone or hold it. It keeps its slot either way."""
    row = tx.row("SELECT trigger, budgeted, started_at, quiet_from, quiet_until FROM runs WHERE seq=?", (seq,))
    assert row is not None
    trigger, budgeted, started_at, quiet_from, quiet_until = row
    if started_at is None and quiet_from is not None:
        until = quiet_until if quiet_from <= now < quiet_until else _quiet_until(tx, trigger, now)
        if now < until:
            tx.execute("UPDATE runs SET due_at=? WHERE seq=?", (until, seq))
            return False
    return not budgeted or _fits_budget(tx, seq, trigger, now)


def _quiet_until(tx: Transaction, trigger: int, now: int) -> int:
    """The end of the trigger's current quiet hours, `now` outside of them: the run waited past its own quiet span."""
    quiet = tx.quiet(trigger)
    if quiet is None:
        return now
    begin, end = quiet_hours(quiet, moment(now))
    return micros(end) if micros(begin) <= now else now


def _fits_budget(tx: Transaction, seq: int, trigger: int, now: int) -> bool:
    budget = tx.budget(trigger)
    if budget is None or has_room(tx, trigger, budget, now):
        count_run(tx, seq, trigger, now)
        return True
    tx.execute("UPDATE runs SET state=?, since=?, hold='budget' WHERE seq=?", (HELD, now, seq))
    tx.over_budget.add(trigger)
    return False


def count_run(tx: Transaction, seq: int, trigger: int, now: int) -> None:
    spend(tx, trigger, "runs", 1, now)
    tx.execute("UPDATE runs SET budgeted=0 WHERE seq=?", (seq,))


def _claim_one(tx: Transaction, seq: int, holder: str, until: int, now: int) -> Claimed:
    tx.execute(
        """UPDATE runs SET state=?1, since=?2, token=token+1, holder=?3, lease_until=?4,
        started_at=coalesce(started_at, ?2) WHERE seq=?5""",
        (RUNNING, now, holder, until, seq),
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


def _extend(tx: Transaction, claims: Mapping[str, int], seconds: float) -> dict[str, Literal["kept", "lost", "cancel"]]:
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


def _next_due(tx: Transaction) -> datetime | None:
    found = [
        tx.value(f"SELECT min(due_at) FROM runs WHERE state<6 AND state={state} AND priority=?", (priority,))
        for state in (READY, GATHERING, WAITING)
        for priority in list(tx.priorities)
    ]
    if tx.over_budget:
        # every budget starts again with an hour or a day, and each day starts with an hour
        now = tx.now()
        found.append(now - now % HOUR + HOUR)
    due = min((due for due in found if due is not None and due < NEVER), default=None)
    return moment_or_none(due)
