"""Subscriptions of service hooks as Azure DevOps has them: one for each kind of event.

A delivery that fails puts a subscription on probation, and what happens meanwhile is lost.
https://learn.microsoft.com/en-us/rest/api/azure/devops/hooks/subscriptions/list
https://learn.microsoft.com/en-us/azure/devops/service-hooks/troubleshoot
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.url_without_secrets import bare_address
from harken.kit.values_from_payload import folded_text, text_of
from harken.ticket import Topic, Webhook

__all__ = ["is_of_project", "webhook_of"]

_TELLS: Mapping[str, Topic] = {
    "workitem.created": "new tickets",
    "workitem.updated": "changes",
    "workitem.commented": "comments",
}
_REASONS = {
    "disabledbyuser": "somebody has switched it off",
    "disabledbysystem": "Azure DevOps has switched it off, as deliveries have failed",
    "disabledbyinactiveidentity": "whoever made it has no access any more",
}


def webhook_of(subscription: Any) -> Webhook | None:
    """None for a subscription that tells nothing about work items, or leads to no address."""
    topic = _TELLS.get(folded_text(subscription, "eventType"))
    url = bare_address(text_of(subscription, "consumerInputs.url"))
    if topic is None or not url:
        return None
    tells = (topic,)
    status = folded_text(subscription, "status")
    if status == "enabled":
        return Webhook(url=url, tells=tells)
    if status == "onprobation":
        reason = "a delivery has failed, and Azure DevOps sends nothing until a try succeeds"
        return Webhook(url=url, state="probation", reason=reason, tells=tells)
    return Webhook(url=url, state="disabled", reason=_REASONS.get(status, status), tells=tells)


def is_of_project(subscription: Any, project: str) -> bool:
    """Whether it is of the project with this id, or of all. An empty id: that is not known, and any may be."""
    of = folded_text(subscription, "publisherInputs.projectId")
    return not of or not project or of == project.casefold()
