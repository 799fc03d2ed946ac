"""Housekeeping of the file: expired claims, retention, consistency check, backup, close."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import islice

import apsw
import msgspec

from harken.backends.run_states_ids_and_reasons import READY, RUNNING, id_of
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.damage import find_damage
from harken.backends.sqlite.errors import place_problems, translate
from harken.backends.sqlite.feed_memory_and_failures import forget_older
from harken.backends.sqlite.last_event_ids_by_outcome import banked_to
from harken.backends.sqlite.leases import ORPHANED
from harken.backends.sqlite.subject_index import forget_objects
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.sqlite.unused_page_release import shrink, space
from harken.errors import Refused
from harken.store import Erased, Space
from harken.store.document_kinds import STARRED, WORKFLOW

__all__ = ["SqliteUpkeep", "release_orphans"]

SLICE_SECONDS = 0.005
"""How long one transaction goes on deleting, so that other writes need not wait."""
BATCH, BATCHES = 10, 50
"""Rows of a kind between two looks at the clock, and how many batches a transaction may have."""
PASSED = 50
"""How many events that had to stay are looked at again in one batch."""
LOOKED = 2_000
"""How many rows that may not go, or feeds that have nothing to forget, are passed over in one batch."""


class Aged(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose old rows go. `select` reads a batch of it: id, age, and whether the row may go."""

    table: str
    select: str


def _aged(table: str, key: str, age: str, may_go: str = "1") -> Aged:
    select = f"SELECT {key}, {age}, {may_go} FROM {table} WHERE {key}>:after ORDER BY {key} LIMIT {BATCH}"
    return Aged(table=table, select=select)


RUNS = _aged("runs", "seq", "created_at", "state>=6 AND finished_at<:before")
TICKS = _aged("ticks", "id", "ended_at")
BURIED = _aged("buried", "id", "at")
AUDIT = _aged("audit", "id", "at")
# the plus signs keep the planner from looking through all open runs instead of those of the event
MAY_GO = """NOT EXISTS (SELECT 1 FROM runs WHERE event=events.id AND +state<6)
    AND NOT EXISTS (SELECT 1 FROM run_events g JOIN runs r ON r.seq=g.run WHERE g.event=events.id AND +r.state<6)"""
IS_STARRED = f"EXISTS (SELECT 1 FROM documents WHERE kind='{STARRED}' AND name=CAST(events.id AS TEXT))"
IS_BANKED = "EXISTS (SELECT 1 FROM kept WHERE event=events.id)"
EVENT = f"SELECT id, recorded_at, {MAY_GO} AND NOT {IS_STARRED}, {IS_BANKED} FROM events"
EVENTS = f"{EVENT} WHERE id>? AND id<=? ORDER BY id LIMIT {BATCH}"
ANY_EVENT = 2**63 - 1
PUSHED = f"SELECT id FROM feeds WHERE pushed AND id>=? ORDER BY id LIMIT {LOOKED}"
FORGET_ABSENT = """DELETE FROM memory WHERE (feed, mid) IN
(SELECT feed, mid FROM memory WHERE absent AND last_seen<? ORDER BY last_seen LIMIT ?)"""
FORGET_MARKS = """DELETE FROM marks WHERE (trigger, key) IN
(SELECT trigger, key FROM marks WHERE until<? ORDER BY until LIMIT ?)"""

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

    async def prune(self, *, events: float, ticks: float, runs: float, pushed: float, audit: float) -> int:
        return await self._database.write(_prune, events, ticks, runs, pushed, audit)

    async def erase(self, events: Sequence[int], runs: Sequence[str], is_theirs: Callable[[str, str], bool]) -> Erased:
        return await self._database.write(_erase, events, runs, is_theirs)

    async def shrink(self) -> int:
        return await self._database.write(shrink)

    async def space(self) -> Space:
        return await self._database.read(space)

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
        f"""UPDATE runs SET state={READY}, since=?1, lease_until=NULL, holder=NULL
        WHERE state<6 AND state={RUNNING} AND lease_until<?1""",
        (tx.now(),),
    )
    return tx.connection.changes()


def release_orphans(tx: Transaction) -> None:
    """Call it right after locking the file: processes that held claims or leases are dead, so end these at once."""
    requeue = f"UPDATE runs SET state={READY}, since=?, lease_until=NULL, holder=NULL WHERE state<6 AND state={RUNNING}"
    tx.execute(requeue, (tx.now(),))
    tx.execute("UPDATE leases SET until=? WHERE until>?", (ORPHANED, ORPHANED))
    tx.lease_changed()


def _prune(tx: Transaction, events: float, ticks: float, runs: float, pushed: float, audit: float) -> int:
    """Delete old rows for a few milliseconds, a batch of each kind in turn. Ids rise with time: the old come first."""
    now, until = tx.now(), tx.clock.monotonic() + SLICE_SECONDS
    run_age, event_age = now - round(runs * 1e6), now - round(events * 1e6)
    tx.save_counters()
    gone = 0
    for _ in range(BATCHES):
        deleted = (
            _delete_runs(tx, run_age)
            + _delete_oldest(tx, TICKS, now - round(ticks * 1e6))
            + _delete_events(tx, event_age)
            + _delete_oldest(tx, BURIED, event_age)
            + _delete_oldest(tx, AUDIT, now - round(audit * 1e6))
            + _forget_pushed(tx, now - round(pushed * 1e6))
            + _forget_absent(tx, run_age)
            + _forget_marks(tx, now)
        )
        gone += deleted
        if not deleted or tx.clock.monotonic() >= until:
            break
    return gone


