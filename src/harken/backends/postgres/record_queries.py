"""Queries about events, runs, dead letters and feeds: newest first, in keyset pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from harken.backends.codec import dead_run, decode_steps, micros
from harken.backends.columnar_event_history import MARGIN_US, as_history, first_id_since, outcome_reader
from harken.backends.page_builder import PageBuilder
from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.feeds_and_triggers import feed_states, trigger_states
from harken.backends.postgres.statement_builder import Where
from harken.backends.postgres.transaction_with_row_cache import Transaction
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
from harken.event import Known, Recorded
from harken.feed import FeedState, TickSpan, TriggerState
from harken.runs import Run, StepRecord
from harken.store import Backlog, DeadLetter, History, Page

__all__ = ["PostgresRecords", "events_of", "events_of_ids", "journals_of", "oldest_writer"]

TAIL_PATIENCE_US = 30_000_000
"""How long `events_after` waits for a lower id. Our transactions end sooner, whatever else runs on the server."""

OLDEST_WRITER = """SELECT greatest(harken_now() - $1, coalesce(min((extract(epoch FROM xact_start) * 1000000)::bigint),
9223372036854775807)) FROM pg_stat_activity
WHERE datname=current_database() AND backend_xid IS NOT NULL AND pid<>pg_backend_pid()"""

_EVENTS = "FROM events e JOIN feeds f ON f.id=e.feed"


class PostgresRecords(DatabaseUser):
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
        return await self._database.autocommit(_events_after, after, limit, writes=False)

    async def event(self, event_id: int) -> Recorded | None:
        return await self._database.read(_event, event_id)

    async def events_by_id(self, event_ids: Sequence[int]) -> Sequence[Recorded]:
        return await self._database.read(events_of_ids, list(event_ids))

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
        return await self._database.read(_history, feed, trigger, since, until, after, limit)

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
        return await self._database.read(feed_states, "removed_at IS NULL AND name=ANY($1)", list(names))

    async def triggers(
        self, *, names: Collection[str] | None = None, after: str = "", limit: int | None = None
    ) -> Sequence[TriggerState]:
        if names is not None:
            found = await self._database.read(trigger_states, "t.removed_at IS NULL AND t.name=ANY($4)", list(names))
        elif not after and limit is None:
            found = await self._database.read(trigger_states)
        else:
            found = await self._database.read(trigger_states, _FOLLOWING, after, limit)
        # the order of the database may be that of a language
        return sorted(found, key=lambda state: state.name)

    async def ticks(self, feed: str, *, limit: int = 20) -> Sequence[TickSpan]:
        return await self._database.read(_ticks, feed, limit)

    async def backlogs(self) -> Mapping[str, Backlog]:
        return await self._database.read(_backlogs)

    async def counts(self) -> Mapping[str, int]:
        return await self._database.read(_counts)


_FOLLOWING = """t.id IN (SELECT id FROM triggers WHERE removed_at IS NULL AND name COLLATE "C" > $4
ORDER BY name COLLATE "C" LIMIT $5)"""


async def _events(
    tx: Transaction, feed: str, key: str, trigger: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    if trigger:
        feed = await tx.value("SELECT feed FROM triggers WHERE name=$1", trigger) or feed
    kid = tx.seal.name(key) if key else None
    begin = micros(since) if since is not None else None

    async def read_below(before: int | None) -> list[Recorded]:
        where = Where().and_("e.id<{}", before).and_("e.kid={}", kid).and_("e.recorded_at>={}", begin)
        # adding 0 keeps the planner from looking for a key through all events of the feed
        where.and_(f"e.feed{'+0' if key else ''}=(SELECT id FROM feeds WHERE name={{}})", feed or None)
        clause, bindings = where.clause("e.id DESC", limit)
        return [recorded_of(tx, row) for row in await tx.rows(f"SELECT {RECORDED} {_EVENTS} {clause}", *bindings)]

    def concerns(found: Recorded) -> bool:
        return not trigger or any(verdict.trigger == trigger for verdict in found.verdicts)

    return await _fill_page(read_below, PageBuilder(concerns, lambda found: found.id, before, limit))


async def _fill_page(read_below: Callable[[int | None], Awaitable[list[Any]]], filling: PageBuilder) -> Page:
    while not filling.done:
        filling.add(await read_below(filling.before))
    return filling.page()


async def _events_after(tx: Transaction, after: int, limit: int) -> list[Recorded]:
    """Events up to the first below whose id a commit under way may still insert one, so that none is missed.

    Not in one transaction: the writers must be read before the rows are.
    """
    oldest = await oldest_writer(tx)
    rows = await tx.rows(
        f"SELECT {RECORDED}, e.written_at {_EVENTS} WHERE e.id>$1 ORDER BY e.id LIMIT $2", after, limit
    )
    return [recorded_of(tx, row) for row in takewhile(lambda row: row["written_at"] < oldest, rows)]


async def oldest_writer(tx: Transaction) -> int:
    """Since when the oldest transaction under way writes: what was written before is complete."""
    return int(await tx.value(OLDEST_WRITER, TAIL_PATIENCE_US))


async def events_of_ids(tx: Transaction, ids: Sequence[int]) -> list[Recorded]:
    """These events, the newest first, without those that were deleted."""
    rows = await tx.rows(f"SELECT {RECORDED} {_EVENTS} WHERE e.id=ANY($1::bigint[]) ORDER BY e.id DESC", ids)
    return [recorded_of(tx, row) for row in rows]


async def _event(tx: Transaction, event_id: int) -> Recorded | None:
    row = await tx.row(f"SELECT {RECORDED} {_EVENTS} WHERE e.id=$1", event_id)
    return recorded_of(tx, row) if row is not None else None


async def _history(
    tx: Transaction, feed: str, trigger: str, since: datetime | None, until: datetime | None, after: int, limit: int
) -> History:
    begin, end = micros(since) if since else None, micros(until) if until else None
    if begin and not after:
        after = await _first_since(tx, begin) - 1
    # what follows was recorded later, also if the clock was set back a little
    last = None if end is None else await _first_since(tx, end + 2 * MARGIN_US)
    where = Where().and_("feed=(SELECT id FROM feeds WHERE name={})", feed).and_("id>{}", after)
    where.and_("id<={}", last).and_("recorded_at>={}", begin).and_("recorded_at<{}", end)
    clause, bindings = where.clause("id", limit)
    rows = await tx.rows(f"SELECT id, type, occurred_at, recorded_at, data, verdicts FROM events {clause}", *bindings)
    opened, outcome_in = tx.seal.open, outcome_reader(trigger)
    return as_history(
        [
            (id, kind, occurred, recorded, opened(data), outcome_in(opened(verdicts)))
            for id, kind, occurred, recorded, data, verdicts in rows
        ],
        limit,
    )


async def _first_since(tx: Transaction, since: int) -> int:
    search = first_id_since(since, await tx.value("SELECT max(id) FROM events") or 0)
    try:
        wanted = next(search)
        while True:
            row = await tx.row("SELECT recorded_at FROM events WHERE id>=$1 ORDER BY id LIMIT 1", wanted)
            wanted = search.send(None if row is None else row[0])
    except StopIteration as found:
        return int(found.value)


async def _memory_of(tx: Transaction, feed: str, memory_id: str) -> tuple[Known, datetime, datetime] | None:
    row = await tx.row(
        f"SELECT {MEMORY} FROM memory WHERE feed=(SELECT id FROM feeds WHERE name=$1) AND mid=$2",
        feed,
        tx.seal.name(memory_id),
    )
    return None if row is None else memory_of(tx, row)


async def _runs(
    tx: Transaction,
    trigger: str,
    status: str,
    workflow: str,
    event_id: int | None,
    before: int | None,
    limit: int,
    journals: bool,
) -> Page:
    state = None if not status else STATES.index(status) if status in STATES else -1
    seqs = None if event_id is None else await _runs_of(tx, event_id)

    async def read_below(before: int | None) -> list[tuple[int, Run]]:
        where = Where().and_("seq<{}", before).and_("state={}", state)
        where.and_("trigger=(SELECT id FROM triggers WHERE name={})", trigger or None)
        where.and_("seq=ANY({}::bigint[])", seqs)
        clause, bindings = where.clause("seq DESC", limit)
        rows = await tx.rows(f"SELECT {RUN} FROM runs {clause}", *bindings)
        return list(zip((row["seq"] for row in rows), await _load_runs(tx, rows, with_journal=journals), strict=True))

    def wanted(item: tuple[int, Run]) -> bool:
        return not workflow or item[1].workflow == workflow

    page = await _fill_page(read_below, PageBuilder(wanted, lambda item: item[0], before, limit))
    return Page(items=[found for _, found in page.items], next=page.next)


async def _runs_of(tx: Transaction, event_id: int) -> list[int]:
    """The runs that its verdicts name, and those that gathered it or were started for it by hand."""
    found = await _event(tx, event_id)
    named = [bytes.fromhex(verdict.run_id) for verdict in found.verdicts if verdict.run_id] if found else []
    rows = await tx.rows(
        """SELECT seq FROM runs WHERE id=ANY($1::bytea[]) AND event=$2
        UNION SELECT run FROM run_events WHERE event=$2""",
        named,
        event_id,
    )
    return [row[0] for row in rows]


async def _run(tx: Transaction, run_id: str) -> Run | None:
    span = run_span(run_id)
    if span is None:
        return None
    rows = await tx.rows(f"SELECT {RUN} FROM runs WHERE id BETWEEN $1 AND $2 LIMIT 2", *span)
    return (await _load_runs(tx, rows, with_journal=True))[0] if len(rows) == 1 else None


async def _load_runs(tx: Transaction, rows: Sequence[Any], *, with_journal: bool = False) -> list[Run]:
    """Rows of RUN with the names of triggers and workflows, and the keys of events."""
    keys = await _event_keys(tx, rows)
    names = await tx.trigger_names(row["trigger"] for row in rows)
    workflows = await _workflow_names(tx, {row["workflow_rev"] for row in rows})
    journals = await journals_of(tx, [row["seq"] for row in rows]) if with_journal else {}
    return [
        run_of(
            tx,
            row,
            names.get(row["trigger"], ""),
            workflows.get(row["workflow_rev"], ""),
            keys.get(row["seq"], ()),
            journals.get(row["seq"], ()),
        )
        for row in rows
    ]


async def _event_keys(tx: Transaction, rows: Sequence[Any]) -> dict[int, list[tuple[int, str]]]:
    """Ids and keys of the events of each run, oldest first."""
    found: dict[int, list[tuple[int, str]]] = {}
    owned = await tx.rows(
        """SELECT r.seq, e.id, e.key FROM runs r JOIN events e ON e.id=r.event WHERE r.seq=ANY($1::bigint[])
        UNION SELECT g.run, e.id, e.key FROM run_events g JOIN events e ON e.id=g.event
        WHERE g.run=ANY($1::bigint[]) ORDER BY 2""",
        [row["seq"] for row in rows],
    )
    for seq, event_id, key in owned:
        found.setdefault(seq, []).append((event_id, tx.text(key)))
    return found


async def _workflow_names(tx: Transaction, revs: set[str]) -> dict[str, str]:
    rows = await tx.rows("SELECT name, value FROM documents WHERE kind='workflow' AND name=ANY($1::text[])", list(revs))
    return {rev: str(tx.json(value)["name"]) for rev, value in rows}


async def _dead(tx: Transaction, before: int | None, limit: int) -> Page:
    """Dead runs, newest first, then refused events; a negative `before` is the id of a refused event."""
    letters: list[DeadLetter] = []
    if before is None or before > 0:
        clause, bindings = Where().and_("seq<{}", before).clause("seq DESC", limit)
        rows = await tx.rows(f"SELECT {RUN} FROM (SELECT * FROM runs WHERE state={DEAD}) dead {clause}", *bindings)
        letters = [dead_run(found) for found in await _load_runs(tx, rows)]
        if len(rows) == limit:
            return Page(items=letters, next=rows[-1]["seq"])
    older = -before if before is not None and before < 0 else None
    clause, bindings = Where().and_("b.id<{}", older).clause("b.id DESC", limit - len(letters))
    refused = await tx.rows(f"SELECT {LETTER} {clause}", *bindings)
    letters += [letter_of(tx, row) for row in refused]
    return Page(items=letters, next=-refused[-1][0] if len(letters) == limit and refused else None)


async def _ticks(tx: Transaction, feed: str, limit: int) -> list[TickSpan]:
    rows = await tx.rows(
        """(SELECT span_start, span_end, span_count, span_result, span_seen, 0::bigint, NULL::bytea, 0.0::float8
        FROM feeds WHERE name=$1 AND span_result IS NOT NULL)
        UNION ALL
        (SELECT started_at, ended_at, count, result, seen, new, error, seconds FROM ticks
        WHERE feed=(SELECT id FROM feeds WHERE name=$1) ORDER BY id DESC LIMIT $2) LIMIT $2""",
        feed,
        limit,
    )
    return [tick_of(tx, feed, row) for row in rows]


_BACKLOGS = f"""
SELECT t.name, {HELD}::bigint, r.hold, count(*) FROM runs r JOIN triggers t ON t.id=r.trigger
WHERE r.state={HELD} GROUP BY t.name, r.hold
UNION ALL SELECT t.name, {DEAD}::bigint, '', count(*)
FROM (SELECT trigger FROM runs WHERE state={DEAD} ORDER BY seq DESC LIMIT {MOST_COUNTED}) r
JOIN triggers t ON t.id=r.trigger GROUP BY t.name
UNION ALL SELECT t.name, {READY}::bigint, '', count(*)
FROM (SELECT trigger, attempt FROM runs WHERE state={READY}
ORDER BY priority DESC, due_at DESC LIMIT {MOST_COUNTED}) r
JOIN triggers t ON t.id=r.trigger WHERE r.attempt>1 GROUP BY t.name"""
# what is tried again is due later than what is new, so it is among those that are due last


async def _backlogs(tx: Transaction) -> dict[str, Backlog]:
    return backlogs_of(await tx.rows(_BACKLOGS))


# each state but `done` has a partial index, so only the whole is counted row by row, in the narrowest index
_COUNTS = " UNION ALL ".join(
    [
        *(f"SELECT {state}, count(*) FROM runs WHERE state={state}" for state in range(len(STATES)) if state != DONE),
        "SELECT -1, count(*) FROM runs",
    ]
)


async def _counts(tx: Transaction) -> dict[str, int]:
    by_state = dict(await tx.rows(_COUNTS))
    by_state[DONE] = by_state.pop(-1) - sum(by_state.values())
    found = {f"runs_{STATES[state]}": number for state, number in sorted(by_state.items()) if number}
    found["events"] = await tx.value("SELECT count(*) FROM events")
    found["refused_events"] = await tx.value("SELECT count(*) FROM buried")
    return found


async def events_of(tx: Transaction, seqs: Sequence[int]) -> dict[int, list[Recorded]]:
    """The events of runs that gathered them or were started by hand, oldest first, by seq."""
    found: dict[int, list[Recorded]] = {}
    if seqs:
        rows = await tx.rows(
            f"""SELECT {EVENT_OF_RUN}, g.run FROM run_events g JOIN events e ON e.id=g.event JOIN feeds f ON f.id=e.feed
            WHERE g.run=ANY($1::bigint[]) ORDER BY e.id""",
            seqs,
        )
        for row in rows:
            found.setdefault(row["run"], []).append(recorded_of(tx, row))
    return found


async def journals_of(tx: Transaction, seqs: Sequence[int]) -> dict[int, tuple[StepRecord, ...]]:
    found: dict[int, list[bytes]] = {}
    if seqs:
        rows = await tx.rows("SELECT run, record FROM journal WHERE run=ANY($1::bigint[]) ORDER BY run, n", seqs)
        for run, sealed in rows:
            found.setdefault(run, []).append(tx.seal.open(sealed))
    return {run: decode_steps(records) for run, records in found.items()}
