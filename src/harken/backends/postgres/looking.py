"""Runs as people see them: in pages, one with its journal, and the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harken.backends.codec import dead_run
from harken.backends.keyset import Filling
from harken.backends.postgres.records import event, full_page, journals_of
from harken.backends.postgres.transaction import Books
from harken.backends.postgres.where import Where
from harken.backends.rows import LETTER, RUN, letter_of, run_of, run_span
from harken.backends.run_states import DEAD, STATES
from harken.runs import Run
from harken.store import Buried, Page

__all__ = ["dead", "run", "runs"]


async def _shown(books: Books, rows: Sequence[Any], *, with_journal: bool = False) -> list[Run]:
    keys = await _keys_of(books, rows)
    names = await books.name_triggers(row["trigger"] for row in rows)
    workflows = await _workflow_names(books, {row["workflow_rev"] for row in rows})
    journals = await journals_of(books, [row["seq"] for row in rows]) if with_journal else {}
    return [
        run_of(
            books,
            row,
            names.get(row["trigger"], ""),
            workflows.get(row["workflow_rev"], ""),
            keys.get(row["seq"], ()),
            journals.get(row["seq"], ()),
        )
        for row in rows
    ]


async def _keys_of(books: Books, rows: Sequence[Any]) -> dict[int, list[tuple[int, str]]]:
    """Ids and keys of the events of each run, oldest first."""
    found: dict[int, list[tuple[int, str]]] = {}
    owned = await books.rows(
        """SELECT r.seq, e.id, e.key FROM runs r JOIN events e ON e.id=r.event WHERE r.seq=ANY($1::bigint[])
        UNION SELECT g.run, e.id, e.key FROM run_events g JOIN events e ON e.id=g.event
        WHERE g.run=ANY($1::bigint[]) ORDER BY 2""",
        [row["seq"] for row in rows],
    )
    for seq, event_id, key in owned:
        found.setdefault(seq, []).append((event_id, books.text(key)))
    return found


async def _workflow_names(books: Books, revs: set[str]) -> dict[str, str]:
    rows = await books.rows(
        "SELECT name, value FROM documents WHERE kind='workflow' AND name=ANY($1::text[])", list(revs)
    )
    return {rev: str(books.json(value)["name"]) for rev, value in rows}


async def runs(
    books: Books, trigger: str, status: str, workflow: str, event_id: int | None, before: int | None, limit: int
) -> Page:
    state = None if not status else STATES.index(status) if status in STATES else -1
    seqs = None if event_id is None else await _runs_of(books, event_id)

    async def some(before: int | None) -> list[tuple[int, Run]]:
        where = Where().and_("seq<{}", before).and_("state={}", state)
        where.and_("trigger=(SELECT id FROM triggers WHERE name={})", trigger or None)
        where.and_("seq=ANY({}::bigint[])", seqs)
        ends, bindings = where.ends("seq DESC", limit)
        rows = await books.rows(f"SELECT {RUN} FROM runs {ends}", *bindings)
        return list(zip((row["seq"] for row in rows), await _shown(books, rows), strict=True))

    def wanted(item: tuple[int, Run]) -> bool:
        return not workflow or item[1].workflow == workflow

    page = await full_page(some, Filling(wanted, lambda item: item[0], before, limit))
    return Page(items=[found for _, found in page.items], next=page.next)


async def _runs_of(books: Books, event_id: int) -> list[int]:
    """Its verdicts name the runs that it started; others gathered it or were started for it by hand."""
    found = await event(books, event_id)
    named = [bytes.fromhex(verdict.run_id) for verdict in found.verdicts if verdict.run_id] if found else []
    rows = await books.rows(
        """SELECT seq FROM runs WHERE id=ANY($1::bytea[]) AND event=$2
        UNION SELECT run FROM run_events WHERE event=$2""",
        named,
        event_id,
    )
    return [row[0] for row in rows]


async def run(books: Books, run_id: str) -> Run | None:
    span = run_span(run_id)
    if span is None:
        return None
    rows = await books.rows(f"SELECT {RUN} FROM runs WHERE id BETWEEN $1 AND $2 LIMIT 2", *span)
    return (await _shown(books, rows, with_journal=True))[0] if len(rows) == 1 else None


async def dead(books: Books, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is a place among the latter."""
    letters: list[Buried] = []
    if before is None or before > 0:
        ends, bindings = Where().and_("seq<{}", before).ends("seq DESC", limit)
        rows = await books.rows(f"SELECT {RUN} FROM (SELECT * FROM runs WHERE state={DEAD}) buried {ends}", *bindings)
        letters = [dead_run(found) for found in await _shown(books, rows)]
        if len(rows) == limit:
            return Page(items=letters, next=rows[-1]["seq"])
    older = -before if before is not None and before < 0 else None
    ends, bindings = Where().and_("b.id<{}", older).ends("b.id DESC", limit - len(letters))
    refused = await books.rows(f"SELECT {LETTER} {ends}", *bindings)
    letters += [letter_of(books, row) for row in refused]
    return Page(items=letters, next=-refused[-1][0] if len(letters) == limit and refused else None)
