"""What a compiled workflow says about itself: whether it waits, whether it is empty, what its steps are."""

from __future__ import annotations

from typing import Any

import pytest

from harken.run.compiled_workflows import compile_workflow
from harken.run.plan import Plan, Step
from harken.runs import Workflow
from tests.run.world import do, steps

FILTER = {"action": "filter", "condition": "true"}
SET = {"action": "transform", "set": {"a": 1}}
WAIT = {"action": "wait", "for": "1h"}


def plan(definition: Any) -> Plan:
    return compile_workflow(Workflow(name="main", rev="main@1", definition=definition))


def only(step: dict[str, Any]) -> Step:
    (compiled,) = plan(steps(step)).steps
    return compiled


@pytest.mark.parametrize(
    ("given", "instant"),
    [
        ([], True),
        ([FILTER, SET, {"action": "emit", "event": "x"}], True),
        ([FILTER, do()], False),
        ([WAIT], False),
        ([{"if": "true", "then": [SET]}], True),
        ([{"if": "true", "then": [SET], "else": [do()]}], False),
        ([{"action": "switch", "on": "x", "cases": {"x": [SET]}, "default": [FILTER]}], True),
        ([{"action": "switch", "on": "x", "cases": {"x": [SET]}, "default": [WAIT]}], False),
        ([{"action": "switch", "cases": [{"when": "true", "steps": [do()]}]}], False),
        ([{"action": "foreach", "items": [1], "steps": [SET]}], False),
    ],
)
def test_a_plan_is_instant_when_no_step_of_it_can_wait(given: list[Any], instant: bool) -> None:
    assert plan({"steps": given}).instant is instant


def setting(value: str) -> dict[str, Any]:
    return {"action": "transform", "set": {"x": value}}


@pytest.mark.parametrize(
    ("given", "early"),
    [
        ([], True),
        ([FILTER, SET], True),
        ([setting("{{.event.run}}"), setting("{{range .event.items}}{{.}}{{end}}")], True),
        ([do()], False),
        ([{"action": "emit", "event": "x"}], False),
        ([{"if": "true", "then": [{"action": "emit", "event": "x"}]}], False),
        ([setting("{{.run.id}}")], False),
        ([setting("{{run.id}}")], False),
        ([setting("{{range .event.items}}{{$.run.id}}{{end}}")], False),
        ([setting("{{with $}}{{.run.id}}{{end}}")], False),
        ([setting("{{$all := .}}{{$all.run.id}}")], False),
        ([setting('{{index . "run"}}')], False),
        ([setting("{{if .event.x}}{{else}}{{.run.attempt}}{{end}}")], False),
        ([{"if": "run.attempt > 1", "then": [SET]}], False),
        ([{**SET, "if": "size(run.id) > 3"}], False),
        ([{**SET, "on_error": "fallback", "fallback": "{{.run.id}}"}], False),
    ],
)
def test_a_plan_is_early_when_it_is_instant_emits_nothing_and_does_not_read_its_run(
    given: list[Any], early: bool
) -> None:
    assert plan({"steps": given}).early is early


def test_outputs_that_read_the_run_need_it() -> None:
    assert not plan({"outputs": {"id": "{{.run.id}}"}}).early
    assert plan({"outputs": {"id": "{{.event.id}}"}}).early


@pytest.mark.parametrize(
    ("definition", "empty"),
    [
        ({}, True),
        ({"steps": []}, True),
        (steps(SET), False),
        ({"inputs": ["a"]}, False),
        ({"outputs": {"a": 1}}, False),
    ],
)
def test_a_plan_is_empty_when_nothing_has_to_be_executed(definition: Any, empty: bool) -> None:
    assert plan(definition).empty is empty


@pytest.mark.parametrize(
    ("step", "pure", "replays"),
    [
        (SET, True, False),
        (FILTER, True, True),
        ({"if": "true", "then": []}, True, True),
        ({"action": "parallel", "branches": [[SET]]}, True, True),
        (WAIT, True, False),
        (do(), False, False),
        ({"action": "http", "url": "https://x"}, False, False),
        ({"action": "shell", "command": "true"}, False, False),
        ({"action": "workflow", "workflow": "x"}, False, False),
    ],
)
def test_a_step_with_an_effect_is_not_pure_and_control_flow_replays(
    step: dict[str, Any], pure: bool, replays: bool
) -> None:
    compiled = only(step)
    assert (compiled.pure, compiled.replays) == (pure, replays)


@pytest.mark.parametrize(
    ("step", "timeout"),
    [
        ({"action": "http", "url": "https://x"}, 30),
        ({"action": "http", "url": "https://x", "timeout": "5s"}, 5),
        (do(), 60),
        (SET, None),
        ({"action": "approve", "prompt": "?", "timeout": "1h"}, None),
    ],
    ids=["of its kind", "its own", "of services", "none", "of the question and not of the act"],
)
def test_the_time_limit_of_a_step(step: dict[str, Any], timeout: float | None) -> None:
    assert only(step).timeout == timeout


def test_a_step_without_an_id_is_named_by_its_action_and_number() -> None:
    assert [step.id for step in plan(steps(do(), SET, do("mine"))).steps] == ["desk_do_1", "transform_2", "mine"]
