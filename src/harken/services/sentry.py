"""Sentry: the webhooks of an internal or public integration.

https://docs.sentry.io/integrations/integration-platform/webhooks/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import ReceiverQuery, Sent, make_receiver, make_sample
from harken.kit.webhook_signatures import check_hex_signature, hex_signature
from harken.source import Plugin, Request

__all__ = ["plugin"]

_IDS = ("issue.id", "event.issue_id", "error.issue_id", "issue_id", "metric_alert.id", "installation.uuid")


def verify(request: Request, secret: str) -> None:
    check_hex_signature(request, "sentry-hook-signature", secret)


def translate(sent: Sent) -> list[Event]:
    resource, action = sent.header("sentry-hook-resource"), text_of(sent.data, "action")
    type = ".".join(part for part in ("sentry", resource, action) if part)
    ids = (text_of(sent.data, f"data.{path}") for path in _IDS)
    subject = next((id for id in ids if id), "")
    key = sent.header("request-id") or sent.digest
    return [sent.event(type=type, key=key, subject=subject, at=instant(sent.header("sentry-hook-timestamp")))]


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    named = {"Sentry-Hook-Resource": "issue", "Request-ID": "$ID"}
    return {**named, "Sentry-Hook-Signature": hex_signature(secret, body)}


sample = make_sample({"action": "created", "data": {"issue": {"id": "1", "title": "A sample"}}}, _sign)


plugin = Plugin(
    kind="sentry",
    summary="Issues, alerts and errors of Sentry",
    docs="reference/services/sentry.md",
    webhook_query=ReceiverQuery,
    webhook=make_receiver(verify, translate),
    webhook_sample=sample,
    identity="change",
    first="deliver",
)
