"""New runs as rows: one statement for all of a page. Whoever has the same id already stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harken.backends.postgres.statements import Spread
from harken.backends.postgres.transaction import Books
from harken.backends.run_states import RUNNING

__all__ = ["NewRow", "insert_runs"]

CLAIM_US = 60_000_000

ROWS = Spread(
    seq="bigint",
    id="bytea",
    trigger="int",
    workflow_rev="text",
    state="smallint",
    priority="int",
    due_at="bigint",
    max_attempts="int",
    event="bigint",
    input="bytea",
    slot="bytea",
    overlap="text",
    gather="bytea",
    hold="text",
    quiet_from="bigint",
    quiet_until="bigint",
    budgeted="boolean",
)
INSERT_RUNS = f"""INSERT INTO runs (seq, id, trigger, workflow_rev, state, priority, due_at, max_attempts, event, input,
slot, overlap, gather, hold, quiet_from, quiet_until, budgeted, token, lease_until, holder, started_at, created_at)
SELECT u.*, CASE WHEN u.state={RUNNING} THEN 1 ELSE 0 END, CASE WHEN u.state={RUNNING} THEN $1::bigint + {CLAIM_US} END,
CASE WHEN u.state={RUNNING} THEN $2::text END, CASE WHEN u.state={RUNNING} THEN $1 END, $1 FROM ({{rows}}) u
ON CONFLICT {{which}} DO NOTHING RETURNING seq"""


class NewRow(NamedTuple):
    """A run to be inserted, in the order of ROWS."""

    seq: int
    id: bytes
    trigger: int
    workflow_rev: str
    state: int
    priority: int
    due_at: int
    max_attempts: int
    event: int | None
    input: bytes | None
    slot: bytes | None
    overlap: str | None
    gather: bytes | None
    hold: str | None
    quiet_from: int | None
    quiet_until: int | None
    budgeted: bool


async def insert_runs(books: Books, rows: Sequence[NewRow], holder: str, which: str = "(id)") -> set[int]:
    """Those that are new, by seq. Runs that are handed over are claimed by `holder`."""
    await _know_priorities(books, {row.priority for row in rows})
    text, values = ROWS.of(rows, fixed=2)
    found = await books.rows(INSERT_RUNS.format(rows=text, which=which), books.now, holder, *values)
    return {row[0] for row in found}


async def _know_priorities(books: Books, wanted: set[int]) -> None:
    shelf = books.shelf
    new = wanted - shelf.priorities
    if new:
        sql = "INSERT INTO priorities SELECT * FROM unnest($1::int[]) ON CONFLICT DO NOTHING"
        await books.do(sql, sorted(new))
        books.afterwards.append(lambda: shelf.priorities.update(new))
