"""Webhooks as Jira has them registered by its administrators.

https://developer.atlassian.com/cloud/jira/platform/webhooks/ and, since Jira 10 of Data Center,
https://developer.atlassian.com/server/jira/platform/webhooks/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.url_without_secrets import bare_address
from harken.kit.values_from_payload import list_of
from harken.ticket import Topic, Webhook

__all__ = ["PATHS", "webhook_of"]

PATHS = ("/rest/webhooks/1.0/webhook", "/rest/jira-webhook/1.0/webhooks")
"""Of Cloud and servers up to 9, and of servers since 10."""

_EVENTS: Mapping[Topic, str] = {
    "new tickets": "jira:issue_created",
    "changes": "jira:issue_updated",
    "comments": "comment_created",
}


def webhook_of(hook: Any) -> Webhook:
    told = hook if isinstance(hook, Mapping) else {}
    events = list_of(told.get("events"))
    tells = tuple(topic for topic, event in _EVENTS.items() if event in events)
    off = told.get("enabled", told.get("active", True)) is False
    return Webhook(url=bare_address(told.get("url")), state="disabled" if off else "active", tells=tells)
