"""Webhooks of GitHub that start runs: any event of a repository, an organization or an app.

https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Sent, make_receiver, make_sample
from harken.kit.webhook_signatures import check_hub_signature, hex_signature
from harken.source import Request

__all__ = ["receiver", "sample"]

# what has a number in its repository, and what has only an id
_NUMBERED = ("issue", "pull_request", "discussion")
_WITH_ID = ("workflow_run", "workflow_job", "check_run", "check_suite", "deployment", "release", "milestone", "alert")
# these change the time of what they happen to; others may show an old one
_TIMED = frozenset(
    ("opened", "closed", "reopened", "edited", "labeled", "unlabeled", "assigned", "unassigned", "synchronize")
)


def verify(request: Request, secret: str) -> None:
    check_hub_signature(request, "x-hub-signature-256", secret)


def translate(sent: Sent) -> list[Event]:
    """The event; none of a ping, which GitHub sends when a webhook is registered."""
    name, action = sent.header("x-github-event"), text_of(sent.data, "action")
    if name == "ping":
        return []
    type = ".".join(part for part in ("github", name, action) if part)
    # the same for every attempt to deliver it
    key = sent.header("x-github-delivery") or sent.digest
    return [sent.event(type=type, key=key, subject=_subject(sent.data, name), at=_time(sent.data, action))]


def _subject(data: Mapping[str, Any], name: str) -> str:
    where = text_of(data, "repository.full_name") or text_of(data, "organization.login") or ""
    for about in _NUMBERED:
        if number := text_of(data, f"{about}.number"):
            return f"{where}#{number}"
    for about in _WITH_ID:
        if id := text_of(data, f"{about}.id") or text_of(data, f"{about}.number"):
            return f"{where}/{about}/{id}"
    ref = text_of(data, "ref")
    return f"{where}@{ref}" if ref else f"{where}/{name}" if where else ""


def _time(data: Mapping[str, Any], action: str | None) -> datetime | None:
    if action == "created":
        return instant(text_of(data, "comment.created_at"))
    found = [text_of(data, f"{about}.updated_at") for about in _NUMBERED] if action in _TIMED else []
    return next((at for text in found if text and (at := instant(text))), None)


receiver = make_receiver(verify, translate, form_field="payload")


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    named = {"X-GitHub-Event": "issues", "X-GitHub-Delivery": "$ID"}
    return {**named, "X-Hub-Signature-256": f"sha256={hex_signature(secret, body)}"}


sample = make_sample(
    {"action": "opened", "issue": {"number": 1, "title": "A sample"}, "repository": {"full_name": "harken/sample"}},
    _sign,
)
