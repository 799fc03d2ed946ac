"""Runs of the two stores that have tables, in the form that goes to another home, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from harken.backends.encryption import Seal
from harken.backends.run_states import NEVER, READY, RUNNING, STATES
from harken.backends.table_export import Row, Sealed, known
from harken.runs import RunState
from harken.store.export_rows import MovedRun

__all__ = ["HAS_SLOT", "TableRuns"]

HAS_SLOT = "slot IS NOT NULL AND EXISTS (SELECT 1 FROM slots WHERE key=slot AND run=seq)"


class TableRuns(Sealed):
    """`triggers` has the uids of triggers by their number; the other way round where rows are written."""

    def __init__(self, seal: Seal, triggers: dict[Any, Any]) -> None:
        super().__init__(seal)
        self.triggers = triggers

    def run(
        self, row: Row, events: Sequence[int], journal: Sequence[bytes], *, by_hand: bool, has_slot: bool
    ) -> MovedRun:
        """`row` has the columns of `runs`; `events` and `journal` are what other tables have of it."""
        return MovedRun(
            seq=row[0],
            id=row[1],
            trigger=known(self.triggers, row[2], "trigger"),
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
            error=self.text(row[28]) or "",
            output=self.open(row[29]),
            journal=tuple(self.seal.open(record) for record in journal),
        )

    def of_run(self, row: MovedRun) -> Row:
        # fmt: off
        return (
            row.seq, row.id, known(self.triggers, row.trigger, "trigger"), row.workflow_rev, STATES.index(row.state),
            row.priority, NEVER if row.due_at is None else row.due_at, row.attempt, row.max_attempts, row.token,
            row.event, row.gathered, self.shut(row.input), row.slot, row.overlap or None, row.gather, row.hold or None,
            row.quiet_from, row.quiet_until, row.budgeted, row.cancel_requested, row.waiting_for or None,
            self.shut(row.answer), row.parent, row.replay_of, row.created_at, row.started_at, row.finished_at,
            self.shut_text(row.error) if row.error else None, self.shut(row.output),
        )
        # fmt: on

    def steps(self, chunk: Sequence[MovedRun]) -> list[Row]:
        """Rows of `journal`: run, n, record."""
        return [(row.seq, n, self.shut(step)) for row in chunk for n, step in enumerate(row.journal, start=1)]

    @staticmethod
    def slots(chunk: Sequence[MovedRun]) -> list[Row]:
        """Rows of `slots`: key, run."""
        return [(row.slot, row.seq) for row in chunk if row.has_slot]
