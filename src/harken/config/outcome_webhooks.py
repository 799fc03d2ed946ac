"""`outcome_webhooks:` in harken.yaml: programs elsewhere are told how runs and triggers fare, by signed webhooks.

Each is a trigger on the feed `harken` with a workflow of one step, so a webhook is a run: retried, and a dead letter if
nobody takes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from harken.config.feeds import internal_feed
from harken.config.findings import Report
from harken.config.loaded import MAIN, revision
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secret_values_to_mask import secrets_in_query
from harken.config.settings import OutcomeType, OutcomeWebhook
from harken.config.workflows import Checker, WorkflowEntry
from harken.config.yaml.nodes import Node, locate
from harken.feed import INTERNAL, Trigger
from harken.runs import Workflow

__all__ = ["CATALOGUE", "OUTCOME_WEBHOOKS", "compile_outcome_webhooks", "is_outcome_webhook"]

OUTCOME_WEBHOOKS = "outcome_webhooks"
PREFIX = "outcome_webhook/"
"""How their triggers and workflows begin; names in files have no slash."""

CATALOGUE: Mapping[OutcomeType, str] = {
    "run.failed": "run.failed",
    "run.recovered": "runs.recovered",
    "trigger.stale": "trigger.stale",
    "gap.found": "feed.gap",
    "dead.added": "run.dead",
}
"""What receivers are told, and the event of the feed `harken` that it is."""

FURTHER: Mapping[OutcomeType, tuple[str, ...]] = {"dead.added": ("event.dead",)}
"""Further events that are told by the same name."""

OTHERS = f'!has(event.trigger) || !event.trigger.startsWith("{PREFIX}")'
"""Their own failures start none of them: the next would fail as well."""
ATTEMPTS = 30


def is_outcome_webhook(name: str) -> bool:
    """Whether a trigger or workflow of this name is one of these."""
    return name.startswith(PREFIX)


def compile_outcome_webhooks(
    blocks: list[OutcomeWebhook], node: Node, resolver: Resolver, checker: Checker | None, report: Report
) -> dict[str, WorkflowEntry]:
    """The workflow and trigger of each, by name; none of them when one is wrong."""
    found: dict[str, WorkflowEntry] = {}
    for index, block in enumerate(blocks):
        if PREFIX + block.name in found:
            path = (OUTCOME_WEBHOOKS, index, "name")
            report.error(locate(node, path[1:]), path, f"there are two called {block.name!r}", "Rename one", "clash")
        _check_channel(block, index, node, resolver, report)
        # the address of a webhook is often a secret
        resolver.secrets |= secrets_in_query(block.to)
        found[PREFIX + block.name] = _entry(block, resolver.hide(block.to))
    for entry in found.values():
        for flaw in checker(entry.workflow.definition) if checker is not None else ():
            report.error(node.place, (OUTCOME_WEBHOOKS,), flaw.message, flaw.suggestion, "step")
    return {} if report.failed else found


def _check_channel(block: OutcomeWebhook, index: int, node: Node, resolver: Resolver, report: Report) -> None:
    path = (OUTCOME_WEBHOOKS, index, "channel")
    place = locate(node, path[1:])
    resolver.require(block.channel, place, report, path)
    account = resolver.accounts.get(block.channel)
    if account is not None and getattr(account.model, "format", "") != "standard_webhooks":
        fix = "Name an integration with kind: webhook, format: standard_webhooks and a secret"
        report.error(place, path, f"{block.channel} does not sign as receivers can verify", fix, "invalid")


def _entry(block: OutcomeWebhook, to: str) -> WorkflowEntry:
    name = PREFIX + block.name
    told = {own: each for each in block.types for own in (CATALOGUE[each], *FURTHER.get(each, ()))}
    type = _renaming(told)
    step = {
        "id": "tell",
        "action": "notify",
        "channel": block.channel,
        "to": to,
        "text": type,
        "data": {
            "type": type,
            "timestamp": "{{.trigger.occurred_at}}",
            "data": "{{.trigger.event}}",
        },
    }
    definition = {"steps": [step]}
    workflow = Workflow(name=name, rev=revision([name, definition]), definition=definition)
    trigger = Trigger(
        name=name,
        feed=INTERNAL,
        workflow=name,
        workflow_rev=workflow.rev,
        types=tuple(told),
        condition=OTHERS,
        max_attempts=ATTEMPTS,
        source=MAIN,
    )
    return WorkflowEntry(workflow=workflow, trigger=trigger, spec=FeedSpec(feed=internal_feed()))


def _renaming(told: Mapping[str, str]) -> str:
    """A template that says the type as receivers know it."""
    *others, last = told.items()
    branches = "".join(f'{{{{if eq .trigger.type "{own}"}}}}{shown}{{{{else}}}}' for own, shown in others)
    return branches + last[1] + "{{end}}" * len(others)
