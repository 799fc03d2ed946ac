"""Webhooks of PagerDuty that start runs (version 3: webhook subscriptions).

https://developer.pagerduty.com/docs/webhooks-overview
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from harken.errors import Malformed
from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Sent, make_receiver, make_sample
from harken.kit.webhook_signatures import check_signature_list, hex_signature
from harken.source import Request

__all__ = ["receiver", "sample"]


def verify(request: Request, secret: str) -> None:
    check_signature_list(request, "x-pagerduty-signature", secret, prefix="v1=")


def translate(sent: Sent) -> list[Event]:
    """The event; none of the ping that the button of a subscription sends."""
    kind, key = text_of(sent.data, "event.event_type"), text_of(sent.data, "event.id")
    if not kind or not key:
        raise Malformed("there is no event with an id and a type in it: is it a webhook of version 3?")
    if kind.endswith(".ping"):
        return []
    at = instant(text_of(sent.data, "event.occurred_at"))
    # a note or a status update names its incident
    about = text_of(sent.data, "event.data.incident.id") or text_of(sent.data, "event.data.id")
    return [sent.event(type=f"pagerduty.{kind}", key=key, subject=about or "", at=at)]


receiver = make_receiver(verify, translate)


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    return {"X-PagerDuty-Signature": f"v1={hex_signature(secret, body)}"}


sample = make_sample(
    {"event": {"id": "$ID", "event_type": "incident.triggered", "data": {"id": "SAMPLE", "title": "A sample"}}}, _sign
)
