"""What `explain` says of events that were gathered, skipped by a throttle, or a duplicate by their value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from harken.event import Outcome, Recorded, Verdict
from harken.feed import Join, Part, TriggerState
from harken.operate.explanations import Case, Explanation, explain_event
from harken.runs import Run

NOW = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
ORDER, PAYMENT, STAMP = (Part(name=name, by="event.id") for name in ("order", "payment", "stamp"))
JOIN = Join(parts=(ORDER, PAYMENT, STAMP), within=900)


def told(outcome: Outcome, reason: str, gather: Join | None = None, **run: Any) -> Explanation:
    trigger = TriggerState(uid="u", name="paid", epoch=1, start_line=NOW, created_at=NOW)
    event = Recorded(
        id=7,
        feed="orders",
        key="a",
        subject="a",
        state=None,
        type="order",
        occurred_at=NOW,
        recorded_at=NOW,
        data={},
    )
    plain: dict[str, Any] = {
        "trigger": "paid",
        "workflow": "w",
        "workflow_rev": "r",
        "event_keys": ("a",),
        "event_ids": (7,),
    }
    found = Run(id="r1", due_at=NOW + timedelta(minutes=15), created_at=NOW, **plain, **run) if run else None
    verdict = Verdict(trigger="paid", outcome=outcome, reason=reason, run_id="r1" if run else "")
    return explain_event(Case(trigger=trigger, event=event, verdict=verdict, run=found, now=NOW, gather=gather))


def test_a_join_tells_which_parts_are_there_which_are_missing_and_until_when() -> None:
    second = "event 2 of the run that is gathering: part payment"
    answer = told("gathered", second, JOIN, status="gathering", parts=(1,))
    assert "of its parts payment is there, order, stamp are missing" in answer.sentence
    assert answer.sentence.endswith("it is still gathering and becomes due 2026-03-02 10:15:00Z (in 15 min)")
    assert (answer.details["parts"], answer.details["missing"]) == (["payment"], ["order", "stamp"])


def test_a_join_that_missed_a_part_tells_which() -> None:
    missed = "not all parts of its join came in time"
    run = {"status": "cancelled", "parts": (0, 2), "error": missed, "finished_at": NOW}
    answer = told("gathered", "event 1 of the run that is gathering: part order", JOIN, **run)
    assert "of its parts order, stamp are there, payment is missing" in answer.sentence
    assert missed in answer.sentence


def test_a_join_that_needs_some_parts_tells_how_many() -> None:
    some = Join(parts=JOIN.parts, within=900, form="any", count=2)
    answer = told("gathered", "event 1 of the run that is gathering: part order", some, status="gathering", parts=(0,))
    assert "payment, stamp are missing (2 are enough)" in answer.sentence


def test_a_part_that_a_join_is_without_and_that_nothing_waits_for_is_explained() -> None:
    answer = told("gathered", "no run that it would end is gathering: part payment", JOIN)
    assert "is a part that a join is without: no run that it would end is gathering: part payment" in answer.sentence


def test_what_a_throttle_dropped_tells_when_the_next_may_start() -> None:
    answer = told("skipped", "the throttle allows the next run at 2026-03-02 10:05:00Z")
    assert answer.sentence.endswith("was skipped: the throttle allows the next run at 2026-03-02 10:05:00Z")


def test_what_a_join_or_a_throttle_skipped_is_not_blamed_on_overlap() -> None:
    reasons = (
        "a part that its join is without came after it",
        "the throttle allows the next run at 2026-03-02 10:05:00Z",
    )
    advice = ("Start the run for it now: harken events replay 7 --trigger paid",)
    assert [told("skipped", reason, JOIN).advice for reason in reasons] == [advice, advice]
    assert "overlap: queue" in told("skipped", "an earlier run of this key is not over", JOIN).advice[0]


def test_a_join_whose_parts_are_all_there_in_another_order_tells_which_order_it_wants() -> None:
    ordered = Join(parts=(PAYMENT, ORDER), within=900, form="then")
    missed = "not all parts of its join came in time"
    run = {"status": "cancelled", "parts": (0, 1), "error": missed, "finished_at": NOW}
    answer = told("gathered", "event 1 of the run that is gathering: part order", ordered, **run)
    assert answer.sentence.endswith("all its parts are there, but they did not happen in the order payment, then order")
