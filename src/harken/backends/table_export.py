"""Table rows of the SQL stores to exported rows and back.

Both stores have the same columns. Exported rows have names instead of ids, and plain texts instead of encrypted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from harken.backends.codec import decode_spans, decode_trigger, micros, moment
from harken.backends.encryption import Seal
from harken.backends.run_states_ids_and_reasons import NEVER, READY, RUNNING, STATES
from harken.backends.verdicts import decode_verdicts, encode_verdicts
from harken.backends.watched_run_changes import NOT_DEALT_WITH, version
from harken.errors import Refused
from harken.event import Span
from harken.runs import RunState
from harken.store.document_kinds import COUNTER, NOT_COPIED, SEAL
from harken.store.transfer_rows import (
    ExportedAudit,
    ExportedDeadLetter,
    ExportedDocument,
    ExportedEvent,
    ExportedFeed,
    ExportedIdleSpan,
    ExportedMark,
    ExportedMemory,
    ExportedRun,
    ExportedSpending,
    ExportedTick,
    ExportedTrigger,
)

__all__ = ["COLUMNS", "COPIED_DOCUMENTS", "COUNTED", "HAS_SLOT", "Row", "Sealed", "TableRuns", "Tables", "look_up"]


Row = Sequence[Any]

COLUMNS = {
    "feeds": """name, definition, revision, cursor, watermark, next_due, health, reads, seen, baselined, last_success,
last_tick, coverage, cover_start, cover_end, span_result, span_start, span_end, span_count, span_seen, created_at,
removed_at""",
    "triggers": """uid, name, feed, definition, epoch, epoch_event, start_line, reads_from, reset_at, backfilling,
paused, fired, last_fired_at, done, created_at, removed_at""",
    "documents": "kind, name, value, revision, updated_at",
    "events": """id, feed, key, subject, state, type, occurred_at, recorded_at, repeats, last_repeat_at, verdicts,
data""",
    "memory": "feed, mid, state, absent, seq, event, first_seen, last_seen",
    "runs": """seq, id, trigger, workflow_rev, state, priority, due_at, attempt, max_attempts, token, event, gathered,
