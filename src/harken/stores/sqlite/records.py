"""What people ask about: a closed list of queries, newest first, in keyset pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from harken.event import Known, Recorded, Verdict
from harken.feed import TickSpan
from harken.runs import Run, StepRecord
from harken.store import Buried, Document, Page
from harken.stores.journals import steps
from harken.stores.sqlite.books import Books, micros, moment, moment_or_none
from harken.stores.sqlite.queue import DEAD, STATES

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
    "run",
    "runs",
    "sighting",
    "ticks",
]

EVENT_COLUMNS = """e.id, f.name, e.key, e.subject, e.state, e.type, e.occurred_at, e.recorded_at, e.data, e.verdicts,
e.repeats, e.last_repeat_at"""
RUN_COLUMNS = """seq, id, trigger, workflow_rev, state, event, input, output, attempt, priority, hold, due_at,
created_at, started_at, finished_at, error, cancel_requested, waiting_for, parent, replay_of"""
_verdicts = msgspec.json.Decoder(tuple[Verdict, ...]).decode


def _recorded(books: Books, row: tuple[Any, ...]) -> Recorded:
    return Recorded(
        id=row[0],
        feed=row[1],
        key=books.text(row[2]),
        subject=books.text(row[3]),
        state=None if row[4] is None else books.text(row[4]),
        type=row[5],
        occurred_at=moment_or_none(row[6]),
        recorded_at=moment(row[7]),
        data=books.json(row[8]),
        verdicts=_verdicts(books.seal.open(row[9])),
        repeats=row[10],
        last_repeat_at=moment_or_none(row[11]),
    )


def _select_events(books: Books, where: str, bindings: Sequence[Any], order: str, limit: int) -> list[Recorded]:
    sql = (
        f"SELECT {EVENT_COLUMNS} FROM events e JOIN feeds f ON f.id=e.feed WHERE {where} ORDER BY e.id {order} LIMIT ?"
    )
    return [_recorded(books, row) for row in books.execute(sql, [*bindings, limit])]


def events(
    books: Books, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    where: list[str] = ["1"]
    bindings: list[Any] = []
    if trigger:
        feed = books.value("SELECT feed FROM triggers WHERE name=?", (trigger,)) or feed
    if feed:
        where.append("e.feed=(SELECT id FROM feeds WHERE name=?)")
        bindings.append(feed)
    if key:
        where.append("e.kid=?")
        bindings.append(books.seal.name(key))
    if since is not None:
        where.append("e.recorded_at>=?")
        bindings.append(micros(since))

    def concerns(found: Recorded) -> bool:
        return not trigger or any(verdict.trigger == trigger for verdict in found.verdicts)

    def some(before: int | None) -> list[Recorded]:
        older, extra = ([*where, "e.id<?"], [before]) if before is not None else (where, [])
        return _select_events(books, " AND ".join(older), [*bindings, *extra], "DESC", limit)

    return _page(some, concerns, lambda found: found.id, before, limit)


def _page(
    some: Callable[[int | None], list[Any]],
    wanted: Callable[[Any], bool],
    place: Callable[[Any], int],
    before: int | None,
    limit: int,
) -> Page:
    """Read on until the page is full: what a filter drops must not look like the end."""
    items: list[Any] = []
    while True:
        batch = some(before)
        for item in batch:
            before = place(item)
            if wanted(item):
                items.append(item)
                if len(items) == limit:
                    return Page(items=items, next=before)
        if len(batch) < limit:
            return Page(items=items)


def events_after(books: Books, after: int, limit: int) -> list[Recorded]:
    return _select_events(books, "e.id>?", [after], "ASC", limit)


def event(books: Books, event_id: int) -> Recorded | None:
    found = _select_events(books, "e.id=?", [event_id], "ASC", 1)
    return found[0] if found else None


def events_of(books: Books, seq: int, first: int | None) -> list[Recorded]:
    """The events of a run, oldest first."""
    if first is not None:
        return _select_events(books, "e.id=?", [first], "ASC", 1)
    return _select_events(books, "e.id IN (SELECT event FROM run_events WHERE run=?)", [seq], "ASC", 100_000)


def sighting(books: Books, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    row = books.row(
        """SELECT state, seq, first_seen, last_seen FROM memory
        WHERE feed=(SELECT id FROM feeds WHERE name=?) AND mid=?""",
        (feed, books.seal.name(memory_id)),
    )
    if row is None:
        return None
    state = None if row[0] is None else books.text(row[0])
    return Known(state, row[1]), moment(row[2]), moment(row[3])


def journal_of(books: Books, seq: int) -> tuple[StepRecord, ...]:
    rows = books.execute("SELECT record FROM journal WHERE run=? ORDER BY n", (seq,))
    return steps(books.seal.open(row[0]) for row in rows)


def _run(books: Books, row: tuple[Any, ...], *, with_journal: bool) -> Run:
    recorded = _keys_of(books, row[0], row[5])
    return Run(
        id=row[1].hex(),
        trigger=books.trigger_name(row[2]),
        workflow=_workflow_name(books, row[3]),
        workflow_rev=row[3],
        status=cast(Any, STATES[row[4]]),
        event_keys=tuple(key for _, key in recorded),
        event_ids=tuple(event_id for event_id, _ in recorded),
        input=books.json(row[6]),
        output=books.json(row[7]),
        attempt=row[8],
        priority=row[9],
        hold=row[10] or "",
        due_at=moment(min(row[11], 2**53)),
        created_at=moment(row[12]),
        started_at=moment_or_none(row[13]),
        finished_at=moment_or_none(row[14]),
        error=books.text(row[15]),
        cancel_requested=bool(row[16]),
        waiting_for=row[17] or "" if row[4] == STATES.index("waiting") else "",
        parent=row[18].hex() if row[18] else "",
        replay_of=row[19].hex() if row[19] else "",
        journal=journal_of(books, row[0]) if with_journal else (),
    )


def _keys_of(books: Books, seq: int, first: int | None) -> list[tuple[int, str]]:
    if first is not None:
        rows = books.execute("SELECT id, key FROM events WHERE id=?", (first,))
    else:
        rows = books.execute(
            "SELECT id, key FROM events WHERE id IN (SELECT event FROM run_events WHERE run=?) ORDER BY id", (seq,)
        )
    return [(row[0], books.text(row[1])) for row in rows]


def _workflow_name(books: Books, rev: str) -> str:
    document = books.value("SELECT value FROM documents WHERE kind='workflow' AND name=?", (rev,))
    return "" if document is None else str(books.json(document)["name"])


def runs(
    books: Books, trigger: str, status: str, workflow: str, event_id: int | None, before: int | None, limit: int
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
        sql = f"SELECT {RUN_COLUMNS} FROM runs WHERE {' AND '.join(older)} ORDER BY seq DESC LIMIT ?"
        rows = books.execute(sql, [*bindings, *extra, limit]).fetchall()
        return [(row[0], _run(books, row, with_journal=False)) for row in rows]

    page = _page(some, lambda item: not workflow or item[1].workflow == workflow, lambda item: item[0], before, limit)
    return Page(items=[run for _, run in page.items], next=page.next)


def run(books: Books, run_id: str) -> Run | None:
    prefix = run_id.lower()
    try:
        low = bytes.fromhex(prefix.ljust(32, "0"))
        high = bytes.fromhex(prefix.ljust(32, "f"))
    except ValueError:
        return None
    rows = books.execute(f"SELECT {RUN_COLUMNS} FROM runs WHERE id BETWEEN ? AND ? LIMIT 2", (low, high)).fetchall()
    return _run(books, rows[0], with_journal=True) if len(rows) == 1 else None


def dead(books: Books, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is a place among the latter."""
    letters: list[Buried] = []
    if before is None or before > 0:
        sql = f"SELECT {RUN_COLUMNS} FROM runs WHERE state={DEAD} AND seq<? ORDER BY seq DESC LIMIT ?"
        rows = books.execute(sql, (2**62 if before is None else before, limit)).fetchall()
        letters = [_dead_run(books, row) for row in rows]
        if len(rows) == limit:
            return Page(items=letters, next=rows[-1][0])
    refused = "SELECT b.id, f.name, b.key, b.reason, b.at FROM buried b JOIN feeds f ON f.id=b.feed"
    horizon = -before if before is not None and before < 0 else 2**62
    rows = books.execute(
        f"{refused} WHERE b.id<? ORDER BY b.id DESC LIMIT ?", (horizon, limit - len(letters))
    ).fetchall()
    for id, feed, key, reason, at in rows:
        where = {"trigger": feed, "key": books.text(key), "reason": books.text(reason), "at": moment(at)}
        letters.append(Buried(id=f"event-{id}", what="event", **where))
    return Page(items=letters, next=-rows[-1][0] if len(letters) == limit and rows else None)


