"""Runs as people see them: in pages, one with its journal, and the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from harken.runs import Run
from harken.store import Buried, Page
from harken.stores.postgres.books import Books, moment, moment_or_none
from harken.stores.postgres.records import event, full_page, journals_of
from harken.stores.postgres.states import DEAD, STATES
from harken.stores.postgres.where import Where

__all__ = ["dead", "run", "runs"]

LATEST = 2**53
"""The largest instant that is shown; beyond it lies never."""


async def _shown(books: Books, rows: Sequence[Any], *, with_journal: bool = False) -> list[Run]:
    keys = await _keys_of(books, rows)
    names = await books.name_triggers(row["trigger"] for row in rows)
    workflows = await _workflow_names(books, {row["workflow_rev"] for row in rows})
    journals = await journals_of(books, [row["seq"] for row in rows]) if with_journal else {}
    return [
        Run(
            id=row["id"].hex(),
            trigger=names.get(row["trigger"], ""),
            workflow=workflows.get(row["workflow_rev"], ""),
            workflow_rev=row["workflow_rev"],
            status=cast(Any, STATES[row["state"]]),
            event_keys=tuple(key for _, key in keys.get(row["seq"], ())),
            event_ids=tuple(event_id for event_id, _ in keys.get(row["seq"], ())),
            input=books.json(row["input"]),
            output=books.json(row["output"]),
            attempt=row["attempt"],
            priority=row["priority"],
            hold=row["hold"] or "",
            due_at=moment(min(row["due_at"], LATEST)),
            created_at=moment(row["created_at"]),
            started_at=moment_or_none(row["started_at"]),
            finished_at=moment_or_none(row["finished_at"]),
            error=books.text(row["error"]),
            cancel_requested=row["cancel_requested"],
            waiting_for=row["waiting_for"] or "" if STATES[row["state"]] == "waiting" else "",
            parent=row["parent"].hex() if row["parent"] else "",
            replay_of=row["replay_of"].hex() if row["replay_of"] else "",
            journal=journals.get(row["seq"], ()),
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
        rows = await books.rows(f"SELECT * FROM runs {ends}", *bindings)
        return list(zip((row["seq"] for row in rows), await _shown(books, rows), strict=True))

    def wanted(item: tuple[int, Run]) -> bool:
        return not workflow or item[1].workflow == workflow

    page = await full_page(some, wanted, lambda item: item[0], before, limit)
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
    prefix = run_id.lower()
    try:
        low = bytes.fromhex(prefix.ljust(32, "0"))
        high = bytes.fromhex(prefix.ljust(32, "f"))
    except ValueError:
        return None
    rows = await books.rows("SELECT * FROM runs WHERE id BETWEEN $1 AND $2 LIMIT 2", low, high)
    return (await _shown(books, rows, with_journal=True))[0] if len(rows) == 1 else None


async def dead(books: Books, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is a place among the latter."""
    letters: list[Buried] = []
    if before is None or before > 0:
        ends, bindings = Where().and_("seq<{}", before).ends("seq DESC", limit)
        rows = await books.rows(f"SELECT * FROM (SELECT * FROM runs WHERE state={DEAD}) buried {ends}", *bindings)
        letters = [_dead_run(found) for found in await _shown(books, rows)]
        if len(rows) == limit:
            return Page(items=letters, next=rows[-1]["seq"])
    older = -before if before is not None and before < 0 else None
    ends, bindings = Where().and_("b.id<{}", older).ends("b.id DESC", limit - len(letters))
    columns = "SELECT b.id, f.name, b.key, b.reason, b.at FROM buried b JOIN feeds f ON f.id=b.feed"
    refused = await books.rows(f"{columns} {ends}", *bindings)
    for id, feed, key, reason, at in refused:
        where = {"trigger": feed, "key": books.text(key), "reason": books.text(reason), "at": moment(at)}
        letters.append(Buried(id=f"event-{id}", what="event", **where))
    return Page(items=letters, next=-refused[-1][0] if len(letters) == limit and refused else None)


def _dead_run(found: Run) -> Buried:
    return Buried(
        id=found.id,
        what="run",
        trigger=found.trigger,
        key=", ".join(found.event_keys),
        reason=found.error,
        at=found.finished_at or found.created_at,
    )
