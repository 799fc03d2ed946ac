"""Keeps the database small and sound: expired claims, retention in small slices, checks, closing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.last_event_ids_by_outcome import banked_to
from harken.backends.postgres.subject_index import forget_objects
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.backends.run_states_ids_and_reasons import BLOCKED, DONE, HELD, READY, RUNNING, WAITING, id_of
from harken.backends.verdicts import decode_verdicts
from harken.errors import Refused
from harken.store import Erased, Space
from harken.store.document_kinds import STARRED

__all__ = ["PostgresUpkeep"]

SLICE = 500
"""How many rows of a table one call looks at, so that nothing waits long for it."""

SLICES_PASSED = 10
"""How many slices without a row that may go are passed over in one call."""

REQUEUE_EXPIRED = f"""UPDATE runs SET state={READY}, since=(SELECT coalesce($1, harken_now())),
lease_until=NULL, holder=NULL WHERE seq=ANY(ARRAY(SELECT seq FROM runs WHERE state={RUNNING}
AND lease_until<(SELECT coalesce($1, harken_now())) FOR UPDATE SKIP LOCKED))"""

# nothing lists the subjects of a pushed feed, so only time tells
FORGET_PUSHED = """DELETE FROM memory WHERE (feed, mid) IN (SELECT m.feed, m.mid FROM feeds f CROSS JOIN LATERAL
(SELECT feed, mid FROM memory WHERE feed=f.id AND absent IN (false, true) AND last_seen<$1 LIMIT $2) m
WHERE f.pushed LIMIT $2)"""
FORGET_ABSENT = """DELETE FROM memory WHERE (feed, mid) IN
(SELECT feed, mid FROM memory WHERE absent AND last_seen<$1 ORDER BY last_seen LIMIT $2)"""

FORGET_MARKS = """DELETE FROM marks WHERE (trigger, key) IN
(SELECT trigger, key FROM marks WHERE until<$1 ORDER BY until LIMIT $2)"""

EVENTS = f"SELECT id, recorded_at FROM events WHERE id>$1 AND id<=$2 ORDER BY id LIMIT {SLICE}"
ANY_EVENT = 2**63 - 1

CHECK_SECONDS = 600.0
_MAY_RUN = f"state IN ({READY}, {RUNNING}, {WAITING})"
CHECKS = {
    "runs that refer to an event that is gone: {}": f"""SELECT count(*) FROM runs r WHERE state<{DONE}
        AND event IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events WHERE id=r.event)""",
    "gathered events of open runs that are gone: {}": f"""SELECT count(*) FROM run_events g JOIN runs r ON r.seq=g.run
        WHERE r.state<{DONE} AND NOT EXISTS (SELECT 1 FROM events WHERE id=g.event)""",
    "slots that are held by a run that is over: {}": f"""SELECT count(*) FROM slots s WHERE NOT EXISTS
        (SELECT 1 FROM runs WHERE seq=s.run AND ({_MAY_RUN} OR (state={HELD} AND hold='budget')))""",
    "runs that are blocked behind a slot that nobody holds: {}": f"""SELECT count(*) FROM runs r WHERE state={BLOCKED}
        AND NOT EXISTS (SELECT 1 FROM slots WHERE key=r.slot)""",
    "runs that may run without having their slot: {}": f"""SELECT count(*) FROM runs r WHERE {_MAY_RUN}
        AND slot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM slots WHERE key=r.slot AND run=r.seq)""",
    "runs that belong to a trigger that does not exist: {}": """SELECT count(*) FROM runs r WHERE trigger<>0
        AND NOT EXISTS (SELECT 1 FROM triggers WHERE id=r.trigger)""",
    "events that belong to a feed that does not exist: {}": """SELECT count(*) FROM events e
        WHERE NOT EXISTS (SELECT 1 FROM feeds WHERE id=e.feed)""",
    "open runs that pin a workflow revision that is gone: {}": f"""SELECT count(*) FROM runs r WHERE state<{DONE}
        AND NOT EXISTS (SELECT 1 FROM documents WHERE kind='workflow' AND name=r.workflow_rev)""",
    "journal rows that belong to no run: {}": """SELECT count(*) FROM journal j
        WHERE NOT EXISTS (SELECT 1 FROM runs WHERE seq=j.run)""",
    "runs that have a priority that nobody claims: {}": f"""SELECT count(*) FROM runs r WHERE state={READY}
        AND NOT EXISTS (SELECT 1 FROM priorities WHERE priority=r.priority)""",
}


class PostgresUpkeep(DatabaseUser):
    @property
    def trouble(self) -> str:
        return self._database.trouble

    async def requeue_expired(self) -> int:
        return await self._database.autocommit(_requeue_expired)

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float, audit: float) -> int:
        for _ in range(SLICES_PASSED):
            deleted, more = await self._database.write(_prune, events, ticks, runs, pushed, audit)
            if deleted or not more:
                break
        return deleted

    async def erase(self, events: Sequence[int], runs: Sequence[str], is_theirs: Callable[[str, str], bool]) -> Erased:
        return await self._database.write(_erase, events, runs, is_theirs)

    async def shrink(self) -> int:
        """Nothing: autovacuum makes room of what was deleted, and the next rows use it."""
        return 0

    async def space(self) -> Space:
        return await self._database.read(_space)

    async def check(self) -> Sequence[str]:
        return await self._database.read(_check)

    async def backup(self, target: str) -> None:
        """Refused: the server's own tools copy a database that is being written."""
        fix = f"Use the server's own: pg_dump --format=custom --file={target} URL"
        raise Refused(f"Harken does not back up {self._database.place}", fix=fix)

    async def close(self) -> None:
        await self._database.close()


