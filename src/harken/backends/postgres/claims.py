"""Claims on ready runs: taken, extended. Quiet hours and budgets are applied when a run is about to start.

Where no run that is due depends on time or on a budget, one statement claims them; else they are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from harken.backends.codec import micros, moment, moment_or_none
from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.record_queries import events_of, journals_of
from harken.backends.postgres.run_creation_and_admission import (
    admit,
    close_gathering,
    count_run,
    lock_budget,
    runs_left,
)
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.backends.remaining_budget import HOUR
from harken.backends.rows import EVENT_OF_RUN, recorded_of
from harken.backends.run_states_ids_and_reasons import GATHERING, HELD, NEVER, READY, RUNNING, WAITING, id_of
from harken.event import Recorded
from harken.runs import Claimed, StepRecord
from harken.schedule import quiet_hours

__all__ = ["PostgresClaims"]

ClaimState = Literal["kept", "lost", "cancel"]

_RUN = """r.seq, r.id AS run_id, r.token, r.trigger, r.workflow_rev, r.attempt, r.max_attempts, r.event, r.input,
r.answer, r.parent, r.created_at, r.cancel_requested, r.priority, r.due_at"""
FIRST_EVENT_COLUMN = 15
_JOINED = "FROM {} LEFT JOIN events e ON e.id=r.event LEFT JOIN feeds f ON f.id=e.feed"
_TAKEN = f"""state={RUNNING}, since={{now}}, token=token+1, holder=$1, lease_until=$2+{{now}},
started_at=coalesce(started_at, {{now}})"""

# reads one priority after the other, and skips rows that another replica has locked
CLAIM_UNCHECKED = f"""WITH t AS MATERIALIZED (SELECT n.now, NOT EXISTS (
SELECT 1 FROM runs WHERE state={READY} AND (budgeted OR quiet_from IS NOT NULL) AND due_at<=n.now)
AND NOT EXISTS (SELECT 1 FROM runs WHERE state IN ({GATHERING}, {WAITING}) AND due_at<=n.now)
AND NOT EXISTS (SELECT 1 FROM runs WHERE state={HELD} AND hold='budget') AS clear
FROM (SELECT coalesce($4::bigint, harken_now()) AS now) n),
r AS (UPDATE runs SET {_TAKEN.format(now="(SELECT now FROM t)")} WHERE (SELECT clear FROM t) AND seq=ANY(ARRAY(
SELECT due.seq FROM priorities p CROSS JOIN LATERAL (SELECT c.seq FROM runs c WHERE c.state={READY}
AND c.priority=p.priority AND c.due_at<=(SELECT now FROM t) ORDER BY c.due_at, c.seq LIMIT $3
FOR UPDATE SKIP LOCKED) due ORDER BY p.priority DESC LIMIT $3)) RETURNING *)
SELECT {_RUN}, {EVENT_OF_RUN}, t.clear {_JOINED.format("t LEFT JOIN r ON true")}"""

CLAIM = f"""WITH r AS (UPDATE runs SET {_TAKEN.format(now="$3::bigint")} WHERE seq=ANY($4::bigint[]) RETURNING *)
SELECT {_RUN}, {EVENT_OF_RUN} {_JOINED.format("r")}"""

NEXT_DUE = f"""SELECT min(due), coalesce($1, harken_now()),
EXISTS (SELECT 1 FROM runs WHERE state={HELD} AND hold='budget')
FROM (SELECT (SELECT min(due_at) FROM runs WHERE state={READY} AND priority=p.priority) AS due FROM priorities p
UNION ALL SELECT min(due_at) FROM runs WHERE state IN ({GATHERING}, {WAITING}) AND due_at < {NEVER}) soonest"""


class PostgresClaims(DatabaseUser):
    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        claimed = await self._database.autocommit(_claim_unchecked, holder, limit, seconds)
        if claimed is None:
            return await self._database.write(_claim_checked, holder, limit, seconds)
        return claimed

    async def extend(self, claims: Mapping[str, int], seconds: float) -> Mapping[str, ClaimState]:
        return await self._database.autocommit(_extend, claims, seconds)

    async def next_due(self) -> datetime | None:
        return await self._database.autocommit(_next_due, writes=False)


async def _claim_unchecked(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed] | None:
    """None, and nothing is claimed, if some run must be checked first.

    That is: a gathering window or a wait is over, or a run that is due has quiet hours or a budget.
    """
    rows = await tx.rows(CLAIM_UNCHECKED, holder, round(seconds * 1_000_000), limit, tx.given_now)
    if not rows[0]["clear"]:
        return None
    return await _load_claims(tx, [row for row in rows if row["seq"] is not None])


async def _claim_checked(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed]:
    await _end_waits(tx)
    await _release_budget_holds(tx, limit)
    seqs: list[int] = []
    for (priority,) in await tx.rows("SELECT priority FROM priorities ORDER BY priority DESC"):
        ready = await tx.rows(
            f"""SELECT seq, trigger, budgeted, started_at, quiet_from, quiet_until FROM runs
            WHERE state={READY} AND priority=$1 AND due_at<=$2 ORDER BY due_at, seq LIMIT $3 FOR UPDATE SKIP LOCKED""",
            priority,
            tx.now,
            limit - len(seqs),
        )
        seqs += [run["seq"] for run in ready if _is_unrestricted(run) or await _may_start(tx, run)]
        if len(seqs) >= limit:
            break
    if not seqs:
        return []
    rows = await tx.rows(CLAIM, holder, round(seconds * 1_000_000), tx.now, seqs)
    return await _load_claims(tx, rows)


async def _end_waits(tx: Transaction) -> None:
    """Make parked runs ready whose time has come, and close gathering windows that are over."""
    await tx.do(
        f"""UPDATE runs SET state={READY}, since=$1 WHERE seq=ANY(ARRAY(SELECT seq FROM runs
        WHERE state IN ({GATHERING}, {WAITING}) AND state={WAITING} AND due_at<=$1 FOR UPDATE SKIP LOCKED))""",
        tx.now,
    )
    due = await tx.rows(
        f"""SELECT seq FROM runs WHERE state IN ({GATHERING}, {WAITING}) AND state={GATHERING} AND due_at<=$1
        ORDER BY due_at, seq FOR UPDATE SKIP LOCKED""",
        tx.now,
    )
    for (seq,) in due:
        await close_gathering(tx, seq)


async def _release_budget_holds(tx: Transaction, limit: int) -> None:
    """Admit runs that were held for a budget which has room again: oldest first, at most `limit` for each trigger."""
    triggers = await tx.rows(
        f"""SELECT id FROM triggers WHERE paused='' AND id IN (SELECT trigger FROM runs WHERE state={HELD}
        AND hold='budget') ORDER BY id"""
    )
    for (trigger,) in triggers:
        await lock_budget(tx, trigger)
        found = await tx.trigger_by_id(trigger)
        admitted = limit
        if found is not None and found.budget is not None:
            admitted = int(min(limit, await runs_left(tx, trigger, found.budget)))
        if admitted <= 0:
            continue
        rows = await tx.rows(
            f"""SELECT seq, due_at FROM runs WHERE state={HELD} AND trigger=$1 AND hold='budget'
            ORDER BY due_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED""",
            trigger,
            admitted,
        )
        for seq, due in rows:
            await admit(tx, seq, due=due)


def _is_unrestricted(run: Any) -> bool:
    return run["quiet_from"] is None and not run["budgeted"]


async def _may_start(tx: Transaction, run: Any) -> bool:
    """Count the run against its budget; or postpone it to the end of quiet hours, or hold it. It keeps its slot."""
    now = tx.now
    if run["started_at"] is None and run["quiet_from"] is not None:
        inside = run["quiet_from"] <= now < run["quiet_until"]
        until = run["quiet_until"] if inside else await _quiet_until(tx, run["trigger"])
        if now < until:
            await tx.do("UPDATE runs SET due_at=$1 WHERE seq=$2", until, run["seq"])
            return False
    return not run["budgeted"] or await _count_or_hold(tx, run["seq"], run["trigger"])


async def _quiet_until(tx: Transaction, trigger: int) -> int:
    """When the current quiet hours of the trigger end; now, if it has none or is outside of them.

    For a run that has waited longer than the quiet span that was stored with it.
    """
    found = await tx.trigger_by_id(trigger)
    if found is None or found.definition.quiet is None:
        return tx.now
    begin, end = quiet_hours(found.definition.quiet, moment(tx.now))
    return micros(end) if micros(begin) <= tx.now else tx.now


async def _count_or_hold(tx: Transaction, seq: int, trigger: int) -> bool:
    await lock_budget(tx, trigger)
    found = await tx.trigger_by_id(trigger)
    if found is None or found.budget is None or await runs_left(tx, trigger, found.budget) > 0:
        await count_run(tx, seq, trigger)
        return True
    await tx.do(f"UPDATE runs SET state={HELD}, since=$2, hold='budget' WHERE seq=$1", seq, tx.now)
    return False


async def _load_claims(tx: Transaction, rows: Sequence[Any]) -> list[Claimed]:
    """Add trigger names, journals and events to the claimed rows."""
    rows = sorted(rows, key=lambda row: (-row["priority"], row["due_at"], row["seq"]))
    names = await tx.trigger_names(row["trigger"] for row in rows)
    # a run that was never claimed before has no journal, unless `start` gave it one, and a token
    journals = await journals_of(tx, [row["seq"] for row in rows if row["token"] > 1])
    gathered = await events_of(tx, [row["seq"] for row in rows if row["event"] is None])
    return [_claimed(tx, row, names, journals, gathered) for row in rows]


def _claimed(
    tx: Transaction,
    row: Any,
    names: Mapping[int, str],
    journals: Mapping[int, tuple[StepRecord, ...]],
    gathered: Mapping[int, Sequence[Recorded]],
) -> Claimed:
    # by position: looking up every column of every run by name is measurably slower
    seq, id, token, trigger, rev, attempt, max_attempts, event, input, answer, parent, created_at, cancel = row[:13]
    found = row[FIRST_EVENT_COLUMN:] if event is not None else ()
    events = (recorded_of(tx, found),) if found and found[0] is not None else tuple(gathered.get(seq, ()))
    return Claimed(
        id=id.hex(),
        token=token,
        trigger=names.get(trigger, ""),
        workflow_rev=rev,
        attempt=attempt,
        max_attempts=max_attempts,
        events=events,
        input=tx.json(input),
        journal=journals.get(seq, ()),
        answer=tx.json(answer),
        parent=parent.hex() if parent else "",
        created_at=moment(created_at),
        cancel_requested=cancel,
    )


async def _extend(tx: Transaction, claims: Mapping[str, int], seconds: float) -> dict[str, ClaimState]:
    rows = await tx.rows(
        f"""UPDATE runs r SET lease_until=coalesce($3, harken_now()) + $4
        FROM unnest($1::bytea[], $2::bigint[]) AS u(id, token)
        WHERE r.id=u.id AND r.token=u.token AND r.state::int={RUNNING} RETURNING r.id, r.cancel_requested""",
        [id_of(run_id) for run_id in claims],
        list(claims.values()),
        tx.given_now,
        round(seconds * 1_000_000),
    )
    kept = {row[0].hex(): row[1] for row in rows}
    return {run_id: "lost" if run_id not in kept else "cancel" if kept[run_id] else "kept" for run_id in claims}


async def _next_due(tx: Transaction) -> datetime | None:
    due, now, held_for_budget = await tx.row(NEXT_DUE, tx.given_now)
    if held_for_budget:
        # every budget is by the hour or by the day, and each day begins with an hour
        next_hour = now - now % HOUR + HOUR
        due = next_hour if due is None else min(due, next_hour)
    return moment_or_none(due)
