"""Workflow files: one workflow each, refused alone when anything in it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from pydantic import Field

from harken.config.findings import Path, Report
from harken.config.loaded import revision
from harken.config.resolver import Made, Surroundings
from harken.config.triggers import read_trigger
from harken.config.uses import uses
from harken.config.validate import Strict, check
from harken.config.yaml.nodes import Node, Scalar, Table, locate, plain, shown
from harken.errors import HarkenError
from harken.feed import Trigger
from harken.runs import Workflow

__all__ = ["Checker", "Entry", "Flaw", "WorkflowFile", "name_of", "read_workflow"]


class Flaw(Protocol):
    """What a workflow checker says about a step: where, what, and what to do."""

    @property
    def path(self) -> tuple[str | int, ...]: ...
    @property
    def message(self) -> str: ...
    @property
    def suggestion(self) -> str: ...


Checker = Callable[[Mapping[str, Any]], Sequence[Flaw]]


class WorkflowFile(Strict):
    """`name` is also the trigger's name. Without a trigger, other workflows and people start it."""

    name: str = Field(
        min_length=1, max_length=120, pattern=r"^[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]*[^\s/\x00-\x1f\x7f])?$"
    )
    description: str = ""
    trigger: Any = None
    inputs: Any = None
    steps: list[Any] = Field(default_factory=list)
    outputs: Any = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    workflow: Workflow
    trigger: Trigger | None = None
    made: Made | None = None


def name_of(node: Node) -> str:
    """The name a file gives its workflow, empty when it does not."""
    found = node.items.get("name") if isinstance(node, Table) else None
    return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else ""


def read_workflow(node: Node, file: str, around: Surroundings, checker: Checker | None, report: Report) -> Entry | None:
    """Return the workflow with its trigger and feed; None when anything in the file is wrong."""
    if isinstance(node, Scalar) and node.value is None:
        report.error(node.place, (), "the file is empty", "Add name:, trigger: and steps:", "missing")
        return None
    block = check(WorkflowFile, node, report)
    if not isinstance(node, Table):
        return None
    if "steps" not in node.items:
        report.error(node.place, ("steps",), "is missing", "Add steps:", "missing")
    _check_steps(node, checker, report)
    _check_accounts(node, around, report)
    definition = _definition(node)
    name = name_of(node)
    # with the name: two workflows that do the same must not be taken for each other
    rev = revision([name, definition])
    trigger = node.items.get("trigger")
    heard = read_trigger(name, rev, trigger, around, report, file) if trigger is not None and name else None
    if block is None or report.failed:
        return None
    workflow = Workflow(name=block.name, rev=rev, definition=definition)
    return Entry(workflow=workflow, trigger=heard[0] if heard else None, made=heard[1] if heard else None)


def _definition(node: Table) -> dict[str, Any]:
    """What a run needs of the file, with references in place of secrets."""
    found = {key: shown(value) for key, value in node.items.items() if key in ("steps", "inputs", "outputs")}
    return {key: value for key, value in found.items() if value is not None}


def _check_steps(node: Table, checker: Checker | None, report: Report) -> None:
    parts = {key: plain(value) for key, value in node.items.items() if key in ("steps", "inputs", "outputs")}
    definition = {key: value for key, value in parts.items() if value is not None}
    if checker is None or not isinstance(definition.get("steps"), list):
        return
    try:
        flaws = checker(definition)
    except HarkenError as error:
        report.error(node.place, ("steps",), error.message, error.fix, "step")
        return
    for flaw in flaws:
        path: Path = tuple(flaw.path)
        report.error(locate(node, path), path, flaw.message, flaw.suggestion, "step")


def _check_accounts(node: Table, around: Surroundings, report: Report) -> None:
    steps = node.items.get("steps")
    for path, name in uses(plain(steps)) if steps is not None else ():
        around.need(name, locate(node, path), report, path)