async def _space(tx: Transaction) -> Space:
    return Space(bytes=await tx.value("SELECT pg_database_size(current_database())"))


async def _requeue_expired(tx: Transaction) -> int:
    return await tx.do(REQUEUE_EXPIRED, tx.given_now)


async def _prune(
    tx: Transaction, events: float, ticks: float, runs: float, pushed: float, audit: float
) -> tuple[int, bool]:
    """Delete a slice of the old rows of each table. Return how many, and whether there are more that are old.

    Ids rise with time, so the old rows come first.
    """
    await _fold_tallies(tx)
    deleted, more = await _delete_runs(tx, tx.now - round(runs * 1e6))
    for table, column, seconds in (
        ("ticks", "ended_at", ticks),
        ("buried", "at", events),
        ("audit", "at", audit),
    ):
        old, older = await _oldest(tx, table, "id", column, tx.now - round(seconds * 1e6))
        if old:
            deleted += await tx.do(f"DELETE FROM {table} WHERE id=ANY($1::bigint[])", old)
        more = more or older
    gone, older = await _delete_events(tx, tx.now - round(events * 1e6))
    deleted, more = deleted + gone, more or older
    deleted += await tx.do(FORGET_PUSHED, tx.now - round(pushed * 1e6), SLICE)
    deleted += await tx.do(FORGET_ABSENT, tx.now - round(runs * 1e6), SLICE)
    deleted += await tx.do(FORGET_MARKS, tx.now, SLICE)
    return deleted, more


async def _fold_tallies(tx: Transaction) -> None:
    """Add the counts of commits and settlements to their triggers."""
    await tx.do(
        """WITH gone AS (DELETE FROM tallies RETURNING trigger, fired, done, fired_at),
        n AS (SELECT trigger, sum(fired) AS fired, sum(done) AS done, max(fired_at) AS fired_at
            FROM gone GROUP BY trigger)
        UPDATE triggers t SET fired=t.fired+n.fired, done=t.done+n.done,
        last_fired_at=greatest(t.last_fired_at, n.fired_at) FROM n WHERE t.id=n.trigger"""
    )


async def _oldest(tx: Transaction, table: str, key: str, column: str, before: int) -> tuple[list[int], bool]:
    """The old rows of the next slice of the table, and whether more may follow.

    After a slice with a young row the next begins at the start.
    """
    begin = tx.cache.pruned_to.get(table, 0)
    rows = await tx.rows(f"SELECT {key}, {column} FROM {table} WHERE {key}>$1 ORDER BY {key} LIMIT {SLICE}", begin)
    is_last = len(rows) < SLICE or (rows[-1][1] or before) >= before
    end = 0 if is_last else rows[-1][0]
    tx.on_commit.append(lambda: tx.cache.pruned_to.update({table: end}))
    return [id for id, at in rows if at is not None and at < before], not is_last


