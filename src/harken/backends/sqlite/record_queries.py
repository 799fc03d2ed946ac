"""Queries for people and doors: events, runs, dead letters, ticks; newest first, in keyset pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import dead_run, decode_steps, micros
from harken.backends.columnar_event_history import (
    MARGIN_US,
    as_history,
    beginning_of,
    first_id_since,
    outcome_reader,
    outcomes_of,
)
from harken.backends.page_builder import PageBuilder
from harken.backends.rows import (
    EVENT_OF_RUN,
    LETTER,
    MEMORY,
    RECORDED,
    RUN,
    letter_of,
    memory_of,
    recorded_of,
    run_of,
    run_span,
    tick_of,
)
from harken.backends.run_states_ids_and_reasons import DEAD, DONE, HELD, MOST_COUNTED, READY, STATES, backlogs_of
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.feeds_and_triggers import feed_states, trigger_states
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.event import Known, Recorded
from harken.feed import FeedState, TickSpan, TriggerState
from harken.runs import Run, StepRecord
from harken.store import Backlog, DeadLetter, History, Page
from harken.store.document_kinds import WORKFLOW

__all__ = ["SqliteRecords", "event_of_id", "events_of", "journal_of"]


class SqliteRecords(DatabaseUser):
    """The protocol Records. Both SQL stores repeat its signatures on purpose, each beside its own SQL."""

    async def events(
        self,
        *,
        feed: str = "",
        key: str = "",
        trigger: str = "",
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page:
        return await self._database.read(_events, feed, key, trigger, since, before, limit)

    async def events_after(self, after: int, limit: int = 200) -> Sequence[Recorded]:
        return await self._database.read(_events_after, after, limit)

    async def event(self, event_id: int) -> Recorded | None:
        return await self._database.read(event_of_id, event_id)

    async def events_by_id(self, event_ids: Sequence[int]) -> Sequence[Recorded]:
        return await self._database.read(_events_by_id, event_ids)

    async def history(
        self,
        feed: str,
        trigger: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        limit: int = 1000,
        brief: bool = False,
    ) -> History:
        return await self._database.read(_history, feed, trigger, since, until, after, limit, brief)

    async def memory_of(self, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
        return await self._database.read(_memory_of, feed, memory_id)

    async def runs(
        self,
        *,
        trigger: str = "",
        status: str = "",
        workflow: str = "",
        event_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
        journals: bool = False,
    ) -> Page:
        return await self._database.read(_runs, trigger, status, workflow, event_id, before, limit, journals)

    async def run(self, run_id: str) -> Run | None:
        return await self._database.read(_run, run_id)

    async def dead(self, *, before: int | None = None, limit: int = 50) -> Page:
        return await self._database.read(_dead, before, limit)

    async def feeds(self, *, names: Collection[str] | None = None) -> Sequence[FeedState]:
        if names is None:
            return await self._database.read(feed_states)
        return await self._database.read(feed_states, f"removed_at IS NULL AND {_NAMED}", (_json(names),))

    async def triggers(
        self, *, names: Collection[str] | None = None, after: str = "", limit: int | None = None
    ) -> Sequence[TriggerState]:
        if names is not None:
            return await self._database.read(trigger_states, f"removed_at IS NULL AND {_NAMED}", (_json(names),))
        if not after and limit is None:
            return await self._database.read(trigger_states)
        return await self._database.read(trigger_states, _FOLLOWING, (after, -1 if limit is None else limit))

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]:
        return await self._database.read(_ticks, feed, limit)

    async def backlogs(self) -> Mapping[str, Backlog]:
        return await self._database.read(_backlogs)

    async def counts(self) -> Mapping[str, int]:
        return await self._database.read(_counts)


_NAMED = "name IN (SELECT value FROM json_each(?))"
_FOLLOWING = "id IN (SELECT id FROM triggers WHERE removed_at IS NULL AND name>? ORDER BY name LIMIT ?)"


def _json(names: Collection[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _events(
    tx: Transaction, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    where: list[str] = ["1"]
    bindings: list[Any] = []
    if trigger:
        feed = tx.value("SELECT feed FROM triggers WHERE name=?", (trigger,)) or feed
    if feed:
        # the plus sign keeps the planner from looking for a key through all events of the feed
        where.append(f"{'+' if key else ''}e.feed=(SELECT id FROM feeds WHERE name=?)")
        bindings.append(feed)
    if key:
        where.append("e.kid=?")
        bindings.append(tx.seal.name(key))
    if since is not None:
        where.append("e.recorded_at>=?")
        bindings.append(micros(since))

    def concerns(found: Recorded) -> bool:
        return not trigger or any(verdict.trigger == trigger for verdict in found.verdicts)

    def read(before: int | None) -> list[Recorded]:
        older, extra = ([*where, "e.id<?"], [before]) if before is not None else (where, [])
        return _select_events(tx, " AND ".join(older), [*bindings, *extra], "DESC", limit)

    return _page(read, PageBuilder(concerns, lambda found: found.id, before, limit))


def _events_after(tx: Transaction, after: int, limit: int) -> list[Recorded]:
    return _select_events(tx, "e.id>?", [after], "ASC", limit)


def event_of_id(tx: Transaction, event_id: int) -> Recorded | None:
    found = _select_events(tx, "e.id=?", [event_id], "ASC", 1)
    return found[0] if found else None


def _events_by_id(tx: Transaction, event_ids: Sequence[int]) -> list[Recorded]:
    found = (event_of_id(tx, id) for id in sorted(set(event_ids), reverse=True))
    return [event for event in found if event is not None]


def _select_events(
    tx: Transaction, where: str, bindings: Sequence[Any], order: str, limit: int, columns: str = RECORDED
) -> list[Recorded]:
    sql = f"SELECT {columns} FROM events e JOIN feeds f ON f.id=e.feed WHERE {where} ORDER BY e.id {order} LIMIT ?"
    return [recorded_of(tx, row) for row in tx.execute(sql, [*bindings, limit])]


def events_of(tx: Transaction, seq: int, first: int | None) -> list[Recorded]:
    """The events of a run, oldest first, without their verdicts."""
    if first is not None:
        return _select_events(tx, "e.id=?", [first], "ASC", 1, EVENT_OF_RUN)
    gathered = "e.id IN (SELECT event FROM run_events WHERE run=?)"
    return _select_events(tx, gathered, [seq], "ASC", 100_000, EVENT_OF_RUN)


# one row with all of them: making a row for each event takes longer than reading them
# and nothing is added to them here, as each copy of megabytes takes as long as reading them
_HISTORY = """SELECT count(*), coalesce(max(id), 0), group_concat(id, x'0a'), CAST(group_concat(data, x'0a') AS BLOB),
group_concat(CASE WHEN verdicts>=:beginning AND verdicts<:following THEN substr(verdicts, :length + 1, 16)
ELSE verdicts END, x'0a'){} FROM ({})"""
_TYPES_AND_TIMES = """, group_concat(type, x'1f'), group_concat(coalesce(occurred_at, 'null'), x'0a'),
group_concat(recorded_at, x'0a')"""
_HISTORY_ROWS = """SELECT id, type, occurred_at, recorded_at, data, verdicts FROM events WHERE feed=:feed AND id>:after
AND id<:end AND recorded_at>=:since AND recorded_at<:until ORDER BY id LIMIT :limit"""
_ALWAYS = 2**62
_decode_ids = msgspec.json.Decoder(int).decode_lines
_decode_times = msgspec.json.Decoder(int | None).decode_lines


def _history(
    tx: Transaction,
    feed: str,
    trigger: str,
    since: datetime | None,
    until: datetime | None,
    after: int,
    limit: int,
    brief: bool,
) -> History:
    begin, end = micros(since) if since else 0, micros(until) if until else _ALWAYS
    if begin and not after:
        after = _first_since(tx, begin) - 1
    bindings = {
        "feed": tx.value("SELECT id FROM feeds WHERE name=?", (feed,)),
        "after": after,
        # what follows was recorded later, also if the clock was set back a little
        "end": _ALWAYS if until is None else _first_since(tx, end + 2 * MARGIN_US) + 1,
        "since": begin,
        "until": end,
        "limit": limit,
    }
    found = None if tx.seal.encrypted else _joined_history(tx, trigger, bindings, brief)
    if found is not None:
        return found
    rows = tx.execute(_HISTORY_ROWS, bindings)
    opened, outcome_in = tx.seal.open, outcome_reader(trigger)
    return as_history([(*row[:4], opened(row[4]), outcome_in(opened(row[5]))) for row in rows], limit)


def _first_since(tx: Transaction, since: int) -> int:
    search = first_id_since(since, tx.value("SELECT max(id) FROM events") or 0)
    try:
        wanted = next(search)
        while True:
            row = tx.row("SELECT recorded_at FROM events WHERE id>=? ORDER BY id LIMIT 1", (wanted,))
            wanted = search.send(None if row is None else row[0])
    except StopIteration as found:
        return int(found.value)


def _joined_history(tx: Transaction, trigger: str, bindings: dict[str, Any], brief: bool) -> History | None:
    """None if something among it cannot be joined: compressed verdicts, or payloads that are no JSON."""
    beginning = beginning_of(trigger)
    # what begins with it is not less, and less than what follows: nothing has to be cut off to compare it
    following = beginning[:-1] + bytes([beginning[-1] + 1])
    bindings = bindings | {"beginning": beginning, "following": following, "length": len(beginning)}
    try:
        [row] = tx.execute(_HISTORY.format("" if brief else _TYPES_AND_TIMES, _HISTORY_ROWS), bindings)
    except UnicodeDecodeError:
        return None
    count, last, ids, data, verdicts, *others = row
    if not count:
        return History()
    kinds = others[0].split("\x1f") if others else ()
    try:
        outcomes = outcomes_of(verdicts, trigger)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if len(outcomes) != count or len(kinds) not in (0 if brief else count, count):
        return None
    return History(
        ids=_decode_ids(ids),
        types=kinds,
        occurred_at=_decode_times(others[1]) if others else (),
        recorded_at=_decode_ids(others[2]) if others else (),
        outcomes=outcomes,
        data=data,
        next=last if count == bindings["limit"] else None,
    )


def _memory_of(tx: Transaction, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    row = tx.row(
        f"SELECT {MEMORY} FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=?) AND mid=?",
        (feed, tx.seal.name(memory_id)),
    )
    return None if row is None else memory_of(tx, row)


def _runs(
    tx: Transaction,
    trigger: str,
    status: str,
    workflow: str,
    event_id: int | None,
    before: int | None,
    limit: int,
    journals: bool,
) -> Page:
    where: list[str] = ["1"]
    bindings: list[Any] = []
    if trigger:
        where.append("trigger=(SELECT id FROM triggers WHERE name=?)")
        bindings.append(trigger)
    if status:
        where.append(_in_state(status))
    if event_id is not None:
        where.append("seq IN (SELECT seq FROM runs WHERE event=? UNION SELECT run FROM run_events WHERE event=?)")
        bindings.extend((event_id, event_id))

    def read(before: int | None) -> list[tuple[int, Run]]:
        older, extra = ([*where, "seq<?"], [before]) if before is not None else (where, [])
        sql = f"SELECT {RUN} FROM runs WHERE {' AND '.join(older)} ORDER BY seq DESC LIMIT ?"
        rows = tx.execute(sql, [*bindings, *extra, limit]).fetchall()
        return [(row[0], _run_of_row(tx, row, with_journal=journals)) for row in rows]

    def of_workflow(item: tuple[int, Run]) -> bool:
        return not workflow or item[1].workflow == workflow

    page = _page(read, PageBuilder(of_workflow, lambda item: item[0], before, limit))
    return Page(items=[run for _, run in page.items], next=page.next)


def _in_state(status: str) -> str:
    """The condition, with that of the partial index that has such runs."""
    state = STATES.index(status) if status in STATES else -1
    bound = f"state>{DONE} AND " if state > DONE else f"state<{DONE} AND " if 0 <= state < DONE else ""
    return f"{bound}state={state}"


def _run(tx: Transaction, run_id: str) -> Run | None:
    span = run_span(run_id)
    if span is None:
        return None
    rows = tx.execute(f"SELECT {RUN} FROM runs WHERE id BETWEEN ? AND ? LIMIT 2", span).fetchall()
    return _run_of_row(tx, rows[0], with_journal=True) if len(rows) == 1 else None


def _run_of_row(tx: Transaction, row: tuple[Any, ...], *, with_journal: bool) -> Run:
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


def journal_of(tx: Transaction, seq: int) -> tuple[StepRecord, ...]:
    rows = tx.execute("SELECT record FROM journal WHERE run=? ORDER BY n", (seq,))
    return decode_steps(tx.seal.open(row[0]) for row in rows)


def _page(read: Callable[[int | None], list[Any]], filling: PageBuilder) -> Page:
    while not filling.done:
        filling.add(read(filling.before))
    return filling.page()


def _dead(tx: Transaction, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is the id of a refused event."""
    letters: list[DeadLetter] = []
    if before is None or before > 0:
        sql = f"SELECT {RUN} FROM runs WHERE state={DEAD} AND seq<? ORDER BY seq DESC LIMIT ?"
        rows = tx.execute(sql, (2**62 if before is None else before, limit)).fetchall()
        letters = [dead_run(_run_of_row(tx, row, with_journal=False)) for row in rows]
        if len(rows) == limit:
            return Page(items=letters, next=rows[-1][0])
    horizon = -before if before is not None and before < 0 else 2**62
    sql = f"SELECT {LETTER} WHERE b.id<? ORDER BY b.id DESC LIMIT ?"
    rows = tx.execute(sql, (horizon, limit - len(letters))).fetchall()
    letters += [letter_of(tx, row) for row in rows]
    return Page(items=letters, next=-rows[-1][0] if len(letters) == limit and rows else None)


