"""Webhooks of GitLab that start runs: of a project, a group or the whole server.

https://docs.gitlab.com/user/project/integrations/webhook_events/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from harken.event import Event
from harken.kit.standard_webhooks import SIGNING_TOKEN, check_standard_webhook, signed_headers
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Sent, make_receiver, make_sample
from harken.kit.webhook_signatures import check_token
from harken.source import Request

__all__ = ["receiver", "sample"]

_ISSUES = ("issue", "work_item")
# what a comment is about
_NOTED = {"issue": "#", "merge_request": "!"}


def verify(request: Request, secret: str) -> None:
    """A secret that begins with whsec_ is a signing token: the plain X-Gitlab-Token is then no proof."""
    if secret.startswith(SIGNING_TOKEN):
        check_standard_webhook(request, secret, request.received_at)
    else:
        check_token(request, "x-gitlab-token", secret)


def translate(sent: Sent) -> list[Event]:
    kind = text_of(sent.data, "object_kind") or text_of(sent.data, "event_name") or ""
    type = ".".join(part for part in ("gitlab", kind, text_of(sent.data, "object_attributes.action")) if part)
    # X-Gitlab-Event-UUID is no key: what a webhook's receiver does through the API is told with the same one
    key = sent.header("webhook-id") or sent.header("idempotency-key") or sent.digest
    return [sent.event(type=type, key=key, subject=_subject(sent.data, kind), at=_time(sent.data, kind))]


def _subject(data: Mapping[str, Any], kind: str) -> str:
    where = text_of(data, "project.path_with_namespace") or text_of(data, "group.full_path") or ""
    number = text_of(data, "object_attributes.iid")
    if number and (kind in _ISSUES or kind == "merge_request"):
        return f"{where}{'!' if kind == 'merge_request' else '#'}{number}"
    for about, sign in _NOTED.items():
        if kind == "note" and (number := text_of(data, f"{about}.iid")):
            return f"{where}{sign}{number}"
    if id := text_of(data, "object_attributes.id") or text_of(data, "build_id"):
        return f"{where}/{kind}/{id}"
    ref = text_of(data, "ref")
    return f"{where}@{ref}" if ref else f"{where}/{kind}" if where else ""


def _time(data: Mapping[str, Any], kind: str) -> datetime | None:
    if kind == "note":
        found = text_of(data, "object_attributes.created_at")
    elif kind in (*_ISSUES, "merge_request") and text_of(data, "object_attributes.action"):
        found = text_of(data, "object_attributes.updated_at")
    else:
        found = None
    # old servers and comments have `2015-05-17 17:06:40 UTC`
    return instant(found.replace(" UTC", "Z")) if found else None


receiver = make_receiver(verify, translate)


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    if secret.startswith(SIGNING_TOKEN):
        return signed_headers(secret, body, now)
    return {"X-Gitlab-Token": "$SECRET", "Idempotency-Key": "$ID"}


sample = make_sample(
    {
        "object_kind": "issue",
        "project": {"path_with_namespace": "harken/sample"},
        "object_attributes": {"iid": 1, "action": "open", "title": "A sample"},
    },
    _sign,
)
