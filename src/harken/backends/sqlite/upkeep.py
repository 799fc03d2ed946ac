"""Housekeeping of the file: expired claims, retention, consistency check, backup, close."""

from __future__ import annotations

import os
from collections.abc import Sequence

import apsw

from harken.backends.run_states import READY, RUNNING
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.damage import find_damage
from harken.backends.sqlite.errors import place_problems, translate
from harken.backends.sqlite.leases import ORPHANED
from harken.backends.sqlite.transaction import Transaction
from harken.errors import Refused
from harken.store.documents import WORKFLOW

__all__ = ["SqliteUpkeep", "release_orphans"]

SLICE = 100
"""Rows deleted per transaction: a few milliseconds, so that other writes need not wait."""

CHECKS = {
    "runs that refer to an event that is gone: {}": """SELECT count(*) FROM runs WHERE state<6 AND event IS NOT NULL
        AND event NOT IN (SELECT id FROM events)""",
    "gathered events of open runs that are gone: {}": """SELECT count(*) FROM run_events
        WHERE run IN (SELECT seq FROM runs WHERE state<6) AND event NOT IN (SELECT id FROM events)""",
    "slots that are held by a run that is over: {}": """SELECT count(*) FROM slots WHERE run NOT IN
        (SELECT seq FROM runs WHERE state IN (2, 4, 5) OR (state=1 AND hold='budget'))""",
    "runs that are blocked behind a slot that nobody holds: {}": """SELECT count(*) FROM runs WHERE state=3
        AND slot NOT IN (SELECT key FROM slots)""",
    "runs that may run without having their slot: {}": """SELECT count(*) FROM runs WHERE state IN (2, 4, 5)
        AND slot IS NOT NULL AND seq NOT IN (SELECT run FROM slots)""",
    "runs that belong to a trigger that does not exist: {}": """SELECT count(*) FROM runs WHERE trigger<>0
        AND trigger NOT IN (SELECT id FROM triggers)""",
    "events that belong to a feed that does not exist: {}": """SELECT count(*) FROM events
        WHERE feed NOT IN (SELECT id FROM feeds)""",
    "open runs that pin a workflow revision that is gone: {}": f"""SELECT count(*) FROM runs WHERE state<6
        AND workflow_rev NOT IN (SELECT name FROM documents WHERE kind='{WORKFLOW}')""",
    "journal rows that belong to no run: {}": "SELECT count(*) FROM journal WHERE run NOT IN (SELECT seq FROM runs)",
}


class SqliteUpkeep(DatabaseUser):
    async def requeue_expired(self) -> int:
        return await self._database.write(_requeue_expired)

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float) -> int:
        return await self._database.write(_prune, events, ticks, runs, pushed)

    async def check(self) -> Sequence[str]:
        trouble = [self.trouble] if self.trouble else []
        found = await self._database.read(_check)
        return [*trouble, *place_problems(self._database.path), *(line for line in found if line not in trouble)]

    async def backup(self, target: str) -> None:
        await self._database.read(_backup, target)

    async def close(self) -> None:
        await self._database.close()

    @property
    def trouble(self) -> str:
        return self._database.trouble


def _requeue_expired(tx: Transaction) -> int:
    tx.execute(
        f"""UPDATE runs SET state={READY}, lease_until=NULL, holder=NULL
        WHERE state<6 AND state={RUNNING} AND lease_until<?""",
        (tx.now(),),
    )
    return tx.connection.changes()


def release_orphans(tx: Transaction) -> None:
    """Call it right after locking the file: processes that held claims or leases are dead, so end these at once."""
    tx.execute(f"UPDATE runs SET state={READY}, lease_until=NULL, holder=NULL WHERE state<6 AND state={RUNNING}")
    tx.execute("UPDATE leases SET until=? WHERE until>?", (ORPHANED, ORPHANED))
    tx.lease_changed()


def _prune(tx: Transaction, events: float, ticks: float, runs: float, pushed: float) -> int:
    """Delete one slice of old rows of each table. Ids rise with time, so the oldest rows have the lowest ids."""
    now = tx.now()
    tx.save_counters()
    gone = _forget_runs(tx, now - round(runs * 1e6))
    needed = _needed_events(tx)
    for table, column, seconds in (
        ("ticks", "ended_at", ticks),
        ("events", "recorded_at", events),
        ("buried", "at", events),
    ):
        before = now - round(seconds * 1e6)
        old = _oldest(tx, table, "id", column, before)
        for id in old:
            if table != "events" or id not in needed:
                tx.execute(f"DELETE FROM {table} WHERE id=?", (id,))
                gone += 1
    gone += _forget_subjects(tx, "f.pushed", now - round(pushed * 1e6))
    return gone + _forget_subjects(tx, "m.absent", now - round(runs * 1e6))


def _forget_runs(tx: Transaction, before: int) -> int:
    gone = 0
    for seq in _oldest(tx, "runs", "seq", "created_at", before):
        tx.execute("DELETE FROM runs WHERE seq=? AND state>=6 AND finished_at<?", (seq, before))
        if tx.connection.changes():
            tx.execute("DELETE FROM journal WHERE run=?", (seq,))
            tx.execute("DELETE FROM run_events WHERE run=?", (seq,))
            gone += 1
    return gone


def _oldest(tx: Transaction, table: str, key: str, column: str, before: int) -> list[int]:
    """Ids of old rows within the next slice of the table; starts again when it meets a young row."""
    begin = tx.pruned_to.get(table, 0)
    rows = tx.execute(
        f"SELECT {key}, {column} FROM {table} WHERE {key}>? ORDER BY {key} LIMIT {SLICE}", (begin,)
    ).fetchall()
    young = len(rows) < SLICE or (rows[-1][1] or before) >= before
    tx.pruned_to[table] = 0 if young else rows[-1][0]
    return [id for id, at in rows if at is not None and at < before]


def _needed_events(tx: Transaction) -> set[int]:
    """Events of open runs: they are kept whatever their age."""
    plain = tx.execute("SELECT event FROM runs WHERE state<6 AND event IS NOT NULL")
    gathered = tx.execute("SELECT event FROM run_events WHERE run IN (SELECT seq FROM runs WHERE state<6)")
    return {row[0] for row in plain} | {row[0] for row in gathered}


def _forget_subjects(tx: Transaction, which: str, before: int) -> int:
    tx.execute(
        f"""DELETE FROM memory WHERE (feed, mid) IN (SELECT m.feed, m.mid FROM memory m JOIN feeds f ON f.id=m.feed
        WHERE {which} AND m.last_seen<? LIMIT {SLICE})""",
        (before,),
    )
    return tx.connection.changes()


def _check(tx: Transaction) -> list[str]:
    if damage := find_damage(tx.connection):
        # what the tables say means nothing then
        return [str(translate(apsw.CorruptError())), *damage]
    found = []
    for sentence, sql in CHECKS.items():
        count = tx.value(sql)
        if count:
            found.append(sentence.format(count))
    return found


def _backup(tx: Transaction, target: str) -> None:
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise Refused(f"cannot write {target} ({error.strerror})", fix="Name a new file in a folder of yours") from None
    destination = apsw.Connection(target)
    with destination.backup("main", tx.connection, "main") as copying:
        while not copying.done:
            copying.step(1000)
    destination.close()
