"""Rows of the SQL stores as the values that their protocols return, and the columns that these need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from harken.backends.codec import SealedTexts, decode_health, moment, moment_or_none, refused_event
from harken.backends.completely_read_spans import merge_spans, spans_of
from harken.backends.run_states_ids_and_reasons import STATES, WAITING
from harken.backends.verdicts import decode_verdicts
from harken.circuit_breaker import Health
from harken.event import Known, Recorded
from harken.feed import FeedState, TickSpan, TriggerState
from harken.runs import Run, StepRecord
from harken.store import DeadLetter, Document
from harken.store.gathering_rules import part_numbers

__all__ = [
    "AUDIT",
    "DOCUMENT",
    "EVENT_OF_RUN",
    "FEED",
    "LETTER",
    "MEMORY",
    "RECORDED",
    "RUN",
    "audit_of",
    "document_of",
    "feed_of",
    "letter_of",
    "memory_of",
    "recorded_of",
    "run_of",
    "run_span",
    "tick_of",
    "trigger_of",
]

Row = Sequence[Any]

RECORDED = """e.id, f.name, e.key, e.subject, e.state, e.type, e.occurred_at, e.recorded_at, e.data, e.verdicts,
e.repeats, e.last_repeat_at"""
EVENT_OF_RUN = RECORDED.replace("e.verdicts", "NULL")
"""RECORDED without the verdicts: who executes a run needs none, and there may be a thousand for each of its events."""
RUN = """seq, id, trigger, workflow_rev, state, event, input, output, attempt, priority, hold, due_at,
created_at, started_at, finished_at, error, cancel_requested, waiting_for, parent, replay_of, parts"""
FEED = """name, revision, cursor, watermark, next_due, health, reads, baselined, last_success, last_tick,
cover_start, cover_end, coverage, created_at, seen"""
DOCUMENT = "kind, name, value, revision, updated_at"
AUDIT = "id, at, who, did, what, detail"
LETTER = "b.id, f.name, b.key, b.reason, b.at FROM buried b JOIN feeds f ON f.id=b.feed"
MEMORY = "state, seq, first_seen, last_seen"

LATEST = 2**53
"""The latest due time that is shown: NEVER exceeds what a datetime can hold."""


def recorded_of(texts: SealedTexts, row: Row) -> Recorded:
    """A row of RECORDED or EVENT_OF_RUN."""
    return Recorded(
        id=row[0],
        feed=row[1],
        key=texts.text(row[2]),
        subject=texts.text(row[3]),
        state=None if row[4] is None else texts.text(row[4]),
        type=row[5],
        occurred_at=moment_or_none(row[6]),
        recorded_at=moment(row[7]),
        data=texts.json(row[8]),
        verdicts=() if row[9] is None else decode_verdicts(texts.seal.open(row[9])),
        repeats=row[10],
        last_repeat_at=moment_or_none(row[11]),
    )


def run_of(
    texts: SealedTexts,
    row: Row,
    trigger: str,
    workflow: str,
    events: Sequence[tuple[int, str]],
    journal: tuple[StepRecord, ...],
) -> Run:
    """A row of RUN; `events` are the ids and keys of its events, oldest first."""
    return Run(
        id=row[1].hex(),
        trigger=trigger,
        workflow=workflow,
        workflow_rev=row[3],
        status=cast(Any, STATES[row[4]]),
        event_keys=tuple(key for _, key in events),
        event_ids=tuple(event_id for event_id, _ in events),
        input=texts.json(row[6]),
        output=texts.json(row[7]),
        attempt=row[8],
        priority=row[9],
        hold=row[10] or "",
        due_at=moment(min(row[11], LATEST)),
        created_at=moment(row[12]),
        started_at=moment_or_none(row[13]),
        finished_at=moment_or_none(row[14]),
        error=texts.text(row[15]),
        cancel_requested=bool(row[16]),
        waiting_for=row[17] or "" if row[4] == WAITING else "",
        parent=row[18].hex() if row[18] else "",
        replay_of=row[19].hex() if row[19] else "",
        parts=part_numbers(row[20]),
        journal=journal,
    )


def run_span(beginning: str) -> tuple[bytes, bytes] | None:
    """The lowest and the highest id with this beginning; None if it is not hexadecimal."""
    prefix = beginning.lower()
    try:
        return bytes.fromhex(prefix.ljust(32, "0")), bytes.fromhex(prefix.ljust(32, "f"))
    except ValueError:
        return None


def feed_of(texts: SealedTexts, row: Row) -> FeedState:
    """A row of FEED."""
    return FeedState(
        name=row[0],
        revision=row[1],
        cursor=texts.json(row[2]),
        watermark=moment_or_none(row[3]),
        next_due=moment_or_none(row[4]),
        health=decode_health(texts.seal.open(row[5])) if row[5] is not None else Health(),
        reads=row[6],
        baselined=bool(row[7]),
        last_success=moment_or_none(row[8]),
        last_tick=moment_or_none(row[9]),
        coverage=tuple(merge_spans(spans_of(texts.seal, row[12], row[10], row[11]))),
        created_at=moment(row[13]),
        seen=row[14],
    )


def trigger_of(texts: SealedTexts, row: Row) -> TriggerState:
    """A row of a trigger's columns, then what it spent: runs, tokens, usd."""
    # older files have the reason as plain text
    paused = row[4] if isinstance(row[4], str) or not row[4] else texts.text(row[4])
    return TriggerState(
        uid=row[0],
        name=row[1],
        epoch=row[2],
        start_line=moment(row[3]),
        paused=paused or "",
        created_at=moment(row[5]),
        fired=row[6],
        last_fired_at=moment_or_none(row[7]),
        removed_at=moment_or_none(row[8]),
        reads_from=moment_or_none(row[9]),
        backfilling=bool(row[10]),
        done=row[11],
        runs_this_hour=int(row[12] or 0),
        tokens_today=int(row[13] or 0),
        usd_today=row[14] or 0.0,
    )


def tick_of(texts: SealedTexts, feed: str, row: Row) -> TickSpan:
    return TickSpan(
        feed=feed,
        started_at=moment(row[0]),
        ended_at=moment(row[1]),
        count=row[2],
        result=row[3],
        seen=row[4],
        new=row[5],
        error=texts.text(row[6]),
        seconds=row[7],
    )


def memory_of(texts: SealedTexts, row: Row) -> tuple[Known, datetime, datetime]:
    """A row of SIGHTING."""
    state = None if row[0] is None else texts.text(row[0])
    return Known(state, row[1]), moment(row[2]), moment(row[3])


def document_of(texts: SealedTexts, row: Row, raw: bool = False) -> Document:
    """A row of DOCUMENT; with `raw` its value is JSON."""
    value = texts.seal.open(row[2]) if raw else texts.json(row[2])
    return Document(kind=row[0], name=row[1], value=value, revision=row[3], updated_at=moment(row[4]))


def audit_of(texts: SealedTexts, row: Row) -> dict[str, Any]:
    """A row of AUDIT."""
    return {"at": moment(row[1]), "who": row[2], "did": row[3], "what": row[4], "detail": texts.json(row[5])}


def letter_of(texts: SealedTexts, row: Row) -> DeadLetter:
    """A row of LETTER."""
    return refused_event(row[0], row[1], texts.text(row[2]), texts.text(row[3]), moment(row[4]))