def _erase(
    tx: Transaction, events: Sequence[int], runs: Sequence[str], is_theirs: Callable[[str, str], bool]
) -> Erased:
    # what is deleted is overwritten with zeros, as others may read the file
    before = tx.value("PRAGMA secure_delete")
    tx.execute("PRAGMA secure_delete=ON").fetchall()
    tx.save_counters()
    try:
        over = [tx.value("SELECT seq FROM runs WHERE id=? AND state>=6", (id_of(run),)) for run in runs]
        seqs = [seq for seq in over if seq is not None]
        _drop_runs(tx, seqs)
        unneeded = [id for id in events if tx.value(f"SELECT {MAY_GO} FROM events WHERE id=?", (id,))]
        for id in unneeded:
            tx.execute("DELETE FROM events WHERE id=?", (id,))
            tx.execute("DELETE FROM kept WHERE event=?", (id,))
        forget_objects(tx, unneeded)
        letters = tx.execute("SELECT id, key, payload FROM buried").fetchall()
        theirs = [id for id, key, payload in letters if is_theirs(tx.text(key), tx.text(payload))]
        for id in theirs:
            tx.execute("DELETE FROM buried WHERE id=?", (id,))
        return Erased(events=len(unneeded), runs=len(seqs), letters=len(theirs))
    finally:
        tx.execute(f"PRAGMA secure_delete={'FAST' if before == 2 else int(before or 0)}").fetchall()


def _drop_runs(tx: Transaction, seqs: Sequence[int]) -> None:
    for seq in seqs:
        for table in ("journal", "run_events"):
            tx.execute(f"DELETE FROM {table} WHERE run=?", (seq,))
        tx.execute("DELETE FROM runs WHERE seq=?", (seq,))


def _delete_runs(tx: Transaction, before: int) -> int:
    old = _oldest(tx, RUNS, before)
    _drop_runs(tx, old)
    return len(old)


def _delete_events(tx: Transaction, before: int) -> int:
    old = [*_passed_events(tx, before), *_next_events(tx, before)]
    for id in old:
        tx.execute("DELETE FROM events WHERE id=?", (id,))
    forget_objects(tx, old)
    return len(old)


def _next_events(tx: Transaction, before: int) -> list[int]:
    """Ids of the next old events that may go. Those that the bank has are passed over for good: it tells when they
    leave it. The others that may not go are looked at again."""
    last = banked_to(tx)
    for _ in range(LOOKED // BATCH):
        begin = tx.pruned_to.get("events", 0)
        rows = tx.execute(EVENTS, (begin, ANY_EVENT if last is None else last)).fetchall()
        old = [row for row in rows if row[1] < before]
        if old:
            tx.pruned_to["events"] = old[-1][0]
        tx.passed_events.update((id, None) for id, _, may_go, banked in old if not (may_go or banked))
        go = [id for id, _, may_go, banked in old if may_go and not banked]
        if go or len(old) < BATCH:
            return go
    return []


def _passed_events(tx: Transaction, before: int) -> list[int]:
    """Ids of events that had to stay when they were passed, and may go now; a call looks at some of them."""
    go = []
    for id in list(islice(tx.passed_events, PASSED)):
        del tx.passed_events[id]
        row = tx.row(f"{EVENT} WHERE id=?", (id,))
        if row is not None and row[2] and not row[3] and row[1] < before:
            go.append(id)
        elif row is not None and not row[3]:
            tx.passed_events[id] = None
    return go


def _delete_oldest(tx: Transaction, aged: Aged, before: int) -> int:
    old = _oldest(tx, aged, before)
    for id in old:
        tx.execute(f"DELETE FROM {aged.table} WHERE id=?", (id,))
    return len(old)


def _oldest(tx: Transaction, aged: Aged, before: int) -> list[int]:
    """Ids of the next old rows that may go; starts again at the first row when it meets a young one."""
    for _ in range(LOOKED // BATCH):
        rows = tx.execute(aged.select, {"after": tx.pruned_to.get(aged.table, 0), "before": before}).fetchall()
        last = len(rows) < BATCH or (rows[-1][1] or before) >= before
        tx.pruned_to[aged.table] = 0 if last else rows[-1][0]
        old = [id for id, at, may_go in rows if may_go and at is not None and at < before]
        if old or last:
            return old
    return []


def _forget_pushed(tx: Transaction, before: int) -> int:
    """Forget subjects of pushed feeds, feed after feed: nothing lists them, so only time tells."""
    begin, gone = tx.pruned_to.get("pushed", 0), 0
    feeds = tx.execute(PUSHED, (begin,)).fetchall()
    for (feed,) in feeds:
        gone += forget_older(tx, feed, before, BATCH - gone)
        if gone >= BATCH:
            tx.pruned_to["pushed"] = feed
            return gone
    tx.pruned_to["pushed"] = feeds[-1][0] + 1 if len(feeds) == LOOKED else 0
    return gone


def _forget_absent(tx: Transaction, before: int) -> int:
    tx.execute(FORGET_ABSENT, (before, BATCH))
    return tx.connection.changes()


def _forget_marks(tx: Transaction, now: int) -> int:
    tx.execute(FORGET_MARKS, (now, BATCH))
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
