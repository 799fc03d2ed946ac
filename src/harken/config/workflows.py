"""Workflow files: read one, check its steps, accounts and prices, and find names and webhook paths used twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from pydantic import Field

from harken.config.findings import Path, Place, Report, other_places
from harken.config.loaded import revision
from harken.config.model_validation import Strict, check
from harken.config.resolver import FeedSpec, Resolver
from harken.config.settings import Models
from harken.config.triggers import read_trigger
from harken.config.yaml.nodes import Items, Node, Scalar, Table, locate, to_plain, to_storable
from harken.errors import HarkenError
from harken.extras import how_to_install, is_missing
from harken.feed import Trigger
from harken.runs import Workflow
from harken.suggest import suggest_fix

__all__ = [
    "Checker",
    "StepProblem",
    "WorkflowEntry",
    "WorkflowFile",
    "check_models",
    "check_prices",
    "check_providers",
    "find_clashes",
    "read_workflow",
    "used_integrations",
    "workflow_name",
]

_USD_PATH: Path = ("trigger", "budget", "usd_per_day")
ECHO = "echo"
TIERS = ("default", "fast", "balanced", "strategic")
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
    share_with: Literal["viewer", "operator"] | None = None
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
    workflow = Workflow(
        name=block.name,
        rev=rev,
        definition=definition,
        share_with=block.share_with or "",
        description=block.description,
    )
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
    from harken.run.url_template import UNNAMED_HOST, UNNAMED_HOST_FIX, names_host

    if isinstance(url.value, str) and not names_host(url.value):
        report.error(url.place, path, UNNAMED_HOST, UNNAMED_HOST_FIX, "step")


def _has_secret(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.shown is not None
    return any(map(_has_secret, node.items.values() if isinstance(node, Table) else node.items))


def _check_accounts(node: Table, resolver: Resolver, report: Report) -> None:
    steps = to_plain(node.items["steps"]) if "steps" in node.items else None
    for path, name in used_integrations(steps):
        if path[-1] != "channel":
            resolver.require(name, locate(node, path), report, path)
    for path, step in _all_steps(steps):
        channel = _channel(step)
        if channel is not None and resolver.require_channel(channel, locate(node, (*path, "channel")), report, path):
            to: Path = (*path, "to")
            resolver.check_recipient(channel, step.get("to"), locate(node, to), report, to)


def used_integrations(steps: Any) -> Iterator[tuple[Path, str]]:
    """Yield the integration that each step names, with its path."""
    for path, step in _all_steps(steps):
        key = "action" if "action" in step else "type"
        action, channel = step.get(key), _channel(step)
        if isinstance(action, str) and "." in action:
            yield (*path, key), action.rpartition(".")[0]
        if channel is not None:
            yield (*path, "channel"), channel


def _channel(step: Mapping[str, Any]) -> str | None:
    """The channel of a notify step, unless a template names it."""
    action, channel = step.get("action", step.get("type")), step.get("channel")
    return channel if action == "notify" and isinstance(channel, str) and "{{" not in channel else None


def _all_steps(steps: Any, path: Path = ("steps",)) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield every step at any depth, with its path."""
    for at, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, list):
            yield from _all_steps(step, (*path, at))
        elif isinstance(step, Mapping):
            yield (*path, at), step
            for name in _NESTED:
                inner = step.get(name)
                blocks = inner.items() if isinstance(inner, Mapping) else ((None, inner),)
                for case, block in blocks:
                    yield from _all_steps(block, (*path, at, name) if case is None else (*path, at, name, case))


def check_models(steps: Any, node: Node, report: Report) -> None:
    """Report the models of llm steps that are neither a tier nor provider:model."""
    for path, name in _llm_steps(steps):
        if name not in ("", ECHO, *TIERS) and ":" not in name:
            fix = f"{suggest_fix(name, (*TIERS, ECHO))} Or write provider:model, such as openai:gpt-4o-mini"
            written: Path = (*path, "model")
            report.error(locate(node, written), written, f"there is no model {name!r}", fix, "unknown_name")


def check_providers(steps: Any, models: Models, node: Node, report: Report) -> None:
    """Report llm steps whose tier has no model, or whose model cannot be asked with what is installed here."""
    for path, name in _llm_steps(steps):
        place = locate(node, (*path, "model") if name else path)
        model = name if ":" in name or name == ECHO else getattr(models, name or "default", None) or models.default
        if model is None:
            fix = "Set models.default in harken.yaml, such as openai:gpt-4o-mini, or echo to try without a model"
            report.warn(place, path, f"no model is configured for {name or 'default'}", fix, "missing")
        elif model != ECHO:
            _check_provider(model, models, place, report, path)


def _check_provider(model: str, models: Models, place: Place, report: Report, path: Path) -> None:
    from harken.run.language_models import extra_of, is_provider

    provider = model.partition(":")[0]
    account = models.providers.get(provider)
    own_server = account is not None and account.base_url is not None
    extra = extra_of(provider, base_url=own_server)
    if is_missing(extra):
        message = f"{model} needs a library that is not installed (the extra {extra})"
        report.warn(place, path, message, how_to_install(extra), "not_installed")
    elif not own_server and not is_provider(provider):
        fix = f"Write provider:model, such as openai:gpt-4o-mini, or set models.providers.{provider}.base_url"
        report.error(place, path, f"{model} names no provider of models that is known", fix, "unknown_name")


def _llm_steps(steps: Any) -> Iterator[tuple[Path, str]]:
    """Yield the path of each llm step and the model that it names, unless a template names it."""
    for path, step in _all_steps(steps):
        name = step.get("model") or ""
        if "llm" in (step.get("action"), step.get("type")) and isinstance(name, str) and "{{" not in name:
            yield path, name


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
