"""`on_failure:` in harken.yaml: who is told of every trouble, by a message or by a workflow."""

from __future__ import annotations

from collections.abc import Mapping

from harken.config.feeds import internal_feed
from harken.config.findings import Report
from harken.config.loaded import MAIN, revision
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secret_values_to_mask import secrets_in_query
from harken.config.settings import OnFailure
from harken.config.workflows import Checker, WorkflowEntry
from harken.config.yaml.nodes import Node, locate
from harken.feed import INTERNAL, Trigger
from harken.runs import Workflow
from harken.suggest import suggest_fix

__all__ = ["ON_FAILURE", "compile_notify", "compile_trigger"]

ON_FAILURE = "on_failure"
"""The name of the trigger, and of the workflow that sends the message."""

TYPES = (
    "feed.opened",
    "feed.paused",
    "feed.recovered",
    "feed.gap",
    "event.dead",
    "runs.held",
    "runs.dead",
    "runs.recovered",
    "trigger.stale",
    "trigger.recovered",
    "ticket.label_fight",
)
ATTEMPTS = 30


def compile_notify(
    block: OnFailure, node: Node, resolver: Resolver, checker: Checker | None, report: Report
) -> WorkflowEntry | None:
    """The workflow that sends each alert as a message, with its trigger; None when there is no `notify`."""
    written = block.notify
    if written is None:
        return None
    path = (ON_FAILURE, "notify", "channel")
    resolver.require(written.channel, locate(node, path[1:]), report, path)
    # the address of a webhook is often a secret
    resolver.secrets |= secrets_in_query(written.to)
    step = {"id": "alert", "action": "notify", "channel": written.channel, "to": resolver.hide(written.to)}
    template = {"template": written.template} if written.template else {}
    definition = {"steps": [{**step, "text": "{{.trigger.event.text}}", "data": template}]}
    for flaw in checker(definition) if checker is not None else ():
        report.error(locate(node, path[1:]), path, flaw.message, flaw.suggestion, "step")
    workflow = Workflow(name=ON_FAILURE, rev=revision([ON_FAILURE, definition]), definition=definition)
    return WorkflowEntry(workflow=workflow, trigger=_trigger(workflow), spec=FeedSpec(feed=internal_feed()))


def compile_trigger(block: OnFailure, node: Node, workflows: Mapping[str, Workflow], report: Report) -> Trigger | None:
    """The trigger that starts the named workflow with each alert; None when there is no `workflow`."""
    if block.workflow is None:
        return None
    if block.workflow not in workflows:
        place, path = locate(node, ("workflow",)), (ON_FAILURE, "workflow")
        message = f"there is no workflow {block.workflow!r} that could be used"
        report.error(place, path, message, suggest_fix(block.workflow, workflows), "unknown_name")
        return None
    return _trigger(workflows[block.workflow])


def _trigger(workflow: Workflow) -> Trigger:
    return Trigger(
        name=ON_FAILURE,
        feed=INTERNAL,
        workflow=workflow.name,
        workflow_rev=workflow.rev,
        types=TYPES,
        condition="event.alert",
        max_attempts=ATTEMPTS,
        source=MAIN,
    )
