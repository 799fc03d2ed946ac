"""The values of a compiled workflow: plan, steps, and what a kind of step is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from harken.run.retry import Retry
from harken.run.scope import Resolve

if TYPE_CHECKING:
    from pydantic import BaseModel

    from harken.language.cel import Condition
    from harken.run.compiler import Compiler
    from harken.run.execute import Frame

__all__ = [
    "Bracket",
    "CompiledAct",
    "DetailedOutput",
    "OnError",
    "Plan",
    "Problem",
    "Step",
    "StepAct",
    "StepKind",
    "Steps",
]

StepAct: TypeAlias = "Callable[[Frame], Awaitable[Any]]"
"""What a step does; it returns the step's output."""
OnError = Literal["fail", "ignore", "fallback"]
ONCE = Retry()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong in a workflow, and where: the path is `("steps", 0, "prompt")`.

    `excerpt` is the line of a condition, with a caret below the place.
    """

    path: tuple[str | int, ...]
    message: str
    suggestion: str = ""
    excerpt: str = ""


class DetailedOutput(msgspec.Struct, frozen=True):
    """An output with more than a response: `steps.ID.response`, and each of `details` as `steps.ID.<name>`."""

    response: Any
    details: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One compiled step.

    `pure`: no effect outside the run, so it may be executed again. `replays`: control flow, executed again when the run
    resumes, to reach its inner steps. `instant`: neither it nor a step inside ever waits. `detailed`: its act returns
    DetailedOutput.
    """

    id: str
    action: str
    act: StepAct
    when: Condition | None = None
    timeout: float | None = None
    retry: Retry = ONCE
    on_error: OnError = "fail"
    fallback: Resolve | None = None
    pure: bool = False
    replays: bool = False
    instant: bool = False
    detailed: bool = False


Steps: TypeAlias = tuple[Step, ...]


class Bracket(Protocol):
    """What a trigger wants done around its runs. Both are journaled like the steps of the workflow.

    `first` is executed before the workflow's steps, each time the run is claimed if it `replays`; what it returns under
    `event` replaces fields of the event. `last` is executed after them: a run that it ends is not done.
    """

    @property
    def first(self) -> Step: ...

    @property
    def last(self) -> Step: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledAct:
    """What a kind compiles its parameters into. `instant`: neither the act nor a step inside ever waits."""

    act: StepAct
    instant: bool = False


@dataclass(frozen=True, kw_only=True)
class StepKind:
    """A kind of step: the parameters it takes, and how they are compiled into an act.

    `own_timeout`: `timeout:` is a parameter of the kind (`Compiler.timeout`), not a limit on the act.
    """

    name: str
    params: type[BaseModel]
    build: Callable[[Any, Compiler], CompiledAct]
    timeout: float | None = None
    pure: bool = False
    replays: bool = False
    detailed: bool = False
    own_timeout: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled revision of a workflow. `instant`: no step of it ever waits; `empty`: there is nothing to execute.

    `reads_replay`: a step asks whether its event is replayed.
    `early`: it is instant, emits nothing and does not read `run`, so it may be executed before its run is committed.
    """

    name: str
    rev: str
    steps: Steps
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outputs: Mapping[str, Resolve] = field(default_factory=dict)
    instant: bool = False
    empty: bool = False
    reads_replay: bool = False
    early: bool = False