async def _delete_events(tx: Transaction, before: int) -> tuple[int, bool]:
    """Delete old events of the next slice, and those that had to stay before. Return how many, and whether more follow.

    Those that the bank has are passed over for good: it tells when they leave it. Others that have to stay are looked
    at again."""
    cache, last = tx.cache, await banked_to(tx)
    rows = await tx.rows(EVENTS, cache.pruned_to.get("events", 0), ANY_EVENT if last is None else last)
    old = [id for id, at in rows if at < before]
    passed = list(islice(cache.passed_events, SLICE))
    if not old and not passed:
        return 0, False
    banked = {row[0] for row in await tx.rows("SELECT event FROM kept WHERE event=ANY($1::bigint[])", [*passed, *old])}
    again = await tx.rows("SELECT id FROM events WHERE id=ANY($1::bigint[]) AND recorded_at<$2", passed, before)
    there = [*(row[0] for row in again if row[0] not in banked), *(id for id in old if id not in banked)]
    names = [str(id) for id in there]
    stars = await tx.rows(f"SELECT name FROM documents WHERE kind='{STARRED}' AND name=ANY($1::text[])", names)
    starred = {int(row[0]) for row in stars}
    go = await _unneeded(tx, [id for id in there if id not in starred]) if there else []
    deleted = await tx.do("DELETE FROM events WHERE id=ANY($1::bigint[])", go) if go else 0
    if go:
        await forget_objects(tx, go)
    stay = dict.fromkeys(id for id in there if id not in set(go))

    def note() -> None:
        for id in passed:
            cache.passed_events.pop(id, None)
        cache.passed_events.update(stay)
        if old:
            cache.pruned_to["events"] = old[-1]

    tx.on_commit.append(note)
    return deleted, len(old) == SLICE


async def _delete_runs(tx: Transaction, before: int) -> tuple[int, bool]:
    old, more = await _oldest(tx, "runs", "seq", "created_at", before)
    delete = f"DELETE FROM runs WHERE seq=ANY($1::bigint[]) AND state>={DONE} AND finished_at<$2 RETURNING seq"
    deleted = [row[0] for row in await tx.rows(delete, old, before)] if old else []
    await _delete_parts(tx, deleted)
    return len(deleted), more


async def _delete_parts(tx: Transaction, runs: list[int]) -> None:
    """These runs were deleted: delete what belongs to them."""
    if runs:
        await tx.do("DELETE FROM journal WHERE run=ANY($1::bigint[])", runs)
        await tx.do("DELETE FROM run_events WHERE run=ANY($1::bigint[])", runs)


async def _erase(
    tx: Transaction, events: Sequence[int], runs: Sequence[str], is_theirs: Callable[[str, str], bool]
) -> Erased:
    delete = f"DELETE FROM runs WHERE id=ANY($1::bytea[]) AND state>={DONE} RETURNING seq"
    gone = [row[0] for row in await tx.rows(delete, [id_of(run) for run in runs])] if runs else []
    await _delete_parts(tx, gone)
    old = await _unneeded(tx, list(events)) if events else []
    erased = await tx.do("DELETE FROM events WHERE id=ANY($1::bigint[])", old) if old else 0
    if old:
        await tx.do("DELETE FROM kept WHERE event=ANY($1::bigint[])", old)
        await forget_objects(tx, old)
    letters = await tx.rows("SELECT id, key, payload FROM buried")
    theirs = [id for id, key, payload in letters if is_theirs(tx.text(key), tx.text(payload))]
    dropped = await tx.do("DELETE FROM buried WHERE id=ANY($1::bigint[])", theirs) if theirs else 0
    return Erased(events=erased, runs=len(gone), letters=dropped)


async def _unneeded(tx: Transaction, ids: list[int]) -> list[int]:
    """The events that no unfinished run refers to."""
    rows = await tx.rows("SELECT id, verdicts FROM events WHERE id=ANY($1::bigint[])", ids)
    started = {
        id: {bytes.fromhex(verdict.run_id) for verdict in decode_verdicts(tx.seal.open(sealed)) if verdict.run_id}
        for id, sealed in rows
    }
    run_ids = list(set().union(*started.values()))
    found = await tx.rows(f"SELECT id FROM runs WHERE id=ANY($1::bytea[]) AND state::int<{DONE}", run_ids)
    unfinished = {row[0] for row in found}
    gathered = await tx.rows(
        f"""SELECT g.event FROM run_events g JOIN runs r ON r.seq=g.run
        WHERE g.event=ANY($1::bigint[]) AND r.state::int<{DONE}""",
        ids,
    )
    needed = {row[0] for row in gathered} | {id for id, runs in started.items() if runs & unfinished}
    return [id for id in ids if id not in needed]


async def _check(tx: Transaction) -> list[str]:
    # these read whole tables, which the settings of the session discourage
    settings = {"enable_seqscan": "on", "enable_hashjoin": "on", "statement_timeout": "0"}
    for name, value in settings.items():
        await tx.connection.execute(f"SET LOCAL {name} = {value}")
    found: list[str] = []
    for sentence, sql in CHECKS.items():
        count = await tx.connection.fetchval(sql, timeout=CHECK_SECONDS)
        if count:
            found.append(sentence.format(count))
    return found
