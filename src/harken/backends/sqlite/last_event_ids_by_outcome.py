"""The event bank in SQLite: a slice of events is read beside the writer, and written in one short transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harken.backends.last_event_ids_by_outcome import (
    GONE_SECONDS,
    Listed,
    add_to_lists,
    decode_ids,
    encode_ids,
    list_events,
)
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.verdicts import decode_verdicts

__all__ = ["SqliteBank", "banked_to"]

SLICE = 500
LISTS_CHECKED = 300

COUNT = """INSERT INTO kept (event, lists) VALUES (?1, ?2)
ON CONFLICT (event) DO UPDATE SET lists=lists+excluded.lists"""
OF_GONE = f"""SELECT b.trigger, b.list, b.ids, EXISTS (SELECT 1 FROM triggers t WHERE t.name=b.trigger
AND (t.removed_at IS NULL OR t.removed_at>?2)) FROM banks b WHERE b.trigger>?1 ORDER BY b.trigger
LIMIT {LISTS_CHECKED}"""


class SqliteBank(DatabaseUser):
    async def bank_events(self, keep: int) -> int:
        if keep <= 0:
            return await self._database.write(_close)
        found = await self._database.read(_next_slice, keep)
        return await self._database.write(_put, keep, *found)

    async def banked_events(self, trigger: str) -> Mapping[str, Sequence[int]]:
        return await self._database.read(_of_trigger, trigger)


def banked_to(tx: Transaction) -> int | None:
    """The last event that was looked at; None if there is no bank."""
    event, keep = tx.execute("SELECT event, keep FROM banked").fetchall()[0]
    return event if keep else None


def _of_trigger(tx: Transaction, trigger: str) -> dict[str, list[int]]:
    rows = tx.execute("SELECT list, ids FROM banks WHERE trigger=?", (trigger,)).fetchall()
    return {name: decode_ids(ids)[::-1] for name, ids in rows}


def _close(tx: Transaction) -> int:
    if banked_to(tx) is not None:
        for table in ("banks", "kept"):
            tx.execute(f"DELETE FROM {table}")
        tx.execute("UPDATE banked SET event=0, keep=0")
        # what was kept is old, and may go
        tx.pruned_to["events"] = 0
    return 0


def _next_slice(tx: Transaction, keep: int) -> tuple[int, int, dict[Listed, list[int]]]:
    """After which event the slice begins, its last one, and what comes into the lists."""
    after = tx.value("SELECT event FROM banked") or 0
    rows = tx.execute(f"SELECT id, verdicts FROM events WHERE id>? ORDER BY id LIMIT {SLICE}", (after,)).fetchall()
    decoded = ((id, decode_verdicts(tx.seal.open(verdicts))) for id, verdicts in rows)
    return after, rows[-1][0] if rows else after, list_events(decoded, keep)


def _put(tx: Transaction, keep: int, after: int, last: int, new: Mapping[Listed, Sequence[int]]) -> int:
    if (tx.value("SELECT event FROM banked") or 0) != after:
        return 0
    tx.execute("UPDATE banked SET event=?, keep=?", (last, keep))
    if last == after:
        return _drop_gone(tx)
    stored = {listed: ids for listed in new if (ids := _ids_of(tx, listed)) is not None}
    changed, lists = add_to_lists(new, stored, keep)
    for (trigger, name), ids in changed.items():
        tx.execute("INSERT OR REPLACE INTO banks (trigger, list, ids) VALUES (?,?,?)", (trigger, name, encode_ids(ids)))
    _count(tx, lists)
    return last - after


def _ids_of(tx: Transaction, listed: Listed) -> list[int] | None:
    found = tx.value("SELECT ids FROM banks WHERE trigger=? AND list=?", listed)
    return None if found is None else decode_ids(found)


def _count(tx: Transaction, lists: Mapping[int, int]) -> None:
    for event, by in lists.items():
        tx.execute(COUNT, (event, by))
        if by < 0:
            tx.execute("DELETE FROM kept WHERE event=? AND lists<=0", (event,))
            if tx.connection.changes() and event <= tx.pruned_to.get("events", 0):
                tx.passed_events[event] = None


def _drop_gone(tx: Transaction) -> int:
    """Drop lists of triggers that are gone; a call looks at some of them."""
    gone_before = tx.now() - round(GONE_SECONDS * 1e6)
    rows = tx.execute(OF_GONE, (tx.banks_checked_to, gone_before)).fetchall()
    tx.banks_checked_to = rows[-1][0] if len(rows) == LISTS_CHECKED else ""
    gone = [(trigger, name, ids) for trigger, name, ids, is_there in rows if not is_there]
    for trigger, name, ids in gone:
        tx.execute("DELETE FROM banks WHERE trigger=? AND list=?", (trigger, name))
        _count(tx, dict.fromkeys(decode_ids(ids), -1))
    return len(gone)
