"""What the record of a step keeps for a person who looks at the run: its input, bounded and redacted, and its tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harken.errors import RetryLater
from harken.operate.output_rows import outcome_of
from harken.run.journal import INPUT_LIMIT, bound_input
from harken.runs import Run
from harken.testing import VirtualClock, virtual
from tests.run.world import do, running_world, steps


def inputs(run: Run) -> dict[str, Any]:
    return {record.path: record.input for record in run.journal}


@virtual
async def test_each_step_keeps_what_it_was_given(clock: VirtualClock, tmp_path: Path) -> None:
    workflow = steps(
        {"action": "filter", "id": "large", "condition": "inputs.n > 5"},
        {"action": "llm", "id": "ask", "prompt": "What of {{.inputs.n}}?"},
        {"action": "notify", "id": "tell", "channel": "desk", "to": "ops", "text": "it is {{.steps.ask.response}}"},
        do("note", of="{{.inputs.n}}"),
    )
    async with running_world(clock, tmp_path, workflow) as world:
        run = await world.end(n=7)
    answer = run.journal[1].output["response"]
    assert inputs(run) == {
        "large": {"condition": "inputs.n > 5"},
        "ask": {"prompt": "What of 7?"},
        "tell": {"channel": "desk", "to": "ops", "text": f"it is {answer}"},
        "note": {"of": 7},
    }


@virtual
async def test_a_step_that_fails_keeps_what_it_was_given_too(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("note", of="{{.inputs.n}}"))) as world:
        world.service.says = [ValueError("no")] * 3
        run = await world.end(n=7)
    assert [(record.status, record.input) for record in run.journal] == [("failed", {"of": 7})] * 3


@virtual
async def test_tries_within_a_try_of_the_run_are_counted(clock: VirtualClock, tmp_path: Path) -> None:
    workflow = steps(do("note", retry={"max_attempts": 3}))
    async with running_world(clock, tmp_path, workflow) as world:
        world.service.says = [RetryLater("busy")] * 4
        run = await world.end()
    assert [(record.status, record.attempt, record.retries) for record in run.journal] == [
        ("failed", 1, 2),
        ("ok", 2, 3),
    ]


def test_a_long_input_is_shortened_text_by_text() -> None:
    kept = bound_input({"prompt": "x" * 100_000, "model": "fast"})
    assert kept == {"prompt": "x" * 2_000 + "… (100000 characters)", "model": "fast"}


def test_an_input_of_many_parts_is_kept_as_the_beginning_of_its_text() -> None:
    kept = bound_input({"items": list(range(100_000))})
    assert kept.startswith('{"items":[0,1,2,')
    assert len(kept) < INPUT_LIMIT + 50


def test_an_input_that_json_cannot_hold_is_kept_as_it_is_written() -> None:
    assert bound_input({"text": "\ud800"}) == "{'text': '\\ud800'}"


FILTER = {"action": "filter", "id": "f", "condition": "inputs.go"}


@virtual
@pytest.mark.parametrize(
    "given",
    [
        [do("first"), FILTER, do("after")],
        [{"action": "if", "id": "choose", "condition": "true", "then": [FILTER]}, do("after")],
        [{"action": "switch", "id": "choose", "on": "a", "cases": {"a": [FILTER]}}, do("after")],
    ],
    ids=["at the top", "in an if", "in a switch"],
)
async def test_a_run_that_a_filter_ended_says_so(clock: VirtualClock, tmp_path: Path, given: list[Any]) -> None:
    async with running_world(clock, tmp_path, steps(*given)) as world:
        stopped, passed = await world.end(go=False), await world.end(go=True)
    assert [(run.status, outcome_of(run)) for run in (stopped, passed)] == [("done", "filtered"), ("done", "done")]


@virtual
@pytest.mark.parametrize(
    "loop",
    [
        {"action": "foreach", "id": "each", "items": [1, 2], "steps": [FILTER]},
        {"action": "parallel", "id": "both", "branches": {"a": [FILTER], "b": [do("b")]}},
    ],
    ids=["foreach", "parallel"],
)
async def test_a_run_is_done_when_a_filter_ended_only_a_part_of_it(
    clock: VirtualClock, tmp_path: Path, loop: dict[str, Any]
) -> None:
    async with running_world(clock, tmp_path, steps(loop)) as world:
        assert outcome_of(await world.end(go=False)) == "done"