input, slot, overlap, gather, hold, quiet_from, quiet_until, budgeted, cancel_requested, waiting_for, answer, parent,
replay_of, created_at, started_at, finished_at, error, output, watched, since, parts""",
    "ticks": "feed, started_at, ended_at, count, result, seen, new, error, seconds",
    "buried": "id, feed, key, reason, payload, at",
    "audit": "at, who, did, what, detail",
}
"""The columns of each table that are copied, in this order."""

_LEFT_OUT = ", ".join(f"'{kind}'" for kind in sorted({*NOT_COPIED, SEAL, COUNTER}))

COPIED_DOCUMENTS = f"kind NOT IN ({_LEFT_OUT})"

COUNTED = {
    "feeds": "SELECT count(*) FROM feeds",
    "triggers": "SELECT count(*) FROM triggers",
    "documents": f"SELECT count(*) FROM documents WHERE {COPIED_DOCUMENTS}",
    "events": "SELECT count(*) FROM events",
    "seen keys": "SELECT count(*) FROM memory",
    "runs": "SELECT count(*) FROM runs",
    "ticks": "SELECT count(*) FROM ticks",
    "refused events": "SELECT count(*) FROM buried",
    "audits": "SELECT count(*) FROM audit",
}
"""How many rows there are of each kind."""


def look_up(names: dict[Any, Any], wanted: Any, what: str) -> Any:
    """The name or id for `wanted`. Raise Refused if there is none: the row cannot be copied."""
    found = names.get(wanted)
    if found is None:
        message = f"the store is not sound: a row belongs to a {what} that does not exist"
        raise Refused(message, fix="See all that is wrong with: harken store check")
    return found


class Sealed:
    """Encrypts and decrypts columns; NULL stays None."""

    def __init__(self, seal: Seal) -> None:
        self.seal = seal

    def open(self, sealed: bytes | None) -> bytes | None:
        return None if sealed is None else self.seal.open(sealed)

    def shut(self, plain: bytes | None) -> bytes | None:
        return None if plain is None else self.seal.shut(plain)

    def text(self, sealed: bytes | None) -> str | None:
        return None if sealed is None else self.seal.open(sealed).decode("utf-8", "surrogatepass")

    def shut_text(self, plain: str | None) -> bytes | None:
        return None if plain is None else self.seal.shut(plain.encode("utf-8", "surrogatepass"))


class Tables(Sealed):
    """Rows of all tables but `runs`. For reading, `feeds` maps ids to names; for writing, names to ids."""

    def __init__(self, seal: Seal, feeds: dict[Any, Any]) -> None:
        super().__init__(seal)
        self.feeds = feeds

    def plain(self) -> dict[type, tuple[str, Callable[[Any], Row]]]:
        """Kinds that are one row of one table: the table, and the function that makes the row."""
        return {
            ExportedDocument: ("documents", self.of_document),
            ExportedMemory: ("memory", self.of_memory),
            ExportedTick: ("ticks", self.of_tick),
            ExportedDeadLetter: ("buried", self.of_letter),
            ExportedAudit: ("audit", self.of_audit),
        }

    def _known(self, feed: Any) -> Any:
        return look_up(self.feeds, feed, "feed")

    def feed(self, row: Row) -> ExportedFeed:
        resting = None
        if row[15] is not None:
            resting = ExportedIdleSpan(result=row[15], start=row[16], end=row[17], count=row[18], seen=row[19])
        older = [] if row[12] is None else decode_spans(self.seal.open(row[12]))
        newest = [] if row[13] is None else [(row[13], row[14])]
        return ExportedFeed(
            name=row[0],
            definition=self.seal.open(row[1]),
            revision=row[2],
            cursor=self.open(row[3]),
            watermark=row[4],
            next_due=row[5],
            health=self.open(row[6]),
            reads=row[7],
            seen=row[8],
            baselined=bool(row[9]),
            last_success=row[10],
            last_tick=row[11],
            coverage=(*((micros(span.start), micros(span.end)) for span in older), *newest),
            resting=resting,
            created_at=row[20],
            removed_at=row[21],
        )

    def of_feed(self, row: ExportedFeed) -> Row:
        *older, newest = row.coverage or ((None, None),)
        spans = [Span(moment(start), moment(end)) for start, end in older if start is not None and end is not None]
        resting: Row = (None,) * 5
        if row.resting is not None:
            now = row.resting
            resting = (now.result, now.start, now.end, now.count, now.seen)
        # fmt: off
        return (
            row.name, self.shut(row.definition), row.revision, self.shut(row.cursor), row.watermark, row.next_due,
            self.shut(row.health), row.reads, row.seen, row.baselined, row.last_success, row.last_tick,
            self.shut(msgspec.json.encode(spans)) if spans else None, *newest, *resting, row.created_at, row.removed_at,
        )
        # fmt: on

    def trigger(self, row: Row, spent: Sequence[Row], marks: Sequence[Row]) -> ExportedTrigger:
        # older files have the reason as plain text
        paused = row[10] if isinstance(row[10], str) or not row[10] else self.text(row[10])
        return ExportedTrigger(
            uid=row[0],
            name=row[1],
            feed=row[2],
            definition=self.seal.open(row[3]),
            epoch=row[4],
            epoch_event=row[5],
            start_line=row[6],
            reads_from=row[7],
            reset_at=row[8],
            backfilling=bool(row[9]),
            paused=paused or "",
            fired=row[11],
            last_fired_at=row[12],
            done=row[13],
            created_at=row[14],
            removed_at=row[15],
            spent=tuple(ExportedSpending(what=what, since=since, amount=amount) for what, since, amount in spent),
            marks=tuple(ExportedMark(key=key, until=until, run=run, times=times) for key, until, run, times in marks),
        )

    def of_trigger(self, row: ExportedTrigger, *, unpaused: bytes | str) -> Row:
        # fmt: off
        return (
            row.uid, row.name, row.feed, self.shut(row.definition), row.epoch, row.epoch_event, row.start_line,
            row.start_line if row.reads_from is None else row.reads_from, row.reset_at, row.backfilling,
            self.shut_text(row.paused) if row.paused else unpaused, row.fired, row.last_fired_at, row.done,
            row.created_at, row.removed_at,
        )
        # fmt: on

    @staticmethod
    def listening(chunk: Sequence[ExportedTrigger], ids: dict[Any, Any]) -> list[Row]:
        """Rows of `trigger_feeds`: trigger, feed, backfilling."""
        return [
            (ids[row.uid], feed, row.backfilling)
            for row in chunk
            if row.removed_at is None
            for feed in decode_trigger(row.definition).feeds[1:]
        ]

    @staticmethod
    def marks(chunk: Sequence[ExportedTrigger], ids: dict[Any, Any]) -> list[Row]:
        """Rows of `marks`: trigger, key, until, run, times."""
        return [(ids[row.uid], one.key, one.until, one.run, one.times) for row in chunk for one in row.marks]

    def document(self, row: Row) -> ExportedDocument:
        value = self.seal.open(row[2])
        return ExportedDocument(kind=row[0], name=row[1], value=value, revision=row[3], updated_at=row[4])

    def of_document(self, row: ExportedDocument) -> Row:
        return row.kind, row.name, self.shut(row.value), row.revision, row.updated_at

    def event(self, row: Row) -> ExportedEvent:
        return ExportedEvent(
            id=row[0],
            feed=self._known(row[1]),
            key=self.text(row[2]) or "",
            subject=self.text(row[3]) or "",
            state=self.text(row[4]),
            type=row[5],
            occurred_at=row[6],
            recorded_at=row[7],
            repeats=row[8],
            last_repeat_at=row[9],
            verdicts=decode_verdicts(self.seal.open(row[10])),
            data=self.seal.open(row[11]),
        )

    def of_event(self, row: ExportedEvent) -> Row:
        """The columns of `events`, then `kid`, the hash of the key."""
        # fmt: off
        return (
            row.id, self._known(row.feed), self.shut_text(row.key), self.shut_text(row.subject),
            self.shut_text(row.state), row.type, row.occurred_at, row.recorded_at, row.repeats, row.last_repeat_at,
            self.shut(encode_verdicts(row.verdicts)), self.shut(row.data), self.seal.name(row.key),
        )
        # fmt: on

    def memory(self, row: Row) -> ExportedMemory:
        return ExportedMemory(
            feed=self._known(row[0]),
            mid=row[1],
            state=self.text(row[2]),
            absent=bool(row[3]),
            seq=row[4],
            event=row[5],
            first_seen=row[6],
            last_seen=row[7],
        )

    def of_memory(self, row: ExportedMemory) -> Row:
        state = self.shut_text(row.state)
        return self._known(row.feed), row.mid, state, row.absent, row.seq, row.event, row.first_seen, row.last_seen

    def tick(self, row: Row) -> ExportedTick:
        return ExportedTick(
            feed=self._known(row[0]),
            started_at=row[1],
            ended_at=row[2],
            count=row[3],
            result=row[4],
            seen=row[5],
            new=row[6],
            error=self.text(row[7]) or "",
            seconds=row[8],
        )

    def of_tick(self, row: ExportedTick) -> Row:
        error = self.shut_text(row.error) if row.error else None
        feed = self._known(row.feed)
        return feed, row.started_at, row.ended_at, row.count, row.result, row.seen, row.new, error, row.seconds

    def letter(self, row: Row) -> ExportedDeadLetter:
        texts = {"key": self.text(row[2]) or "", "reason": self.text(row[3]) or ""}
        return ExportedDeadLetter(
            id=row[0], feed=self._known(row[1]), payload=self.seal.open(row[4]), at=row[5], **texts
        )

    def of_letter(self, row: ExportedDeadLetter) -> Row:
        key, reason = self.shut_text(row.key), self.shut_text(row.reason)
        return row.id, self._known(row.feed), key, reason, self.shut(row.payload), row.at

    def audit(self, row: Row) -> ExportedAudit:
        return ExportedAudit(at=row[0], who=row[1], did=row[2], what=row[3], detail=self.seal.open(row[4]))

    def of_audit(self, row: ExportedAudit) -> Row:
        return row.at, row.who, row.did, row.what, self.shut(row.detail)


def _dealt_with(row: ExportedRun, state: int) -> int | None:
    """The column `watched`."""
    if not row.watched:
        return None
    return NOT_DEALT_WITH if row.moved else version(state, row.token)


HAS_SLOT = "slot IS NOT NULL AND EXISTS (SELECT 1 FROM slots WHERE key=slot AND run=seq)"


class TableRuns(Sealed):
    """Rows of `runs` with their journal, events and slots. `triggers` maps ids to uids; for writing, uids to ids."""

    def __init__(self, seal: Seal, triggers: dict[Any, Any]) -> None:
        super().__init__(seal)
        self.triggers = triggers

    def run(
        self, row: Row, events: Sequence[int], journal: Sequence[bytes], *, by_hand: bool, has_slot: bool
    ) -> ExportedRun:
        """`row` has the columns of `runs`; `events` and `journal` come from their own tables."""
        return ExportedRun(
            seq=row[0],
            id=row[1],
            trigger=look_up(self.triggers, row[2], "trigger"),
            workflow_rev=row[3],
            state=cast(RunState, STATES[READY if row[4] == RUNNING else row[4]]),
            priority=row[5],
            due_at=None if row[6] >= NEVER else row[6],
            attempt=row[7],
            max_attempts=row[8],
            token=row[9],
            event=row[10],
            events=tuple(events),
            by_hand=by_hand,
            gathered=row[11],
            input=self.open(row[12]),
            slot=row[13],
            has_slot=has_slot,
            overlap=row[14] or "",
            gather=row[15],
            parts=row[32],
            hold=row[16] or "",
            quiet_from=row[17],
            quiet_until=row[18],
            budgeted=bool(row[19]),
            cancel_requested=bool(row[20]),
            waiting_for=row[21] or "",
            answer=self.open(row[22]),
            parent=row[23],
            replay_of=row[24],
            created_at=row[25],
            started_at=row[26],
            finished_at=row[27],
            since=row[31],
            watched=row[30] is not None,
            moved=row[30] is not None and (row[4] == RUNNING or row[30] != version(row[4], row[9])),
            error=self.text(row[28]) or "",
            output=self.open(row[29]),
            journal=tuple(self.seal.open(record) for record in journal),
        )

    def of_run(self, row: ExportedRun) -> Row:
        state = STATES.index(row.state)
        # fmt: off
        return (
            row.seq, row.id, look_up(self.triggers, row.trigger, "trigger"), row.workflow_rev, state,
            row.priority, NEVER if row.due_at is None else row.due_at, row.attempt, row.max_attempts, row.token,
            row.event, row.gathered, self.shut(row.input), row.slot, row.overlap or None, row.gather, row.hold or None,
            row.quiet_from, row.quiet_until, row.budgeted, row.cancel_requested, row.waiting_for or None,
            self.shut(row.answer), row.parent, row.replay_of, row.created_at, row.started_at, row.finished_at,
            self.shut_text(row.error) if row.error else None, self.shut(row.output), _dealt_with(row, state), row.since,
            row.parts,
        )
        # fmt: on

    def steps(self, chunk: Sequence[ExportedRun]) -> list[Row]:
        """Rows of `journal`: run, n, record."""
        return [(row.seq, n, self.shut(step)) for row in chunk for n, step in enumerate(row.journal, start=1)]

    @staticmethod
    def slots(chunk: Sequence[ExportedRun]) -> list[Row]:
        """Rows of `slots`: key, run."""
        return [(row.slot, row.seq) for row in chunk if row.has_slot]
