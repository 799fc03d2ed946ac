"""Steps and inputs as a person writes them: what they compile to, and every problem with its place."""

from __future__ import annotations

from typing import Any

import pytest

from harken.errors import Misconfigured
from harken.run.compiler import Compiler, fill_inputs, parse_inputs
from harken.run.retry import Retry
from harken.run.steps import KINDS

SET = {"action": "transform", "set": {"a": 1}}


def compiled(*steps: Any) -> Compiler:
    compiler = Compiler(KINDS, None)
    compiler.steps(list(steps), "steps")
    return compiler


def places(compiler: Compiler) -> list[str]:
    return [".".join(map(str, problem.path)) for problem in compiler.problems]


@pytest.mark.parametrize(
    ("step", "place", "message"),
    [
        ("http", "steps.0", "a step must be a mapping such as {action: http, url: …}"),
        ({}, "steps.0", "a step needs an action"),
        ({"action": "nothing"}, "steps.0.action", "there is no action 'nothing'"),
        ({"type": "nothing"}, "steps.0.type", "there is no action 'nothing'"),
        ({"action": "http"}, "steps.0.url", "is missing"),
        ({**SET, "more": 1}, "steps.0.more", "unknown key 'more'"),
        ({**SET, "on_error": "fallback"}, "steps.0.on_error", "on_error: fallback needs a fallback: value"),
        ({"action": "if", "condition": "true", "then": {}}, "steps.0.then", "Input should be a valid list"),
        ({"action": "switch", "cases": {"a": []}}, "steps.0", "cases as a mapping need on:, the value to compare"),
        ({"action": "wait", "for": "soon"}, "steps.0.for", "'soon' is not a duration"),
    ],
)
def test_a_problem_is_found_at_its_place(step: Any, place: str, message: str) -> None:
    (problem,) = compiled(step).problems
    assert (".".join(map(str, problem.path)), problem.message.startswith(message)) == (place, True)


def test_all_problems_are_found_at_once_also_those_in_inner_steps() -> None:
    inner = {"if": "event.", "then": [{"action": "http"}, SET], "else": [{"action": "nothing"}]}
    loop = {"action": "foreach", "items": "{{.x", "steps": [{"action": "wait", "for": "soon"}]}
    assert places(compiled(inner, loop, {"action": "llm"})) == [
        "steps.0.condition",
        "steps.0.then.0.url",
        "steps.0.else.0.action",
        "steps.1.items",
        "steps.1.steps.0.for",
        "steps.2.prompt",
    ]


def test_an_id_is_unique_within_its_list_only() -> None:
    same = {**SET, "id": "a"}
    assert places(compiled(same, same)) == ["steps.1.id"]
    assert places(compiled(same, {"if": "true", "then": [same], "else": [same]})) == []


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (None, Retry(max_attempts=1, backoff=1.0)),
        ({}, Retry(max_attempts=3, backoff=1.0)),
        ({"max_attempts": 5, "backoff": "2m"}, Retry(max_attempts=5, backoff=120.0)),
    ],
)
def test_the_retry_of_a_step(retry: Any, expected: Retry) -> None:
    compiler = Compiler(KINDS, None)
    (step,) = compiler.steps([SET if retry is None else {**SET, "retry": retry}])
    assert (step.retry, compiler.problems) == (expected, [])


@pytest.mark.parametrize(
    ("declared", "inputs"),
    [
        (None, {}),
        (["a"], {"a": {"required": True}}),
        ({"a": 5, "b": {"x": 1}}, {"a": {"default": 5}, "b": {"default": {"x": 1}}}),
        ({"a": {"type": "string", "default": "x"}}, {"a": {"type": "string", "default": "x"}}),
    ],
    ids=["none", "names", "defaults", "declarations"],
)
def test_inputs_may_be_names_defaults_or_declarations(declared: Any, inputs: Any) -> None:
    assert parse_inputs(declared) == (inputs, [])


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        ("a", ("inputs",)),
        (["a", 1], ("inputs", 1)),
        ({"a": {"type": "strin"}}, ("inputs", "a", "type")),
        ({"a": {"type": "integer", "default": "x"}}, ("inputs", "a", "default")),
        ({"a": {"type": "integer", "defualt": 1}}, ("inputs", "a", "defualt")),
    ],
)
def test_a_wrong_declaration_is_found_at_its_place(declared: Any, path: tuple[str | int, ...]) -> None:
    (problem,) = parse_inputs(declared)[1]
    assert problem.path == path


@pytest.mark.parametrize(
    ("declaration", "given", "filled"),
    [
        ({"default": 5}, {}, 5),
        ({"default": 5}, {"a": 6}, 6),
        ({"default": 5}, {"a": None}, 5),
        ({}, {}, None),
        ({"type": "number"}, {"a": 1.5}, 1.5),
        ({"type": "object"}, {"a": {"b": 1}}, {"b": 1}),
        ({"required": True, "default": 5}, {}, 5),
    ],
)
def test_an_input_is_filled_in(declaration: Any, given: Any, filled: Any) -> None:
    assert fill_inputs({"a": declaration}, given)["a"] == filled


@pytest.mark.parametrize(
    ("declaration", "given"),
    [
        ({"required": True}, {}),
        ({"required": True}, None),
        ({"type": "integer"}, {"a": True}),
        ({"type": "number"}, {"a": "5"}),
        ({"type": "list"}, {"a": "5"}),
        ({}, ["a"]),
    ],
)
def test_an_input_that_is_missing_or_of_another_type_is_refused(declaration: Any, given: Any) -> None:
    with pytest.raises(Misconfigured):
        fill_inputs({"a": declaration}, given)


def test_undeclared_inputs_pass_as_they_are() -> None:
    assert fill_inputs({}, {"anything": 1}) == {"anything": 1}
