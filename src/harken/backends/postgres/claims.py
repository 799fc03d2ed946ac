"""Claim ready runs: one statement where nothing stands in the way, a closer look at quiet hours and budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from harken.backends.budgets import HOUR
from harken.backends.codec import micros, moment, moment_or_none
from harken.backends.postgres.queue import admit, close_gathering, count_run, has_room, lock_budget, room
from harken.backends.postgres.records import events_of, journals_of
from harken.backends.postgres.transaction import Transaction
from harken.backends.rows import RECORDED, recorded
from harken.backends.run_states import GATHERING, HELD, NEVER, READY, RUNNING, WAITING
from harken.event import Recorded
from harken.runs import Claimed, StepRecord
from harken.schedule import quiet_hours

__all__ = ["claim_carefully", "claim_quickly", "let_in", "may_start", "next_due"]


async def may_start(tx: Transaction, run: Any) -> bool:
    """Count the run and let it start; or postpone or hold it, and the slot that it may have stays its own."""
    now = tx.now
    if run["started_at"] is None and run["quiet_from"] is not None:
        inside = run["quiet_from"] <= now < run["quiet_until"]
        until = run["quiet_until"] if inside else await _quiet_until(tx, run["trigger"])
        if now < until:
            await tx.do("UPDATE runs SET due_at=$1 WHERE seq=$2", until, run["seq"])
            return False
    return not run["budgeted"] or await _enters(tx, run["seq"], run["trigger"])


async def _quiet_until(tx: Transaction, trigger: int) -> int:
    """The end of the quiet hours that it is now, for a run that has waited past those it was told of; else now."""
    found = await tx.trigger_numbered(trigger)
    if found is None or found.definition.quiet is None:
        return tx.now
    begin, end = quiet_hours(found.definition.quiet, moment(tx.now))
    return micros(end) if micros(begin) <= tx.now else tx.now


async def _enters(tx: Transaction, seq: int, trigger: int) -> bool:
    await lock_budget(tx, trigger)
    found = await tx.trigger_numbered(trigger)
    if found is None or found.budget is None or await has_room(tx, trigger, found.budget):
        await count_run(tx, seq, trigger)
        return True
    await tx.do(f"UPDATE runs SET state={HELD}, hold='budget' WHERE seq=$1", seq)
    return False


async def let_in(tx: Transaction, limit: int) -> None:
    """Make held runs ready for which there is room again, oldest first, a few at a time."""
    short = await tx.rows(
        f"""SELECT id FROM triggers WHERE paused='' AND id IN (SELECT trigger FROM runs WHERE state={HELD}
        AND hold='budget') ORDER BY id"""
    )
    for (trigger,) in short:
        await lock_budget(tx, trigger)
        found = await tx.trigger_numbered(trigger)
        few = limit
        if found is not None and found.budget is not None:
            few = int(min(limit, await room(tx, trigger, found.budget)))
        if few <= 0:
            continue
        rows = await tx.rows(
            f"""SELECT seq, due_at FROM runs WHERE state={HELD} AND trigger=$1 AND hold='budget'
            ORDER BY due_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED""",
            trigger,
            few,
        )
        for seq, due in rows:
            await admit(tx, seq, due=due)


_RUN = """r.seq, r.id AS run_id, r.token, r.trigger, r.workflow_rev, r.attempt, r.max_attempts, r.event, r.input,
r.answer, r.parent, r.created_at, r.cancel_requested, r.priority, r.due_at"""

_JOINED = "FROM {} LEFT JOIN events e ON e.id=r.event LEFT JOIN feeds f ON f.id=e.feed"

_TAKEN = f"state={RUNNING}, token=token+1, holder=$1, lease_until=$2+{{now}}, started_at=coalesce(started_at, {{now}})"

QUICK = f"""WITH t AS MATERIALIZED (SELECT n.now, NOT EXISTS (
SELECT 1 FROM runs WHERE state={READY} AND (budgeted OR quiet_from IS NOT NULL) AND due_at<=n.now)
AND NOT EXISTS (SELECT 1 FROM runs WHERE state IN ({GATHERING}, {WAITING}) AND due_at<=n.now)
AND NOT EXISTS (SELECT 1 FROM runs WHERE state={HELD} AND hold='budget') AS clear
FROM (SELECT coalesce($4::bigint, harken_now()) AS now) n),
r AS (UPDATE runs SET {_TAKEN.format(now="(SELECT now FROM t)")} WHERE (SELECT clear FROM t) AND seq=ANY(ARRAY(
SELECT due.seq FROM priorities p CROSS JOIN LATERAL (SELECT c.seq FROM runs c WHERE c.state={READY}
AND c.priority=p.priority AND c.due_at<=(SELECT now FROM t) ORDER BY c.due_at, c.seq LIMIT $3
FOR UPDATE SKIP LOCKED) due ORDER BY p.priority DESC LIMIT $3)) RETURNING *)
SELECT {_RUN}, {RECORDED}, t.clear {_JOINED.format("t LEFT JOIN r ON true")}"""

"""One priority after the other, without ever waiting for another replica."""

CLAIM = f"""WITH r AS (UPDATE runs SET {_TAKEN.format(now="$3::bigint")} WHERE seq=ANY($4::bigint[]) RETURNING *)
SELECT {_RUN}, {RECORDED} {_JOINED.format("r")}"""

FIRST_EVENT_COLUMN = 15


async def claim_quickly(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed] | None:
    """None when something needs a closer look first: a window that closes, a wait that ends, quiet hours, a budget."""
    rows = await tx.rows(QUICK, holder, round(seconds * 1_000_000), limit, tx.given_now)
    if not rows[0]["clear"]:
        return None
    return await _claims(tx, [row for row in rows if row["seq"] is not None])


async def claim_carefully(tx: Transaction, holder: str, limit: int, seconds: float) -> list[Claimed]:
    await _close_due(tx)
    await let_in(tx, limit)
    seqs: list[int] = []
    for (priority,) in await tx.rows("SELECT priority FROM priorities ORDER BY priority DESC"):
        ready = await tx.rows(
            f"""SELECT seq, trigger, budgeted, started_at, quiet_from, quiet_until FROM runs
            WHERE state={READY} AND priority=$1 AND due_at<=$2 ORDER BY due_at, seq LIMIT $3 FOR UPDATE SKIP LOCKED""",
            priority,
            tx.now,
            limit - len(seqs),
        )
        seqs += [run["seq"] for run in ready if _is_free(run) or await may_start(tx, run)]
        if len(seqs) >= limit:
            break
    if not seqs:
        return []
    rows = await tx.rows(CLAIM, holder, round(seconds * 1_000_000), tx.now, seqs)
    return await _claims(tx, rows)


def _is_free(run: Any) -> bool:
    return run["quiet_from"] is None and not run["budgeted"]


async def _close_due(tx: Transaction) -> None:
    await tx.do(
        f"""UPDATE runs SET state={READY} WHERE seq=ANY(ARRAY(SELECT seq FROM runs
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


async def _claims(tx: Transaction, rows: Sequence[Any]) -> list[Claimed]:
    """What a worker needs of each; nobody else writes to a run that is ours."""
    rows = sorted(rows, key=lambda row: (-row["priority"], row["due_at"], row["seq"]))
    names = await tx.name_triggers(row["trigger"] for row in rows)
    # a journal or an answer exists only where somebody had the run before
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
    # by place: a look-up by name for every column of every run is felt
    seq, id, token, trigger, rev, attempt, most, event, given, answer, parent, created_at, cancel = row[:13]
    found = row[FIRST_EVENT_COLUMN:] if event is not None else ()
    events = (recorded(tx, found),) if found and found[0] is not None else tuple(gathered.get(seq, ()))
    return Claimed(
        id=id.hex(),
        token=token,
        trigger=names.get(trigger, ""),
        workflow_rev=rev,
        attempt=attempt,
        max_attempts=most,
        events=events,
        input=tx.json(given),
        journal=journals.get(seq, ()),
        answer=tx.json(answer),
        parent=parent.hex() if parent else "",
        created_at=moment(created_at),
        cancel_requested=cancel,
    )


NEXT_DUE = f"""SELECT min(due), coalesce($1, harken_now()),
EXISTS (SELECT 1 FROM runs WHERE state={HELD} AND hold='budget')
FROM (SELECT (SELECT min(due_at) FROM runs WHERE state={READY} AND priority=p.priority) AS due FROM priorities p
UNION ALL SELECT min(due_at) FROM runs WHERE state IN ({GATHERING}, {WAITING}) AND due_at < {NEVER}) soonest"""


async def next_due(tx: Transaction) -> datetime | None:
    due, now, short = await tx.row(NEXT_DUE, tx.given_now)
    if short:
        # every budget begins anew with an hour or a day, and every day with an hour
        anew = now - now % HOUR + HOUR
        due = anew if due is None else min(due, anew)
    return moment_or_none(due)
