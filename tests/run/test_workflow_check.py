"""Mistakes in workflows: each is found before anything runs, with its place and what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from harken.errors import Misconfigured
from harken.run.compiled_workflows import WorkflowCache, check_workflow, compile_workflow
from harken.run.plan import Problem
from harken.runs import Workflow
from harken.store import Document
from harken.testing.clock import START
from tests.run.world import do, steps


class Doing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: str
    count: int = 1


ACTIONS = {"desk.do": Doing}


def the_problem(definition: Any, **more: Any) -> Problem:
    (problem,) = check_workflow(definition, **more)
    return problem


def where(definition: Any) -> tuple[str | int, ...]:
    return the_problem(definition).path


def test_an_unknown_action_is_told_with_the_nearest_one() -> None:
    problem = the_problem(steps({"action": "htpt", "url": "https://x"}))
    assert (problem.path, problem.suggestion) == (("steps", 0, "action"), 'Did you mean "http"?')


def test_an_unknown_key_is_told_with_the_nearest_one() -> None:
    problem = the_problem(steps({"action": "llm", "promt": "x", "prompt": "y"}))
    assert (problem.path, problem.message) == (("steps", 0, "promt"), "unknown key 'promt'")
    assert problem.suggestion == 'Did you mean "prompt"?'


def test_a_common_key_may_be_misspelt_too() -> None:
    assert the_problem(steps({"action": "filter", "condition": "true", "timout": "3s"})).suggestion == (
        'Did you mean "timeout"?'
    )


def test_a_missing_parameter_is_told() -> None:
    problem = the_problem(steps({"action": "http"}))
    assert (problem.path, problem.message) == (("steps", 0, "url"), "is missing")


def test_a_step_without_an_action_is_told() -> None:
    problem = the_problem(steps({"url": "https://x"}))
    assert problem.message == "a step needs an action"
    assert problem.suggestion.startswith("Add one of agent, approve, ")


def test_an_empty_action_is_none() -> None:
    problem = the_problem(steps({"action": "", "channel": "x"}))
    assert (problem.path, problem.message) == (("steps", 0, "action"), "there is no action ''")


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ({"action": "llm", "prompt": "{{.a"}, ("prompt",)),
        ({"action": "http", "url": "https://x", "json": {"a": ["{{nothing .b}}"]}}, ("json",)),
        ({"action": "filter", "condition": "event.n >"}, ("condition",)),
        (do("a", **{"if": "event.n >"}), ("if",)),
        (do("a", x="{{.a"), ("x",)),
        (do("a", timeout="soon"), ("timeout",)),
        (do("a", timeout=30), ("timeout",)),
        (do("a", retry={"max_attempts": 0}), ("retry", "max_attempts")),
        (do("a", on_error="explode"), ("on_error",)),
        (do("a", on_error="fallback"), ("on_error",)),
        (do("a b"), ("id",)),
        ({"action": "wait", "for": "a while"}, ("for",)),
        ({"action": "wait"}, ()),
        ({"action": "switch", "cases": {"a": []}}, ()),
        ({"action": "shell", "command": "rm {{.trigger.event.name}}"}, ("command",)),
        ({"action": "http", "url": "x", "json": {}, "body": "x"}, ()),
        ({"action": "if", "condition": "true", "then": [{"action": "nothing"}]}, ("then", 0, "action")),
        ({"action": "foreach", "items": [], "steps": [{"action": "llm"}]}, ("steps", 0, "prompt")),
        ({"action": "parallel", "branches": {"a": [{"action": "llm"}]}}, ("branches", "a", 0, "prompt")),
        ({"action": "switch", "cases": [{"when": "1 +", "steps": []}]}, ("cases", 0, "when")),
        ("http", ()),
    ],
)
def test_a_mistake_is_found_at_its_place(step: Any, place: tuple[Any, ...]) -> None:
    assert where(steps(step)) == ("steps", 0, *place)


def test_every_problem_is_told_at_once() -> None:
    found = check_workflow(steps({"action": "llm"}, {"action": "nothing"}, outputs={"a": "{{.b"}, extra=1))
    assert [problem.path for problem in found] == [
        ("extra",),
        ("steps", 0, "prompt"),
        ("steps", 1, "action"),
        ("outputs", "a"),
    ]


def test_two_steps_of_one_name_are_told() -> None:
    assert where(steps(do("a"), do("a"))) == ("steps", 1, "id")


def test_branches_may_use_the_same_names() -> None:
    assert check_workflow(steps({"if": "true", "then": [do("a")], "else": [do("a")]})) == []


def test_service_actions_are_checked_when_they_are_known() -> None:
    assert check_workflow(steps(do("a"))) == []
    assert the_problem(steps({"action": "desk.doo"}), actions=ACTIONS).suggestion == 'Did you mean "desk.do"?'
    assert check_workflow(steps(do("a", to="x", count=2)), actions=ACTIONS) == []
    assert the_problem(steps(do("a", too="x", to="y")), actions=ACTIONS).suggestion == 'Did you mean "to"?'
    assert the_problem(steps(do("a", to="y", count="many")), actions=ACTIONS).path == ("steps", 0, "count")


def test_what_a_template_makes_of_a_parameter_is_not_judged_before_the_run() -> None:
    assert check_workflow(steps(do("a", to="{{.x}}", count="{{.n}}")), actions=ACTIONS) == []
    assert the_problem(steps(do("a", count="{{.n}}")), actions=ACTIONS).path == ("steps", 0, "to")
    assert the_problem(steps(do("a", to="{{.x}}", coutn=1)), actions=ACTIONS).suggestion == 'Did you mean "count"?'


def test_type_names_the_action_too() -> None:
    assert check_workflow(steps({"type": "llm", "prompt": "x"}, {"type": "emit", "event": "a.b"})) == []


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        ("title", ("inputs",)),
        ([1], ("inputs", 0)),
        ({"a": {"type": "strnig"}}, ("inputs", "a", "type")),
        ({"a": {"type": "integer", "default": "x"}}, ("inputs", "a", "default")),
        ({"a": {"type": "string", "defualt": "x"}}, ("inputs", "a", "defualt")),
    ],
)
def test_a_wrong_declaration_of_an_input_is_told(inputs: Any, place: tuple[Any, ...]) -> None:
    assert where(steps(inputs=inputs)) == place


@pytest.mark.parametrize("definition", [None, [], "steps", {"steps": {}}, {"steps": "x"}, {"outputs": [1]}])
def test_garbage_is_a_problem_and_not_a_crash(definition: Any) -> None:
    assert len(check_workflow(definition)) <= 1


def test_compiling_a_wrong_workflow_says_where_and_how_many() -> None:
    with pytest.raises(Misconfigured, match=r"workflow 'w': steps\.0\.prompt: is missing \(and 1 more\)"):
        compile_workflow(Workflow(name="w", rev="r", definition=steps({"action": "llm"}, {"action": "http"})))


def test_only_workflows_that_never_wait_are_instant() -> None:
    pure = {"if": "true", "then": [{"action": "transform", "set": {"a": 1}}]}
    plans = [
        compile_workflow(Workflow(name="w", rev="r", definition=definition))
        for definition in ({}, steps(pure), steps(pure, do("a")), steps({**pure, "else": [do("a")]}))
    ]
    assert [plan.instant for plan in plans] == [True, True, False, False]
    assert [plan.empty for plan in plans] == [True, False, False, False]


class Shelf:
    """A registry with one stored definition that refers to a secret."""

    async def get(self, kind: str, name: str) -> Any:
        value = {"name": "w", "definition": steps({"action": "transform", "set": {"a": "${TOKEN}"}})}
        return Document(kind=kind, name=name, value=value, revision=1, updated_at=START)


async def test_stored_references_become_secrets_when_compiled_and_again_after_forget() -> None:
    seen: list[Any] = []
    shelf: Any = Shelf()

    def reveal(definition: Any) -> Any:
        seen.append(definition)
        return definition

    workflows = WorkflowCache(shelf, reveal=reveal)
    assert await workflows.get("r") is await workflows.get("r")
    workflows.forget()
    assert workflows.peek("r") is None
    await workflows.get("r")
    assert len(seen) == 2
