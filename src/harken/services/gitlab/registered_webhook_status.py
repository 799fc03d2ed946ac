"""Webhooks as GitLab has them registered for a project.

After four failures in a row GitLab sends nothing for a minute, then longer, up to a day; after forty nothing any more.
A test that is answered with success ends both.
https://docs.gitlab.com/api/project_webhooks/ · https://docs.gitlab.com/user/project/integrations/webhooks/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.url_without_secrets import bare_address
from harken.kit.values_from_payload import text_of
from harken.ticket import Topic, Webhook

__all__ = ["webhook_of"]

_FLAGS: Mapping[Topic, str] = {"new tickets": "issues_events", "changes": "issues_events", "comments": "note_events"}


def webhook_of(hook: Any) -> Webhook:
    told = hook if isinstance(hook, Mapping) else {}
    tells = tuple(topic for topic, flag in _FLAGS.items() if told.get(flag) is True)
    url, id, status = bare_address(told.get("url")), text_of(told, "id") or "", text_of(told, "alert_status")
    if status == "temporarily_disabled":
        until = text_of(told, "disabled_until")
        reason = f"GitLab sends nothing until {until}" if until else "GitLab sends nothing for a while"
        return Webhook(url=url, id=id, state="probation", reason=f"{reason}, as deliveries have failed", tells=tells)
    if status == "disabled":
        return Webhook(url=url, id=id, state="disabled", reason="too many deliveries have failed", tells=tells)
    return Webhook(url=url, id=id, tells=tells)
