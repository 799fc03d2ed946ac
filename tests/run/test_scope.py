"""The names that templates and conditions of a run see."""

from __future__ import annotations

from typing import Any

import pytest

from harken.errors import Misconfigured, Refused
from harken.event import Recorded
from harken.language.cel.condition import compile_condition
from harken.run.scope import Scope, compile_text, compile_value, open_scope
from harken.runs import Claimed, StepRecord
from harken.testing.clock import START


def event(n: int) -> Recorded:
    return Recorded(
        id=n,
        feed="inbox",
        key=f"k{n}",
        subject="s",
        type="mail",
        state="new",
        data={"n": n},
        occurred_at=None,
        recorded_at=START,
    )


def claimed(*events: Recorded) -> Claimed:
    return Claimed(
        id="r1",
        token=1,
        trigger="main",
        workflow_rev="main@1",
        attempt=2,
        max_attempts=3,
        events=events,
        created_at=START,
    )


def step(**given: Any) -> StepRecord:
    return StepRecord(**{"path": "a", "action": "http", "status": "ok", **given})


def scope(*events: Recorded, **inputs: Any) -> Scope:
    return open_scope(claimed(*events), inputs)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{.event.n}}", 1),
        ("{{.trigger.name}}", "main"),
        ("{{len .trigger.events}}", 2),
        ("{{.meta.feed}}", "inbox"),
        ("{{.meta.occurred_at}}", None),
        ("{{.inputs.who}}", "ana"),
        ("{{.who}}", "ana"),
        ("{{.run.attempt}}", 2),
    ],
)
def test_a_run_of_events_sees(template: str, value: Any) -> None:
    assert compile_value(template)(scope(event(1), event(2), who="ana").names) == value


def test_a_run_without_an_event_has_an_empty_one_and_no_meta() -> None:
    names = scope().names
    assert (names["event"], names["trigger"]["events"], "meta" in names) == ({}, [], False)


def test_an_input_cannot_hide_a_reserved_name() -> None:
    names = scope(event(1), **{"event": "mine", "run": "mine"}).names
    assert (names["event"], names["run"]["id"], names["inputs"]["run"]) == ({"n": 1}, "r1", "mine")


@pytest.mark.parametrize(
    ("output", "detailed", "response"),
    [
        ({"response": "hi", "status_code": 200}, True, "hi"),
        ({"response": "hi"}, False, {"response": "hi"}),
        ("text", True, "text"),
        (None, True, None),
    ],
)
def test_the_response_of_a_step(output: Any, detailed: bool, response: Any) -> None:
    place = scope()
    assert place.add_step("a", step(output=output), detailed) == response
    assert (place.names["steps"]["a"]["response"], place.names["steps"]["a"]["status"]) == (response, "ok")


def test_details_of_a_step_are_beside_its_response() -> None:
    place = scope()
    place.add_step("a", step(output={"response": "hi", "status_code": 200}), detailed=True)
    assert place.names["steps"]["a"]["status_code"] == 200


def test_a_failed_step_shows_its_error() -> None:
    place = scope()
    place.add_step("a", step(status="failed", error="busy"), detailed=False)
    assert (place.names["steps"]["a"]["status"], place.names["steps"]["a"]["error"]) == ("failed", "busy")


def test_an_iteration_sees_the_steps_outside_and_keeps_its_own() -> None:
    outer = scope()
    outer.add_step("before", step(output=1), detailed=False)
    inner = outer.nested(item="x", index=0)
    inner.add_step("inside", step(output=2), detailed=False)
    assert (inner.names["item"], set(inner.names["steps"]), set(outer.names["steps"])) == (
        "x", {"before", "inside"}, {"before"},
    )  # fmt: skip
    assert "item" not in outer.names


def test_a_condition_that_fails_is_an_error_and_not_false() -> None:
    with pytest.raises(Misconfigured, match=r"event\.nothing"):
        scope(event(1)).holds(compile_condition("event.nothing > 1"))


@pytest.mark.parametrize(("condition", "holds"), [("event.n == 1", True), ("event.n > 1", False)])
def test_a_condition_holds_or_not(condition: str, holds: bool) -> None:
    assert scope(event(1)).holds(compile_condition(condition)) is holds


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("{{.n}}", 7),
        ("n is {{.n}}", "n is 7"),
        ("plain", "plain"),
        (["{{.n}}", 1], [7, 1]),
        ({"a": {"b": "{{.n}}"}, "c": None}, {"a": {"b": 7}, "c": None}),
        (3.5, 3.5),
    ],
)
def test_templates_in_a_value_keep_their_types(value: Any, resolved: Any) -> None:
    assert compile_value(value)({"n": 7}) == resolved


def test_a_missing_field_in_a_value_is_an_error() -> None:
    with pytest.raises(Refused, match="nothing is not there"):
        compile_value({"a": ["{{.nothing}}"]})({"n": 7})


def test_a_missing_field_in_text_stays_visible_and_adds_a_warning() -> None:
    warnings: list[str] = []
    assert compile_text("hi {{.nothing}}")({}, warnings) == "hi <no value>"
    assert len(warnings) == 1


def test_text_without_a_template_stays_as_written() -> None:
    assert compile_text("{one} brace")({}, []) == "{one} brace"
