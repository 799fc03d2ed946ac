"""Compile a poller job to workflows: one that delivers a message per event, and one that reports failures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from harken.config.accounts import plugin_of
from harken.config.agent_account_bindings import Agents
from harken.config.feeds import internal_feed
from harken.config.findings import Path, Report
from harken.config.loaded import item, revision
from harken.config.model_validation import Strict, check
from harken.config.pollers.schema import Outlet
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secret_values_to_mask import secrets_in_query
from harken.config.workflows import Checker, WorkflowEntry
from harken.config.yaml.nodes import Node, Table, locate
from harken.errors import HarkenError
from harken.event import Identity
from harken.feed import INTERNAL, Budget, Feed, First, Spacing, Trigger
from harken.language.message_placeholders import placeholders
from harken.runs import Workflow
from harken.source import Delivery, Plugin
from harken.suggest import suggest_fix

__all__ = ["DeliveryBlock", "JobConfig", "compile_job", "read_outlet"]

ATTEMPTS = 30
"""Attempts of a delivery; with their backoff they last for more than four hours."""

ALERTS = ("feed.opened", "feed.paused", "feed.recovered", "runs.held", "runs.dead", "runs.recovered")


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class DeliveryBlock(Strict):
    """Settings in `config:` of every kind of job: the message and its delivery."""

    message_template: str | None = None
    max_per_tick: int | None = Field(default=None, ge=1, le=1_000_000)
    dispatch_delay_ms: int | None = Field(default=None, ge=0, le=3_600_000)
    first: First | None = None
    identity: Identity | None = None
    deliver: Any = None


class OutletBlock(Strict):
    channel: str = Field(min_length=1)
    to: Annotated[str, BeforeValidator(_as_text)] = Field(min_length=1)
    template: str = ""


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """`config:` of a job: the query of its kind, the settings of every kind, and where messages go."""

    query: BaseModel | None
    delivery: DeliveryBlock
    outlet: Outlet


@dataclass(frozen=True, kw_only=True)
class CompiledJob:
    """The workflows with their triggers, the delivery first; `shown` are the effective settings."""

    entries: tuple[WorkflowEntry, ...]
    shown: dict[str, Any]


def read_outlet(
    node: Node, agent: str, agents: Agents, resolver: Resolver, report: Report, path: Path
) -> Outlet | None:
    """Return where messages go: with the agent's account of the channel's kind, or with the integration that it names.

    Without an agent there is no account: only the block itself is checked.
    """
    block = check(OutletBlock, node, report, path)
    if block is None:
        return None
    place = locate(node, ("channel",))
    kind = resolver.kinds().get(block.channel, block.channel)
    plugin = plugin_of(kind, resolver.plugins)
    if plugin is None and item("integration", block.channel) in resolver.refused:
        report.error(
            place, (*path, "channel"), f"the integration {block.channel} was refused", "Correct it first", "depends"
        )
        return None
    if plugin is not None and plugin.destination is not None:
        resolver.check_recipient(block.channel, block.to, locate(node, ("to",)), report, (*path, "to"))
    if plugin is None or plugin.destination is None:
        known = [name for name, found in resolver.plugins.items() if found.destination is not None]
        message = f"{block.channel!r} cannot deliver messages"
        report.error(place, (*path, "channel"), message, suggest_fix(block.channel, known), "unknown_name")
        return None
    if not agent:
        return None
    if block.channel in resolver.accounts and block.channel != plugin.kind:
        account = agents.chosen_account(agent, block.channel, kind, resolver, place, report, (*path, "channel"))
    else:
        account = agents.account(agent, plugin, resolver, place, report, (*path, "channel"))
    if account is None:
        return None
    # the address of a webhook is often a secret
    resolver.secrets |= secrets_in_query(block.to)
    to, template = resolver.hide(block.to), resolver.hide(block.template)
    return Outlet(channel=block.channel, integration=account.name, to=to, template=template)


def compile_job(
    name: str,
    feed: Feed,
    config: JobConfig,
    failure: Outlet | None,
    *,
    plugin: Plugin,
    table: Table,
    resolver: Resolver,
    checker: Checker | None,
    report: Report,
) -> CompiledJob:
    """Compile a job to the same values as a workflow file, with references in place of secrets."""
    query, written = config.query, config.delivery
    default = _default_delivery(plugin, query, feed, report, table)
    template = resolver.hide(default.template if written.message_template is None else written.message_template)
    per_tick = written.max_per_tick or int(getattr(query, "max_per_tick", 0) or default.max_per_tick)
    delay = default.dispatch_delay_ms if written.dispatch_delay_ms is None else written.dispatch_delay_ms
    steps = [*resolver.hide(default.before), _delivery_step(config.outlet, template), *resolver.hide(default.after)]
    _check_message(written.message_template, default, table, report)
    workflow = _workflow(name, steps)
    _check_steps(workflow, checker, table, report)
    trigger = Trigger(
        name=name,
        feed=feed.name,
        workflow=name,
        workflow_rev=workflow.rev,
        condition=default.condition,
        spacing=Spacing(per_tick=per_tick, delay=delay / 1_000),
        flood_limit=0,
        max_attempts=ATTEMPTS,
        budget=Budget(tokens_per_day=default.tokens_per_day) if default.tokens_per_day else None,
        source=table.place.file,
    )
    entries = [WorkflowEntry(workflow=workflow, trigger=trigger)]
    if failure is not None:
        entries.append(_alert_entry(name, feed, failure, table.place.file))
    shown = {"message_template": template, "max_per_tick": per_tick, "dispatch_delay_ms": delay, "first": feed.first}
    shown["identity"] = feed.identity
    return CompiledJob(entries=tuple(entries), shown=shown)


def _check_message(template: str | None, default: Delivery, table: Table, report: Report) -> None:
    """Report an empty message, and warn of placeholders that no event of the kind has."""
    path: Path = ("config", "message_template")
    place = locate(table, path)
    if template is not None and not template.strip():
        report.error(place, path, "the messages would be empty", "Leave it out for the message of the kind")
    known = default.fields | {str(step["id"]) for step in default.before if "id" in step}
    for name in placeholders(template or "") if default.fields else ():
        if name.partition(".")[0] not in known:
            message = f"no event of this kind has {{{name}}}, so it stays as it is in the message"
            report.warn(place, path, message, suggest_fix(name, known), "unknown_name")


def _default_delivery(plugin: Plugin, query: BaseModel | None, feed: Feed, report: Report, table: Table) -> Delivery:
    if plugin.delivery is None:
        return Delivery()
    try:
        return plugin.delivery(query, feed.integration)
    except HarkenError as error:
        report.error(locate(table, ("config",)), ("config",), error.message, error.fix)
        return Delivery()


def _delivery_step(outlet: Outlet, template: str) -> dict[str, Any]:
    return {
        "id": "deliver",
        "action": "notify",
        "channel": outlet.integration,
        "to": outlet.to,
        "text": template,
        "placeholders": "fields",
        # nested in `event`, so that no field is mistaken for a setting of the destination
        "data": {"event": "{{.trigger.event}}", **_template(outlet)},
    }


def _template(outlet: Outlet) -> dict[str, str]:
    return {"template": outlet.template} if outlet.template else {}


def _alert_entry(name: str, feed: Feed, outlet: Outlet, source: str) -> WorkflowEntry:
    step = {"id": "alert", "action": "notify", "channel": outlet.integration, "to": outlet.to}
    workflow = _workflow(f"{name}/alert", [{**step, "text": "{{.trigger.event.text}}", "data": _template(outlet)}])
    trigger = Trigger(
        name=workflow.name,
        feed=INTERNAL,
        workflow=workflow.name,
        workflow_rev=workflow.rev,
        types=ALERTS,
        # JSON and CEL quote strings alike
        condition=f"event.feed == {json.dumps(feed.name)} && event.alert",
        max_attempts=ATTEMPTS,
        source=source,
    )
    return WorkflowEntry(workflow=workflow, trigger=trigger, spec=FeedSpec(feed=internal_feed()))


def _workflow(name: str, steps: list[dict[str, Any]]) -> Workflow:
    definition = {"steps": steps}
    return Workflow(name=name, rev=revision([name, definition]), definition=definition)


def _check_steps(workflow: Workflow, checker: Checker | None, table: Table, report: Report) -> None:
    """Check the steps that the kind adds like those of a workflow file."""
    for flaw in checker(workflow.definition) if checker is not None else ():
        report.error(table.place, ("config",), flaw.message, flaw.suggestion, "step")
