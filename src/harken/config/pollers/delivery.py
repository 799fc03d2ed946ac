"""What a job does with what it finds: the workflow that delivers a message, and the one that tells of failures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from harken.config.accounts import plugin_of
from harken.config.agents import Agents
from harken.config.feeds import internal_feed, written_secrets
from harken.config.findings import Path, Report
from harken.config.loaded import item, revision
from harken.config.pollers.schema import Outlet
from harken.config.resolver import Made, Resolver
from harken.config.validate import Strict, check
from harken.config.workflows import Checker, Entry
from harken.config.yaml.nodes import Node, Table, locate
from harken.errors import HarkenError
from harken.event import Identity
from harken.feed import INTERNAL, Budget, Feed, First, Spacing, Trigger
from harken.runs import Workflow
from harken.source import Delivery, Plugin
from harken.suggest import suggest_fix

__all__ = ["ALERTS", "ATTEMPTS", "Delivering", "Whole", "deliveries", "read_outlet"]

ATTEMPTS = 30
"""Tries of a delivery; with their pauses they last for more than four hours."""

ALERTS = ("feed.opened", "feed.paused", "feed.recovered")


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Delivering(Strict):
    """What the config of every kind of job may say about its messages."""

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
class Whole:
    """The workflows with their triggers, the job's own first; `shown` are the settings they run with."""

    entries: tuple[Entry, ...]
    shown: dict[str, Any]


def read_outlet(node: Node, agent: str, agents: Agents, around: Resolver, report: Report, path: Path) -> Outlet | None:
    """Return where messages go: through the account of that kind that the agent is bound to, or one by its name.

    Without an agent there is no account, and only what is written can be checked.
    """
    block = check(OutletBlock, node, report, path)
    if block is None:
        return None
    place = locate(node, ("channel",))
    kind = around.kinds().get(block.channel, block.channel)
    plugin = plugin_of(kind, around.plugins)
    if plugin is None and item("integration", block.channel) in around.refused:
        report.error(
            place, (*path, "channel"), f"the integration {block.channel} was refused", "Correct it first", "depends"
        )
        return None
    if plugin is None or plugin.destination is None:
        known = [name for name, found in around.plugins.items() if found.destination is not None]
        message = f"{block.channel!r} cannot deliver messages"
        report.error(place, (*path, "channel"), message, suggest_fix(block.channel, known), "unknown_name")
        return None
    if not agent:
        return None
    if block.channel in around.accounts and block.channel != plugin.kind:
        account = agents.chosen(agent, block.channel, kind, around, place, report, (*path, "channel"))
    else:
        account = agents.account(agent, plugin, around, place, report, (*path, "channel"))
    if account is None:
        return None
    # the address of a webhook is often a secret in itself
    around.secrets |= written_secrets(block.to)
    to, template = around.hide(block.to), around.hide(block.template)
    return Outlet(channel=block.channel, integration=account.name, to=to, template=template)


def deliveries(
    name: str,
    feed: Feed,
    plugin: Plugin,
    query: BaseModel | None,
    common: Delivering,
    outlet: Outlet,
    failure: Outlet | None,
    table: Table,
    around: Resolver,
    checker: Checker | None,
    report: Report,
) -> Whole:
    """Compile a job to the same values that a workflow file gives, with references in place of secrets."""
    asked = _asked(plugin, query, feed, report, table)
    template = around.hide(asked.template if common.message_template is None else common.message_template)
    per_tick = common.max_per_tick or int(getattr(query, "max_per_tick", 0) or asked.max_per_tick)
    delay = asked.dispatch_delay_ms if common.dispatch_delay_ms is None else common.dispatch_delay_ms
    steps = [*around.hide(asked.before), _message(outlet, template), *around.hide(asked.after)]
    workflow = _workflow(name, steps)
    _check(workflow, checker, table, report)
    trigger = Trigger(
        name=name,
        feed=feed.name,
        workflow=name,
        workflow_rev=workflow.rev,
        condition=asked.condition,
        spacing=Spacing(per_tick=per_tick, delay=delay / 1_000),
        flood_limit=0,
        max_attempts=ATTEMPTS,
        budget=Budget(tokens_per_day=asked.tokens_per_day) if asked.tokens_per_day else None,
        source=table.place.file,
    )
    entries = [Entry(workflow=workflow, trigger=trigger)]
    if failure is not None:
        entries.append(_alert(name, feed, failure, table.place.file))
    shown = {"message_template": template, "max_per_tick": per_tick, "dispatch_delay_ms": delay, "first": feed.first}
    shown["identity"] = feed.identity
    return Whole(entries=tuple(entries), shown=shown)


def _asked(plugin: Plugin, query: BaseModel | None, feed: Feed, report: Report, table: Table) -> Delivery:
    if plugin.delivery is None:
        return Delivery()
    try:
        return plugin.delivery(query, feed.integration)
    except HarkenError as error:
        report.error(locate(table, ("config",)), ("config",), error.message, error.fix)
        return Delivery()


def _message(outlet: Outlet, template: str) -> dict[str, Any]:
    return {
        "id": "deliver",
        "action": "notify",
        "channel": outlet.integration,
        "to": outlet.to,
        "text": template,
        "placeholders": "fields",
        # inside of `event`, where it cannot be taken for a setting of the destination
        "data": {"event": "{{.trigger.event}}", **_template(outlet)},
    }


def _template(outlet: Outlet) -> dict[str, str]:
    return {"template": outlet.template} if outlet.template else {}


def _alert(name: str, feed: Feed, outlet: Outlet, source: str) -> Entry:
    step = {"id": "alert", "action": "notify", "channel": outlet.integration, "to": outlet.to}
    workflow = _workflow(f"{name}/alert", [{**step, "text": "{{.trigger.event.text}}", "data": _template(outlet)}])
    trigger = Trigger(
        name=workflow.name,
        feed=INTERNAL,
        workflow=workflow.name,
        workflow_rev=workflow.rev,
        types=ALERTS,
        # json's quoting is also CEL's
        condition=f"event.feed == {json.dumps(feed.name)} && event.alert",
        max_attempts=ATTEMPTS,
        source=source,
    )
    return Entry(workflow=workflow, trigger=trigger, made=Made(feed=internal_feed()))


def _workflow(name: str, steps: list[dict[str, Any]]) -> Workflow:
    definition = {"steps": steps}
    return Workflow(name=name, rev=revision([name, definition]), definition=definition)


def _check(workflow: Workflow, checker: Checker | None, table: Table, report: Report) -> None:
    """The kind's own steps are checked like those of a person."""
    for flaw in checker(workflow.definition) if checker is not None else ():
        report.error(table.place, ("config",), flaw.message, flaw.suggestion, "step")