def _dead_run(books: Books, row: tuple[Any, ...]) -> Buried:
    found = _run(books, row, with_journal=False)
    return Buried(
        id=found.id,
        what="run",
        trigger=found.trigger,
        key=", ".join(found.event_keys),
        reason=found.error,
        at=found.finished_at or found.created_at,
    )


def ticks(books: Books, feed: str, limit: int) -> list[TickSpan]:
    id = books.value("SELECT id FROM feeds WHERE name=?", (feed,))
    current = books.execute(
        """SELECT span_start, span_end, span_count, span_result, span_seen, 0, NULL, 0.0 FROM feeds
        WHERE id=? AND span_result IS NOT NULL""",
        (id,),
    ).fetchall()
    closed = books.execute(
        """SELECT started_at, ended_at, count, result, seen, new, error, seconds FROM ticks WHERE feed=?
        ORDER BY id DESC LIMIT ?""",
        (id, limit),
    ).fetchall()
    return [
        TickSpan(
            feed=feed,
            started_at=moment(row[0]),
            ended_at=moment(row[1]),
            count=row[2],
            result=row[3],
            seen=row[4],
            new=row[5],
            error=books.text(row[6]),
            seconds=row[7],
        )
        for row in [*current, *closed][:limit]
    ]


def counts(books: Books) -> dict[str, int]:
    found = {
        f"runs_{STATES[row[0]]}": row[1] for row in books.execute("SELECT state, count(*) FROM runs GROUP BY state")
    }
    found["events"] = books.value("SELECT count(*) FROM events")
    found["refused_events"] = books.value("SELECT count(*) FROM buried")
    return found


def get(books: Books, kind: str, name: str) -> Document | None:
    found = documents(books, kind, name)
    return found[0] if found else None


def documents(books: Books, kind: str, name: str = "") -> list[Document]:
    rows = books.execute(
        "SELECT kind, name, value, revision, updated_at FROM documents WHERE kind=? AND (?='' OR name=?) ORDER BY name",
        (kind, name, name),
    )
    return [
        Document(kind=row[0], name=row[1], value=books.json(row[2]), revision=row[3], updated_at=moment(row[4]))
        for row in rows
    ]


def audits(books: Books, before: int | None, limit: int) -> Page:
    rows = books.execute(
        "SELECT id, at, who, did, what, detail FROM audit WHERE id<? ORDER BY id DESC LIMIT ?",
        (2**62 if before is None else before, limit),
    ).fetchall()
    items = [
        {"at": moment(row[1]), "who": row[2], "did": row[3], "what": row[4], "detail": books.json(row[5])}
        for row in rows
    ]
    return Page(items=items, next=rows[-1][0] if len(rows) == limit else None)
