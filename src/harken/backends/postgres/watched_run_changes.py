"""Watched runs that have moved: found by an index, see harken.backends.watched_run_changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from harken.backends.codec import moment
from harken.backends.postgres.connection import Database, DatabaseUser
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.backends.run_states_ids_and_reasons import STATES, id_of
from harken.backends.watched_run_changes import MOVED, NOT_DEALT_WITH, VERSION, Turns
from harken.store import MovedRun

__all__ = ["PostgresMoved", "watch"]

MOVED_RUNS = f"""SELECT r.*, t.name, e.subject FROM (SELECT seq, id, {VERSION} AS version, trigger, state,
greatest(created_at, since, finished_at) AS since,
coalesce(event, (SELECT min(event) FROM run_events WHERE run=seq)) AS event
FROM runs WHERE {MOVED} AND seq>$1 AND seq<=$2 ORDER BY seq LIMIT $3) r
LEFT JOIN triggers t ON t.id=r.trigger LEFT JOIN events e ON e.id=r.event ORDER BY r.seq"""

# a run that somebody else is writing is left out, as it may move: it comes again, and nobody waits for anybody
DEAL_WITH = f"""UPDATE runs SET watched={VERSION} WHERE {MOVED} AND seq=ANY(ARRAY(SELECT r.seq FROM runs r
JOIN unnest($1::bytea[], $2::bigint[]) AS u(id, version) ON r.id=u.id
WHERE r.watched IS NOT NULL AND r.token*16+r.state=u.version FOR UPDATE OF r SKIP LOCKED))"""


class PostgresMoved(DatabaseUser):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._turns = Turns()

    async def moved_runs(self, seen: Mapping[str, int] = MappingProxyType({}), limit: int = 200) -> Sequence[MovedRun]:
        if seen:
            await self._database.autocommit(_deal_with, seen)
        return await self._turns.take(limit, self._read)

    async def _read(self, after: int, last: int, limit: int) -> list[tuple[int, MovedRun]]:
        return await self._database.autocommit(_moved, after, last, limit, writes=False)


async def watch(tx: Transaction, seqs: Sequence[int]) -> None:
    """From now on every change of these runs' states is told. One that is watched already stays as it is."""
    await tx.do(f"UPDATE runs SET watched={NOT_DEALT_WITH} WHERE seq=ANY($1::bigint[]) AND watched IS NULL", seqs)


async def _deal_with(tx: Transaction, seen: Mapping[str, int]) -> None:
    await tx.do(DEAL_WITH, [id_of(run_id) for run_id in seen], list(seen.values()))


async def _moved(tx: Transaction, after: int, last: int, limit: int) -> list[tuple[int, MovedRun]]:
    return [(row["seq"], _moved_run(tx, row)) for row in await tx.rows(MOVED_RUNS, after, last, limit)]


def _moved_run(tx: Transaction, row: Any) -> MovedRun:
    return MovedRun(
        id=row["id"].hex(),
        seen=row["version"],
        trigger=row["name"] or "",
        subject="" if row["subject"] is None else tx.text(row["subject"]),
        status=STATES[row["state"]],  # type: ignore[arg-type]
        since=moment(row["since"]),
    )
