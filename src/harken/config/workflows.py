"""Workflow files: read one, check its steps, accounts and prices, and find names and webhook paths used twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from pydantic import Field

from harken.config.findings import Path, Place, Report, other_places
from harken.config.loaded import revision
from harken.config.resolver import FeedSpec, Resolver
from harken.config.settings import Models
from harken.config.triggers import read_trigger
from harken.config.validate import Strict, check
from harken.config.yaml.nodes import Items, Node, Scalar, Table, locate, to_plain, to_storable
from harken.errors import HarkenError
from harken.feed import Trigger
from harken.runs import Workflow

__all__ = [
    "Checker",
    "StepProblem",
    "WorkflowEntry",
    "WorkflowFile",
    "check_prices",
    "find_clashes",
    "read_workflow",
    "used_integrations",
    "workflow_name",
]

_USD_PATH: Path = ("trigger", "budget", "usd_per_day")
# keys of a step that hold further steps
_NESTED = ("steps", "then", "else", "default", "cases", "branches")


class StepProblem(Protocol):
    """What a workflow checker reports about a step."""

    @property
    def path(self) -> tuple[str | int, ...]: ...
    @property
    def message(self) -> str: ...
    @property
    def suggestion(self) -> str: ...
    @property
    def excerpt(self) -> str: ...


Checker = Callable[[Mapping[str, Any]], Sequence[StepProblem]]


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


class WorkflowEntry(msgspec.Struct, frozen=True, kw_only=True):
    workflow: Workflow
    trigger: Trigger | None = None
    spec: FeedSpec | None = None


def read_workflow(
    node: Node, file: str, resolver: Resolver, checker: Checker | None, report: Report
) -> WorkflowEntry | None:
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
    _check_accounts(node, resolver, report)
    definition = _definition(node)
    name = workflow_name(node)
    # includes the name, so that two workflows with the same steps differ
    rev = revision([name, definition])
    trigger = node.items.get("trigger")
    listener = read_trigger(name, rev, trigger, resolver, report, file) if trigger is not None and name else None
    if block is None or report.failed:
        return None
    workflow = Workflow(name=block.name, rev=rev, definition=definition)
    return WorkflowEntry(
        workflow=workflow, trigger=listener[0] if listener else None, spec=listener[1] if listener else None
    )


def workflow_name(node: Node) -> str:
    """Return the name in a workflow file, or an empty text."""
    found = node.items.get("name") if isinstance(node, Table) else None
    return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else ""


def _definition(node: Table) -> dict[str, Any]:
    """Return the part of the file that runs need, with references in place of secrets."""
    found = {key: to_storable(value) for key, value in node.items.items() if key in ("steps", "inputs", "outputs")}
    return {key: value for key, value in found.items() if value is not None}


def _check_steps(node: Table, checker: Checker | None, report: Report) -> None:
    parts = {key: to_plain(value) for key, value in node.items.items() if key in ("steps", "inputs", "outputs")}
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
        report.error(locate(node, path), path, flaw.message, flaw.suggestion, "step", flaw.excerpt)
    known = {tuple(flaw.path) for flaw in flaws}
    for path, url in _urls_with_secrets(node.items["steps"], ("steps",)):
        if path not in known:
            _check_host(url, report, path)


def _urls_with_secrets(node: Node, path: Path) -> Iterator[tuple[Path, Scalar]]:
    """Yield the url of each http step that sends a secret of the configuration, with its path."""
    if isinstance(node, Items):
        for at, inner in enumerate(node.items):
            yield from _urls_with_secrets(inner, (*path, at))
    if not isinstance(node, Table):
        return
    action, url = (node.items.get("action") or node.items.get("type")), node.items.get("url")
    if isinstance(action, Scalar) and action.value == "http" and isinstance(url, Scalar):
        if _has_secret(node):
            yield (*path, "url"), url
        return
    for key, inner in node.items.items():
        yield from _urls_with_secrets(inner, (*path, key))


def _check_host(url: Scalar, report: Report, path: Path) -> None:
    from harken.run.urls import UNNAMED_HOST, UNNAMED_HOST_FIX, names_host

    if isinstance(url.value, str) and not names_host(url.value):
        report.error(url.place, path, UNNAMED_HOST, UNNAMED_HOST_FIX, "step")


def _has_secret(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.shown is not None
    return any(map(_has_secret, node.items.values() if isinstance(node, Table) else node.items))


def _check_accounts(node: Table, resolver: Resolver, report: Report) -> None:
    steps = node.items.get("steps")
    for path, name in used_integrations(to_plain(steps)) if steps is not None else ():
        resolver.require(name, locate(node, path), report, path)


def used_integrations(steps: Any, path: Path = ("steps",)) -> Iterator[tuple[Path, str]]:
    """Yield the integration that each step names, with its path."""
    for at, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, list):
            yield from used_integrations(step, (*path, at))
        elif isinstance(step, Mapping):
            yield from _used_by_step(step, (*path, at))


def _used_by_step(step: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
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
                yield from used_integrations(block, (*path, name, case))
        else:
            yield from used_integrations(inner, (*path, name))


def check_prices(trigger: Trigger | None, definition: Any, models: Models, node: Node, report: Report) -> None:
    """Warn of every model without a price, if the trigger has a budget in dollars."""
    if trigger is None or trigger.budget is None or trigger.budget.usd_per_day is None:
        return
    for model in sorted(set(models_without_price(definition, models))):
        message, fix = f"{model} has no price, so it counts as 0", f"Add it under models.prices: {model}"
        report.warn(locate(node, _USD_PATH, key=True), _USD_PATH, message, fix, "no_price")


def models_without_price(definition: Any, models: Models) -> Iterator[str]:
    """Yield the models of llm steps that have no price. Models that a template names are not known yet."""
    for name in _named_models(definition):
        model = getattr(models, name or "default", None) if ":" not in name else name
        model = str(model or models.default or name)
        if "{{" not in model and model != "echo" and not {name or "default", model} & set(models.prices):
            yield model


def _named_models(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "llm" in (value.get("action"), value.get("type")):
            yield str(value.get("model") or "")
        for inner in value.values():
            yield from _named_models(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named_models(inner)


def find_clashes(
    claims: Mapping[str, Sequence[Place]], entries: Mapping[str, WorkflowEntry]
) -> Iterator[tuple[str, Report]]:
    """Yield the workflows and jobs that share a name or a webhook path, with a report that names the others.

    `claims` has every place where a name is given; `entries` are the valid workflows.
    """
    for name, places in claims.items():
        if len(places) > 1:
            yield name, _clash_report(f"the name {name} is taken", places, places)
    by_path: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if entry.spec is not None and entry.spec.feed.path and len(claims[name]) == 1:
            by_path.setdefault(entry.spec.feed.path, []).append(name)
    for path, names in by_path.items():
        places = [claims[name][0] for name in names]
        for name in names if len(names) > 1 else ():
            yield name, _clash_report(f"the webhook {path} is taken", claims[name][:1], places)


def _clash_report(what: str, own: Sequence[Place], places: Sequence[Place]) -> Report:
    report = Report()
    for place in own:
        others = other_places(place, sorted(places, key=lambda at: (at.file, at.line)))
        report.error(place, ("name",), f"{what} by {others} as well", f"Change it in {place.file} or there", "clash")
    return report
