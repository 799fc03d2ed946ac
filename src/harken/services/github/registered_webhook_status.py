"""Webhooks as GitHub has them registered: those of a repository, of its organization, and that of an app.

https://docs.github.com/en/rest/repos/webhooks
https://docs.github.com/en/rest/apps/webhooks
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.url_without_secrets import bare_address
from harken.kit.values_from_payload import list_of, text_of, whole_number
from harken.ticket import Topic, Webhook

__all__ = ["webhook_of", "webhook_of_app"]

_NEVER_SENT = "unused"
_EVENTS: Mapping[Topic, str] = {"new tickets": "issues", "changes": "issues", "comments": "issue_comment"}


def webhook_of(hook: Any) -> Webhook:
    """GitHub switches no webhook off by itself, and sends nothing twice: the last answer is all that tells."""
    events = list_of(hook.get("events")) if isinstance(hook, Mapping) else []
    url, tells = bare_address(text_of(hook, "config.url")), _tells(events)
    if not isinstance(hook, Mapping) or hook.get("active") is not True:
        return Webhook(url=url, state="disabled", tells=tells)
    last = hook.get("last_response")
    code = whole_number(last.get("code")) if isinstance(last, Mapping) else None
    status = text_of(hook, "last_response.status")
    if (code is None or 200 <= code < 300) and status in (None, "", _NEVER_SENT, "active"):
        return Webhook(url=url, tells=tells)
    answered = f"the last delivery was answered {code}" if code else f"the last delivery failed ({status})"
    return Webhook(url=url, state="failing", reason=answered, tells=tells)


def webhook_of_app(config: Any, app: Mapping[str, Any]) -> Webhook:
    """The one webhook of an app, which is sent for every repository that it is installed for.

    GitHub does not tell how its deliveries were answered."""
    return Webhook(url=bare_address(text_of(config, "url")), tells=_tells(list_of(app.get("events"))))


def _tells(events: list[Any]) -> tuple[Topic, ...]:
    return tuple(topic for topic, event in _EVENTS.items() if event in events or "*" in events)