def _ticks(tx: Transaction, feed: str, limit: int) -> list[TickSpan]:
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


_BACKLOGS = f"""
SELECT t.name, {HELD}, r.hold, count(*) FROM runs r JOIN triggers t ON t.id=r.trigger
WHERE r.state<6 AND r.state={HELD} GROUP BY t.name, r.hold
UNION ALL SELECT t.name, {DEAD}, '', count(*)
FROM (SELECT trigger FROM runs WHERE state={DEAD} ORDER BY seq DESC LIMIT {MOST_COUNTED}) r
JOIN triggers t ON t.id=r.trigger GROUP BY t.name
UNION ALL SELECT t.name, {READY}, '', count(*)
FROM (SELECT trigger, attempt FROM runs WHERE state<6 AND state={READY}
ORDER BY priority DESC, due_at DESC LIMIT {MOST_COUNTED}) r
JOIN triggers t ON t.id=r.trigger WHERE r.attempt>1 GROUP BY t.name"""
# what is tried again is due later than what is new, so it is among those that are due last


def _backlogs(tx: Transaction) -> dict[str, Backlog]:
    return backlogs_of(tx.execute(_BACKLOGS).fetchall())


# in one statement, so that all of it is of one moment; SQLite counts a whole table quickly, but not a part of it
_COUNTS = f"""SELECT state, count(*) FROM runs WHERE state<{DONE} GROUP BY state
UNION ALL SELECT state, count(*) FROM runs WHERE state>{DONE} GROUP BY state
UNION ALL SELECT 'runs', (SELECT count(*) FROM runs)
UNION ALL SELECT 'events', (SELECT count(*) FROM events)
UNION ALL SELECT 'refused_events', (SELECT count(*) FROM buried)"""


def _counts(tx: Transaction) -> dict[str, int]:
    found = dict(tx.execute(_COUNTS).fetchall())
    by_state = {state: number for state, number in found.items() if isinstance(state, int)}
    by_state[DONE] = found["runs"] - sum(by_state.values())
    runs = {f"runs_{STATES[state]}": number for state, number in sorted(by_state.items()) if number}
    return {**runs, "events": found["events"], "refused_events": found["refused_events"]}
