"""Watched runs that have moved: found by an index, see harken.backends.watched_run_changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from harken.backends.codec import moment
from harken.backends.run_states_ids_and_reasons import STATES, id_of
from harken.backends.sqlite.connection import Database, DatabaseUser
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.watched_run_changes import MOVED, NOT_DEALT_WITH, VERSION, Turns
from harken.store import MovedRun

__all__ = ["SqliteMoved", "watch"]

MOVED_RUNS = f"""SELECT seq, id, {VERSION}, trigger, state,
max(created_at, coalesce(since, 0), coalesce(finished_at, 0)),
(SELECT subject FROM events WHERE events.id=coalesce(runs.event, (SELECT min(event) FROM run_events WHERE run=seq)))
FROM runs INDEXED BY runs_moved WHERE {MOVED} AND seq>? AND seq<=? ORDER BY seq LIMIT ?"""


class SqliteMoved(DatabaseUser):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._turns = Turns()

    async def moved_runs(self, seen: Mapping[str, int] = MappingProxyType({}), limit: int = 200) -> Sequence[MovedRun]:
        if seen:
            await self._database.write(_deal_with, seen)
        return await self._turns.take(limit, self._read)

    async def _read(self, after: int, last: int, limit: int) -> list[tuple[int, MovedRun]]:
        return await self._database.read(_moved, after, last, limit)


def watch(tx: Transaction, seq: int) -> None:
    """From now on every change of the run's state is told. A run that is watched already stays as it is."""
    tx.execute("UPDATE runs SET watched=? WHERE seq=? AND watched IS NULL", (NOT_DEALT_WITH, seq))


def _deal_with(tx: Transaction, seen: Mapping[str, int]) -> None:
    for run_id, version in seen.items():
        deal = f"UPDATE runs SET watched=?1 WHERE id=?2 AND watched IS NOT NULL AND {VERSION}=?1"
        tx.execute(deal, (version, id_of(run_id)))


def _moved(tx: Transaction, after: int, last: int, limit: int) -> list[tuple[int, MovedRun]]:
    rows = tx.execute(MOVED_RUNS, (after, last, limit)).fetchall()
    return [(row[0], _moved_run(tx, row)) for row in rows]


def _moved_run(tx: Transaction, row: Sequence[Any]) -> MovedRun:
    _, id, version, trigger, state, since, subject = row
    return MovedRun(
        id=id.hex(),
        seen=version,
        trigger=tx.trigger_name(trigger) if trigger else "",
        subject="" if subject is None else tx.text(subject),
        status=STATES[state],  # type: ignore[arg-type]
        since=moment(since),
    )
