"""The line for each run, whoever reads it or does not."""

from __future__ import annotations

import queue
import threading
from datetime import UTC, datetime
from typing import Any

from harken.app.line_per_ended_run import PER_SECOND, RunLines
from harken.event import Recorded
from harken.run.worker import RunEnd
from harken.runs import Claimed
from harken.testing import HandClock

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


def end(number: int = 1, outcome: str = "done", **data: Any) -> RunEnd:
    event = Recorded(
        id=number,
        feed="f",
        key=f"INC-{number}",
        subject="",
        state=None,
        occurred_at=None,
        type="t",
        recorded_at=NOW,
        data=data,
        verdicts=(),
    )
    claimed = Claimed(
        id=f"{number:032x}",
        token=1,
        trigger="oncall",
        workflow_rev="r1",
        attempt=1,
        max_attempts=3,
        events=(event,),
        created_at=NOW,
    )
    return RunEnd(claimed=claimed, outcome=outcome, error="", seconds=0.25)


def lines_to(write: Any) -> RunLines:
    return RunLines(write, HandClock(), lambda row: row.replace(b"s3cret", b"***"), lambda rev: "flow")


async def test_a_run_is_a_row_with_trigger_subject_outcome_and_duration_without_secrets() -> None:
    written: queue.Queue[Any] = queue.Queue()
    lines = lines_to(written.put)
    lines.add(end(title="Disk full of s3cret"))
    row = written.get(timeout=120)
    assert (row["trigger"], row["event_keys"], row["outcome"], row["seconds"]) == ("oncall", ["INC-1"], "done", 0.25)
    assert (row["workflow"], row["title"]) == ("flow", "Disk full of ***")
    lines.close()


async def test_of_a_burst_only_some_are_rows_and_the_rest_is_counted() -> None:
    written: list[Any] = []
    lines = lines_to(written.append)
    for number in range(PER_SECOND + 30):
        lines.add(end(number, "filtered" if number % 2 else "done"))
    lines.close()
    assert len(written) == PER_SECOND + 1
    assert written[-1]["left_out"] == {"done": 15, "filtered": 15}


async def test_a_reader_that_does_not_read_holds_nothing_up() -> None:
    stuck = threading.Event()
    lines = lines_to(lambda row: stuck.wait(300))
    for number in range(PER_SECOND):
        lines.add(end(number))
    stuck.set()
    lines.close()


async def test_a_reader_that_is_gone_ends_the_lines_and_nothing_else() -> None:
    def broken(row: Any) -> None:
        raise BrokenPipeError("gone")

    lines = lines_to(broken)
    lines.add(end(1))
    lines.add(end(2))
    lines.close()
