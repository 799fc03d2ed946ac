"""Steps that choose what follows: filter, if, switch. They are pure, and executed again when a run resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from harken.run.compiler import Compiler, Strict
from harken.run.control_flow_exceptions import Filtered
from harken.run.execute import Frame, walk
from harken.run.plan import CompiledAct, StepKind, Steps

__all__ = ["FILTER", "IF", "SWITCH"]


class FilterBlock(Strict):
    condition: str | bool


class IfBlock(Strict):
    condition: str | bool
    then: list[Any]
    otherwise: list[Any] = Field(default_factory=list, alias="else")


class CaseBlock(Strict):
    when: str | bool
    steps: list[Any]


class SwitchBlock(Strict):
    on: Any = None
    cases: dict[str | int | bool, list[Any]] | list[CaseBlock]
    default: list[Any] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_form(self) -> SwitchBlock:
        if isinstance(self.cases, list) and self.on is not None:
            raise ValueError("cases with when: decide for themselves; leave on: out, or write cases as a mapping")
        if not isinstance(self.cases, list) and self.on is None:
            raise ValueError("cases as a mapping need on:, the value to compare")
        return self


def _filter(params: FilterBlock, compiler: Compiler) -> CompiledAct:
    condition = compiler.condition(params.condition, "condition")
    given = {"condition": params.condition}

    async def act(frame: Frame) -> Any:
        frame.input = given
        decision = frame.scope.decide(condition)
        if decision.outcome == "false":
            raise Filtered(decision.reason)
        return {"passed": True}

    return CompiledAct(act=act, instant=True)


def _if(params: IfBlock, compiler: Compiler) -> CompiledAct:
    condition = compiler.condition(params.condition, "condition")
    then, otherwise = compiler.steps(params.then, "then"), compiler.steps(params.otherwise, "else")
    given = {"condition": params.condition}

    async def act(frame: Frame) -> Any:
        frame.input = given
        chosen, steps = ("then", then) if frame.scope.holds(condition) else ("else", otherwise)
        return await walk(frame.execution, steps, frame.scope, f"{frame.path}.{chosen}.")

    return CompiledAct(act=act, instant=_instant(then) and _instant(otherwise))


def _switch(params: SwitchBlock, compiler: Compiler) -> CompiledAct:
    default = compiler.steps(params.default, "default")
    if isinstance(params.cases, list):
        return _by_condition(params.cases, default, compiler)
    on = compiler.value(params.on, "on")
    blocks = {_case_key(case): compiler.steps(steps, "cases", str(case)) for case, steps in params.cases.items()}

    async def act(frame: Frame) -> Any:
        value = _case_key(on(frame.names))
        frame.input = {"on": value}
        place = f"cases[{value}]" if value in blocks else "default"
        return await walk(frame.execution, blocks.get(value, default), frame.scope, f"{frame.path}.{place}.")

    return CompiledAct(act=act, instant=all(map(_instant, (default, *blocks.values()))))


def _by_condition(cases: list[CaseBlock], default: Steps, compiler: Compiler) -> CompiledAct:
    compiled = [
        (compiler.condition(case.when, "cases", at, "when"), compiler.steps(case.steps, "cases", at, "steps"))
        for at, case in enumerate(cases)
    ]

    async def act(frame: Frame) -> Any:
        for at, (condition, steps) in enumerate(compiled):
            if frame.scope.holds(condition):
                return await walk(frame.execution, steps, frame.scope, f"{frame.path}.cases[{at}].")
        return await walk(frame.execution, default, frame.scope, f"{frame.path}.default.")

    return CompiledAct(act=act, instant=all(map(_instant, (default, *(steps for _, steps in compiled)))))


def _case_key(value: Any) -> str:
    """Cases are keys in YAML, so values are compared as they would be written there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or isinstance(value, Mapping | list) else str(value)


def _instant(steps: Steps) -> bool:
    return all(step.instant for step in steps)


FILTER = StepKind(name="filter", params=FilterBlock, build=_filter, pure=True, replays=True)
IF = StepKind(name="if", params=IfBlock, build=_if, pure=True, replays=True)
SWITCH = StepKind(name="switch", params=SwitchBlock, build=_switch, pure=True, replays=True)
