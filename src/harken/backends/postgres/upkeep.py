"""Keeping the database small and sound, a slice at a time, from whichever replica does the housekeeping."""

from __future__ import annotations

from harken.backends.codec import decode_verdicts
from harken.backends.postgres.transaction import Transaction
from harken.backends.run_states import READY, RUNNING

__all__ = ["check", "prune", "requeue_expired"]

SLICE = 1000
"""Rows looked at in one call, so that nobody waits for the cleaning."""

REAP = f"""UPDATE runs SET state={READY}, lease_until=NULL, holder=NULL WHERE seq=ANY(ARRAY(SELECT seq FROM runs
WHERE state={RUNNING} AND lease_until<(SELECT coalesce($1, harken_now())) FOR UPDATE SKIP LOCKED))"""


async def requeue_expired(tx: Transaction) -> int:
    """Make runs ready whose claim ran out."""
    return await tx.do(REAP, tx.given_now)


async def prune(tx: Transaction, events: float, ticks: float, runs: float, pushed: float) -> int:
    """Delete a slice of what is old. Ids rise with time, so the old ones are found at the beginning."""
    await _fold(tx)
    gone = await _forget_runs(tx, tx.now - round(runs * 1e6))
    for table, column, seconds in (
        ("ticks", "ended_at", ticks),
        ("events", "recorded_at", events),
        ("buried", "at", events),
    ):
        old = await _oldest(tx, table, "id", column, tx.now - round(seconds * 1e6))
        if old and table == "events":
            old = await _needless(tx, old)
        if old:
            gone += await tx.do(f"DELETE FROM {table} WHERE id=ANY($1::bigint[])", old)
    gone += await _forget_subjects(tx, "f.pushed", tx.now - round(pushed * 1e6))
    return gone + await _forget_subjects(tx, "m.absent", tx.now - round(runs * 1e6))


async def _fold(tx: Transaction) -> None:
    """Add what commits and settlements counted to the triggers."""
    await tx.do(
        """WITH gone AS (DELETE FROM tallies RETURNING trigger, fired, done, fired_at),
        n AS (SELECT trigger, sum(fired) AS fired, sum(done) AS done, max(fired_at) AS fired_at
            FROM gone GROUP BY trigger)
        UPDATE triggers t SET fired=t.fired+n.fired, done=t.done+n.done,
        last_fired_at=greatest(t.last_fired_at, n.fired_at) FROM n WHERE t.id=n.trigger"""
    )


async def _oldest(tx: Transaction, table: str, key: str, column: str, before: int) -> list[int]:
    """A slice of the rows at the beginning of the table that are old, going on where the last slice ended."""
    begin = tx.shelf.swept.get(table, 0)
    rows = await tx.rows(f"SELECT {key}, {column} FROM {table} WHERE {key}>$1 ORDER BY {key} LIMIT {SLICE}", begin)
    young = len(rows) < SLICE or (rows[-1][1] or before) >= before
    reached = 0 if young else rows[-1][0]
    tx.afterwards.append(lambda: tx.shelf.swept.update({table: reached}))
    return [id for id, at in rows if at is not None and at < before]


async def _forget_runs(tx: Transaction, before: int) -> int:
    old = await _oldest(tx, "runs", "seq", "created_at", before)
    over = "DELETE FROM runs WHERE seq=ANY($1::bigint[]) AND state>=6 AND finished_at<$2 RETURNING seq"
    gone = [row[0] for row in await tx.rows(over, old, before)] if old else []
    if gone:
        await tx.do("DELETE FROM journal WHERE run=ANY($1::bigint[])", gone)
        await tx.do("DELETE FROM run_events WHERE run=ANY($1::bigint[])", gone)
    return len(gone)


async def _needless(tx: Transaction, ids: list[int]) -> list[int]:
    """Those that no open run needs."""
    rows = await tx.rows("SELECT id, verdicts FROM events WHERE id=ANY($1::bigint[])", ids)
    starts = {
        id: {bytes.fromhex(verdict.run_id) for verdict in decode_verdicts(tx.seal.open(sealed)) if verdict.run_id}
        for id, sealed in rows
    }
    named = list(set().union(*starts.values()))
    found = await tx.rows("SELECT id FROM runs WHERE id=ANY($1::bytea[]) AND state::int<6", named)
    unfinished = {row[0] for row in found}
    gathered = await tx.rows(
        """SELECT g.event FROM run_events g JOIN runs r ON r.seq=g.run
        WHERE g.event=ANY($1::bigint[]) AND r.state::int<6""",
        ids,
    )
    needed = {row[0] for row in gathered} | {id for id, runs in starts.items() if runs & unfinished}
    return [id for id in ids if id not in needed]


async def _forget_subjects(tx: Transaction, which: str, before: int) -> int:
    return await tx.do(
        f"""DELETE FROM memory WHERE (feed, mid) IN (SELECT m.feed, m.mid FROM memory m JOIN feeds f ON f.id=m.feed
        WHERE {which} AND m.last_seen<$1 LIMIT {SLICE})""",
        before,
    )


CHECK_SECONDS = 600.0

CHECKS = {
    "{} runs refer to an event that is gone": """SELECT count(*) FROM runs r WHERE state<6 AND event IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM events WHERE id=r.event)""",
    "{} gathered events of open runs are gone": """SELECT count(*) FROM run_events g JOIN runs r ON r.seq=g.run
        WHERE r.state<6 AND NOT EXISTS (SELECT 1 FROM events WHERE id=g.event)""",
    "{} slots are held by a run that is over": """SELECT count(*) FROM slots s WHERE NOT EXISTS
        (SELECT 1 FROM runs WHERE seq=s.run AND (state IN (2, 4, 5) OR (state=1 AND hold='budget')))""",
    "{} runs are blocked behind a slot that nobody holds": """SELECT count(*) FROM runs r WHERE state=3
        AND NOT EXISTS (SELECT 1 FROM slots WHERE key=r.slot)""",
    "{} runs may run without having their slot": """SELECT count(*) FROM runs r WHERE state IN (2, 4, 5)
        AND slot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM slots WHERE key=r.slot AND run=r.seq)""",
    "{} runs belong to a trigger that does not exist": """SELECT count(*) FROM runs r WHERE trigger<>0
        AND NOT EXISTS (SELECT 1 FROM triggers WHERE id=r.trigger)""",
    "{} events belong to a feed that does not exist": """SELECT count(*) FROM events e
        WHERE NOT EXISTS (SELECT 1 FROM feeds WHERE id=e.feed)""",
    "{} open runs pin a workflow revision that is gone": """SELECT count(*) FROM runs r WHERE state<6
        AND NOT EXISTS (SELECT 1 FROM documents WHERE kind='workflow' AND name=r.workflow_rev)""",
    "{} journal rows belong to no run": """SELECT count(*) FROM journal j
        WHERE NOT EXISTS (SELECT 1 FROM runs WHERE seq=j.run)""",
    "{} runs have a priority that nobody claims": """SELECT count(*) FROM runs r WHERE state=2
        AND NOT EXISTS (SELECT 1 FROM priorities WHERE priority=r.priority)""",
}


async def check(tx: Transaction) -> list[str]:
    # these read whole tables, which is what the session's settings are there to prevent
    settings = {"enable_seqscan": "on", "enable_hashjoin": "on", "statement_timeout": "0"}
    for name, value in settings.items():
        await tx.connection.execute(f"SET LOCAL {name} = {value}")
    found: list[str] = []
    for sentence, sql in CHECKS.items():
        count = await tx.connection.fetchval(sql, timeout=CHECK_SECONDS)
        if count:
            found.append(sentence.format(count))
    return found
