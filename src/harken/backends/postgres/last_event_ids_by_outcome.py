"""The event bank in PostgreSQL: a slice of events and the lists that they come into, in one transaction."""

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
from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.backends.verdicts import decode_verdicts

__all__ = ["PostgresBank", "banked_to"]

SLICE = 500
LISTS_CHECKED = 300
SETTLED_SECONDS = 60.0
"""An event is looked at when it is so old: one with a lower id may still be written by another replica before."""

NEXT = f"SELECT id, verdicts FROM events WHERE id>$1 AND recorded_at<$2 ORDER BY id LIMIT {SLICE}"
COUNT = """INSERT INTO kept (event, lists) VALUES ($1, $2)
ON CONFLICT (event) DO UPDATE SET lists=kept.lists+excluded.lists"""
PUT = """INSERT INTO banks (trigger, list, ids) VALUES ($1, $2, $3)
ON CONFLICT (trigger, list) DO UPDATE SET ids=excluded.ids"""
OF_TRIGGERS = f"""SELECT b.trigger, b.list, b.ids, EXISTS (SELECT 1 FROM triggers t WHERE t.name=b.trigger
AND (t.removed_at IS NULL OR t.removed_at>$2)) FROM banks b WHERE b.trigger>$1 ORDER BY b.trigger
LIMIT {LISTS_CHECKED}"""


class PostgresBank(DatabaseUser):
    async def bank_events(self, keep: int) -> int:
        return await self._database.write(_bank if keep > 0 else _close, keep)

    async def banked_events(self, trigger: str) -> Mapping[str, Sequence[int]]:
        return await self._database.read(_of_trigger, trigger)


async def banked_to(tx: Transaction) -> int | None:
    """The last event that was looked at; None if there is no bank."""
    event, keep = await tx.row("SELECT event, keep FROM banked")
    return event if keep else None


async def _of_trigger(tx: Transaction, trigger: str) -> dict[str, list[int]]:
    rows = await tx.rows("SELECT list, ids FROM banks WHERE trigger=$1", trigger)
    return {name: decode_ids(ids)[::-1] for name, ids in rows}


async def _close(tx: Transaction, keep: int) -> int:
    if await banked_to(tx) is not None:
        for table in ("banks", "kept"):
            await tx.do(f"DELETE FROM {table}")
        await tx.do("UPDATE banked SET event=0, keep=$1", keep)
        # what was kept is old, and may go
        tx.on_commit.append(lambda: tx.cache.pruned_to.update({"events": 0}))
    return 0


async def _bank(tx: Transaction, keep: int) -> int:
    # locked: after a change of the housekeeper two replicas may do this
    after = await tx.value("SELECT event FROM banked FOR UPDATE")
    rows = await tx.rows(NEXT, after, tx.now - round(SETTLED_SECONDS * 1e6))
    last = rows[-1][0] if rows else after
    await tx.do("UPDATE banked SET event=$1, keep=$2", last, keep)
    if not rows:
        return await _drop_gone(tx)
    new = list_events(((id, decode_verdicts(tx.seal.open(verdicts))) for id, verdicts in rows), keep)
    changed, lists = add_to_lists(new, await _stored(tx, list(new)), keep)
    await tx.each(PUT, [(trigger, name, encode_ids(ids)) for (trigger, name), ids in changed.items()])
    await _count(tx, lists)
    return len(rows)


async def _stored(tx: Transaction, wanted: Sequence[Listed]) -> dict[Listed, list[int]]:
    triggers, names = [trigger for trigger, _ in wanted], [name for _, name in wanted]
    sql = """SELECT b.trigger, b.list, b.ids FROM unnest($1::text[], $2::text[]) AS u(trigger, list)
    JOIN banks b ON b.trigger=u.trigger AND b.list=u.list"""
    return {(trigger, name): decode_ids(ids) for trigger, name, ids in await tx.rows(sql, triggers, names)}


async def _count(tx: Transaction, lists: Mapping[int, int]) -> None:
    # in one order everywhere, so that two replicas do not wait for each other
    await tx.each(COUNT, sorted(lists.items()))
    fewer = [event for event, by in lists.items() if by < 0]
    if not fewer:
        return
    rows = await tx.rows("DELETE FROM kept WHERE event=ANY($1::bigint[]) AND lists<=0 RETURNING event", fewer)
    left = [row[0] for row in rows if row[0] <= tx.cache.pruned_to.get("events", 0)]
    tx.on_commit.append(lambda: tx.cache.passed_events.update(dict.fromkeys(left)))


async def _drop_gone(tx: Transaction) -> int:
    """Drop lists of triggers that are gone; a call looks at some of them."""
    rows = await tx.rows(OF_TRIGGERS, tx.cache.banks_checked_to, tx.now - round(GONE_SECONDS * 1e6))
    tx.cache.banks_checked_to = rows[-1][0] if len(rows) == LISTS_CHECKED else ""
    gone = [(trigger, name, ids) for trigger, name, ids, is_there in rows if not is_there]
    for trigger, name, ids in gone:
        await tx.do("DELETE FROM banks WHERE trigger=$1 AND list=$2", trigger, name)
        await _count(tx, dict.fromkeys(decode_ids(ids), -1))
    return len(gone)
