"""Steps that decide: filter, if, switch. They are pure, and are walked through again when a run resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame, walk
from harken.run.plan import Block, Kind, Made
from harken.run.signals import Filtered

__all__ = ["FILTER", "IF", "SWITCH"]


class FilterWords(Strict):
    condition: str | bool


class IfWords(Strict):
    condition: str | bool
    then: list[Any]
    otherwise: list[Any] = Field(default_factory=list, alias="else")


class CaseWords(Strict):
    when: str | bool
    steps: list[Any]


class SwitchWords(Strict):
    on: Any = None
    cases: dict[str | int | bool, list[Any]] | list[CaseWords]
    default: list[Any] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_way(self) -> SwitchWords:
        if isinstance(self.cases, list) and self.on is not None:
            raise ValueError("cases with when: decide for themselves; leave on: out, or write cases as a mapping")
        if not isinstance(self.cases, list) and self.on is None:
            raise ValueError("cases as a mapping need on:, the value to compare")
        return self


def _filter(params: FilterWords, builder: Compiler) -> Made:
    condition = builder.condition(params.condition, "condition")

    async def act(frame: Frame) -> Any:
        decision = frame.scope.decide(condition)
        if decision.outcome == "false":
            raise Filtered(decision.reason)
        return {"passed": True}

    return Made(act=act, instant=True)


def _if(params: IfWords, builder: Compiler) -> Made:
    condition = builder.condition(params.condition, "condition")
    then, otherwise = builder.block(params.then, "then"), builder.block(params.otherwise, "else")

    async def act(frame: Frame) -> Any:
        chosen, steps = ("then", then) if frame.scope.holds(condition) else ("else", otherwise)
        return await walk(frame.execution, steps, frame.scope, f"{frame.path}.{chosen}.")

    return Made(act=act, instant=_instant(then) and _instant(otherwise))


def _switch(params: SwitchWords, builder: Compiler) -> Made:
    default = builder.block(params.default, "default")
    if isinstance(params.cases, list):
        return _by_condition(params.cases, default, builder)
    on = builder.value(params.on, "on")
    blocks = {_word(case): builder.block(steps, "cases", str(case)) for case, steps in params.cases.items()}

    async def act(frame: Frame) -> Any:
        value = _word(on(frame.names))
        place = f"cases[{value}]" if value in blocks else "default"
        return await walk(frame.execution, blocks.get(value, default), frame.scope, f"{frame.path}.{place}.")

    return Made(act=act, instant=all(map(_instant, (default, *blocks.values()))))


def _by_condition(cases: list[CaseWords], default: Block, builder: Compiler) -> Made:
    made = [
        (builder.condition(case.when, "cases", at, "when"), builder.block(case.steps, "cases", at, "steps"))
        for at, case in enumerate(cases)
    ]

    async def act(frame: Frame) -> Any:
        for at, (condition, steps) in enumerate(made):
            if frame.scope.holds(condition):
                return await walk(frame.execution, steps, frame.scope, f"{frame.path}.cases[{at}].")
        return await walk(frame.execution, default, frame.scope, f"{frame.path}.default.")

    return Made(act=act, instant=all(map(_instant, (default, *(steps for _, steps in made)))))


def _word(value: Any) -> str:
    """Cases are keys in YAML, so they are compared as the words a person would write."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or isinstance(value, Mapping | list) else str(value)


def _instant(steps: Block) -> bool:
    return all(step.instant for step in steps)


FILTER = Kind(name="filter", params=FilterWords, build=_filter, pure=True, replays=True)
IF = Kind(name="if", params=IfWords, build=_if, pure=True, replays=True)
SWITCH = Kind(name="switch", params=SwitchWords, build=_switch, pure=True, replays=True)
