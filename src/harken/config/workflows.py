"""Workflow files: one workflow each, refused alone when anything in it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from pydantic import Field

from harken.config.findings import Path, Place, Report, elsewhere
from harken.config.loaded import revision
from harken.config.resolver import Made, Resolver
from harken.config.settings import Models
from harken.config.triggers import read_trigger
from harken.config.validate import Strict, check
from harken.config.yaml.nodes import Node, Scalar, Table, locate, plain, shown
from harken.errors import HarkenError
from harken.feed import Trigger
from harken.runs import Workflow

__all__ = [
    "Checker",
    "Entry",
    "Flaw",
    "WorkflowFile",
    "check_prices",
    "clashes",
    "name_of",
    "read_workflow",
    "unpriced",
    "uses",
]


_PLACE: Path = ("trigger", "budget", "usd_per_day")


def check_prices(trigger: Trigger | None, definition: Any, models: Models, node: Node, report: Report) -> None:
    """Warn of every model that the workflow asks and that has no price, where the trigger limits dollars."""
    if trigger is None or trigger.budget is None or trigger.budget.usd_per_day is None:
        return
    for model in sorted(set(unpriced(definition, models))):
        message, fix = f"{model} has no price, so it counts as 0", f"Add it under models.prices: {model}"
        report.warn(locate(node, _PLACE, key=True), _PLACE, message, fix, "no_price")


def unpriced(definition: Any, models: Models) -> Iterator[str]:
    """The models without a price among those that llm steps name; what a template names is not known yet."""
    for name in _asked(definition):
        model = getattr(models, name or "default", None) if ":" not in name else name
        model = str(model or models.default or name)
        if "{{" not in model and model != "echo" and not {name or "default", model} & set(models.prices):
            yield model


def _asked(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "llm" in (value.get("action"), value.get("type")):
            yield str(value.get("model") or "")
        for inner in value.values():
            yield from _asked(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _asked(inner)


def clashes(claims: Mapping[str, Sequence[Place]], entries: Mapping[str, Entry]) -> Iterator[tuple[str, Report]]:
    """The workflows and jobs that share a name, or the address of a webhook, with the places of the others.

    `claims` has the places of each name; `entries` are those that are right in all else.
    """
    for name, places in claims.items():
        if len(places) > 1:
            yield name, _told(f"the name {name} is taken", places, places)
    by_path: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if entry.made is not None and entry.made.feed.path and len(claims[name]) == 1:
            by_path.setdefault(entry.made.feed.path, []).append(name)
    for path, names in by_path.items():
        places = [claims[name][0] for name in names]
        for name in names if len(names) > 1 else ():
            yield name, _told(f"the webhook {path} is taken", claims[name][:1], places)


def _told(what: str, own: Sequence[Place], all: Sequence[Place]) -> Report:
    report = Report()
    for place in own:
        others = elsewhere(place, sorted(all, key=lambda at: (at.file, at.line)))
        report.error(place, ("name",), f"{what} by {others} as well", f"Change it in {place.file} or there", "clash")
    return report


# where steps have steps of their own; anything else in a step is its data
_NESTED = ("steps", "then", "else", "default", "cases", "branches")


def uses(steps: Any, path: Path = ("steps",)) -> Iterator[tuple[Path, str]]:
    """Yield the integration that each step names, with the place of the name."""
    for at, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, list):
            yield from uses(step, (*path, at))
        elif isinstance(step, Mapping):
            yield from _used(step, (*path, at))


def _used(step: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    key = "action" if "action" in step else "type"
    action, channel = step.get(key), step.get("channel")
    if isinstance(action, str) and "." in action:
        yield (*path, key), action.rpartition(".")[0]
    if action == "notify" and isinstance(channel, str) and "{{" not in channel:
        yield (*path, "channel"), channel
    for name in _NESTED:
        inner = step.get(name)
        if isinstance(inner, Mapping):
            for case, block in inner.items():
                yield from uses(block, (*path, name, case))
        else:
            yield from uses(inner, (*path, name))


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


def read_workflow(node: Node, file: str, around: Resolver, checker: Checker | None, report: Report) -> Entry | None:
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


def _check_accounts(node: Table, around: Resolver, report: Report) -> None:
    steps = node.items.get("steps")
    for path, name in uses(plain(steps)) if steps is not None else ():
        around.need(name, locate(node, path), report, path)
