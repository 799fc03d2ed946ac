from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from harken.demo.lost_and_duplicate_count import RecordedOutcome, Summary, compare
from harken.demo.scenarios.incidents_news_and_deploys import occurrence
from harken.event import Recorded
from harken.runs import Run, RunState

AT = datetime(2026, 1, 5, tzinfo=UTC)


def event(number: int, **data: Any) -> Recorded:
    return Recorded(
        id=number,
        feed="f",
        key=f"k{number}",
        subject="s",
        state=None,
        type="t",
        occurred_at=AT,
        recorded_at=AT,
        data=data,
    )


def run(name: str, *events: int, status: RunState = "done") -> Run:
    return Run(
        id=name,
        trigger="uid",
        workflow="w",
        workflow_rev="r",
        status=status,
        event_ids=events,
        due_at=AT,
        created_at=AT,
    )


def outcome(events: list[Recorded], *runs: Run) -> RecordedOutcome:
    return RecordedOutcome(events={one.id: one for one in events}, runs=tuple(("triage", one) for one in runs))


def summary(found: RecordedOutcome, *expected: str, pages: dict[str, set[str]] | None = None) -> Summary:
    return compare(found, {"triage": expected}, pages or {}, occurrence, seconds=1.0, rate_limited=0, late=0)


def test_an_occurrence_with_one_finished_run_is_neither_lost_nor_doubled():
    result = summary(outcome([event(1, revision="INC-1.1")], run("a", 1)), "INC-1.1")

    assert result.good
    assert (result.events_at_source, result.recorded, result.runs) == (1, 1, 1)


def test_a_message_that_nobody_can_read_is_one_dead_letter_or_lost():
    def counted(dead_letters: int) -> tuple[bool, int, int]:
        found = RecordedOutcome(events={}, runs=(), dead_letters=dead_letters)
        result = compare(found, {}, {}, occurrence, refused=1, seconds=1.0, rate_limited=0, late=0)
        assert result.dead_letters == dead_letters
        return result.good, result.lost, result.unexpected

    assert counted(1) == (True, 0, 0)
    assert counted(0) == (False, 1, 0)
    assert counted(2) == (False, 0, 1)


def test_an_occurrence_without_a_finished_run_is_lost():
    result = summary(outcome([event(1, revision="INC-1.1")], run("a", 1, status="running")), "INC-1.1", "INC-2.1")

    assert result.lost == 2
    assert result.recorded == 1
    assert result.lost_examples == ("triage INC-1.1", "triage INC-2.1")
    assert not result.good


def test_two_runs_for_one_occurrence_are_a_duplicate():
    found = outcome([event(1, revision="INC-1.1"), event(2, revision="INC-1.1")], run("a", 1), run("b", 2))

    assert summary(found, "INC-1.1").duplicate == 1


def test_two_messages_with_different_keys_about_one_occurrence_are_a_duplicate():
    found = outcome([event(1, revision="INC-1.1")], run("a", 1))

    assert summary(found, "INC-1.1", pages={"INC-1.1": {"x"}}).duplicate == 0
    assert summary(found, "INC-1.1", pages={"INC-1.1": {"x", "y"}}).duplicate == 1


def test_a_digest_run_counts_for_each_of_its_events():
    found = outcome([event(1, id="news-1"), event(2, id="news-2")], run("a", 1, 2))

    assert summary(found, "news-1", "news-2").good


def test_a_run_for_something_that_was_not_expected_is_not_good():
    result = summary(outcome([event(1, revision="INC-1.1")], run("a", 1)))

    assert result.unexpected == 1
    assert not result.good
