"""What people ask about: a closed list of queries, newest first, in keyset pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from harken.backends.codec import dead_run, micros, steps
from harken.backends.keyset import Filling
from harken.backends.rows import (
    AUDIT,
    DOCUMENT,
    LETTER,
    RECORDED,
    RUN,
    SIGHTING,
    audit_of,
    document_of,
    letter_of,
    recorded,
    run_of,
    run_span,
    sighting_of,
    tick_of,
)
from harken.backends.run_states import DEAD, STATES
from harken.backends.sqlite.transaction import Transaction
from harken.event import Known, Recorded
from harken.feed import TickSpan
from harken.runs import Run, StepRecord
from harken.store import DeadLetter, Document, Page
from harken.store.documents import WORKFLOW

__all__ = [
    "audits",
    "counts",
    "dead",
    "documents",
    "event",
    "events",
    "events_after",
    "events_of",
    "get",
    "journal_of",
    "memory_of",
    "run",
    "runs",
    "ticks",
]


def _select_events(tx: Transaction, where: str, bindings: Sequence[Any], order: str, limit: int) -> list[Recorded]:
    sql = f"SELECT {RECORDED} FROM events e JOIN feeds f ON f.id=e.feed WHERE {where} ORDER BY e.id {order} LIMIT ?"
    return [recorded(tx, row) for row in tx.execute(sql, [*bindings, limit])]


def events(
    tx: Transaction, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    where: list[str] = ["1"]
    bindings: list[Any] = []
    if trigger:
        feed = tx.value("SELECT feed FROM triggers WHERE name=?", (trigger,)) or feed
    if feed:
        where.append("e.feed=(SELECT id FROM feeds WHERE name=?)")
        bindings.append(feed)
    if key:
        where.append("e.kid=?")
        bindings.append(tx.seal.name(key))
    if since is not None:
        where.append("e.recorded_at>=?")
        bindings.append(micros(since))

    def concerns(found: Recorded) -> bool:
        return not trigger or any(verdict.trigger == trigger for verdict in found.verdicts)

    def some(before: int | None) -> list[Recorded]:
        older, extra = ([*where, "e.id<?"], [before]) if before is not None else (where, [])
        return _select_events(tx, " AND ".join(older), [*bindings, *extra], "DESC", limit)

    return _page(some, Filling(concerns, lambda found: found.id, before, limit))


def _page(some: Callable[[int | None], list[Any]], filling: Filling) -> Page:
    while not filling.done:
        filling.add(some(filling.before))
    return filling.page()


def events_after(tx: Transaction, after: int, limit: int) -> list[Recorded]:
    return _select_events(tx, "e.id>?", [after], "ASC", limit)


def event(tx: Transaction, event_id: int) -> Recorded | None:
    found = _select_events(tx, "e.id=?", [event_id], "ASC", 1)
    return found[0] if found else None


def events_of(tx: Transaction, seq: int, first: int | None) -> list[Recorded]:
    """The events of a run, oldest first."""
    if first is not None:
        return _select_events(tx, "e.id=?", [first], "ASC", 1)
    return _select_events(tx, "e.id IN (SELECT event FROM run_events WHERE run=?)", [seq], "ASC", 100_000)


def memory_of(tx: Transaction, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    row = tx.row(
        f"SELECT {SIGHTING} FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=?) AND mid=?",
        (feed, tx.seal.name(memory_id)),
    )
    return None if row is None else sighting_of(tx, row)


def journal_of(tx: Transaction, seq: int) -> tuple[StepRecord, ...]:
    rows = tx.execute("SELECT record FROM journal WHERE run=? ORDER BY n", (seq,))
    return steps(tx.seal.open(row[0]) for row in rows)


def _run(tx: Transaction, row: tuple[Any, ...], *, with_journal: bool) -> Run:
    names = tx.trigger_name(row[2]), _workflow_name(tx, row[3])
    journal = journal_of(tx, row[0]) if with_journal else ()
    return run_of(tx, row, *names, _keys_of(tx, row[0], row[5]), journal)


def _keys_of(tx: Transaction, seq: int, first: int | None) -> list[tuple[int, str]]:
    if first is not None:
        rows = tx.execute("SELECT id, key FROM events WHERE id=?", (first,))
    else:
        rows = tx.execute(
            "SELECT id, key FROM events WHERE id IN (SELECT event FROM run_events WHERE run=?) ORDER BY id", (seq,)
        )
    return [(row[0], tx.text(row[1])) for row in rows]


def _workflow_name(tx: Transaction, rev: str) -> str:
    document = tx.value("SELECT value FROM documents WHERE kind=? AND name=?", (WORKFLOW, rev))
    return "" if document is None else str(tx.json(document)["name"])


def runs(
    tx: Transaction, trigger: str, status: str, workflow: str, event_id: int | None, before: int | None, limit: int
) -> Page:
    where: list[str] = ["1"]
    bindings: list[Any] = []
    if trigger:
        where.append("trigger=(SELECT id FROM triggers WHERE name=?)")
        bindings.append(trigger)
    if status:
        where.append(f"state={STATES.index(status) if status in STATES else -1}")
    if event_id is not None:
        where.append("(event=? OR seq IN (SELECT run FROM run_events WHERE event=?))")
        bindings.extend((event_id, event_id))

    def some(before: int | None) -> list[tuple[int, Run]]:
        older, extra = ([*where, "seq<?"], [before]) if before is not None else (where, [])
        sql = f"SELECT {RUN} FROM runs WHERE {' AND '.join(older)} ORDER BY seq DESC LIMIT ?"
        rows = tx.execute(sql, [*bindings, *extra, limit]).fetchall()
        return [(row[0], _run(tx, row, with_journal=False)) for row in rows]

    def of_workflow(item: tuple[int, Run]) -> bool:
        return not workflow or item[1].workflow == workflow

    page = _page(some, Filling(of_workflow, lambda item: item[0], before, limit))
    return Page(items=[run for _, run in page.items], next=page.next)


def run(tx: Transaction, run_id: str) -> Run | None:
    span = run_span(run_id)
    if span is None:
        return None
    rows = tx.execute(f"SELECT {RUN} FROM runs WHERE id BETWEEN ? AND ? LIMIT 2", span).fetchall()
    return _run(tx, rows[0], with_journal=True) if len(rows) == 1 else None


def dead(tx: Transaction, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is a place among the latter."""
    letters: list[DeadLetter] = []
    if before is None or before > 0:
        sql = f"SELECT {RUN} FROM runs WHERE state={DEAD} AND seq<? ORDER BY seq DESC LIMIT ?"
        rows = tx.execute(sql, (2**62 if before is None else before, limit)).fetchall()
        letters = [dead_run(_run(tx, row, with_journal=False)) for row in rows]
        if len(rows) == limit:
            return Page(items=letters, next=rows[-1][0])
    horizon = -before if before is not None and before < 0 else 2**62
    sql = f"SELECT {LETTER} WHERE b.id<? ORDER BY b.id DESC LIMIT ?"
    rows = tx.execute(sql, (horizon, limit - len(letters))).fetchall()
    letters += [letter_of(tx, row) for row in rows]
    return Page(items=letters, next=-rows[-1][0] if len(letters) == limit and rows else None)


