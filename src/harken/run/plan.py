"""A compiled workflow: what the executor walks through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from harken.run.retry import Retry
from harken.run.scope import Resolve

if TYPE_CHECKING:
    from pydantic import BaseModel

    from harken.language.cel import Condition
    from harken.run.compiler import Compiler
    from harken.run.execute import Frame

__all__ = ["Act", "Block", "Kind", "Made", "OnError", "Plan", "Problem", "Shaped", "Step"]

Act: TypeAlias = "Callable[[Frame], Awaitable[Any]]"
OnError = Literal["fail", "ignore", "fallback"]
ONCE = Retry()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong in a workflow, and where: `("steps", 0, "prompt")`."""

    path: tuple[str | int, ...]
    message: str
    suggestion: str = ""


class Shaped(msgspec.Struct, frozen=True):
    """A step's answer with facts beside it: `steps.ID.response`, and each of `beside` as `steps.ID.<name>`."""

    response: Any
    beside: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One compiled step.

    `pure`: without effect outside the run, so it may be executed again. `replays`: control flow, executed again on
    resume so that its inner steps are passed through. `instant`: never waits, nor do the steps in it.
    `shaped`: its act returns Shaped.
    """

    id: str
    action: str
    act: Act
    when: Condition | None = None
    timeout: float | None = None
    retry: Retry = ONCE
    on_error: OnError = "fail"
    fallback: Resolve | None = None
    pure: bool = False
    replays: bool = False
    instant: bool = False
    shaped: bool = False


Block: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What a kind builds of its parameters: the act, and whether the steps inside ever wait."""

    act: Act
    instant: bool = False


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of step: the parameters it takes, and how they become an act.

    `own_timeout`: `timeout:` is a parameter of the kind (`Builder.timeout`), not a limit on the act.
    """

    name: str
    params: type[BaseModel]
    build: Callable[[Any, Compiler], Made]
    timeout: float | None = None
    pure: bool = False
    replays: bool = False
    shaped: bool = False
    own_timeout: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A workflow at one revision, ready to run. `instant`: no step of it ever waits; `empty`: it does nothing."""

    name: str
    rev: str
    steps: Block
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outputs: Mapping[str, Resolve] = field(default_factory=dict)
    instant: bool = False
    empty: bool = False
