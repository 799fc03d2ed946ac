"""What a demo shows on a terminal: events and runs in one line each, and always the counters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from harken.demo.display import Heading, Lines, screen_lines
from harken.demo.legend import COUNTERS, VERDICTS
from harken.demo.newest_events_and_runs import Snapshot, describe_event
from harken.event import Recorded, Verdict
from harken.runs import Run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEADING = Heading(title="harken demo · http://127.0.0.1:41234 in your browser", hints=("one", "two", "Ctrl-C stops it"))
COUNTED = {"events": 4_321, "runs_done": 4_300, "runs_running": 12, "runs_failed": 3, "late": 40, "rate limited": 55}


def event(number: int, title: str = "checkout is slow", **data: Any) -> Recorded:
    return Recorded(
        id=number,
        feed="incidents",
        key=f"INC-{number}",
        subject=f"INC-{number}",
        state=None,
        type="json.item",
        occurred_at=NOON,
        recorded_at=NOON + timedelta(seconds=number),
        data={"title": title, "status": "triggered", **data},
        verdicts=(Verdict(trigger="t1", outcome="fired"), Verdict(trigger="t2", outcome="filtered", reason="low")),
    )


def run(number: int) -> Run:
    return Run(
        id=f"r{number}",
        trigger="triage",
        workflow="triage",
        workflow_rev="1",
        status="done",
        event_keys=(f"INC-{number}",),
        event_ids=(number,),
        due_at=NOON,
        created_at=NOON,
        started_at=NOON,
        finished_at=NOON + timedelta(seconds=0.25),
    )


def snapshot(events: tuple[Recorded, ...], runs: int = 40) -> Snapshot:
    return Snapshot(
        fresh=events,
        events=events,
        runs=tuple(map(run, range(runs))),
        triggers={"t1": "triage", "t2": "urgent"},
        counters=COUNTED,
    )


def lines(shown: Snapshot, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in screen_lines(HEADING, shown, width, height)]


@pytest.mark.parametrize("size", [(80, 24), (80, 20), (60, 14), (40, 10), (200, 60)])
def test_the_screen_fits_and_has_events_runs_and_counters_at_any_size(size: tuple[int, int]) -> None:
    long = tuple(event(number, "an alert with a title of several hundred letters " * 9) for number in range(40))

    shown = lines(snapshot(long), *size)

    assert len(shown) <= size[1]
    assert max(map(cell_len, shown)) <= size[0]
    assert shown[1].startswith("events 4321  runs 4300")
    assert sum("INC-" in line and "12:" in line for line in shown) >= 4, "events and runs"
    assert any(line.startswith("runs, ") for line in shown)


def test_one_line_per_event_also_with_wide_letters_line_breaks_and_escapes() -> None:
    nasty = tuple(event(number, f"障害\n\x1b[2J{'広' * 60}") for number in range(9))

    shown = lines(snapshot(nasty))

    assert max(map(cell_len, shown)) <= 80
    assert not any(letter in "".join(shown) for letter in "\n\x1b")
    assert sum("triage fired, urgent filtered" in line for line in shown) == 8


def test_every_number_and_verdict_on_the_screen_is_explained_there() -> None:
    shown = "\n".join(lines(snapshot((event(1),))))

    assert "late 40" in shown
    assert f"late: {COUNTERS['late']}" in shown, "and not cut off"
    assert f"rate limited: {COUNTERS['rate limited']}" in shown
    assert f"filtered: {VERDICTS['filtered']}" in shown
    assert "failed 3" in shown


def test_a_run_is_shown_with_what_it_is_about_how_it_ended_and_how_long_it_took() -> None:
    shown = [line for line in lines(snapshot((event(0),), runs=1)) if "done" in line]

    assert len(shown) == 1
    assert [word for word in shown[0].split() if word in ("triage", "INC-0", "done", "0.25")] == [
        "triage",
        "INC-0",
        "done",
        "0.25",
    ]


def test_before_anything_happened_it_says_so() -> None:
    shown = lines(Snapshot())

    assert any("nothing has happened yet" in line for line in shown)
    assert any("nothing has run yet" in line for line in shown)


def test_without_a_terminal_each_event_is_one_line_with_its_reasons() -> None:
    printed: list[str] = []

    Lines(printed.append, lambda feed: f"the {feed}").show(snapshot((event(7),)))

    assert len(printed) == 1
    assert printed[0].endswith(" the incidents INC-7 checkout is slow triggered: triage fired, urgent filtered (low)")


def test_an_event_without_words_is_shown_by_its_subject() -> None:
    bare = event(3, "", status="")

    assert describe_event(bare) == "INC-3"