def ticks(tx: Transaction, feed: str, limit: int) -> list[TickSpan]:
    id = tx.value("SELECT id FROM feeds WHERE name=?", (feed,))
    current = tx.execute(
        """SELECT span_start, span_end, span_count, span_result, span_seen, 0, NULL, 0.0 FROM feeds
        WHERE id=? AND span_result IS NOT NULL""",
        (id,),
    ).fetchall()
    closed = tx.execute(
        """SELECT started_at, ended_at, count, result, seen, new, error, seconds FROM ticks WHERE feed=?
        ORDER BY id DESC LIMIT ?""",
        (id, limit),
    ).fetchall()
    return [tick_of(tx, feed, row) for row in [*current, *closed][:limit]]


def counts(tx: Transaction) -> dict[str, int]:
    found = {f"runs_{STATES[row[0]]}": row[1] for row in tx.execute("SELECT state, count(*) FROM runs GROUP BY state")}
    found["events"] = tx.value("SELECT count(*) FROM events")
    found["refused_events"] = tx.value("SELECT count(*) FROM buried")
    return found


def get(tx: Transaction, kind: str, name: str) -> Document | None:
    found = documents(tx, kind, name)
    return found[0] if found else None


def documents(tx: Transaction, kind: str, name: str = "") -> list[Document]:
    sql = f"SELECT {DOCUMENT} FROM documents WHERE kind=? AND (?='' OR name=?) ORDER BY name"
    return [document_of(tx, row) for row in tx.execute(sql, (kind, name, name))]


def audits(tx: Transaction, before: int | None, limit: int) -> Page:
    sql = f"SELECT {AUDIT} FROM audit WHERE id<? ORDER BY id DESC LIMIT ?"
    rows = tx.execute(sql, (2**62 if before is None else before, limit)).fetchall()
    return Page(items=[audit_of(tx, row) for row in rows], next=rows[-1][0] if len(rows) == limit else None)
